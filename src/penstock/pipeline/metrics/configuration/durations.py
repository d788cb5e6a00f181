"""Lengths of time as people write them: `10m`, `30s`, `500ms`, `1h30m`."""

import re

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")


class Duration(int):
    """A length of time in milliseconds.

    >>> Duration.parse("1h30m")
    Duration('1h30m')
    >>> Duration.parse("90s").seconds
    90
    """

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read `10m`; ValueError for what is no length of time."""
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"{text!r} is not a length of time, as 30s, 10m or 1h30m are")
        return cls(sum(int(number) * UNITS_MS[unit] for number, unit in parts))

    @property
    def seconds(self) -> int:
        return self // 1_000

    def __str__(self) -> str:
        """The shortest way to write it.

        >>> str(Duration(300_000))
        '5m'
        """
        left, parts = int(self), []
        for unit in ("d", "h", "m", "s", "ms"):
            number, left = divmod(left, UNITS_MS[unit])
            if number:
                parts.append(f"{number}{unit}")
        return "".join(parts) or "0s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"
