"""Reading batches and finding offsets. Nothing in here changes the log."""

from array import array
from bisect import bisect_left

from penstock.core.model import Offset, StorageError, Timestamp
from penstock.core.records import CorruptBatch
from penstock.core.replica import AbortedTransaction
from penstock.storage.log.index import ABORTED, Words
from penstock.storage.log.segment import headers
from penstock.storage.log.state import LogState
from penstock.storage.log.types import (
    EMPTY_READ,
    BatchToSearch,
    DamagedRange,
    FileRange,
    OffsetOutOfRange,
    ReadResult,
    SealedRange,
    SuspectSegment,
    TimestampOffset,
)

# Words of a row of the aborted index. Rows stand in the order of their markers, and of what was stable then.
_FIRST_OFFSET, _LAST_OFFSET, _LAST_STABLE = 1, 2, 3


def read(  # noqa: C901 - the hot path, straight on purpose
    state: LogState, start: Offset, max_bytes: int, end: Offset | None
) -> ReadResult:
    """Whole batches from the one that contains `start`, of one segment."""
    if not state.start <= start <= state.end:
        raise OffsetOutOfRange(start, state.start, state.end)
    limit = state.end if end is None or end > state.end else end
    if start >= limit:
        return EMPTY_READ
    segments = state.segments.items
    last = len(segments) - 1
    # Most readers are at the tail. A log that was removed has no segments.
    at_tail = last >= 0 and start >= segments[last].base_offset
    first = last if at_tail else state.segments.index_of(start)
    for index in range(first, last + 1):
        segment = segments[index]
        segment_end = state.end if index == last else segments[index + 1].base_offset
        stop = limit if limit < segment_end else None
        damage = segment.damage_at(start) if segment.damage else None
        if damage is not None:
            raise DamagedRange(start, damage.start, damage.end, damage.reason)
        try:
            found = segment.slice(start, stop, max_bytes)
        except CorruptBatch as corrupt:
            raise SuspectSegment(segment.base_offset, str(corrupt)) from corrupt
        if found is not None:
            keys = state.keys
            if keys is not None and not keys.table.is_plain:
                found = SealedRange(found.file, found.position, found.length, keys.table)
            return ReadResult((found,)) if found.length else EMPTY_READ
        if limit <= segment_end:
            break
    return EMPTY_READ


def read_filled(state: LogState, start: Offset, max_bytes: int, end: Offset | None) -> ReadResult:
    """Like `read`, from the first batch on that has records, if there is one.

    Compaction leaves batches without any. Some clients take a response that holds nothing else for
    one that was cut short: they ask for more bytes, again and again, and give up.
    """
    first = found = read(state, start, max_bytes, end)
    if not found.ranges or start >= state.segments.active.base_offset:
        # The active segment is never compacted.
        return found
    while found.ranges and state.segments[state.segments.index_of(start)].cleaned:
        part = found.ranges[0]
        for placed in headers(part.file, part.position, part.position + part.length):
            if placed.header.record_count:
                return found if placed.position == part.position else read(state, start, max_bytes, end)
            start = Offset(placed.header.next_offset)
        found = read(state, start, max_bytes, end)
    return found if found.ranges else first


def search_time(
    state: LogState, timestamp: Timestamp, start: Offset
) -> TimestampOffset | BatchToSearch | None:
    """The first record from `start` on at or after `timestamp`, or the batch that may have it.

    Raises DamagedRange if damage hides it, and SuspectSegment if a batch makes no sense or cannot be read.
    """
    segments = state.segments
    start = max(start, state.start)
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        try:
            found = segment.search_time(timestamp, start, state.key_table)
        except (CorruptBatch, StorageError) as bad:
            raise SuspectSegment(segment.base_offset, str(bad)) from bad
        if found is not None:
            return found
        if segment.damage and not segment.is_older_than(timestamp):
            damage = segment.damage[0]
            raise DamagedRange(damage.start, damage.start, damage.end, damage.reason)
    return None


def aborted_between(state: LogState, start: Offset, end: Offset) -> list[AbortedTransaction]:
    """The aborted transactions that have records between `start` and `end`."""
    return aborted_rows(aborted_words(state, start, end))


def aborted_rows(words: "array[int]") -> list[AbortedTransaction]:
    """The rows in words of an aborted index."""
    return list(map(AbortedTransaction._make, zip(*[iter(words)] * ABORTED.words, strict=True)))


def aborted_words(state: LogState, start: Offset, end: Offset) -> "array[int]":
    """The rows of `aborted_between` as words: of a whole log there may be very many."""
    found = array("q")
    segments, width = state.segments, ABORTED.words
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        table = segment.index.aborted
        if segment.lacks_aborted:
            # Behind the damage there may have been more of them.
            raise SuspectSegment(segment.base_offset, "its aborted transactions cannot be found again")
        first = _first_row(table, _LAST_OFFSET, start)
        inside = _first_row(table, _LAST_OFFSET, end, first)
        stop = _first_row(table, _LAST_STABLE, end, inside) + 1
        found.extend(table[first * width : inside * width])
        # Behind a transaction that was open for long there are very many that may have begun before `end`.
        begins = table[inside * width + _FIRST_OFFSET : stop * width : width]
        for row in [row for row, begin in enumerate(begins, inside) if begin < end]:
            found.extend(table[row * width : (row + 1) * width])
        if stop * width <= len(table):
            break
    return found


def _first_row(table: Words, word: int, value: int, start: int = 0) -> int:
    """The first row from `start` on in which this word is `value` or more."""
    rows = range(len(table) // ABORTED.words)
    return bisect_left(rows, value, start, key=lambda row: table[row * ABORTED.words + word])


def aborted_in(state: LogState, start: Offset, piece: FileRange, end: Offset) -> list[AbortedTransaction]:
    """Those that have records in a range that was read from `start` on, all of it below `end`."""
    segments = state.segments
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        if segment.file is piece.file:
            behind = segment.offset_behind(piece.position + piece.length)
            if behind is None:
                behind = segments.end_of(index, state.end)
            return aborted_between(state, start, min(end, behind))
    # Compaction has replaced the file since: a list that is too long does no harm.
    return aborted_between(state, start, end)
