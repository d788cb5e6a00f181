"""One option by its name, whatever its case."""

from collections.abc import Mapping, Sequence
from typing import overload

from penstock.pipeline.errors import BadOption

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@overload
def option(options: Mapping[str, str], name: str, default: str) -> str: ...
@overload
def option(options: Mapping[str, str], name: str, default: None = None) -> str | None: ...
def option(options: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """The value of an option, or `default` where it is not set."""
    value = options.get(name)
    if value is not None:
        return value
    wanted = name.lower()
    return next((value for key, value in options.items() if key.lower() == wanted), default)


@overload
def integer_option(options: Mapping[str, str], name: str, default: int, minimum: int = 0) -> int: ...
@overload
def integer_option(
    options: Mapping[str, str], name: str, default: None = None, minimum: int = 0
) -> int | None: ...
def integer_option(
    options: Mapping[str, str], name: str, default: int | None = None, minimum: int = 0
) -> int | None:
    """An option that is a whole number of at least `minimum`."""
    text = option(options, name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadOption(name, f"{text!r} is not a whole number") from None
    if value < minimum:
        raise BadOption(name, f"{value} is less than {minimum}")
    return value


def boolean_option(options: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false."""
    text = option(options, name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise BadOption(name, f"{text!r} is neither true nor false")
    return word in _TRUE


def choice_option(options: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    """An option that is one of a few words."""
    text = option(options, name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in choices:
        raise BadOption(name, f"{text!r} is none of {', '.join(choices)}")
    return word
