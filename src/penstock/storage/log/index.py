"""Sparse indexes of a segment: from an offset or a time to a place in the file.

An index is a shortcut and never the truth: it can be rebuilt from its segment, and where
it leads is checked against the batch found there. Rows are machine words, so a sealed
index is used where it is mapped, without decoding. Words are little endian, 64 bits:

    .index      1 word   (base offset - segment's base offset) << 32 | position
    .timeindex  2 words  largest timestamp so far │ base offset of the batch it is known at
    .txnindex   4 words  producer id │ first offset │ last offset │ last stable offset

A sealed file ends with a footer that covers all rows:

    "PSIX" 4 │ version 2 │ row bytes 2 │ row count 4 │ CRC-32C of rows and the 12 bytes before 4

`ActiveIndex` belongs to the segment that grows. Its tables are arrays in memory. Their files
follow at checkpoints and when the segment is sealed: a write per index row would cost more
than the append it describes, and after a crash the tail of the log is read anyway. Besides
the sparse rows it keeps the exact place of the last few hundred batches, so that a consumer
at the tail of the log costs no read of the file at all.

`SealedIndex` belongs to a segment that is full. Its tables are mapped when first needed, and
rebuilt from the segment when they are missing or damaged.

Left out: dense indexes. One row per few kilobytes keeps the index of a gigabyte at 2 MB,
and the scan from row to batch within one page.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from fastcrc import crc32

from penstock.core.model import CorruptionError, StorageError
from penstock.core.replica import AbortedTransaction
from penstock.storage.disk import Buffer, Disk, File, NoSuchFile
from penstock.storage.log.file_names import ABORTED_INDEX, OFFSET_INDEX, TIME_INDEX, numbered
from penstock.storage.log.files import IndexMark
from penstock.storage.log.types import CorruptFile, LogOptions

Words: TypeAlias = Sequence[int]
WORD_BYTES = 8
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1
_crc32c = crc32.iscsi
_MAGIC = b"PSIX"
_VERSION = 1
_HEAD = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
FOOTER_BYTES = _HEAD.size + _CRC.size
RECENT_KEPT = 512
# However slowly time advances in the records, a search by time reads no more than this.
TIME_ROW_BYTES_MAX = 1 << 20
NO_TIMESTAMP = -1


class IndexRowFormat(NamedTuple):
    """How the rows of one kind of index look."""

    suffix: str
    code: Literal["Q", "q"]
    words: int

    @property
    def row_bytes(self) -> int:
        return self.words * WORD_BYTES


OFFSETS = IndexRowFormat(OFFSET_INDEX, "Q", 1)
TIMES = IndexRowFormat(TIME_INDEX, "q", 2)
ABORTED = IndexRowFormat(ABORTED_INDEX, "q", 4)
SHAPES = (OFFSETS, TIMES, ABORTED)


def encode_words(words: "array[int]") -> bytes:
    """The bytes of some rows."""
    if sys.byteorder == "big":
        words = array(words.typecode, words)
        words.byteswap()
    return words.tobytes()


def decode_words(shape: IndexRowFormat, content: Buffer) -> Words:
    """The rows that these bytes hold, in place where the machine's byte order allows."""
    if sys.byteorder == "little":
        return memoryview(content).cast(shape.code)
    words = array(shape.code, bytes(content))
    words.byteswap()
    return words


def footer(shape: IndexRowFormat, rows: Buffer) -> bytes:
    """What makes a file of rows a sealed index."""
    head = _HEAD.pack(_MAGIC, _VERSION, shape.row_bytes, len(rows) // shape.row_bytes)
    return head + _CRC.pack(_crc32c(head, _crc32c(rows)))


def parse_sealed(shape: IndexRowFormat, content: Buffer) -> Words:
    """The rows of a sealed index file, or CorruptFile."""
    view = memoryview(content)
    end = len(view) - FOOTER_BYTES
    if end < 0:
        raise CorruptFile(f"a sealed {shape.suffix} of {len(view)} bytes has no footer")
    magic, version, row_bytes, count = _HEAD.unpack_from(view, end)
    if magic != _MAGIC or version != _VERSION or row_bytes != shape.row_bytes:
        raise CorruptFile(f"the {shape.suffix} does not end with a footer")
    if count * row_bytes != end:
        raise CorruptFile(f"the {shape.suffix} has {end} bytes for {count} rows")
    (crc,) = _CRC.unpack_from(view, end + _HEAD.size)
    if _crc32c(view[end : end + _HEAD.size], _crc32c(view[:end])) != crc:
        raise CorruptFile(f"the CRC-32C of the {shape.suffix} does not match")
    return decode_words(shape, view[:end])


def parse_rows(shape: IndexRowFormat, content: Buffer, rows: int, crc: int) -> "array[int]":
    """The first rows of an index that still grows, as a checkpoint marked them, or CorruptFile."""
    length = rows * shape.row_bytes
    view = memoryview(content)
    if len(view) < length:
        raise CorruptFile(f"the {shape.suffix} has {len(view)} bytes for {rows} rows")
    if _crc32c(view[:length]) != crc:
        raise CorruptFile(f"the CRC-32C of the {shape.suffix} does not match its checkpoint")
    return array(shape.code, decode_words(shape, view[:length]))


def crc_of(words: "array[int]") -> int:
    """What `parse_rows` will compare with."""
    return _crc32c(encode_words(words))


class ActiveIndex:
    """Three growing tables, and the exact place of recent batches."""

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "_next_row_at",
        "_next_time_row_at",
        "_next_timestamp",
        "_recent_from",
        "_recent_lasts",
        "_recent_positions",
        "_time_interval_ms",
        "aborted",
        "flushed_rows",
        "max_timestamp",
        "offsets",
        "size_bytes",
        "times",
    )

    def __init__(self, base_offset: int, options: LogOptions) -> None:
        self._base_offset = base_offset
        self._interval_bytes = options.index_interval_bytes
        self._time_interval_ms = options.time_index_interval_ms
        self.offsets: array[int] = array("Q")
        self.times: array[int] = array("q")
        self.aborted: array[int] = array("q")
        self.max_timestamp = NO_TIMESTAMP
        # The size of the largest of the three files: every append checks whether it is full.
        self.size_bytes = 0
        # How many rows of each table are in its file already.
        self.flushed_rows = [0, 0, 0]
        self._recent_lasts: array[int] = array("q")
        self._recent_positions: array[int] = array("q")
        self._recent_from = base_offset
        self._next_row_at = options.index_interval_bytes
        self._next_time_row_at = options.index_interval_bytes
        self._next_timestamp = NO_TIMESTAMP

    @classmethod
    def restore(
        cls,
        base_offset: int,
        options: LogOptions,
        tables: "tuple[array[int], array[int], array[int]]",
        end: tuple[int, int],
        max_timestamp: int,
    ) -> "ActiveIndex":
        """The index as it was when the segment ended at `end` (offset, position)."""
        index = cls(base_offset, options)
        index.offsets, index.times, index.aborted = tables
        index.flushed_rows = [len(tables[0]), len(tables[1]) // 2, len(tables[2]) // 4]
        index.max_timestamp = max_timestamp
        index._recent_from = end[0]
        index._resume(end[1])
        index._measure()
        return index

    def note(self, base_offset: int, last_offset: int, position: int, max_timestamp: int) -> None:
        """A batch was appended at `position`."""
        self._recent_lasts.append(last_offset)
        self._recent_positions.append(position)
        if position >= self._next_row_at:
            self._next_row_at = position + self._interval_bytes
            self.offsets.append((base_offset - self._base_offset) << POSITION_BITS | position)
            self._measure()
            if len(self._recent_lasts) > 2 * RECENT_KEPT:
                self._forget_old()
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        if position >= self._next_time_row_at and (
            self.max_timestamp >= self._next_timestamp
            or position >= self._next_time_row_at + TIME_ROW_BYTES_MAX
        ):
            self.times.append(self.max_timestamp)
            self.times.append(base_offset)
            self._measure()
            self._next_timestamp = self.max_timestamp + self._time_interval_ms
            self._next_time_row_at = position + self._interval_bytes

    def next_rows(self) -> tuple[int, int, int]:
        """From which position on a batch gets a row; from the second on, if its timestamp is the third."""
        row_at = min(self._next_row_at, self._next_time_row_at + TIME_ROW_BYTES_MAX)
        return row_at, self._next_time_row_at, self._next_timestamp

    def forget_recent(self, end_offset: int) -> None:
        """Batches below the end were not all noted: the sparse rows lead to them."""
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        self._recent_from = end_offset

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self.aborted.extend(transaction)
        self._measure()

    def replace_aborted(self, rows: "array[int]") -> None:
        """Use these rows instead; the next flush writes all of them."""
        self.aborted = rows
        self.flushed_rows[SHAPES.index(ABORTED)] = 0
        self._measure()

    def locate_recent(self, offset: int) -> int | None:
        """Where the first batch that ends at or after `offset` begins; None if that is long ago."""
        if offset < self._recent_from:
            return None
        index = bisect_left(self._recent_lasts, offset)
        return self._recent_positions[index] if index < len(self._recent_lasts) else None

    def boundary_recent(self, limit: int) -> int | None:
        """The last batch start at or before the position `limit`; None if that is long ago."""
        index = bisect_right(self._recent_positions, limit) - 1
        return self._recent_positions[index] if index >= 0 else None

    def truncate(self, end_offset: int, size_bytes: int, max_timestamp: int) -> None:
        """Forget everything that lies at or behind the new end of the segment."""
        del self.offsets[rows_below(self.offsets, size_bytes) :]
        kept = bisect_left(range(len(self.times) // 2), end_offset, key=lambda row: self.times[2 * row + 1])
        del self.times[2 * kept :]
        ended = bisect_left(
            range(len(self.aborted) // 4), end_offset, key=lambda row: self.aborted[4 * row + 2]
        )
        del self.aborted[4 * ended :]
        rows = (len(self.offsets), kept, ended)
        self.flushed_rows = [min(pair) for pair in zip(self.flushed_rows, rows, strict=True)]
        self.max_timestamp = max_timestamp
        self.forget_recent(end_offset)
        self._resume(size_bytes)
        self._measure()

    def marks(self) -> tuple[IndexMark, IndexMark, IndexMark]:
        """How a checkpoint recognises these tables."""
        return (
            IndexMark(len(self.offsets), crc_of(self.offsets)),
            IndexMark(len(self.times) // 2, crc_of(self.times)),
            IndexMark(len(self.aborted) // 4, crc_of(self.aborted)),
        )

    def close_times(self, last_base_offset: int) -> None:
        """The segment is full: its last row carries the largest timestamp of all."""
        if self.max_timestamp > NO_TIMESTAMP:
            self.times.append(self.max_timestamp)
            self.times.append(last_base_offset)
            self._measure()

    def _measure(self) -> None:
        self.size_bytes = 8 * max(len(self.offsets), len(self.times), len(self.aborted))

    def _forget_old(self) -> None:
        self._recent_from = self._recent_lasts[RECENT_KEPT - 1] + 1
        del self._recent_lasts[:RECENT_KEPT]
        del self._recent_positions[:RECENT_KEPT]

    def _resume(self, size_bytes: int) -> None:
        last = self.offsets[-1] & POSITION_MASK if self.offsets else 0
        self._next_row_at = last + self._interval_bytes
        # Where the last time row stands is not known any more: the next batch gets one.
        self._next_time_row_at = size_bytes if self.times else self._interval_bytes
        self._next_timestamp = self.times[-2] + self._time_interval_ms if self.times else NO_TIMESTAMP


def rows_below(offsets: "array[int]", size_bytes: int) -> int:
    """How many rows of an offset index point below a position."""
    return bisect_left(offsets, size_bytes, key=lambda word: word & POSITION_MASK)


def flush(disk: Disk, directory: str, base_offset: int, index: ActiveIndex) -> list[File]:
    """Append the rows that are new; returns the files that were written, open and not yet synced."""
    return _write(disk, directory, base_offset, index, seal=False)


def seal(disk: Disk, directory: str, base_offset: int, index: ActiveIndex) -> list[File]:
    """Write all rows that are missing, and the footers."""
    return _write(disk, directory, base_offset, index, seal=True)


def _write(disk: Disk, directory: str, base_offset: int, index: ActiveIndex, *, seal: bool) -> list[File]:
    files: list[File] = []
    try:
        for number, words in enumerate((index.offsets, index.times, index.aborted)):
            shape = SHAPES[number]
            flushed, rows = index.flushed_rows[number], len(words) // shape.words
            if not seal and flushed == rows:
                continue
            file = disk.open(f"{directory}/{numbered(base_offset, shape.suffix)}", create=True)
            files.append(file)
            # Whatever else stands behind the rows that count: a footer from before a
            # truncation, or what a crash or a failed write left.
            if file.size() != flushed * shape.row_bytes:
                file.truncate(flushed * shape.row_bytes)
            content = encode_words(words[flushed * shape.words :])
            if seal:
                content += footer(shape, encode_words(words))
            file.append(content)
            if not seal:
                index.flushed_rows[number] = rows
    except StorageError:
        for file in files:
            file.close()
        raise
    return files


class SealedIndex:
    """Three tables on disk. A table that is missing or damaged is rebuilt from the segment."""

    __slots__ = ("_base_offset", "_directory", "_disk", "_rebuild", "_tables", "rebuilt")

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, rebuild: Callable[[IndexRowFormat], Words]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._rebuild = rebuild
        self._tables: dict[IndexRowFormat, Words] = {}
        self.rebuilt = 0

    @property
    def offsets(self) -> Words:
        return self._table(OFFSETS)

    @property
    def times(self) -> Words:
        return self._table(TIMES)

    @property
    def aborted(self) -> Words:
        return self._table(ABORTED)

    @property
    def max_timestamp(self) -> int:
        times = self.times
        return times[-2] if len(times) else NO_TIMESTAMP

    def distrust(self) -> None:
        """Check the files once more: a row led to the wrong place."""
        self.drop()

    def is_whole(self) -> bool:
        """Whether every table is in use, or its file can be."""
        return all(shape in self._tables or self._mapped(shape) is not None for shape in SHAPES)

    def load(self) -> None:
        """Have every table ready, rebuilt if need be."""
        for shape in SHAPES:
            self._table(shape)

    def adopt(self, tables: ActiveIndex) -> None:
        """Use these tables: they were rebuilt from the segment."""
        self.rebuilt += 1
        self._tables = {OFFSETS: tables.offsets, TIMES: tables.times, ABORTED: tables.aborted}

    def drop(self) -> None:
        """Unmap the files, which are about to change."""
        self._tables.clear()

    def _table(self, shape: IndexRowFormat) -> Words:
        table = self._tables.get(shape)
        if table is None:
            table = self._tables[shape] = self._load(shape)
        return table

    def _load(self, shape: IndexRowFormat) -> Words:
        table = self._mapped(shape)
        return self._rebuilt(shape) if table is None else table

    def _mapped(self, shape: IndexRowFormat) -> Words | None:
        path = f"{self._directory}/{numbered(self._base_offset, shape.suffix)}"
        try:
            file = self._disk.open(path, readonly=True)
            try:
                return parse_sealed(shape, file.map_readonly())
            finally:
                file.close()
        except (NoSuchFile, CorruptionError):
            return None

    def _rebuilt(self, shape: IndexRowFormat) -> Words:
        self.rebuilt += 1
        return self._rebuild(shape)
