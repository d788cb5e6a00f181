"""Whether every record of the inbound topic is where it belongs, and there once.

    offset    0    1    2    3    4    5    6    7
              raw  raw  dlq  .    raw  raw  .    raw
                             |              └ in the topic, and no row has its measurement: missing
                             └ in the topic, and a row has its measurement: a repeat that was dropped

What neither the raw table nor the dead-letter topic accounts for is looked up in the topic itself.
Offsets that the topic does not have either (markers of transactions, deleted records) are counted
apart. Nothing is expected beyond the offset that the pipeline has committed for its group.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import PipelineError
from penstock.spark.jobs.settings import configured
from penstock.spark.metrics.configuration import AuditSection, MetricsConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# More than these are counted, and not named one by one.
NAMED_MAX = 100_000
RANKS = (0.5, 0.95, 0.99, 1.0)
RANK_NAMES = ("p50", "p95", "p99", "max")


def unaccounted(
    spark: "SparkSession", raw: "DataFrame", letters: "DataFrame", config: MetricsConfig
) -> dict[int, dict[str, Any]]:
    """Per partition: repeats that were dropped, and records that are missing."""
    import pyspark.sql.functions as sf

    if not config.audit.read_topic:
        return {}
    known = raw.select("partition", "offset").unionByName(letters).distinct()
    left = _records(spark, config).join(known, ["partition", "offset"], "left_anti")
    decoded = left.select("key", "value", "topic", "partition", "offset", "timestamp").mapInArrow(
        _decoded, "partition int, offset long, series string, client string, timestamp timestamp"
    )
    stored = raw.select("series", "client", "timestamp").distinct().withColumn("is_stored", sf.lit(True))
    judged = decoded.join(stored, ["series", "client", "timestamp"], "left").select(
        "partition", "offset", sf.col("is_stored").isNotNull().alias("is_repeat")
    )
    return _by_partition(judged)


def _by_partition(judged: "DataFrame") -> dict[int, dict[str, Any]]:
    import pyspark.sql.functions as sf

    judged = judged.cache()
    counted = judged.groupBy("partition").agg(
        sf.count_if("is_repeat").alias("repeats_dropped"), sf.count_if(~sf.col("is_repeat")).alias("missing")
    )
    found: dict[int, dict[str, Any]] = {
        row["partition"]: {"repeats_dropped": row["repeats_dropped"], "missing": row["missing"]}
        for row in counted.collect()
    }
    for row in judged.where("not is_repeat").orderBy("partition", "offset").limit(NAMED_MAX).collect():
        found[row["partition"]].setdefault("missing_at", []).append(row["offset"])
    judged.unpersist()
    return found


def missing_ranges(partitions: Mapping[int, Mapping[str, Any]], ranges_max: int) -> list[str]:
    """Missing offsets as `partition: first-last`, the first so many of them.

    >>> missing_ranges({3: {"missing_at": [5, 6, 7, 9]}}, 10)
    ['3: 5-7', '3: 9']
    """
    found = []
    for partition in sorted(partitions):
        for first, last in ranges(partitions[partition].get("missing_at", [])):
            found.append(f"{partition}: {first}" if first == last else f"{partition}: {first}-{last}")
    return found[:ranges_max]


def ranges(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as runs of neighbours, first and last."""
    start = end = None
    for offset in offsets:
        if end is not None and start is not None and offset != end + 1:
            yield start, end
            start = None
        start, end = (offset if start is None else start), offset
    if start is not None and end is not None:
        yield start, end


def _records(spark: "SparkSession", config: MetricsConfig) -> "DataFrame":
    """What is in the topic below the offsets that the pipeline has committed."""
    import pyspark.sql.functions as sf

    from penstock.client import GroupAdmin
    from penstock.spark.kafka_options import kafka_endpoint, kafka_settings

    options = config.kafka_options | {"subscribe": config.topics.inbound}
    records = spark.read.format("penstock").options(**options).load()
    settings = kafka_settings(config.kafka_options)
    committed = GroupAdmin(kafka_endpoint(settings)).committed(config.groups.ingest)
    ends = [
        (sf.col("partition") == partition) & (sf.col("offset") < end)
        for (topic, partition), end in sorted(committed.items())
        if topic == config.topics.inbound
    ]
    if not ends:
        return records.where("false")
    within = ends[0]
    for end in ends[1:]:
        within = within | end
    return records.where(within)


def _decoded(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    from penstock.spark.metrics.measurement import MeasurementDecoder

    decoder = MeasurementDecoder()
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch).select(["partition", "offset", "series", "client", "timestamp"])


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


class AuditFailed(PipelineError):
    """Records are missing or are there twice."""


class AuditJob:
    """Raw table and dead letters against the topic."""

    summary = "look for missing, repeated and late records, partition by partition"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> MetricsConfig:
        return configured("audit", AuditSection, path, overrides)

    def run(self, spark: "SparkSession", config: MetricsConfig) -> Mapping[str, Any]:
        """Counts per partition, and what is wrong; with `fail`, an error if anything is."""
        raw = spark.read.format("penstock-lake").load(config.raw_table)
        raw = raw.where(raw.topic == config.topics.inbound)
        report = audited(spark, raw, config)
        if config.audit.fail and report["findings"]:
            raise AuditFailed(f"audit of {config.raw_table}: {'; '.join(report['findings'])}")
        return report


def audited(spark: "SparkSession", raw: "DataFrame", config: MetricsConfig) -> dict[str, Any]:
    """The whole report, as plain values."""
    letters = _letters(spark, config)
    partitions: dict[int, dict[str, Any]] = {}
    for found in (tally(raw, letters), lateness(raw), unaccounted(spark, raw, letters, config)):
        for partition, values in found.items():
            partitions.setdefault(partition, {}).update(values)
    if config.audit.read_topic:
        # Where nothing is unaccounted for, that is a finding too: all partitions have the same keys.
        partitions = {one: {"repeats_dropped": 0, "missing": 0} | found for one, found in partitions.items()}
    twice = repeats(raw)
    ranges = missing_ranges(partitions, config.audit.ranges_max)
    return {
        "table": config.raw_table,
        "topic": config.topics.inbound,
        "findings": list(_findings(partitions, twice)),
        "repeated": twice,
        "missing_ranges": ranges,
        "partitions": {
            str(one): {name: value for name, value in partitions[one].items() if name != "missing_at"}
            for one in sorted(partitions)
        },
        "dates": dates(raw),
    }


def _letters(spark: "SparkSession", config: MetricsConfig) -> "DataFrame":
    """The dead letters that came from the inbound topic: where they stood there."""
    import pyspark.sql.functions as sf

    from penstock.client.dead_letters import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC

    options = config.kafka_options | {"subscribe": config.topics.dead_letter, "includeHeaders": "true"}
    records = spark.read.format("penstock").options(**options).load()
    headers = records.select(sf.map_from_entries("headers").alias("headers"))
    return (
        headers.where(sf.col("headers")[ORIGIN_TOPIC].cast("string") == config.topics.inbound)
        .select(
            sf.col("headers")[ORIGIN_PARTITION].cast("string").cast("int").alias("partition"),
            sf.col("headers")[ORIGIN_OFFSET].cast("string").cast("long").alias("offset"),
        )
        .distinct()
    )


def _findings(partitions: Mapping[int, Mapping[str, Any]], twice: Mapping[str, int]) -> "list[str]":
    missing = sum(values.get("missing", 0) for values in partitions.values())
    found = [f"{missing} records are missing"] if missing else []
    if twice["by_origin"]:
        found.append(f"{twice['by_origin']} rows are in the table twice")
    if twice["by_measurement"]:
        found.append(f"{twice['by_measurement']} measurements are in the table twice")
    return found
