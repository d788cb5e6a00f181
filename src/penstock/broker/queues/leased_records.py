"""The records of one acquisition, as they are found in the log."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from penstock.broker.queues.peers import LeasedSlice
from penstock.core.model import Offset
from penstock.core.queues import LeasedRun, runs_of
from penstock.core.records import IndexedRecords


class LeasedRecords:
    """Cuts the leased records out of batches that come in any order, and has them in that of the leases."""

    def __init__(self, runs: Sequence[LeasedRun], log_start: Offset) -> None:
        self._runs = runs
        self._log_start = log_start
        # By offset.
        self._ordered = sorted(range(len(runs)), key=lambda number: runs[number].start)
        self._starts = [runs[number].start for number in self._ordered]
        self._slices: list[dict[int, LeasedSlice]] = [{} for _ in runs]
        self._found: list[Sequence[int]] = []
        self._taken: dict[int, None] = {}

    def take_cached(self, find: Callable[[Offset], IndexedRecords | None]) -> list[Offset]:
        """Take what is there; returns the offsets that are to be read."""
        missing: list[Offset] = []
        for start, end, _ in self._runs:
            at = max(start, self._log_start)
            while at < end:
                batch = find(at)
                if batch is None:
                    missing += map(Offset, range(at, end))
                    break
                self.take(batch)
                at = Offset(batch.end)
        return missing

    def take(self, batch: IndexedRecords) -> None:
        """Take what is leased of a batch, once."""
        if batch.base_offset in self._taken:
            return
        self._taken[batch.base_offset] = None
        first = max(0, bisect_right(self._starts, batch.base_offset) - 1)
        for number in self._ordered[first:]:
            start, end, attempt = self._runs[number]
            if start >= batch.end:
                break
            start = max(start, self._log_start)
            piece = batch.slice(start, end)
            if piece is not None:
                offsets = batch.offsets[batch.place(start) : batch.place(end)]
                self._found.append(offsets)
                self._slices[number][offsets[0]] = LeasedSlice(attempt, piece)

    def slices(self) -> tuple[LeasedSlice, ...]:
        """What was taken, in the order of the leases."""
        return tuple([found[offset] for found in self._slices for offset in sorted(found)])

    def gone(self) -> tuple[LeasedRun, ...]:
        """What the log does not have any more."""
        leased = sum(run.end - run.start for run in self._runs)
        if leased == sum(map(len, self._found)):
            return ()
        found = {offset for offsets in self._found for offset in offsets}
        return tuple(
            LeasedRun(*lost, attempt)
            for start, end, attempt in self._runs
            for lost in runs_of(Offset(each) for each in range(start, end) if each not in found)
        )
