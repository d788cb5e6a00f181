"""How much of what is there goes into the next batch."""

from collections.abc import Mapping
from math import ceil, floor

from penstock.core.model import MILLISECOND, Instant
from penstock.pipeline.source.offsets import Partition


def backlog(start: Mapping[Partition, int], available: Mapping[Partition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(0, end - start[one]) for one, end in available.items())


def admitted(
    start: Mapping[Partition, int], available: Mapping[Partition, int], most: int | None
) -> dict[Partition, int]:
    """The end of a batch of at most about `most` records, each partition by its share of the backlog.

    A share below one record is one record, so that no partition waits forever behind a large one:
    with more partitions than `most` the batch is that much larger.
    """
    total = backlog(start, available)
    if most is None or total <= most:
        return {one: max(end, start[one]) for one, end in available.items()}
    ends = {}
    for one, end in available.items():
        share = most * max(0, end - start[one]) / total
        ends[one] = start[one] + (ceil(share) if share < 1 else floor(share))
    return ends


class Hesitation:
    """Waits until `least` records are there, but no longer than `delay_ms` since the last batch."""

    def __init__(self, least: int | None, delay_ms: int, now: Instant) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._since = now

    def holds_back(self, records: int, now: Instant) -> bool:
        """Whether to wait for more; an answer of False starts the next delay."""
        if (
            self._least is not None
            and records < self._least
            and now - self._since < self._delay_ms * MILLISECOND
        ):
            return True
        self._since = now
        return False
