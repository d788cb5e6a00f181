"""Rules for values. Each answers the middle of a sentence: "<key> must be …, not <value>"."""

import re

from penstock.core.metadata.configs.definition import Check, ConfigValue

_THROTTLED = re.compile(r"\d{1,10}:\d{1,10}", re.ASCII)
_CODEC_DEFAULT = -1
_AUTO = -1
_DURATION = re.compile(
    r"by_duration:P(?=[\dT])(\d{1,9}D)?(T(?=\d)(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,9})?S)?)?", re.ASCII
)


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


def level(lowest: int, highest: int) -> Check:
    """A compression level: a range, or -1 where the codec has a default of its own."""

    def check(value: ConfigValue) -> str | None:
        assert isinstance(value, int)
        if lowest <= value <= highest or value == _CODEC_DEFAULT:
            return None
        return f"must lie between {lowest} and {highest}, or be {_CODEC_DEFAULT}"

    return check


def throttled_replicas(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    if value in ((), ("*",)) or all(_THROTTLED.fullmatch(item) for item in value):
        return None
    return "must be '*' or a list of partition:broker pairs"


def starting_point(value: ConfigValue) -> str | None:
    """Where a share group begins: an end of the log, or a duration before now."""
    if value in ("earliest", "latest") or (isinstance(value, str) and _DURATION.fullmatch(value)):
        return None
    return "must be earliest, latest or by_duration:<ISO 8601 duration>"
