"""Batches that were read to be offered, kept until their records are delivered.

A queue reads a record twice: to offer it, and to deliver it. Mostly there is little time between, so what was
read last is kept, all queues of the node together: the groups of a topic share it.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.records import IndexedRecords

BYTES_MAX = 16 << 20
# What a record, and a batch, take besides their bytes.
RECORD_BYTES = 12
BATCH_BYTES = 1_000
# Under a leader epoch an offset has one record: those that other leaders had there are not it.
CachedLog: TypeAlias = tuple[TopicId, PartitionIndex, LeaderEpoch]


class _Batches:
    """Those of one log."""

    __slots__ = ("by_base", "order")

    def __init__(self) -> None:
        self.by_base: dict[int, IndexedRecords] = {}
        self.order: list[int] = []


class RecordCache:
    """The batches that were put last."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self._logs: dict[CachedLog, _Batches] = {}
        # The oldest first.
        self._puts: deque[tuple[CachedLog, IndexedRecords]] = deque()

    def put(self, log: CachedLog, batches: Iterable[IndexedRecords]) -> None:
        """Keep these, and forget the oldest for them."""
        for batch in batches:
            kept = self._logs.setdefault(log, _Batches())
            if batch.base_offset not in kept.by_base:
                kept.by_base[batch.base_offset] = batch
                insort(kept.order, batch.base_offset)
                self._puts.append((log, batch))
                self.size_bytes += _size_of(batch)
        while self.size_bytes > self._bytes_max:
            self._forget()

    def _forget(self) -> None:
        log, batch = self._puts.popleft()
        self.size_bytes -= _size_of(batch)
        kept = self._logs[log]
        del kept.by_base[batch.base_offset]
        del kept.order[bisect_right(kept.order, batch.base_offset) - 1]
        if not kept.order:
            del self._logs[log]

    def find(self, log: CachedLog, offset: Offset) -> IndexedRecords | None:
        """The batch with this offset, if it is kept."""
        kept = self._logs.get(log)
        place = 0 if kept is None else bisect_right(kept.order, offset)
        if kept is None or not place:
            return None
        batch = kept.by_base[kept.order[place - 1]]
        return batch if offset < batch.end else None


def _size_of(batch: IndexedRecords) -> int:
    return BATCH_BYTES + len(batch.payload) + RECORD_BYTES * len(batch.offsets)
