"""One segment of a log."""

import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress

from penstock.core.model import Offset, Timestamp
from penstock.core.records import HEADER_BYTES, PREFIX_BYTES, CorruptBatch, read_header, read_records
from penstock.storage.disk import File
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.rows import POSITION_BITS, POSITION_MASK
from penstock.storage.log.index.sealed import SealedIndex
from penstock.storage.log.segment.descriptor import PLAIN, SegmentDescriptor
from penstock.storage.log.segment.reader import SegmentReader
from penstock.storage.log.segment.walk import SCAN_BYTES, find_boundary, find_offset, headers
from penstock.storage.log.values import FileRange, TimestampOffset

OFFSET_DELTA_MAX = 2**31 - 1
# Of a segment that was compacted before the last start, nobody remembers.
UNKNOWN_MS = -1
_LENGTH_POSITION = 8
_LENGTH = struct.Struct(">i")


class Segment:
    """A file of batches from `base_offset` on, with its indexes."""

    __slots__ = (
        "base_offset",
        "cleaned",
        "damaged_at",
        "descriptor",
        "file",
        "first_append_at",
        "gapless",
        "index",
        "size_bytes",
        "tombstones_until",
        "writer",
    )

    def __init__(
        self, base_offset: Offset, file: SegmentReader, size_bytes: int, index: ActiveIndex | SealedIndex
    ) -> None:
        self.base_offset = base_offset
        self.descriptor: SegmentDescriptor = PLAIN
        # Readers share descriptors and outlive the file's name; the writer has its own.
        self.file = file
        self.writer: File | None = None
        self.size_bytes = size_bytes
        self.index = index
        self.first_append_at = Timestamp(-1)
        # Whether every offset from the base on is in some batch: only compaction makes gaps.
        self.gapless = True
        # Whether compaction has been through it.
        self.cleaned = False
        # When the first of the tombstones that compaction has left here may go; None if it left none.
        self.tombstones_until: int | None = None
        # Where batches stop making sense, if they do: readers get what lies before it.
        self.damaged_at: int | None = None

    @property
    def readable_bytes(self) -> int:
        return self.size_bytes if self.damaged_at is None else self.damaged_at

    def slice(self, start: Offset, end: Offset | None, max_bytes: int) -> FileRange | None:
        """Whole batches from the one that holds `start`, all below `end`.

        None if the segment has nothing at or after `start`; an empty range if that batch
        is not below `end`. One batch is answered even if it is larger than `max_bytes`.
        """
        index = self.index
        first = index.locate_recent(start) if isinstance(index, ActiveIndex) else None
        if first is None:
            first = self.locate(start)
            if first is None:
                return None
        stop = self.size_bytes if self.damaged_at is None else self.damaged_at
        if end is not None:
            located = self.locate(end)
            stop = stop if located is None else located
        if stop - first > max_bytes:
            stop = self._boundary(first, first + max(0, max_bytes))
        self.file.opened()  # from here on it stays readable, even when the segment is deleted
        return FileRange(self.file, first, max(0, stop - first))

    def locate(self, offset: Offset) -> int | None:
        """Where the first batch that ends at or after `offset` begins."""
        if isinstance(self.index, ActiveIndex):
            recent = self.index.locate_recent(offset)
            if recent is not None:
                return recent
        try:
            return self._locate_by_index(offset)
        except CorruptBatch:
            # Either the index led astray, or the batches are damaged: a new index tells.
            if not isinstance(self.index, SealedIndex):
                raise
            self.index.distrust()
            return self._locate_by_index(offset)

    def _locate_by_index(self, offset: Offset) -> int | None:
        offsets, readable = self.index.offsets, self.readable_bytes
        row = bisect_right(offsets, max(0, offset - self.base_offset) << POSITION_BITS | POSITION_MASK) - 1
        if row < 0:
            return find_offset(self.file, 0, readable, offset, self.base_offset if self.gapless else None)
        position = offsets[row] & POSITION_MASK
        expected = self.base_offset + (offsets[row] >> POSITION_BITS)
        if not self.gapless:
            self._check_row(position, expected)
        return find_offset(self.file, position, readable, offset, expected if self.gapless else None)

    def _check_row(self, position: int, expected: int) -> None:
        """Whether the batch that a row promises is where it says."""
        header = read_header(self.file.pread(position, HEADER_BYTES))
        if header.base_offset != expected:
            raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")

    def is_older_than(self, timestamp: Timestamp) -> bool:
        """Whether every record is, as an index says that was written when the segment was whole."""
        rebuilt = isinstance(self.index, SealedIndex) and self.index.rebuilt > 0
        return not rebuilt and self.index.max_timestamp < timestamp

    def search_time(self, timestamp: Timestamp, start: Offset) -> TimestampOffset | None:
        """The first record at or after `timestamp` whose offset is not below `start`."""
        if self.index.max_timestamp < timestamp:
            return None
        times = self.index.times
        row = bisect_left(range(len(times) // 2), timestamp, key=lambda row: Timestamp(times[2 * row])) - 1
        position = 0
        if row >= 0:
            position = self.locate(Offset(times[2 * row + 1])) or 0
        for placed in headers(self.file, position, self.readable_bytes, SCAN_BYTES // 4):
            header = placed.header
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                batch = self.file.pread(placed.position, placed.header.size_bytes)
                for record in read_records(batch):
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(Offset(record.offset), Timestamp(record.timestamp))
        return None

    def _boundary(self, first: int, limit: int) -> int:
        """The largest end of a batch at or before `limit`, but at least that of the batch at `first`."""
        if isinstance(self.index, ActiveIndex):
            recent = self.index.boundary_recent(limit)
            if recent is not None and recent > first:
                return recent
        length: int
        (length,) = _LENGTH.unpack(self.file.pread(first + _LENGTH_POSITION, _LENGTH.size))
        start = first + PREFIX_BYTES + length
        if length < 0 or start >= limit:
            return min(max(start, first), self.readable_bytes)
        offsets = self.index.offsets
        row = bisect_right(offsets, limit, key=lambda word: word & POSITION_MASK) - 1
        if row >= 0 and start < offsets[row] & POSITION_MASK <= limit:
            position = offsets[row] & POSITION_MASK
            with suppress(CorruptBatch):
                self._check_row(position, self.base_offset + (offsets[row] >> POSITION_BITS))
                start = position
        return find_boundary(self.file, start, self.readable_bytes, limit)
