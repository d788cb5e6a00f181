"""What a configuration key is: its type, default, rule and meaning."""

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from penstock.core.values import dataclass

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...]
# Returns what is wrong with a value, or None.
Check: TypeAlias = Callable[[ConfigValue], str | None]
_CODEC_DEFAULT = -1
_AUTO = -1


class InvalidConfigValue(ValueError):
    """A value that is stored, and that its key cannot have: written by another version, or a bug."""

    def __init__(self, key: str, value: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key
        self.value = value


class ConfigType(enum.IntEnum):
    """How the text of a value is read; numbered as Kafka numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class DynamicUpdateMode(enum.Enum):
    """Whether a broker's setting can be changed while it runs, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigSynonym(NamedTuple):
    """Another key that gives a value when the key itself has none, times a factor."""

    name: str
    factor: int = 1

    def translated(self, text: str) -> str:
        # -1 means "no limit" in hours, minutes and milliseconds alike.
        return text if self.factor == 1 or int(text) == -1 else str(int(text) * self.factor)


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One key. `default` is text, as a client would have set it; None is no value.

    `fixed` says why the key is shown and takes no other value than its default: what it is
    about does not exist here, or cannot be chosen. Every other key has an effect.
    """

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    check: Check | None = None
    update: DynamicUpdateMode = DynamicUpdateMode.READ_ONLY
    synonyms: tuple[ConfigSynonym, ...] = ()
    fixed: str | None = None

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The typed value; ValueError with a sentence that names the key if it is not allowed."""
        value = _READERS[self.type](self.name, text)
        complaint = None if self.check is None else self.check(value)
        if complaint is not None:
            raise ValueError(f"{self.name} {complaint}, not {text!r}")
        return value

    def problem(self, text: str) -> str | None:
        """What is wrong with a value, as a sentence; None if nothing is."""
        try:
            value = self.parse(text)
        except ValueError as error:
            return str(error)
        if self.fixed is not None and (self.default is None or value != self.parse(self.default)):
            return f"{self.name} cannot be changed from {self.default!r} to {text!r}: {self.fixed}"
        return None


def by_name(*groups: Iterable[ConfigDefinition]) -> dict[str, ConfigDefinition]:
    """A table of definitions, sorted; a key that is defined twice is a bug."""
    everything = sorted((d for group in groups for d in group), key=lambda definition: definition.name)
    table = {definition.name: definition for definition in everything}
    assert len(table) == len(everything), "a key is defined twice"
    return table


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated value."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _boolean(name: str, text: str) -> ConfigValue:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return lowered == "true"


def _whole_number(limit: int) -> Callable[[str, str], ConfigValue]:
    def read(name: str, text: str) -> ConfigValue:
        digits = text.strip()
        plain = digits[1:] if digits[:1] in ("-", "+") else digits
        # int() would also take underscores and the digits of every script, at any length.
        if not (plain.isascii() and plain.isdigit() and len(plain) <= 40):
            raise ValueError(f"{name} must be a whole number, not {text[:40]!r}")
        if not -limit - 1 <= int(digits) <= limit:
            raise ValueError(f"{name} must lie between {-limit - 1} and {limit}, not {text!r}")
        return int(digits)

    return read


def _double(name: str, text: str) -> ConfigValue:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {text!r}") from None


def _string(_name: str, text: str) -> ConfigValue:
    return text.strip()


def _list(_name: str, text: str) -> ConfigValue:
    return split_list(text)


_READERS: dict[ConfigType, Callable[[str, str], ConfigValue]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _whole_number(INT32_MAX),
    ConfigType.SHORT: _whole_number(INT16_MAX),
    ConfigType.LONG: _whole_number(INT64_MAX),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.PASSWORD: _string,
}


def at_least(lowest: int) -> Check:
    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= lowest else f"must be at least {lowest}"

    return check


def at_least_or_auto(lowest: int) -> Check:
    """A lower bound, or -1 where the cluster chooses."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int)
        return None if value >= lowest or value == _AUTO else f"must be at least {lowest}, or be {_AUTO}"

    return check


def between(lowest: float, highest: float) -> Check:
    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        # NaN fails both comparisons, which is as it should be.
        return None if lowest <= value <= highest else f"must lie between {lowest} and {highest}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: ConfigValue) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def list_of(*allowed: str) -> Check:
    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        return None if all(item in allowed for item in value) else f"must be a list of {', '.join(allowed)}"

    return check


def some_of(*allowed: str) -> Check:
    """A list that is not empty."""

    def check(value: ConfigValue) -> str | None:
        is_list = isinstance(value, tuple) and value and all(item in allowed for item in value)
        return None if is_list else f"must be a list of at least one of {', '.join(allowed)}"

    return check


def level(lowest: int, highest: int) -> Check:
    """A compression level: a range, or -1 where the codec has a default of its own."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int)
        if lowest <= value <= highest or value == _CODEC_DEFAULT:
            return None
        return f"must lie between {lowest} and {highest}, or be {_CODEC_DEFAULT}"

    return check
