"""Rules for values. Each answers the middle of a sentence: "<key> must be …, not <value>"."""

from penstock.core.metadata.configs.definition import Check, ConfigValue

_CODEC_DEFAULT = -1
_AUTO = -1


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
