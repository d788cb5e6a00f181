"""What a pipeline should make of the points: rollups, worked out the plain way."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.pipeline.generator.points import Point

Labels = tuple[tuple[str, str], ...]


class Rollup(NamedTuple):
    """One series in one window [start, start + size)."""

    name: str
    labels: Labels
    client: str
    start_ms: int
    records: int
    total: float
    least: float
    most: float
    p50: float
    p95: float
    p99: float


def rollups(points: Iterable[Point], window_ms: int, end_ms: int | None = None) -> Iterator[Rollup]:
    """The rollups of all windows, or of those that ended by `end_ms`; in no particular order.

    `end_ms` leaves out the window of a closing record, which nothing ends.
    """
    values: dict[tuple[str, Labels, str, int], list[float]] = defaultdict(list)
    for point in points:
        start = point.timestamp_ms - point.timestamp_ms % window_ms
        if end_ms is None or start + window_ms <= end_ms:
            values[point.name, point.labels, point.client, start].append(point.value)
    for key, members in values.items():
        members.sort()
        yield Rollup(
            *key,
            len(members),
            math.fsum(members),
            members[0],
            members[-1],
            *(percentile(members, share) for share in (0.5, 0.95, 0.99)),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The exact percentile, between two members in proportion, as Spark's `percentile` has it."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = math.ceil(place)
    if low == high:
        return ordered[low]
    return (high - place) * ordered[low] + (place - low) * ordered[high]
