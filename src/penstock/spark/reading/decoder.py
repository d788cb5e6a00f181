"""Record batches to Arrow columns, without a Python object per record.

A record begins with its length, so finding the records is a chain of steps that cannot be taken at
once; `record_ends` takes them. All the rest can: once the ends are known, field after field is read
for all records together, with numpy.

      arena   │len│a│ts│off│klen│ key │vlen│ value │hcount│len│a│ts│off│klen│ key │vlen│ value │hcount│…
      ends                                                ^                                          ^
      keys                      ├─────┤                                      ├─────┤
      values                               ├───────┤                                  ├───────┤

An arena holds the records of many batches, unpacked and laid end to end in one buffer. Nothing reads
outside of it, whatever the bytes say: positions past the end are clipped to it, and the values that
come of that fail the comparisons at the end.

The columns of bytes are made without a loop as well. The arena is taken as one Arrow column whose
elements are by turns a field and what lies between two fields; `take` of every second element
copies the fields and drops the rest. Arrow columns are made of buffers: `pa.array` would do, but it
loads pandas to see whether it was given any.

The fast way only compares: where anything is not as it must be, or is only unusual (a varint
longer than it need be, a header that is not UTF-8), it raises `NotVectorizable` and `exact_batch`
reads the batches again, record by record, with `penstock.core.records`. So there is one place that
says what is wrong with a record, and the two ways give the same columns.

`NATIVE` says whether `record_ends` runs compiled (`make native`) or as Python.

Left out: message formats before magic 2.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.client.consumer import PolledRecord
from penstock.client.visible_batches import VisibleBatch, named
from penstock.core.records import BatchHeader, CorruptBatch, read_records
from penstock.core.records.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.spark.reading import record_ends
from penstock.spark.reading.record_ends import walk
from penstock.spark.reading.spans import OffsetRange, record_schema

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
# Longer varints are legal and nobody writes them; `exact_batch` reads them.
VARINT_BYTES = 4
VARLONG_BYTES = 8
# Arrow's offsets have 31 bits. An arena is closed at the first size and the last batch in it unpacks
# to the codec's limit at most, so that positions never come near to that.
ARENA_BYTES = 32 << 20
# Sums of times within this are far from 64 bits.
_TIMESTAMP_LIMIT = 1 << 61
# Each round costs as much as many headers do; who sends hundreds in one record gets the slower way.
_ROUNDS_MAX = 64
# Beyond it, a time in microseconds does not fit into 64 bits.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
NATIVE = not (record_ends.__file__ or "").endswith(".py")


class NotVectorizable(Exception):
    """The fast way cannot read these records; `exact_batch` decides."""


class RecordFields(NamedTuple):
    """Where the fields of each record are, and the numbers among them; length -1 stands for null."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    header_starts: Ints
    ends: Ints

    def cut(self, start: int, end: int) -> "RecordFields":
        """Only the records from `start` up to `end`."""
        return RecordFields._make(field[start:end] for field in self)


def read_fields(octets: Octets, starts: Ints, ends: Ints) -> RecordFields:
    """The fields of the records between `starts` and `ends`; NotVectorizable unless they fill them exactly.

    Headers are counted and not looked at.
    """
    lengths, position = read_varints(octets, starts, VARINT_BYTES)
    settle(np.array_equal(position + lengths, ends))
    timestamp_deltas, position = read_varints(octets, position + 1, VARLONG_BYTES)
    offset_deltas, position = read_varints(octets, position, VARINT_BYTES)
    key_lengths, key_starts = read_varints(octets, position, VARINT_BYTES)
    value_lengths, value_starts = read_varints(octets, past(key_starts, key_lengths), VARINT_BYTES)
    header_counts, position = read_varints(octets, past(value_starts, value_lengths), VARINT_BYTES)
    # No field is negative in length, so positions only grow: what ends in time never ran over. Of
    # records with headers the last header says where they end; `locate_headers` checks it.
    without = header_counts == 0
    settle(bool((header_counts >= 0).all()))
    settle(np.array_equal(position[without], ends[without]))
    return RecordFields(
        timestamp_deltas,
        offset_deltas,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_counts,
        position,
        ends,
    )


def past(starts: Ints, lengths: Ints) -> Ints:
    """Where nullable fields end."""
    shortest = lengths.min()
    settle(bool(shortest >= -1))
    return starts + (lengths if shortest >= 0 else np.maximum(lengths, 0))


def read_varints(octets: Octets, position: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    """The zig-zag varint at each position, and where the next field starts."""
    octet = octets.take(position, mode="clip")
    zigzag = octet.astype(np.int64)
    if octet.max() < 0x80:
        return (zigzag >> 1) ^ -(zigzag & 1), position + 1
    # In most columns all varints are equally long; the others are sorted out byte by byte.
    length = 1
    while octet.min() >= 0x80 and length < bytes_max:
        octet = octets.take(position + length, mode="clip")
        zigzag += (octet.astype(np.int64) - 1) << (7 * length)
        length += 1
    following = position + length
    rows = np.flatnonzero(octet >= 0x80)
    while len(rows):
        settle(length < bytes_max)
        more = octets.take(position[rows] + length, mode="clip")
        zigzag[rows] += (more.astype(np.int64) - 1) << (7 * length)
        following[rows] += 1
        rows = rows[more >= 0x80]
        length += 1
    return (zigzag >> 1) ^ -(zigzag & 1), following


def settle(condition: bool) -> None:
    """Go on if so, else raise `NotVectorizable`."""
    if not condition:
        raise NotVectorizable


assert ARENA_BYTES + LIMIT_BYTES < 1 << 31


class RecordArena(NamedTuple):
    """The batches, and their records without headers, one batch after the other."""

    batches: list[VisibleBatch]
    octets: bytes
    starts: list[int]


def arenas(shown: Iterable[VisibleBatch], arena_bytes: int = ARENA_BYTES) -> Iterator[RecordArena]:
    """Lay out batches; a new arena begins when one is full."""
    batches: list[VisibleBatch] = []
    payloads: list[bytes | memoryview] = []
    starts = [0]
    for one in shown:
        payload = _unpacked(one)
        batches.append(one)
        payloads.append(payload)
        starts.append(starts[-1] + len(payload))
        if starts[-1] >= arena_bytes:
            yield RecordArena(batches, b"".join(payloads), starts)
            batches, payloads, starts = [], [], [0]
    if batches:
        yield RecordArena(batches, b"".join(payloads), starts)


def _unpacked(one: VisibleBatch) -> bytes | memoryview:
    if not one.header[5] & CODEC_MASK and len(one.batch) <= LIMIT_BYTES:
        return one.batch[HEADER_BYTES:]
    try:
        return unpack_payload(one.batch, one.header, LIMIT_BYTES)
    except CorruptBatch as broken:
        raise named(one.header, broken) from None


def locate(arena: RecordArena) -> RecordFields:
    """The fields of all records; NotVectorizable where a batch is not exactly what its header says."""
    counts = [header[12] for header, _ in arena.batches]
    try:
        ends: Ints = np.array(walk(arena.octets, arena.starts, counts), dtype=np.int64)
    except IndexError:
        raise NotVectorizable from None
    settle(0 < len(ends) == sum(counts))
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1]
    fields = read_fields(np.frombuffer(arena.octets, np.uint8), starts, ends)
    settle(bool(ends[-1] == arena.starts[-1]))
    return fields


def per_record(arena: RecordArena, fields: RecordFields) -> tuple[Ints, Ints, Ints]:
    """Offset, timestamp in milliseconds and kind of timestamp of each record."""
    headers = BatchHeader._make(zip(*(header for header, _ in arena.batches), strict=True))
    counts = _ints(headers.record_count)
    _check_order(fields.offset_deltas, counts, _ints(headers.last_offset_delta))
    offsets = np.repeat(_ints(headers.base_offset), counts) + fields.offset_deltas
    kinds = (_ints(headers.attributes) & LOG_APPEND_TIME) // LOG_APPEND_TIME
    stamps = np.where(kinds, _ints(headers.max_timestamp), _ints(headers.base_timestamp))
    settle(bool((abs(stamps) < _TIMESTAMP_LIMIT).all()) and bool((stamps > -_TIMESTAMP_LIMIT).all()))
    timestamps = np.repeat(stamps, counts) + fields.timestamp_deltas * np.repeat(1 - kinds, counts)
    return offsets, timestamps, np.repeat(kinds, counts)


def _check_order(deltas: Ints, counts: Ints, lasts: Ints) -> None:
    """Offsets grow within a batch, from 0 at least to the header's last at most."""
    firsts = np.cumsum(counts) - counts
    before = np.empty_like(deltas)
    before[1:] = deltas[:-1]
    before[firsts[counts > 0]] = -1
    settle(bool((deltas > before).all()) and bool((deltas <= np.repeat(lasts, counts)).all()))


def _ints(column: object) -> Ints:
    return np.array(column, dtype=np.int64)


def gather(arena: pa.Buffer, starts: Ints, lengths: Ints) -> pa.Array:
    """The bytes at `starts`, in order and without overlap, as a binary column; length -1 gives null."""
    count = len(starts)
    has_nulls = count > 0 and int(lengths.min()) < 0
    if has_nulls and int(lengths.max()) < 0:
        return pa.nulls(count, pa.binary())
    # By turns a field and what lies between it and the next; only the fields are taken.
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + (np.maximum(lengths, 0) if has_nulls else lengths)
    pieces = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(edges), arena])
    taken = pieces.take(fixed(pa.int32(), np.arange(0, 2 * count, 2, dtype=np.int32)))
    if not has_nulls:
        return taken
    _, offsets, octets = taken.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [validity(lengths >= 0), offsets, octets])


def fixed(
    kind: pa.DataType, values: npt.NDArray[np.int32 | np.int64], present: pa.Buffer | None = None
) -> pa.Array:
    """A column of numbers, which must be as wide as `kind` is."""
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(values)])


def repeated(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    octets = text.encode()
    edges = np.arange(0, (count + 1) * len(octets), len(octets), dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(octets * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def validity(present: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Arrow's bitmap of what is not null."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))


class HeaderLocations(NamedTuple):
    """Where the names and values of all headers are, in the order of their records."""

    name_starts: Ints
    name_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


def locate_headers(octets: Octets, fields: RecordFields) -> HeaderLocations | None:
    """Find every header, and settle that they fill their records; None where no record has any."""
    counts = fields.header_counts
    most = int(counts.max())
    if not most:
        return None
    settle(most <= _ROUNDS_MAX)
    slots = np.cumsum(counts) - counts
    located = HeaderLocations._make(np.empty(int(counts.sum()), np.int64) for _ in HeaderLocations._fields)
    position = fields.header_starts
    rows = np.flatnonzero(counts)
    at = position[rows]
    for turn in range(most):
        name_lengths, name_starts = read_varints(octets, at, VARINT_BYTES)
        settle(bool((name_lengths >= 0).all()))
        value_lengths, value_starts = read_varints(octets, name_starts + name_lengths, VARINT_BYTES)
        following = past(value_starts, value_lengths)
        found = HeaderLocations(name_starts, name_lengths, value_starts, value_lengths)
        slot = slots[rows] + turn
        for column, values in zip(located, found, strict=True):
            column[slot] = values
        done = counts[rows] == turn + 1
        settle(np.array_equal(following[done], fields.ends[rows[done]]))
        rows, at = rows[~done], following[~done]
    return located


def header_column(arena: pa.Buffer, counts: Ints, located: HeaderLocations, kind: pa.DataType) -> pa.Array:
    """The column of lists; a record without headers has null, as the official connector has it."""
    names = gather(arena, located.name_starts, located.name_lengths)
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        settle(False)
    values = gather(arena, located.value_starts, located.value_lengths)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    buffers = [validity(counts > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[pairs])


def row_batch(rows: Sequence[PolledRecord], span: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of these records."""
    columns: list[list[object]] = [
        [row.key for row in rows],
        [row.value for row in rows],
        [span.topic] * len(rows),
        [span.partition] * len(rows),
        [row.offset for row in rows],
        [_microseconds(row.timestamp_ms) for row in rows],
        [int(row.is_log_append_time) for row in rows],
    ]
    if "headers" in schema.names:
        # As the official connector has it: null where there are none.
        columns.append([[(_text(name), value) for name, value in row.headers] or None for row in rows])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _microseconds(timestamp_ms: int) -> int | None:
    """A time that does not fit into Spark's timestamps is null."""
    return timestamp_ms * 1000 if abs(timestamp_ms) <= TIMESTAMP_MS_MAX else None


def _text(name: str) -> str:
    """A name that is not UTF-8 gets replacement characters, as Java would give it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def exact_batch(shown: Iterable[VisibleBatch], span: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    """The records of these batches that belong to the span; raises `CorruptBatch`."""
    rows: list[PolledRecord] = []
    for header, batch in shown:
        appended = header.is_log_append_time
        try:
            rows += [
                PolledRecord(one.offset, one.timestamp, appended, one.key, one.value, one.headers)
                for one in read_records(batch)
                if span.start <= one.offset < span.end
            ]
        except CorruptBatch as broken:
            raise named(header, broken) from None
    return row_batch(rows, span, schema)


def arrow_batches(
    shown: Iterable[VisibleBatch], span: OffsetRange, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The records of these batches that belong to the span; raises `CorruptBatch`."""
    schema = record_schema(include_headers)
    for arena in arenas(shown):
        try:
            yield _fast_batch(arena, span, schema)
        except NotVectorizable:
            yield exact_batch(arena.batches, span, schema)


def _fast_batch(arena: RecordArena, span: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    fields = locate(arena)
    located = locate_headers(np.frombuffer(arena.octets, np.uint8), fields)
    offsets, timestamps, kinds = per_record(arena, fields)
    start, end = (int(edge) for edge in np.searchsorted(offsets, (span.start, span.end)))
    if located is not None:
        located = _cut_headers(located, fields.header_counts, start, end)
    if end - start < len(offsets):
        fields = fields.cut(start, end)
        offsets, timestamps, kinds = offsets[start:end], timestamps[start:end], kinds[start:end]
    buffer = pa.py_buffer(arena.octets)
    columns = [
        gather(buffer, fields.key_starts, fields.key_lengths),
        gather(buffer, fields.value_starts, fields.value_lengths),
        repeated(span.topic, len(offsets)),
        fixed(pa.int32(), np.full(len(offsets), span.partition, np.int32)),
        fixed(pa.int64(), offsets),
        _timestamp_column(timestamps, schema.field("timestamp").type),
        fixed(pa.int32(), kinds.astype(np.int32)),
    ]
    if "headers" in schema.names:
        kind = schema.field("headers").type
        if located is None:
            columns.append(pa.nulls(len(offsets), kind))
        else:
            columns.append(header_column(buffer, fields.header_counts, located, kind))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cut_headers(located: HeaderLocations, counts: Ints, start: int, end: int) -> HeaderLocations:
    """The headers of the records from `start` up to `end`."""
    first = int(counts[:start].sum())
    last = first + int(counts[start:end].sum())
    return HeaderLocations._make(column[first:last] for column in located)


def _timestamp_column(timestamps_ms: Ints, kind: pa.DataType) -> pa.Array:
    """Microseconds; a time that does not fit into them is null."""
    fits = np.abs(timestamps_ms) <= TIMESTAMP_MS_MAX
    present = None if fits.all() else validity(fits)
    microseconds = np.where(fits, timestamps_ms, 0) * 1000 if present else timestamps_ms * 1000
    return fixed(kind, microseconds, present)
