"""What the raw table says about itself."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANKS = (0.5, 0.95, 0.99, 1.0)
RANK_NAMES = ("p50", "p95", "p99", "max")


def tally(raw: "DataFrame", letters: "DataFrame") -> dict[int, dict[str, Any]]:
    """Rows, dead letters and the span of offsets, by partition."""
    import pyspark.sql.functions as sf

    stored = raw.groupBy("partition").agg(
        sf.count("*").alias("stored"),
        sf.min("offset").alias("offset_min"),
        sf.max("offset").alias("offset_max"),
    )
    dead = letters.groupBy("partition").agg(sf.count("*").alias("dead_letters"))
    rows = stored.join(dead, "partition", "full_outer").collect()
    return {
        row["partition"]: {
            "stored": row["stored"] or 0,
            "dead_letters": row["dead_letters"] or 0,
            "offset_min": row["offset_min"],
            "offset_max": row["offset_max"],
        }
        for row in rows
    }


def lateness(raw: "DataFrame") -> dict[int, dict[str, Any]]:
    """How late rows were, by partition, in ms.

    `behind_ms`: behind the newest measurement before it in its partition, which is what a watermark
    looks at. `delay_ms`: from the measurement to the record.
    """
    import pyspark.sql.functions as sf
    from pyspark.sql import Window

    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    moment, recorded = sf.unix_millis("timestamp"), sf.unix_millis("recorded")
    rows = raw.select(
        "partition",
        (sf.max(moment).over(before) - moment).alias("behind"),
        (recorded - moment).alias("delay"),
    )
    found = rows.groupBy("partition").agg(
        sf.percentile_approx("behind", list(RANKS)).alias("behind"),
        sf.percentile_approx("delay", list(RANKS)).alias("delay"),
    )
    return {
        row["partition"]: {
            f"{name}_ms": dict(zip(RANK_NAMES, row[name], strict=True)) for name in ("behind", "delay")
        }
        for row in found.collect()
    }


def repeats(raw: "DataFrame") -> dict[str, int]:
    """How many rows are in the table more than once, by where they stood and by what they say."""
    return {
        "by_origin": _excess(raw, "partition", "offset"),
        "by_measurement": _excess(raw, "client", "series", "timestamp"),
    }


def dates(raw: "DataFrame") -> dict[str, int]:
    """Rows by date."""
    return {str(row["date"]): row["count"] for row in raw.groupBy("date").count().orderBy("date").collect()}


def _excess(raw: "DataFrame", *columns: str) -> int:
    import pyspark.sql.functions as sf

    counted = raw.groupBy(*columns).count().where("count > 1")
    row = counted.agg(sf.sum(sf.col("count") - 1).alias("excess")).first()
    return int(row["excess"] or 0) if row else 0
