"""What goes into topics: malformed records with their origin, and rollups.

At-least-once delivery may repeat a record, so each has a natural key that identifies repeats:

    dead letter   topic/partition/offset of the record it was           value: the record's, untouched
    rollup        series|window start in ms|window length in seconds    value: JSON
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.dead_letters import (
    ERROR,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
)
from penstock.spark.metrics.tables import series_of

if TYPE_CHECKING:
    import pyarrow as pa

ORIGIN_KEY = "penstock-origin-key"
_encode = msgspec.json.Encoder().encode


def headers_type() -> "pa.DataType":
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def dead_letters(bad: "pa.RecordBatch") -> "pa.RecordBatch":
    """The malformed rows as records."""
    import pyarrow as pa

    rows = bad.select(["topic", "partition", "offset", "recorded", "error", "key"]).to_pylist()
    return pa.record_batch(
        {
            "key": bad.column("series").cast(pa.binary()),
            "value": bad.column("raw"),
            "headers": pa.array([_headers(row) for row in rows], headers_type()),
        }
    )


def origin_headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Where a record stood, as headers."""
    found = {
        ORIGIN_TOPIC: row["topic"],
        ORIGIN_PARTITION: row["partition"],
        ORIGIN_OFFSET: row["offset"],
        ORIGIN_TIMESTAMP: None if row["recorded"] is None else int(row["recorded"].timestamp() * 1_000),
    }
    return [{"key": name, "value": str(value).encode()} for name, value in found.items() if value is not None]


def _headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    headers = origin_headers(row)
    if row["key"] is not None:
        headers.append({"key": ORIGIN_KEY, "value": row["key"]})
    return [*headers, {"key": ERROR, "value": row["error"].encode()}]


def rollup_records(batch: "pa.RecordBatch", numbers: Sequence[str]) -> "pa.RecordBatch":
    """The closed windows as records."""
    import pyarrow as pa

    keys, values = [], []
    for row in batch.to_pylist():
        start = int(row["window_start"].timestamp()) * 1_000
        seconds = row["window_seconds"]
        series = series_of(row["series"])
        keys.append(f"{row['series']}|{start}|{seconds}")
        values.append(
            _encode(
                {"name": series.name, "labels": series.labels, "window_start": start}
                | {"window_end": start + seconds * 1_000, "window_seconds": seconds}
                | {name: row[name] for name in numbers}
            )
        )
    return pa.record_batch({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.binary())})
