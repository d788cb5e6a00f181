"""The two streaming queries, as frames and writers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.pipeline.metrics.configuration import MetricsConfig
from penstock.pipeline.metrics.rollup import rollups, slice_length
from penstock.pipeline.metrics.tables import RAW_PARTITIONS, ROLLUP_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INGEST, ROLLUP = "metrics-ingest", "metrics-rollup"
# With several stateful operators allowed, Spark lets a row pass that is older than the watermark but
# not than the one before it. Then the rollup, which reads what ingest stored, could have closed a
# window that ingest still adds to. Strict filters keep rollup's watermark behind ingest's for good.
STRICT = {
    "spark.sql.streaming.statefulOperator.allowMultiple": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    # To count the rows of the state, RocksDB would look for each before it puts it: a third of the work.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # A batch saves what it changed, not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def ingest_options(config: MetricsConfig) -> dict[str, str]:
    """The options of the source that reads the inbound topic."""
    return config.kafka_options | {
        "subscribe": config.topics.inbound,
        "startingOffsets": config.starting_offsets,
        "failOnDataLoss": str(config.fail_on_data_loss).lower(),
        "maxOffsetsPerTrigger": str(config.max_offsets_per_trigger),
        "group": config.groups.ingest,
    }


def start_ingest(spark: "SparkSession", config: MetricsConfig, *, once: bool) -> "StreamingQuery":
    """Topic to raw table and dead letters."""
    from penstock.pipeline.metrics.router import RouterSink
    from penstock.pipeline.metrics.sources import (
        AHEAD_MS,
        MEASUREMENTS,
        WATERMARK_CHECKPOINT,
        MeasurementSource,
    )
    from penstock.pipeline.source import GroupOffsets

    spark.dataSource.register(MeasurementSource)
    spark.dataSource.register(RouterSink)
    checkpoint = config.checkpoint_of(INGEST)
    options = ingest_options(config)
    spark.streams.addListener(GroupOffsets(options, INGEST))
    with configured(spark, STRICT):
        rows = (
            spark.readStream.format(MEASUREMENTS)
            .options(**options, **{WATERMARK_CHECKPOINT: checkpoint, AHEAD_MS: str(int(config.ahead))})
            .load()
            .withWatermark("timestamp", f"{int(config.lateness)} milliseconds")
        )
        if config.dedupe:
            # The event time is among the columns, so Spark can forget a row when the watermark passes it;
            # `dropDuplicatesWithinWatermark` would keep it for as long again, and finds nothing more.
            rows = rows.dropDuplicates(["series", "client", "timestamp"])
        route = {"route": "measurements", "topic": config.topics.dead_letter} | _table(
            config, config.raw_table, RAW_PARTITIONS
        )
        return _started(rows, INGEST, checkpoint, route, config, once)


def start_rollup(spark: "SparkSession", config: MetricsConfig, *, once: bool) -> "StreamingQuery":
    """Raw table to rollup table and topic."""
    from penstock.pipeline.lake import ensure_table, table_options
    from penstock.pipeline.metrics.router import RouterSink
    from penstock.pipeline.metrics.sources import SLICES, SliceSource
    from penstock.pipeline.metrics.tables import raw_schema

    raw = _table(config, config.raw_table, RAW_PARTITIONS)
    ensure_table(table_options(raw), raw_schema())
    spark.dataSource.register(SliceSource)
    spark.dataSource.register(RouterSink)
    checkpoint = config.checkpoint_of(ROLLUP)
    with configured(spark, STRICT):
        slices = (
            spark.readStream.format(SLICES)
            .options(path=config.raw_table, sliceMs=str(int(slice_length(config.windows))))
            .option("maxBytesPerTrigger", config.max_bytes_per_trigger)
            .load()
        )
        route = {
            "route": "rollups",
            "topic": config.topics.rollup,
            "originColumns": "none",
        } | _table(config, config.rollup_table, ROLLUP_PARTITIONS)
        return _started(rollups(slices, config), ROLLUP, checkpoint, route, config, once)


def _table(config: MetricsConfig, path: str, partitions: tuple[str, ...]) -> dict[str, str]:
    return config.kafka_options | {
        "path": path,
        "partitionColumns": ",".join(partitions),
        "targetFileSize": str(config.lake.file_bytes),
        "delivery": config.delivery,
    }


def _started(
    rows: "DataFrame",
    name: str,
    checkpoint: str,
    route: Mapping[str, str],
    config: MetricsConfig,
    once: bool,
) -> "StreamingQuery":
    from penstock.pipeline.metrics.router import FORMAT

    trigger: dict[str, Any] = {"processingTime": f"{int(config.trigger)} milliseconds"}
    if once:
        trigger = {"availableNow": True}
    return (
        rows.writeStream.format(FORMAT)
        .queryName(name)
        .outputMode("append")
        .options(**route)
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )


@contextmanager
def configured(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """A query takes the session's settings with it when it starts; the session gets its own back."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
