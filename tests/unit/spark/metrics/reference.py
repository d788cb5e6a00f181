"""The rules read a second time, in plain Python: what the pipeline's results are compared with."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Measured(NamedTuple):
    name: str
    value: float
    labels: dict[str, str]
    timestamp: int
    client: str

    @property
    def identity(self) -> tuple[str, str, tuple[tuple[str, str], ...], int]:
        return (self.client, self.name, tuple(sorted(self.labels.items())), self.timestamp)


def measured(content: bytes | None, last_ms: int) -> Measured | None:
    """The measurement in a record's value, or None if there is none that is not after `last_ms`."""
    if content is None or content.startswith(b"\xef\xbb\xbf"):
        return None
    try:
        found = json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    found.setdefault("labels", {})
    if not all(RULES[key](found.get(key)) for key in RULES) or found["timestamp"] > last_ms:
        return None
    return Measured(
        found["name"], float(found["value"]), found["labels"], found["timestamp"], found["client"]
    )


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no UTF-8 has
        return False
    return True


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


RULES: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: _is_text(value) and value != "",
    "value": _is_finite,
    "labels": lambda value: (
        isinstance(value, dict) and all(_is_text(part) for pair in value.items() for part in pair)
    ),
    "timestamp": lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 4_102_444_800_000
    ),
    "client": lambda value: _is_text(value) and value != "",
}


class Window(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    start_ms: int
    seconds: int


def windows(
    rows: Iterable[Measured], seconds: Sequence[int], ranks: Sequence[float]
) -> dict[Window, tuple[float, ...]]:
    """Count, sum, min, max and percentiles of every window."""
    values: dict[Window, list[float]] = defaultdict(list)
    for row in rows:
        for length in seconds:
            start = row.timestamp // (length * 1_000) * length * 1_000
            values[Window(row.name, tuple(sorted(row.labels.items())), start, length)].append(row.value)
    return {window: _numbers(sorted(found), ranks) for window, found in values.items()}


def _numbers(ordered: list[float], ranks: Sequence[float]) -> tuple[float, ...]:
    total = 0.0
    for value in ordered:
        total += value
    return (
        len(ordered),
        total,
        ordered[0],
        ordered[-1],
        *(_percentile(ordered, rank) for rank in ranks),
    )


def _percentile(ordered: list[float], rank: float) -> float:
    position = (len(ordered) - 1) * (rank / 100)
    below, above = math.floor(position), math.ceil(position)
    if below == above:
        return ordered[below]
    return (above - position) * ordered[below] + (position - below) * ordered[above]
