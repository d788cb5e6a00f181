"""The metrics pipeline as `penstock pipeline` knows it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.metrics.configuration import MetricsConfig, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class MetricsPipeline:
    """Two queries: ingest, and the rollup that reads what ingest stored."""

    summary = "metrics from a topic into tables and rollups, malformed ones into a dead-letter topic"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> MetricsConfig:
        return load(MetricsConfig, path, overrides)

    def start(
        self, spark: "SparkSession", config: MetricsConfig, *, once: bool = False
    ) -> Iterator["StreamingQuery"]:
        from penstock.spark.metrics.queries import start_ingest, start_rollup

        yield start_ingest(spark, config, once=once)
        yield start_rollup(spark, config, once=once)

    def checkpoint(self, config: MetricsConfig) -> Path:
        return config.checkpoints

    def connection(self, config: MetricsConfig) -> Mapping[str, str]:
        from penstock.spark.kafka_options import kafka_settings

        return kafka_settings(config.kafka_options)

    def identity(self, config: MetricsConfig) -> Mapping[str, str]:
        return {
            "topics.inbound": config.topics.inbound,
            "raw table": config.raw_table,
            "rollup table": config.rollup_table,
            "lateness": str(config.lateness),
            "ahead": str(config.ahead),
            "windows": ", ".join(map(str, config.windows)),
            "percentiles": ", ".join(f"{rank:g}" for rank in config.percentiles.ranks),
            "percentiles.method": config.percentiles.method,
            "dedupe": str(config.dedupe).lower(),
        }

    def drops_nothing(self, config: MetricsConfig) -> Mapping[str, str]:
        from penstock.spark.metrics.queries import INGEST, ROLLUP

        # Late rows are found before Spark drops them, and what ingest took is never late for the rollup,
        # unless the two have checkpoints that do not belong together.
        advice = (
            "was a checkpoint lost, or an older one put back? To work out the rollups anew, remove"
            f" {config.rollup_table} and {config.checkpoint_of(ROLLUP)}, and run once with"
            " max_bytes_per_trigger larger than the raw table"
        )
        return {INGEST: advice, ROLLUP: advice}


PIPELINES: Mapping[str, MetricsPipeline] = {"metrics": MetricsPipeline()}
