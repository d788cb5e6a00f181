"""One segment: a file of record batches back to back, and the way into it.

A segment is named by its base offset. The last one of a log grows, the others are
sealed and change only by being deleted, cut by a truncation or replaced by compaction.

`SegmentDescriptor` (format and tier) is where tiering will attach.
`SegmentReader` is the file for reading, opened when needed; it knows which of its bytes this
process has neither written nor verified. `headers`, `find_offset` and
`find_boundary` walk from batch to batch without reading records.

Left out: preallocation, and reading ahead. The kernel does both well for a file that
only grows.
"""

import enum
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.core.model import Offset, Timestamp
from penstock.core.records import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    BatchIncomplete,
    CompressionType,
    CorruptBatch,
    RecordsTooLarge,
    check_batch,
    read_header,
    read_records,
)
from penstock.core.records.compression import LIMIT_BYTES
from penstock.storage.disk import Buffer, Disk, File
from penstock.storage.log.index import POSITION_BITS, POSITION_MASK, ActiveIndex, SealedIndex
from penstock.storage.log.types import BatchToSearch, CorruptRange, FileRange, TimestampOffset
from penstock.storage.sealing import KeyTable

LOCATE_BYTES = 8 << 10
MAGIC = 2
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
# Base offset, length, magic and last offset delta: what leads from one batch to the next.
_LINK = struct.Struct(">qi4xb6xi")
SCAN_BYTES = 1 << 20
# What of a batch is looked through at once for a time, and how many batches are. Compressed ones have to be
# small before and after they are unpacked.
QUICK_BYTES = 64 << 10
QUICK_PACKED_BYTES = 8 << 10
QUICK_RECORDS = 1_000
SEARCHED_AT_ONCE = 4
OFFSET_DELTA_MAX = 2**31 - 1
EVERYTHING = 2**63 - 1
# For a segment that was compacted before the last start: the time is not stored.
UNKNOWN_MS = -1
_LENGTH_POSITION = 8
_LENGTH = struct.Struct(">i")


class SegmentTier(enum.Enum):
    """Where a segment's bytes are."""

    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class SegmentDescriptor:
    """Format and place of one segment. Only local segments exist so far."""

    format_version: int = 2  # Kafka's magic: what stands on disk is what goes over the wire, unless sealed
    tier: SegmentTier = SegmentTier.LOCAL


PLAIN = SegmentDescriptor()


class SegmentReader:
    """The file of a segment for reading. File ranges refer to it, so it may outlive the segment.

    The disk keeps the file of an open reader readable when its name is removed.
    """

    __slots__ = ("_disk", "_file", "_path", "sealed_ns", "unverified")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        # Byte ranges, in order, that were neither written nor verified since the node started.
        self.unverified: list[tuple[int, int]] = []
        # When a sealed file was written last; a later time means that somebody else changed it.
        self.sealed_ns: int | None = None

    @property
    def path(self) -> str:
        return self._path

    def opened(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path, readonly=True)
        return file

    # Readers at the tail are frequent: an open file is used without a call to `opened`.

    def park(self) -> None:
        """Nothing: readers share their descriptors anyway."""

    def pread(self, position: int, length: int) -> bytes:
        return (self._file or self.opened()).pread(position, length)

    def is_warm(self, position: int, length: int) -> bool:
        return (self._file or self.opened()).is_warm(position, length)

    def is_servable(self, position: int, length: int) -> bool:
        """Whether this range may be sent as it is: verified, and in the page cache since.

        What has to be read from the device once more may have changed there.
        """
        if (self.unverified or self.sealed_ns is not None) and not self.is_verified(position, length):
            return False
        return (self._file or self.opened()).is_warm(position, length)

    def is_verified(self, position: int, length: int) -> bool:
        sealed_ns = self.sealed_ns
        if sealed_ns is not None and (self._file or self.opened()).modified_ns() != sealed_ns:
            self.distrust()
        end = position + length
        return all(stop <= position or start >= end for start, stop in self.unverified)

    def unverify(self, position: int, length: int) -> None:
        """Verify this range again before it is served."""
        end = position + length
        self.verified(position, end)
        self.unverified = sorted([*self.unverified, (position, end)])

    def distrust(self) -> None:
        """Verify everything again before it is served."""
        self.unverified = [(0, EVERYTHING)]
        self.sealed_ns = None

    def remember_time(self) -> None:
        """Nothing writes to the file from now on: whoever does so all the same is noticed."""
        if self.sealed_ns is None:
            self.sealed_ns = self.opened().modified_ns()

    def verified(self, position: int, end: int) -> None:
        """These bytes were found good."""
        left: list[tuple[int, int]] = []
        for start, stop in self.unverified:
            if start < position:
                left.append((start, min(stop, position)))
            if stop > end:
                left.append((max(start, end), stop))
        self.unverified = left

    def modified_ns(self) -> int:
        return self.opened().modified_ns()

    def size(self) -> int:
        return self.opened().size()

    def map_readonly(self) -> memoryview:
        return self.opened().map_readonly()

    def fileno(self) -> int:
        return (self._file or self.opened()).fileno()

    def sync(self) -> None:
        self.opened().sync()

    def append(self, *buffers: Buffer) -> int:
        return self.opened().append(*buffers)

    def pwrite(self, position: int, data: Buffer) -> None:
        self.opened().pwrite(position, data)

    def truncate(self, size: int) -> None:
        self.opened().truncate(size)

    def allocate(self, size: int) -> None:
        self.opened().allocate(size)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        self.close()


class PositionalReader(Protocol):
    """Whatever bytes can be read from at a position."""

    def pread(self, position: int, length: int) -> bytes: ...


class BatchPosition(NamedTuple):
    """A batch and where it begins."""

    position: int
    header: BatchHeader


def headers(
    file: PositionalReader, position: int, end: int, chunk_bytes: int = LOCATE_BYTES
) -> Iterator[BatchPosition]:
    """The headers from `position`, where a batch begins, to `end`; raises CorruptBatch.

    Offsets must grow. Large batches are stepped over without being read.
    """
    chunk, chunk_start, expected = b"", position, 0
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.pread(position, min(chunk_bytes, end - position))
            chunk_start, at = position, 0
        header = read_header(chunk, at)
        if position + PREFIX_BYTES + header.batch_length > end:
            raise BatchIncomplete(header.size_bytes, end - position)
        if header.base_offset < expected:
            raise CorruptBatch(f"offset {header.base_offset} follows {expected - 1}")
        yield BatchPosition(position, header)
        expected = header.next_offset
        position += header.size_bytes


def find_offset(file: File, position: int, end: int, offset: int, expected: int | None) -> int | None:
    """Where the first batch that reaches `offset` begins, looking from the batch at `position` on.

    Like `headers`, but reads just the fields that lead from batch to batch, which takes a
    quarter of the time. `expected` is the offset that must stand at `position`; None if any
    may, as in a segment with gaps.
    """
    gapless = expected is not None
    least = expected or 0
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _LINK.size > len(chunk):
            chunk = file.pread(position, min(LOCATE_BYTES, end - position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise BatchIncomplete(HEADER_BYTES, len(chunk))
        base_offset, length, magic, last_delta = _LINK.unpack_from(chunk, at)
        if base_offset < least or (gapless and base_offset != least) or magic != MAGIC or last_delta < 0:
            raise CorruptBatch(f"offset {base_offset}, magic {magic} stands where offset {least} should")
        if length < BATCH_LENGTH_MIN or position + PREFIX_BYTES + length > end:
            raise BatchIncomplete(PREFIX_BYTES + length, end - position)
        if base_offset + last_delta >= offset:
            return position
        least = base_offset + last_delta + 1
        position += PREFIX_BYTES + length
    return None


def find_boundary(file: File, position: int, end: int, limit: int) -> int:
    """The last place at or before `limit` where a batch begins or the segment ends, from `position` on."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _LINK.size > len(chunk):
            chunk = file.pread(position, min(LOCATE_BYTES, end - position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise BatchIncomplete(HEADER_BYTES, len(chunk))
        _, length, magic, _ = _LINK.unpack_from(chunk, at)
        if magic != MAGIC or length < BATCH_LENGTH_MIN:
            raise CorruptBatch(f"no batch begins at position {position}")
        if position + PREFIX_BYTES + length > limit:
            return position
        position += PREFIX_BYTES + length
    return end


def first_at(
    batch: Buffer, timestamp: Timestamp, start: Offset, limit_bytes: int = LIMIT_BYTES
) -> TimestampOffset | None:
    """The first record of a batch at or after `timestamp` whose offset is not below `start`.

    A batch that is as it was written and cannot be decoded has none. Raises CorruptBatch if it is not, and
    RecordsTooLarge if it unpacks to more than a limit below that of all readers.
    """
    try:
        for record in read_records(batch, limit_bytes):
            if record.timestamp >= timestamp and record.offset >= start:
                return TimestampOffset(Offset(record.offset), Timestamp(record.timestamp))
    except CorruptBatch as broken:
        if isinstance(broken, RecordsTooLarge) and limit_bytes < LIMIT_BYTES:
            raise
        check_batch(batch, compacted=True)
    return None


def _takes_long(header: BatchHeader) -> bool:
    limit_bytes = QUICK_BYTES if header.codec is CompressionType.NONE else QUICK_PACKED_BYTES
    return header.size_bytes > limit_bytes or header.record_count > QUICK_RECORDS


class CheckedBatch(NamedTuple):
    """A batch whose CRC was found right, with its bytes."""

    position: int
    header: BatchHeader
    content: memoryview
    # Where it ends in the file: a batch that was sealed there is longer.
    stop: int


def checked_batches(file: PositionalReader, position: int, end: int) -> Iterator[CheckedBatch]:
    """Whole batches from `position` to `end`, each one read and checked; raises CorruptBatch."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        at = position - chunk_start
        try:
            header = check_batch(chunk[at:], compacted=True)
        except BatchIncomplete as incomplete:
            # Either the chunk ends here, or the file does.
            wanted = max(incomplete.needed_bytes, SCAN_BYTES)
            available = end - position
            if incomplete.needed_bytes > available or incomplete.present_bytes >= available:
                raise BatchIncomplete(incomplete.needed_bytes, available) from None
            chunk = memoryview(file.pread(position, min(wanted, available)))
            chunk_start = position
            if len(chunk) < min(wanted, available):
                raise BatchIncomplete(incomplete.needed_bytes, len(chunk)) from None
            continue
        yield CheckedBatch(position, header, chunk[at : at + header.size_bytes], position + header.size_bytes)
        position += header.size_bytes


class Segment:
    """A file of batches from `base_offset` on, with its indexes."""

    __slots__ = (
        "base_offset",
        "cleaned",
        "damage",
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
        # What cannot be read, in order: readers get what lies before, between and behind.
        self.damage: tuple[CorruptRange, ...] = ()

    @property
    def readable_bytes(self) -> int:
        """How far batches can be followed from the beginning."""
        return self.size_bytes if not self.damage else self.damage[0].position

    def readable_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """Where batches can be followed from `position` on: up to each damage, and on behind it."""
        for damage in self.damage:
            if position < damage.position:
                yield position, damage.position
            position = max(position, damage.stop)
        if position < self.size_bytes:
            yield position, self.size_bytes

    def damage_at(self, offset: int) -> CorruptRange | None:
        """The damaged range that holds the offset."""
        for damage in self.damage:
            if damage.start <= offset < damage.end:
                return damage
        return None

    def slice(self, start: Offset, end: Offset | None, max_bytes: int) -> FileRange | None:
        """Whole batches from the one that holds `start`, all below `end`.

        None if the segment has nothing at or after `start`; an empty range if that batch
        is not below `end`. One batch is returned even if it is larger than `max_bytes`.
        """
        index = self.index
        first = index.locate_recent(start) if isinstance(index, ActiveIndex) else None
        if first is None:
            first = self.locate(start)
            if first is None:
                return None
        stop = self.size_bytes
        if end is not None:
            located = self._before_damage(end) if self.damage else self.locate(end)
            stop = stop if located is None else located
        if self.damage:
            stop = min(stop, self._stop_behind(first))
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
            # Either the index has become wrong, which its CRC shows, or the batches are damaged.
            if not isinstance(self.index, SealedIndex):
                raise
            self.index.distrust()
            return self._locate_by_index(offset)

    def offset_behind(self, position: int) -> Offset | None:
        """An offset that no batch before this position reaches; None if the index has no row behind it."""
        offsets = self.index.offsets
        row = bisect_left(offsets, position, key=lambda word: word & POSITION_MASK)
        return Offset(self.base_offset + (offsets[row] >> POSITION_BITS)) if row < len(offsets) else None

    def _before_damage(self, offset: Offset) -> int | None:
        """Like `locate`, or the beginning of the damage that hides the place."""
        hidden = self.damage_at(offset)
        return self.locate(offset) if hidden is None else hidden.position

    def _stop_behind(self, position: int) -> int:
        """How far batches can be followed from this place."""
        return next(
            (damage.position for damage in self.damage if damage.position >= position), self.size_bytes
        )

    def _locate_by_index(self, offset: Offset) -> int | None:
        offsets, readable = self.index.offsets, self.size_bytes
        if self.damage:
            behind = [damage for damage in self.damage if damage.end <= offset]
            readable = self._stop_behind(behind[-1].stop if behind else 0)
            if behind and behind[-1].stop >= self.size_bytes:
                return None
            if behind:
                # Not by way of the index: a row before the damage would lead through it.
                start = self._row_behind(behind[-1].stop, behind[-1].end, offset)
                return find_offset(self.file, start[0], readable, offset, start[1] if self.gapless else None)
        row = bisect_right(offsets, max(0, offset - self.base_offset) << POSITION_BITS | POSITION_MASK) - 1
        if row < 0:
            return find_offset(self.file, 0, readable, offset, self.base_offset if self.gapless else None)
        position = offsets[row] & POSITION_MASK
        expected = self.base_offset + (offsets[row] >> POSITION_BITS)
        if not self.gapless:
            self._check_row(position, expected)
        return find_offset(self.file, position, readable, offset, expected if self.gapless else None)

    def _row_behind(self, position: int, expected: int, offset: int) -> tuple[int, int]:
        """The last index row at or before `offset`, if it lies behind `position`, where `expected` stands."""
        offsets = self.index.offsets
        row = bisect_right(offsets, max(0, offset - self.base_offset) << POSITION_BITS | POSITION_MASK) - 1
        if row >= 0 and offsets[row] & POSITION_MASK > position:
            return offsets[row] & POSITION_MASK, self.base_offset + (offsets[row] >> POSITION_BITS)
        return position, expected

    def _check_row(self, position: int, expected: int) -> None:
        """Raise CorruptBatch unless the batch of an index row is where the row says."""
        header = read_header(self.file.pread(position, HEADER_BYTES))
        if header.base_offset != expected:
            raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")

    @property
    def lacks_aborted(self) -> bool:
        """Whether the table of aborted transactions was lost together with some of the batches."""
        return bool(self.damage) and isinstance(self.index, SealedIndex) and self.index.rebuilt > 0

    def is_older_than(self, timestamp: Timestamp) -> bool:
        """Whether every record is older, by the index, which was written when the segment was sealed."""
        rebuilt = isinstance(self.index, SealedIndex) and self.index.rebuilt > 0
        return not rebuilt and self.index.max_timestamp < timestamp

    def search_time(
        self, timestamp: Timestamp, start: Offset, table: KeyTable | None = None
    ) -> TimestampOffset | BatchToSearch | None:
        """The first record at or after `timestamp` whose offset is not below `start`.

        Or the batch that may have it, if that takes long to look through; the same if headers claim
        times again and again that their records do not have.
        """
        if self.index.max_timestamp < timestamp:
            return None
        times = self.index.times
        row = bisect_left(range(len(times) // 2), timestamp, key=lambda row: Timestamp(times[2 * row])) - 1
        position = 0
        if row >= 0:
            position = self.locate(Offset(times[2 * row + 1])) or 0
        searched = 0
        for placed in headers(self.file, position, self.readable_bytes, SCAN_BYTES // 4):
            header = placed.header
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            batch: Buffer = self.file.pread(placed.position, header.size_bytes)
            if table is not None:
                batch = table.unseal_one(batch, header)
            found: TimestampOffset | BatchToSearch | None = BatchToSearch(
                bytes(batch), Offset(header.next_offset)
            )
            if searched < SEARCHED_AT_ONCE and not _takes_long(header):
                with suppress(RecordsTooLarge):
                    found = first_at(batch, timestamp, start, QUICK_BYTES)
            if found is not None:
                return found
            searched += 1
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
        stop = self.size_bytes if not self.damage else self._stop_behind(first)
        if length < 0 or start >= limit:
            return min(max(start, first), stop)
        offsets = self.index.offsets
        row = bisect_right(offsets, limit, key=lambda word: word & POSITION_MASK) - 1
        if row >= 0 and start < offsets[row] & POSITION_MASK <= limit:
            position = offsets[row] & POSITION_MASK
            with suppress(CorruptBatch):
                self._check_row(position, self.base_offset + (offsets[row] >> POSITION_BITS))
                start = position
        return find_boundary(self.file, start, stop, limit)
