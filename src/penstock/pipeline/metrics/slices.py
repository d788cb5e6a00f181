"""Measurements put together by series and stretch of time, before Spark sees them.

A window needs every value for its percentiles, but not a row for each: thousands of rows become a
few lists, and what Spark shuffles, groups and keeps are those.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# What a task gathers before it groups; more would need memory, fewer would make more slices.
ROWS_GATHERED_MAX = 1_000_000


def schema() -> "pa.Schema":
    """A slice: its series, where it starts in ms, its newest moment, and its values."""
    import pyarrow as pa

    return pa.schema(
        [
            ("series", pa.string()),
            ("slice", pa.int64()),
            ("latest", pa.timestamp("us", tz="UTC")),
            ("values", pa.list_(pa.float64())),
        ]
    )


def slices(batches: "Iterable[pa.RecordBatch]", length_ms: int) -> "Iterator[pa.RecordBatch]":
    """Group rows of the raw table; a slice may come in several parts."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch.select(["series", "timestamp", "value"]))
        rows += batch.num_rows
        if rows >= ROWS_GATHERED_MAX:
            yield from _grouped(gathered, length_ms)
            gathered, rows = [], 0
    if rows:
        yield from _grouped(gathered, length_ms)


def _grouped(batches: "list[pa.RecordBatch]", length_ms: int) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches(batches)
    moments = table.column("timestamp").cast(pa.timestamp("us", tz="UTC"))
    ms = pc.divide(moments.cast(pa.int64()), 1_000)
    starts = pc.multiply(pc.divide(ms, length_ms), length_ms)
    keyed = pa.table(
        {
            "series": table.column("series"),
            "slice": starts,
            "latest": moments,
            "values": table.column("value"),
        }
    )
    grouped = keyed.group_by(["series", "slice"], use_threads=False).aggregate(
        [("latest", "max"), ("values", "list")]
    )
    columns = [grouped.column(name) for name in ("series", "slice", "latest_max", "values_list")]
    target = schema()
    cast = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
    yield from pa.Table.from_arrays(cast, schema=target).to_batches()
