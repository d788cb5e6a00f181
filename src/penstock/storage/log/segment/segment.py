"""One segment of a log."""

from bisect import bisect_left, bisect_right

from penstock.core.model import Offset, Timestamp
from penstock.core.records import CorruptBatch, read_header, read_records
from penstock.storage.disk import Buffer, File
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.rows import POSITION_BITS, POSITION_MASK
from penstock.storage.log.index.sealed import SealedIndex
from penstock.storage.log.segment.descriptor import PLAIN, SegmentDescriptor
from penstock.storage.log.segment.reader import SegmentReader
from penstock.storage.log.segment.walk import SCAN_BYTES, headers
from penstock.storage.log.values import FileRange, TimestampOffset

OFFSET_DELTA_MAX = 2**31 - 1


class Segment:
    """A file of batches from `base_offset` on, with its indexes."""

    __slots__ = (
        "base_offset",
        "descriptor",
        "file",
        "first_append_at",
        "gapless",
        "index",
        "size_bytes",
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

    def takes(self, size_bytes: int, last_offset: int, segment_bytes: int) -> bool:
        """Whether an append of this size still belongs into this segment."""
        if not self.size_bytes:
            return last_offset - self.base_offset <= OFFSET_DELTA_MAX
        return (
            self.size_bytes + size_bytes <= segment_bytes
            and last_offset - self.base_offset <= OFFSET_DELTA_MAX
        )

    def append(self, batches: Buffer) -> int:
        """Write batches at the end; answers where they begin."""
        assert self.writer is not None
        position = self.size_bytes
        self.size_bytes = self.writer.append(batches)
        return position

    def slice(self, start: Offset, end: Offset | None, max_bytes: int) -> FileRange | None:
        """Whole batches from the one that holds `start`, all below `end`.

        None if the segment has nothing at or after `start`; an empty range if that batch
        is not below `end`. One batch is answered even if it is larger than `max_bytes`.
        """
        first = self.locate(start)
        if first is None:
            return None
        stop = self.size_bytes
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
        position, expected = self._row_at_offset(offset)
        for placed in headers(self.file, position, self.size_bytes):
            if self.gapless and placed.header.base_offset != expected:
                raise CorruptBatch(f"offset {placed.header.base_offset} stands where {expected} should")
            if placed.header.last_offset >= offset:
                return placed.position
            expected = placed.header.next_offset
        return None

    def search_time(self, timestamp: Timestamp, start: Offset) -> TimestampOffset | None:
        """The first record at or after `timestamp` whose offset is not below `start`."""
        if self.index.max_timestamp < timestamp:
            return None
        times = self.index.times
        row = bisect_left(range(len(times) // 2), timestamp, key=lambda row: Timestamp(times[2 * row])) - 1
        position = 0
        if row >= 0:
            position = self.locate(Offset(times[2 * row + 1])) or 0
        for placed in headers(self.file, position, self.size_bytes, SCAN_BYTES // 4):
            header = placed.header
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                batch = self.file.pread(placed.position, placed.header.size_bytes)
                for record in read_records(batch):
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(Offset(record.offset), Timestamp(record.timestamp))
        return None

    def _row_at_offset(self, offset: Offset) -> tuple[int, int]:
        """Position and base offset of the last indexed batch at or before `offset`, verified."""
        relative = offset - self.base_offset
        if relative < 0:
            return 0, self.base_offset
        row = self._last_row(relative << POSITION_BITS | POSITION_MASK)
        if row is not None and not self._is_right(row) and isinstance(self.index, SealedIndex):
            self.index.distrust()
            row = self._last_row(relative << POSITION_BITS | POSITION_MASK)
        if row is None:
            return 0, self.base_offset
        return row & POSITION_MASK, self.base_offset + (row >> POSITION_BITS)

    def _last_row(self, word: int) -> int | None:
        offsets = self.index.offsets
        index = bisect_right(offsets, word) - 1
        return offsets[index] if index >= 0 else None

    def _is_right(self, row: int) -> bool:
        """Whether the batch that a row promises is where it says."""
        try:
            header = read_header(self.file.pread(row & POSITION_MASK, 61))
        except CorruptBatch:
            return False
        return header.base_offset == self.base_offset + (row >> POSITION_BITS)

    def _boundary(self, first: int, limit: int) -> int:
        """The largest end of a batch at or before `limit`, but at least that of the batch at `first`."""
        if isinstance(self.index, ActiveIndex):
            recent = self.index.boundary_recent(limit)
            if recent is not None and recent > first:
                return recent
        offsets = self.index.offsets
        index = bisect_right(offsets, limit, key=lambda word: word & POSITION_MASK) - 1
        start = first
        if index >= 0 and first < offsets[index] & POSITION_MASK <= limit and self._is_right(offsets[index]):
            start = offsets[index] & POSITION_MASK
        stop = start
        for placed in headers(self.file, start, self.size_bytes):
            end = placed.position + placed.header.size_bytes
            if end > limit and stop > first:
                break
            stop = end
            if end > limit:
                break
        return stop
