"""What a configuration key is: its type, default, rule and meaning."""

import enum
import math
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from penstock.core.values import dataclass

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# The longest string of Kafka's older messages: nothing that means something is as long.
VALUE_CHARS_MAX = 32_767
SHOWN_CHARS_MAX = 60
ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...]
# Returns what is wrong with a value, or None.
Check: TypeAlias = Callable[[ConfigValue], str | None]
_CODEC_DEFAULT = -1
_AUTO = -1
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII)


class InvalidConfigValue(ValueError):
    """A value that is stored, and that its key cannot have: written by another version, or a bug."""

    def __init__(self, key: str, value: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key
        self.value = value


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers that a key may have: `lowest` to `highest`, and perhaps one outside with a meaning."""

    lowest: float
    highest: float
    special: int | None = None

    def __call__(self, value: "ConfigValue") -> str | None:
        assert isinstance(value, int | float)
        # NaN fails both comparisons, which is as it should be.
        return None if self.lowest <= value <= self.highest or value == self.special else f"must {self}"

    def __str__(self) -> str:
        words = f"lie between {self.lowest} and {self.highest}"
        return words if self.special is None else f"{words}, or be {self.special}"

    def within(self, other: "NumberRange") -> "NumberRange":
        """What both allow."""
        return NumberRange(
            max(self.lowest, other.lowest), min(self.highest, other.highest), self.special or other.special
        )

    def nearest(self, value: float) -> float:
        """The number that is allowed and nearest to `value`: itself, if it is."""
        return value if value == self.special else min(max(value, self.lowest), self.highest)


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
        """The value in the unit of the key; as it is if it is no number at all."""
        if self.factor == 1:
            return text
        try:
            number = int(text)
        except ValueError:
            return text
        # -1 means "no limit" in hours, minutes and milliseconds alike.
        return text if number == -1 else str(number * self.factor)


_LIMITS = {
    ConfigType.SHORT: NumberRange(-INT16_MAX - 1, INT16_MAX),
    ConfigType.INT: NumberRange(-INT32_MAX - 1, INT32_MAX),
    ConfigType.LONG: NumberRange(-INT64_MAX - 1, INT64_MAX),
    ConfigType.DOUBLE: NumberRange(-math.inf, math.inf),
}


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One key. `default` is text, as a client would have set it; None is no value.

    `fixed` says why the key is shown and takes no other value than its default: what it is
    about does not exist here, or cannot be chosen. Every other key has an effect. The `check` of a
    number is its range, which lies within that of the type.
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

    def __post_init__(self) -> None:
        limits = _LIMITS.get(self.type)
        if limits is not None:
            bounds = self.check.within(limits) if isinstance(self.check, NumberRange) else limits
            object.__setattr__(self, "check", bounds)

    @property
    def range(self) -> NumberRange | None:
        """The numbers that are allowed; None if the key has no number."""
        return self.check if isinstance(self.check, NumberRange) else None

    def parse(self, text: str) -> ConfigValue:
        """The typed value; ValueError with a sentence that names the key if it is not allowed."""
        value = _READERS[self.type](self.name, text)
        complaint = None if self.check is None else self.check(value)
        if complaint is not None:
            raise ValueError(f"{self.name} {complaint}, not {shown(text)}")
        return value

    def nearest(self, text: str) -> ConfigValue:
        """Like `parse`, but a number out of range counts as the nearest that is allowed.

        For what is stored: another version may have had a wider range, and it has to be applied.
        """
        check = self.check
        if not isinstance(check, NumberRange):
            return self.parse(text)
        number = _READERS[self.type](self.name, text)
        assert isinstance(number, int | float)
        return check.nearest(number)

    def problem(self, text: str) -> str | None:
        """What is wrong with a value, as a sentence; None if nothing is."""
        if len(text) > VALUE_CHARS_MAX:
            return f"{self.name} must have at most {VALUE_CHARS_MAX} characters, not {len(text)}"
        try:
            value = self.parse(text)
        except ValueError as error:
            return str(error)
        if self.fixed is not None and (self.default is None or value != self.parse(self.default)):
            return f"{self.name} cannot be changed from {self.default!r} to {shown(text)}: {self.fixed}"
        return None


def shown(text: str) -> str:
    """A value in an error: what a client sends may be long."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…")


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
        raise ValueError(f"{name} must be true or false, not {shown(text)}")
    return lowered == "true"


def _whole_number(name: str, text: str) -> ConfigValue:
    digits = text.strip()
    plain = digits[1:] if digits[:1] in ("-", "+") else digits
    # int() would also take underscores and the digits of every script, at any length.
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 40):
        raise ValueError(f"{name} must be a whole number, not {shown(text)}")
    return int(digits)


def _double(name: str, text: str) -> ConfigValue:
    if _DECIMAL.fullmatch(text.strip()) is None:
        raise ValueError(f"{name} must be a number, not {shown(text)}")
    return float(text)


def _string(_name: str, text: str) -> ConfigValue:
    return text.strip()


def _list(_name: str, text: str) -> ConfigValue:
    return split_list(text)


_READERS: dict[ConfigType, Callable[[str, str], ConfigValue]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _whole_number,
    ConfigType.SHORT: _whole_number,
    ConfigType.LONG: _whole_number,
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.PASSWORD: _string,
}


def at_least(lowest: int) -> NumberRange:
    """A lower bound; the upper one is that of the type."""
    return NumberRange(lowest, math.inf)


def at_least_or_auto(lowest: int, highest: float = math.inf) -> NumberRange:
    """A lower bound, or -1 where the cluster chooses."""
    return NumberRange(lowest, highest, _AUTO)


def between(lowest: float, highest: float) -> NumberRange:
    return NumberRange(lowest, highest)


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


def level(lowest: int, highest: int) -> NumberRange:
    """A compression level: a range, or -1 where the codec has a default of its own."""
    return NumberRange(lowest, highest, _CODEC_DEFAULT)
