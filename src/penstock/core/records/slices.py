"""Records as they stand in a batch: found and cut out without being decoded, and decoded many at a time.

    batch     ─ header │ record │ record │ record │ record │ record      index_records: where each begins
    slice                       └────────────────┘                       records_in: decodes them

A slice is bytes of the log with what its batch says for all of them: the deltas of its records count from the
batch's base offset and base timestamp. Whoever has one of them needs nothing else of the batch.

`index_records` checks what `read_records` does, so that a slice can be decoded wherever it goes.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.records.batch import BatchHeader, Buffer, InvalidRecord, read_header
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.core.records.record import Headers, ReadRecord, Record, read_record, wrapped

# The records have times of their own.
NO_APPEND_TIME = -1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_NO_HEADERS: Headers = ()
# Of lengths: -1; and what a number of two bytes is less than.
_NULL = 1
_LONG = 1 << 14


class RecordSlice(NamedTuple):
    """Neighbouring records of one batch."""

    base_offset: int
    base_timestamp: int
    # The time of all of them, where the broker's clock says so.
    append_time: int
    content: bytes


class IndexedRecords:
    """The records of one batch, and where each of them begins."""

    __slots__ = (
        "_bounds",
        "append_time",
        "base_offset",
        "base_timestamp",
        "end",
        "offsets",
        "payload",
        "record_bytes_max",
    )

    def __init__(
        self, header: BatchHeader, payload: bytes, bounds: "array[int]", deltas: Sequence[int]
    ) -> None:
        self.base_offset = header.base_offset
        self.base_timestamp = header.base_timestamp
        self.append_time = header.max_timestamp if header.is_log_append_time else NO_APPEND_TIME
        # The batch has these offsets up to here, records or not.
        self.end = header.next_offset
        self.payload = payload
        base = header.base_offset
        # Ascending; of a compacted batch some are missing.
        self.offsets: Sequence[int] = (
            range(base, base + len(deltas))
            if isinstance(deltas, range)
            else array("q", [base + each for each in deltas])
        )
        self._bounds = bounds
        self.record_bytes_max = max(map(int.__sub__, bounds[1:], bounds), default=0)

    def place(self, offset: int) -> int:
        """How many records are before the offset."""
        offsets = self.offsets
        if isinstance(offsets, range):
            return min(max(0, offset - offsets.start), len(offsets))
        return bisect_left(offsets, offset)

    def slice(self, start: int, end: int) -> RecordSlice | None:
        """The records of these offsets; None if there is none of them."""
        first, last = self.place(start), self.place(end)
        if first >= last:
            return None
        content = self.payload[self._bounds[first] : self._bounds[last]]
        return RecordSlice(self.base_offset, self.base_timestamp, self.append_time, content)

    def records(self, start: int = 0) -> list[Record]:
        """Those from an offset on, decoded."""
        found = self.slice(start, self.end)
        return [] if found is None else records_in(found)


def index_records(batch: Buffer, limit_bytes: int = LIMIT_BYTES) -> IndexedRecords:
    """The records of the one batch at the start of `batch`, unpacked and checked; or InvalidRecord."""
    header = read_header(batch)
    payload = unpack_payload(batch, header, limit_bytes)
    bounds = array("I")
    deltas: Sequence[int] = _index(payload, header, bounds)
    return IndexedRecords(header, payload, bounds, deltas)


def _index(  # noqa: C901, PLR0912, PLR0915 - a call per number would cost as much as the rest
    payload: bytes, header: BatchHeader, bounds: "array[int]"
) -> Sequence[int]:
    """Where each record begins, and the end of the last; returns their offset deltas."""
    deltas: list[int] = []
    add_bound, add_delta, size = bounds.append, deltas.append, len(payload)
    start, last_delta, delta_max = 0, -1, header.last_offset_delta
    for index in range(header.record_count):
        add_bound(start)
        try:
            # What most records are is checked here: no headers, and numbers of two bytes at most. A number
            # that goes on after those has a bit above theirs.
            length = payload[start]
            at = start + 2
            if length > 0x7F:
                length = (length & 0x7F) | payload[at - 1] << 7
                at += 1
            end = at - 1 + (length >> 1)
            time = payload[at]
            at += 1
            if time > 0x7F:
                time = payload[at] << 7
                at += 1
            delta = payload[at]
            at += 1
            if delta > 0x7F:
                delta = (delta & 0x7F) | payload[at] << 7
                at += 1
            key = payload[at]
            at += 1
            if key > 0x7F:
                key = (key & 0x7F) | payload[at] << 7
                at += 1
            if key != _NULL:
                at += key >> 1
            value = payload[at]
            at += 1
            if value > 0x7F:
                value = (value & 0x7F) | payload[at] << 7
                at += 1
            if value != _NULL:
                at += value >> 1
            is_plain = (
                at + 1 == end <= size
                and not payload[at]
                and length | time | delta | key | value < _LONG
                and not (length | delta) & 1
                and (key == _NULL or not key & 1)
                and (value == _NULL or not value & 1)
            )
        except IndexError:
            is_plain = False
        if is_plain:
            start = end
            delta >>= 1
        else:
            start, delta = _read(payload, start, index)[:2]
        if not last_delta < delta <= delta_max:
            raise InvalidRecord(index, f"offset delta {delta} after {last_delta}, of {delta_max}")
        last_delta = delta
        add_delta(delta)
    if start != size:
        raise InvalidRecord(header.record_count, f"{size - start} bytes follow the last record")
    add_bound(start)
    return range(len(deltas)) if last_delta == len(deltas) - 1 else deltas


def records_in(piece: RecordSlice) -> list[Record]:  # noqa: C901, PLR0912, PLR0915 - as in `_index`
    """The records of a slice; or InvalidRecord."""
    base_offset, base_timestamp, append_time, payload = piece
    found: list[Record] = []
    add, new, size = found.append, tuple.__new__, len(payload)
    start = 0
    while start < size:
        headers = _NO_HEADERS
        try:
            # As in `_index`.
            length = payload[start]
            at = start + 2
            if length > 0x7F:
                length = (length & 0x7F) | payload[at - 1] << 7
                at += 1
            end = at - 1 + (length >> 1)
            time = payload[at]
            at += 1
            if time > 0x7F:
                time = (time & 0x7F) | payload[at] << 7
                at += 1
            delta = payload[at]
            at += 1
            if delta > 0x7F:
                delta = (delta & 0x7F) | payload[at] << 7
                at += 1
            key_length = payload[at]
            at += 1
            if key_length > 0x7F:
                key_length = (key_length & 0x7F) | payload[at] << 7
                at += 1
            if key_length == _NULL:
                key = None
            else:
                key = payload[at : at + (key_length >> 1)]
                at += key_length >> 1
            value_length = payload[at]
            at += 1
            if value_length > 0x7F:
                value_length = (value_length & 0x7F) | payload[at] << 7
                at += 1
            if value_length == _NULL:
                value = None
            else:
                value = payload[at : at + (value_length >> 1)]
                at += value_length >> 1
            is_plain = (
                at + 1 == end <= size
                and not payload[at]
                and length | time | delta | key_length | value_length < _LONG
                and not (length | delta) & 1
                and (key is None or not key_length & 1)
                and (value is None or not value_length & 1)
            )
        except IndexError:
            is_plain = False
        if is_plain:
            start = end
            delta >>= 1
            time = (time >> 1) ^ -(time & 1)
        else:
            start, delta, time, key, value, headers = _read(payload, start, len(found))
        timestamp = base_timestamp + time if append_time == NO_APPEND_TIME else append_time
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            timestamp = wrapped(timestamp)
        add(new(Record, (base_offset + delta, timestamp, key, value, headers)))
    return found


def _read(payload: bytes, start: int, index: int) -> ReadRecord:
    try:
        return read_record(payload, start)
    except ValueError as broken:
        raise InvalidRecord(index, str(broken)) from None
    except IndexError:
        raise InvalidRecord(index, "the records end early") from None
