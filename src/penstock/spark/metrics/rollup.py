"""Windows per series: count, sum, least, greatest and percentiles.

Before Spark sees them, the rows of the raw table are put together into slices: the values of one
series in one stretch of time that every window is a multiple of. A window needs every value for its
percentiles, but not a row for each: thousands of rows become a few lists, and what Spark shuffles,
groups and keeps are those. A slice goes into one window of each length, and a window closes when the
watermark has passed its end.

Every number of a rollup is worked out from the window's values in ascending order, so it depends
on which values there were and not on their order: a batch that is tried again, or cut
differently, gives the same bytes. A percentile lies between the two values next to its rank, in
proportion, as that of Spark's `percentile` does:

    position = (count - 1) * rank / 100
    value    = (⌈position⌉ - position) * low + (position - ⌊position⌋) * high
"""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.spark.metrics.configuration import Duration, MetricsConfig, PercentilesSection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

SLICES_DDL = "series string, slice long, latest timestamp, values array<double>"
# What `withWatermark` writes beside a column. A window that is exploded, and not made by `window()`,
# has to carry it by hand: `window()` makes windows of one length only, and a union reads twice.
WATERMARK_METADATA = "spark.watermarkDelayMs"
# What a task gathers before it groups; more would need memory, fewer would make more slices.
ROWS_GATHERED_MAX = 1_000_000


def slice_length(windows: tuple[Duration, ...]) -> Duration:
    """The longest stretch that all windows are multiples of.

    >>> slice_length((Duration.parse("1m"), Duration.parse("90s")))
    Duration('30s')
    """
    return Duration(math.gcd(*windows))


def percentile_name(rank: float) -> str:
    """The column of a percentile.

    >>> percentile_name(50.0), percentile_name(99.9)
    ('p50', 'p99_9')
    """
    return "p" + f"{rank:g}".replace(".", "_")


def rollups(slices: "DataFrame", config: MetricsConfig) -> "DataFrame":
    """One row per series and window; of a stream, those windows that nothing can be added to any more."""
    import pyspark.sql.functions as sf

    if slices.isStreaming:
        slices = slices.withWatermark("latest", f"{int(config.lateness)} milliseconds")
    windows = sf.array(*(_window(window) for window in config.windows))
    opened = slices.select("series", "values", sf.explode(windows).alias("window")).select(
        "series",
        "values",
        sf.col("window").alias("window", metadata={WATERMARK_METADATA: int(config.lateness)}),
    )
    summed = _exact(opened, config.percentiles)
    if config.percentiles.method == "approximate":
        summed = _approximate(opened, config.percentiles)
    seconds = (sf.unix_seconds("window.end") - sf.unix_seconds("window.start")).cast("int")
    return summed.select(
        sf.col("window.start").alias("window_start"),
        sf.col("window.end").alias("window_end"),
        seconds.alias("window_seconds"),
        "series",
        *columns(config.percentiles),
    )


def columns(percentiles: PercentilesSection) -> list[str]:
    """The numbers of a rollup, in the order of the table."""
    return ["count", "sum", "min", "max", *map(percentile_name, percentiles.ranks)]


def _window(length: Duration) -> "Column":
    import pyspark.sql.functions as sf

    start = sf.col("slice") - sf.pmod(sf.col("slice"), sf.lit(int(length)))
    end = start + sf.lit(int(length))
    return sf.struct(sf.timestamp_millis(start).alias("start"), sf.timestamp_millis(end).alias("end"))


def _exact(opened: "DataFrame", percentiles: PercentilesSection) -> "DataFrame":
    import pyspark.sql.functions as sf

    ordered = sf.sort_array(sf.flatten(sf.collect_list("values")))
    grouped = opened.groupBy("window", "series").agg(ordered.alias("ordered"))
    return grouped.select("window", "series", *_statistics(sf.col("ordered"), percentiles))


def _approximate(opened: "DataFrame", percentiles: PercentilesSection) -> "DataFrame":
    import pyspark.sql.functions as sf

    value = sf.col("value")
    ranks = [rank / 100 for rank in percentiles.ranks]
    grouped = (
        opened.select("window", "series", sf.explode("values").alias("value"))
        .groupBy("window", "series")
        .agg(
            sf.count(value).alias("count"),
            sf.sum(value).alias("sum"),
            sf.min(value).alias("min"),
            sf.max(value).alias("max"),
            sf.percentile_approx(value, ranks, percentiles.accuracy).alias("ranked"),
        )
    )
    named = [
        sf.get("ranked", sf.lit(i)).alias(percentile_name(rank)) for i, rank in enumerate(percentiles.ranks)
    ]
    return grouped.select("window", "series", "count", "sum", "min", "max", *named)


def _statistics(ordered: "Column", percentiles: PercentilesSection) -> Iterator["Column"]:
    import pyspark.sql.functions as sf

    count = sf.size(ordered)
    yield count.cast("long").alias("count")
    yield sf.aggregate(ordered, sf.lit(0.0), lambda total, value: total + value).alias("sum")
    yield sf.get(ordered, sf.lit(0)).alias("min")
    yield sf.get(ordered, count - 1).alias("max")
    for rank in percentiles.ranks:
        position = (count - 1).cast("double") * sf.lit(rank / 100)
        below, above = sf.floor(position).cast("int"), sf.ceil(position).cast("int")
        low, high = sf.get(ordered, below), sf.get(ordered, above)
        between = (above - position) * low + (position - below) * high
        between = sf.when(below == above, low).otherwise(between)
        yield between.alias(percentile_name(rank))


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
