"""The two tables, and how rows that Spark hands over become theirs."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.spark.metrics.measurement import MetricSeries

if TYPE_CHECKING:
    import pyarrow as pa

RAW_PARTITIONS = ("date",)
ROLLUP_PARTITIONS = ("window_seconds", "date")
SERIES_REMEMBERED_MAX = 200_000


def raw_schema() -> "pa.Schema":
    """A measurement, the key of its record, and where in the topic it stood."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("name", pa.string()),
            ("value", pa.float64()),
            ("labels", pa.map_(pa.string(), pa.string())),
            ("timestamp", moment),
            ("client", pa.string()),
            ("series", pa.string()),
            ("key", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("recorded", moment),
            ("date", pa.date32()),
        ]
    )


def rollup_schema(numbers: Sequence[str]) -> "pa.Schema":
    """A window of a series; `numbers` are the columns from `count` on."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("window_start", moment),
            ("window_end", moment),
            ("window_seconds", pa.int32()),
            ("name", pa.string()),
            ("labels", pa.map_(pa.string(), pa.string())),
            ("series", pa.string()),
            *((name, pa.int64() if name == "count" else pa.float64()) for name in numbers),
            ("date", pa.date32()),
        ]
    )


def table_rows(batch: "pa.RecordBatch", target: "pa.Schema", moment: str) -> "pa.RecordBatch":
    """The rows in the table's columns; names and labels from the series, the date from column `moment`."""
    import pyarrow as pa

    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    found["name"], found["labels"] = _names_and_labels(found["series"])
    found["date"] = found[moment].cast(pa.timestamp("us", tz="UTC")).cast(pa.date32())
    columns = [found[field.name] for field in target]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


@lru_cache(maxsize=SERIES_REMEMBERED_MAX)
def series_of(text: str) -> MetricSeries:
    """Many rows belong to few series."""
    return MetricSeries.parse(text)


def _names_and_labels(series: "pa.Array") -> "tuple[pa.Array, pa.Array]":
    import pyarrow as pa

    encoded = series.dictionary_encode()
    known = [series_of(text) for text in encoded.dictionary.to_pylist()]
    names = pa.array([one.name for one in known], pa.string())
    labels = pa.array([sorted(one.labels.items()) for one in known], pa.map_(pa.string(), pa.string()))
    return names.take(encoded.indices), labels.take(encoded.indices)
