"""Columns from records that are Python objects already."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.client.consumer import PolledRecord
from penstock.pipeline.reading.spans import Span

# Beyond it, a time in microseconds does not fit into 64 bits.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


def row_batch(rows: Sequence[PolledRecord], span: Span, schema: pa.Schema) -> pa.RecordBatch:
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
