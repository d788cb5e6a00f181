"""Windows per series: count, sum, least, greatest and percentiles.

Rows arrive as slices: the values of one series in one stretch of time that every window is a
multiple of. A slice goes into one window of each length, and a window closes when the watermark
has passed its end.

Every number of a rollup is worked out from the window's values in ascending order, so it depends
on which values there were and not on how they came: a batch that is tried again, or cut
differently, gives the same bytes. A percentile lies between the two values next to its rank, in
proportion, as that of Spark's `percentile` does:

    position = (count - 1) * rank / 100
    value    = (⌈position⌉ - position) * low + (position - ⌊position⌋) * high
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.pipeline.metrics.configuration import Duration, MetricsConfig, Percentiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLICES_DDL = "series string, slice long, latest timestamp, values array<double>"
# What `withWatermark` writes beside a column. A window that is exploded, and not made by `window()`,
# has to carry it by hand: `window()` makes windows of one length only, and a union reads twice.
WATERMARK_METADATA = "spark.watermarkDelayMs"


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


def columns(percentiles: Percentiles) -> list[str]:
    """The numbers of a rollup, in the order of the table."""
    return ["count", "sum", "min", "max", *map(percentile_name, percentiles.ranks)]


def _window(length: Duration) -> "Column":
    import pyspark.sql.functions as sf

    start = sf.col("slice") - sf.pmod(sf.col("slice"), sf.lit(int(length)))
    end = start + sf.lit(int(length))
    return sf.struct(sf.timestamp_millis(start).alias("start"), sf.timestamp_millis(end).alias("end"))


def _exact(opened: "DataFrame", percentiles: Percentiles) -> "DataFrame":
    import pyspark.sql.functions as sf

    ordered = sf.sort_array(sf.flatten(sf.collect_list("values")))
    grouped = opened.groupBy("window", "series").agg(ordered.alias("ordered"))
    return grouped.select("window", "series", *_statistics(sf.col("ordered"), percentiles))


def _approximate(opened: "DataFrame", percentiles: Percentiles) -> "DataFrame":
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


def _statistics(ordered: "Column", percentiles: Percentiles) -> Iterator["Column"]:
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
