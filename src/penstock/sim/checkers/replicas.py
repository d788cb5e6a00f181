"""All copies of a partition hold the same bytes, as far as consumers may see."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.sim.checkers.durability import StoredBatch


class ReplicaCopy(NamedTuple):
    """One replica's log: where it starts and ends, and its batches as they stand on its disk.

    What was damaged on purpose, and not found yet, holds nothing: no wrong bytes either.
    """

    start: int
    end: int
    batches: Sequence[StoredBatch]
    damaged: Sequence[tuple[int, int]] = ()

    def is_damaged(self, base: int) -> bool:
        return any(start <= base < end for start, end in self.damaged)


def check_replicas(partition: object, copies: Mapping[int, ReplicaCopy], high_watermark: int) -> list[str]:
    """Every difference between replicas below the high watermark; the first of each pair is named."""
    numbers = sorted(copies)
    anomalies = [
        f"replica too short: {partition} ends at {copies[node].end} on node {node}, "
        f"below the high watermark {high_watermark}"
        for node in numbers
        if copies[node].end < high_watermark
    ]
    first = numbers[0] if numbers else -1
    for other in numbers[1:]:
        difference = _difference(copies[first], copies[other], high_watermark)
        if difference is not None:
            anomalies.append(
                f"replicas differ: {partition} at offset {difference} on nodes {first} and {other}"
            )
    return anomalies


def _difference(one: ReplicaCopy, other: ReplicaCopy, high_watermark: int) -> int | None:
    start = max(one.start, other.start)
    theirs = {batch.base: batch for batch in other.batches}
    for batch in one.batches:
        counts = start <= batch.base and batch.end <= high_watermark and not other.is_damaged(batch.base)
        if counts and theirs.get(batch.base) != batch:
            return batch.base
    ours = {batch.base: None for batch in one.batches}
    for base, batch in theirs.items():
        counts = start <= base and batch.end <= high_watermark and not one.is_damaged(base)
        if counts and base not in ours:
            return base
    return None
