"""Reading a pipeline's file and what the command line sets beside it."""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from penstock.config.environment import expand
from penstock.pipeline.errors import BadOption
from penstock.pipeline.metrics.configuration.durations import Duration

FILE_BYTES_MAX = 1 << 20
Shape = TypeVar("Shape", bound=msgspec.Struct)
_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_ENUM = re.compile(r"^Invalid enum value (?P<value>.*)$")
_AT = re.compile(r"^(?P<what>.*?) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)


def load(
    shape: type[Shape],
    path: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Shape:
    """The file's values with the overrides above them; `BadOption` names the key that is wrong."""
    variables = os.environ if environment is None else environment
    values = _read(path, variables) if path else {}
    _refuse_unknown(shape, values, "", str(path))
    for key, text in (overrides or {}).items():
        _set(shape, values, key, text)
    try:
        return msgspec.convert(_with_truths(shape, values), shape, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        _refuse(shape, str(error), f" ({path})" if path else "")


def _read(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as error:
        raise BadOption("config", f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadOption("config", f"{path} is not UTF-8 text") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadOption("config", f"{path} is larger than {FILE_BYTES_MAX} bytes: not a configuration file")
    try:
        # The base loader leaves every scalar as text: what it means is for the setting's type to say.
        values = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or type(error).__name__
        raise BadOption("config", f"{path}{line} is not valid YAML: {why}") from None
    if values in (None, ""):
        return {}
    if not isinstance(values, dict):
        raise BadOption("config", f"{path} must hold `key: value` lines")
    expanded = _expanded(values, "", environment)
    assert isinstance(expanded, dict)
    return expanded


def _expanded(value: Any, key: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        below = {
            name: _expanded(part, f"{key}.{name}".lstrip("."), environment) for name, part in value.items()
        }
        # `lake:` with nothing below it says nothing.
        return {name: part for name, part in below.items() if part != ""}
    if isinstance(value, list):
        return [_expanded(part, key, environment) for part in value]
    try:
        return expand(value, environment)
    except KeyError as missing:
        raise BadOption(key, f"needs the environment variable {missing.args[0]}") from None


def _sections(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _refuse_unknown(shape: Any, values: Any, prefix: str, source: str) -> None:
    if not isinstance(values, dict):
        return
    kinds = _sections(shape)
    for name, value in values.items():
        if name not in kinds:
            raise BadOption(f"{prefix}{name}", f"unknown key ({source}){_near(name, kinds)}")
        if _is_section(kinds[name]):
            _refuse_unknown(kinds[name], value, f"{prefix}{name}.", source)


def _with_truths(shape: Any, values: Any) -> Any:
    """The same values with `yes` and `off` in a form that a truth value is converted from."""
    if shape is bool:
        return _TRUTH.get(str(values).lower(), values)
    if not isinstance(values, dict) or not _is_section(shape):
        return values
    kinds = _sections(shape)
    return {name: _with_truths(kinds[name], value) for name, value in values.items()}


def _set(shape: Any, values: dict[str, Any], key: str, text: str) -> None:
    """Put one `topics.inbound=...` where the file would have had it."""
    *sections, last = _parts(shape, key)
    for name in sections:
        below = values.setdefault(name, {})
        if not isinstance(below, dict):
            raise BadOption(key, f"{name} is not a section")
        values = below
        shape = _sections(shape)[name]
    kind = _sections(shape)[last] if _is_section(shape) else str
    values[last] = [part.strip() for part in text.split(",") if part.strip()] if _is_list(kind) else text


def _parts(shape: Any, key: str) -> Iterator[str]:
    """The key's steps down; below a free mapping such as `kafka` everything left is one name."""
    rest = key
    while True:
        kinds = _sections(shape)
        name, dot, rest = rest.partition(".")
        if name not in kinds:
            raise BadOption(key, f"unknown key{_near(name, kinds)}")
        has_more = _is_section(kinds[name]) or get_origin(kinds[name]) is dict
        if has_more != bool(dot):
            raise BadOption(key, f"{name} {'has keys below it' if has_more else 'has no keys below it'}")
        yield name
        if not dot:
            return
        if not _is_section(kinds[name]):
            yield rest
            return
        shape = kinds[name]


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple or any(get_origin(part) is tuple for part in get_args(kind))


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _decode(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration.parse(str(value))
    # How msgspec is told that a type is none of ours.
    raise NotImplementedError(kind)


def _refuse(shape: Any, message: str, source: str) -> NoReturn:
    found = _AT.match(message)
    if found is None:
        raise BadOption("config", message.replace("`", "") + source) from None
    what = found["what"].replace("`", "")
    if wrong := _ENUM.match(what):
        what = f"{wrong['value']} is none of {', '.join(_choices(shape, found['path']))}"
    raise BadOption(found["path"], what[:1].lower() + what[1:] + source) from None


def _choices(shape: Any, path: str) -> tuple[str, ...]:
    """The words that a key can have; a list's are those of each of its parts."""
    for name in path.partition("[")[0].split("."):
        shape = _sections(shape)[name]
    return get_args(get_args(shape)[0]) if _is_list(shape) else get_args(shape)
