"""The same columns, record by record, with the reader that everything else in Penstock uses.

It settles what the fast way leaves open: what is wrong with a record, and what is merely unusual.
"""

from collections.abc import Iterable

import pyarrow as pa

from penstock.core.records import CorruptBatch, Record, read_records
from penstock.pipeline.reading.decoding.batches import Shown, named
from penstock.pipeline.reading.spans import Span

# Beyond it, a time in microseconds does not fit into 64 bits.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


def exact_batch(shown: Iterable[Shown], span: Span, schema: pa.Schema) -> pa.RecordBatch:
    """The records of these batches that belong to the span; raises `CorruptBatch`."""
    records: list[tuple[Record, int]] = []
    for header, batch in shown:
        kind = int(header.is_log_append_time)
        try:
            records += [(one, kind) for one in read_records(batch) if span.start <= one.offset < span.end]
        except CorruptBatch as broken:
            raise named(header, broken) from None
    columns: list[list[object]] = [
        [one.key for one, _ in records],
        [one.value for one, _ in records],
        [span.topic for _ in records],
        [span.partition for _ in records],
        [one.offset for one, _ in records],
        [_microseconds(one.timestamp) for one, _ in records],
        [kind for _, kind in records],
    ]
    if "headers" in schema.names:
        columns.append([_headers(one) for one, _ in records])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _microseconds(timestamp_ms: int) -> int | None:
    """A time that does not fit into Spark's timestamps is null."""
    return timestamp_ms * 1000 if abs(timestamp_ms) <= TIMESTAMP_MS_MAX else None


def _headers(record: Record) -> list[tuple[str, bytes | None]] | None:
    """As the official connector has it: null where there are none."""
    return [(_text(name), value) for name, value in record.headers] or None


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
