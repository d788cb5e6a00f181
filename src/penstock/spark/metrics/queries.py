"""The two streaming queries: what they read, how they start, and the watermark of each batch.

Spark drops rows that are not newer than the watermark, and reports only how many. To keep
them, a task has to know the watermark before Spark does its work. It is in the checkpoint: Spark
writes `offsets/<batch>` before the first task of the batch starts, and a batch that is tried again
has the same one.

    v1
    {"batchWatermarkMs":1763200000000,"batchTimestampMs":...,"conf":{...}}
    {...}                                                  the source's offsets
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, InputPartition

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import integer_option, option
from penstock.spark.lake import running_query
from penstock.spark.lake.source import LakeStreamReader
from penstock.spark.metrics.configuration import MetricsConfig
from penstock.spark.metrics.measurement import NO_WATERMARK_MS, SCHEMA_DDL, MeasurementDecoder
from penstock.spark.metrics.rollup import SLICES_DDL, rollups, slice_length, slices
from penstock.spark.metrics.tables import RAW_PARTITIONS, ROLLUP_PARTITIONS
from penstock.spark.source import TopicStreamReader, source_options
from penstock.spark.source.tasks import task_reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

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
MEASUREMENTS = "penstock-measurements"
WATERMARK_CHECKPOINT = "watermarkcheckpoint"
AHEAD_MS = "aheadms"
OURS = (WATERMARK_CHECKPOINT, AHEAD_MS)
SLICES = "penstock-slices"
SLICE_MS = "slicems"


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
    from penstock.spark.metrics.router import RouterSink
    from penstock.spark.source import GroupOffsets

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
    from penstock.spark.lake import ensure_table, table_options
    from penstock.spark.metrics.router import RouterSink
    from penstock.spark.metrics.tables import raw_schema

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
    from penstock.spark.metrics.router import FORMAT

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


def batch_watermark_ms(checkpoint: str, batch_id: int) -> int:
    """The watermark of a batch; rows that are not newer are late."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        return watermark_in(_read(path))
    except (KeyError, ValueError, TypeError, IndexError):
        raise PipelineError(f"checkpoint {path} has no watermark") from None


def watermark_in(text: str) -> int:
    """The watermark in the text of a batch's offsets; KeyError, ValueError and others where it has none."""
    return int(json.loads(text.splitlines()[1])["batchWatermarkMs"])


def _read(path: str) -> str:
    from pyarrow import fs

    try:
        # A plain path may be relative to nothing: the driver made it absolute.
        system, name = fs.FileSystem.from_uri(path)
        with system.open_input_stream(name) as stream:
            return bytes(stream.read()).decode()
    except (OSError, ValueError) as error:
        raise PipelineError(f"checkpoint {path} cannot be read where the tasks run: {error}") from None


class MeasurementSource(DataSource):
    """`format("penstock-measurements")`: the source's options, and the checkpoint of the query.

    With `watermarkCheckpoint` late rows are marked as Spark would drop them; with
    `aheadMs` those that are so much newer than their records are malformed.
    """

    @classmethod
    def name(cls) -> str:
        return MEASUREMENTS

    def schema(self) -> str:
        return SCHEMA_DDL

    def streamReader(self, schema: "StructType") -> "MeasurementStream":  # noqa: ARG002
        return MeasurementStream(self.options)


class MeasurementStream(TopicStreamReader):
    """A topic whose records are decoded where they are read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        ours = {name: value for name, value in options.items() if name.lower() not in OURS}
        super().__init__(source_options(ours, streaming=True), task_reading(ours))
        self._checkpoint = option(options, WATERMARK_CHECKPOINT)
        self._ahead_ms = integer_option(options, AHEAD_MS, None, 0)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        decoder = MeasurementDecoder(self._watermark_ms(), self._ahead_ms)
        for batch in super().read(partition):
            yield decoder.decode(batch)

    def _watermark_ms(self) -> int:
        if self._checkpoint is None:
            return NO_WATERMARK_MS
        query = running_query()
        if query is None:
            raise SparkOptionError("watermarkCheckpoint", "only a streaming query has a watermark")
        return batch_watermark_ms(self._checkpoint, query.batch_id)


class SliceSource(DataSource):
    """`format("penstock-slices")`: the raw table, `sliceMs` at a time."""

    @classmethod
    def name(cls) -> str:
        return SLICES

    def schema(self) -> str:
        return SLICES_DDL

    def streamReader(self, schema: "StructType") -> "SliceStream":  # noqa: ARG002
        return SliceStream(self.options)


class SliceStream(LakeStreamReader):
    """A table whose rows are put together where they are read.

    Versions are never split between batches: a row that ingest took together with a newer one would
    come after it here, and could find its window closed.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        from pyspark.sql.types import DoubleType, StringType, StructType, TimestampType

        columns = StructType().add("series", StringType()).add("timestamp", TimestampType())
        ours = {name: value for name, value in options.items() if name.lower() != SLICE_MS}
        super().__init__(ours, columns.add("value", DoubleType()))
        self._slice_ms = integer_option(options, SLICE_MS, 60_000, 1)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        return slices(super().read(partition), self._slice_ms)
