"""Whether every record of the inbound topic is where it belongs, and there once.

    offset    0    1    2    3    4    5    6    7
              raw  raw  dlq  .    raw  raw  .    raw
                             |              └ in the topic, and no row has its measurement: missing
                             └ in the topic, and a row has its measurement: a repeat that was dropped

What neither the raw table nor the dead-letter topic accounts for is looked up in the topic itself.
Offsets that the topic does not have either (markers of transactions, deleted records) are counted
apart. Nothing is expected beyond the offset that the pipeline has committed for its group.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.jobs.accounts import missing_ranges, unaccounted
from penstock.pipeline.jobs.settings import configured
from penstock.pipeline.jobs.tallies import dates, lateness, repeats, tally
from penstock.pipeline.metrics.configuration import Audit, MetricsConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AuditFailed(PipelineError):
    """Records are missing or are there twice."""


class AuditJob:
    """Raw table and dead letters against the topic."""

    summary = "look for missing, repeated and late records, partition by partition"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> MetricsConfig:
        return configured("audit", Audit, path, overrides)

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

    from penstock.pipeline.metrics.letters import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC

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
