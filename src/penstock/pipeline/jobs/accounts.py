"""Offsets that no table and no dead letter accounts for, and what became of their records."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipeline.metrics.configuration import MetricsConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# More than these are counted, and not named one by one.
NAMED_MAX = 100_000


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
    from penstock.pipeline.settings import kafka_endpoint, kafka_settings

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
    from penstock.pipeline.metrics.decoding import Decoder

    decoder = Decoder()
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch).select(["partition", "offset", "series", "client", "timestamp"])
