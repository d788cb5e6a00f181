"""Records that were decoded to be offered, kept until they are delivered.

A queue reads a record twice: to offer it, and to deliver it. Mostly there is little time between, so what was
decoded last is kept, all queues of the node together: the groups of a topic share it.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.records import Record

BYTES_MAX = 16 << 20
# What a record takes besides its key, value and headers.
RECORD_BYTES = 300
# Under a leader epoch an offset has one record: those that other leaders had there are not it.
CachedLog: TypeAlias = tuple[TopicId, PartitionIndex, LeaderEpoch]


class RecordCache:
    """The records that were put last."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self._logs: dict[CachedLog, dict[Offset, Record]] = {}
        # What was put at once is forgotten at once, the oldest first.
        self._puts: deque[tuple[CachedLog, list[Offset], int]] = deque()

    def put(self, log: CachedLog, records: Iterable[Record]) -> None:
        """Keep these, and forget the oldest for them."""
        kept = self._logs.get(log, {})
        new = {Offset(record.offset): record for record in records if record.offset not in kept}
        if not new:
            return
        self._logs.setdefault(log, {}).update(new)
        size_bytes = sum(map(_size_of, new.values()))
        self.size_bytes += size_bytes
        self._puts.append((log, list(new), size_bytes))
        while self.size_bytes > self._bytes_max:
            self._forget()

    def _forget(self) -> None:
        log, offsets, size_bytes = self._puts.popleft()
        self.size_bytes -= size_bytes
        kept = self._logs[log]
        for offset in offsets:
            del kept[offset]
        if not kept:
            del self._logs[log]

    def find(self, log: CachedLog, offsets: Iterable[Offset]) -> dict[Offset, Record]:
        """Those of these that are kept."""
        kept = self._logs.get(log, {})
        return {offset: kept[offset] for offset in offsets if offset in kept}


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers) if record.headers else 0
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
