"""The indexes of the segment that grows.

They live in arrays. Their files follow behind, at checkpoints and when the segment is
sealed: a write per index row would cost more than the append it describes, and after a
crash the tail of the log is read anyway.

Besides the sparse rows, the place of the last few hundred batches is kept exactly, so
that a consumer at the tail of the log costs no read of the file at all.
"""

from array import array
from bisect import bisect_left, bisect_right

from penstock.core.replica import AbortedTransaction
from penstock.storage.log.files.checkpoint import IndexMark
from penstock.storage.log.index.rows import POSITION_BITS, POSITION_MASK, crc_of
from penstock.storage.log.options import LogOptions

RECENT_KEPT = 512
# However slowly time advances in the records, a search by time reads no more than this.
TIME_ROW_BYTES_MAX = 1 << 20
NO_TIMESTAMP = -1


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
        # Of the largest of the three files. Every append looks whether it is full.
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

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        self.aborted.extend(transaction)
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
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        self._recent_from = end_offset
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
