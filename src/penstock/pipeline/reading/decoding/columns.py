"""Arenas to Arrow batches."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.pipeline.reading.decoding.arena import Arena, arenas, locate, per_record
from penstock.pipeline.reading.decoding.batches import Shown
from penstock.pipeline.reading.decoding.exact import exact_batch
from penstock.pipeline.reading.decoding.fields import Ints, Unsettled
from penstock.pipeline.reading.decoding.gathering import fixed, gather, repeated, validity
from penstock.pipeline.reading.decoding.headers import Located, header_column, locate_headers
from penstock.pipeline.reading.decoding.rows import TIMESTAMP_MS_MAX
from penstock.pipeline.reading.spans import Span, record_schema


def arrow_batches(shown: Iterable[Shown], span: Span, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of these batches that belong to the span; raises `CorruptBatch`."""
    schema = record_schema(include_headers)
    for arena in arenas(shown):
        try:
            yield _fast_batch(arena, span, schema)
        except Unsettled:
            yield exact_batch(arena.batches, span, schema)


def _fast_batch(arena: Arena, span: Span, schema: pa.Schema) -> pa.RecordBatch:
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


def _cut_headers(located: Located, counts: Ints, start: int, end: int) -> Located:
    """The headers of the records from `start` up to `end`."""
    first = int(counts[:start].sum())
    last = first + int(counts[start:end].sum())
    return Located._make(column[first:last] for column in located)


def _timestamp_column(timestamps_ms: Ints, kind: pa.DataType) -> pa.Array:
    """Microseconds; a time that does not fit into them is null."""
    fits = np.abs(timestamps_ms) <= TIMESTAMP_MS_MAX
    present = None if fits.all() else validity(fits)
    microseconds = np.where(fits, timestamps_ms, 0) * 1000 if present else timestamps_ms * 1000
    return fixed(kind, microseconds, present)
