"""One sink for a query with two outputs: rows for a table, records for a topic.

    task      good rows  ──> files of the table, which nobody sees yet
              the others ──> topic, in a transaction that stays open, or acknowledged before the task ends
    driver    delivery's commit, and then, last, the table's

All of it is keyed by query and batch: a batch that is tried again finds the table's commit made
and adds nothing. So does the topic with exactly-once delivery; with at-least-once, what went there twice
has the same natural key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.errors import SparkOptionError
from penstock.spark.kafka_options import option
from penstock.spark.lake import (
    TableOptions,
    TaskFiles,
    WrittenFiles,
    commit_files,
    discard_files,
    refuse_other_queries,
    running_query,
    table_options,
)
from penstock.spark.lake.table import RowsAlreadyThere
from penstock.spark.metrics.dead_letters import dead_letters, rollup_records
from penstock.spark.metrics.tables import raw_schema, rollup_schema, table_rows
from penstock.spark.sink import (
    BatchId,
    DeliveryReceipt,
    TaskId,
    TopicDelivery,
    TopicWriter,
    delivery_for,
    sink_options,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "penstock-router"
ROUTE = "route"
ANEW = "put the checkpoints back, or remove all tables and all checkpoints of the pipeline to begin anew"
Route = Literal["measurements", "rollups"]


class RoutedBatch(NamedTuple):
    """What of a batch goes where."""

    rows: "pa.RecordBatch"
    records: "pa.RecordBatch"


class RowRouter(Protocol):
    """Knows where rows belong, and what the table looks like; travels to the tasks."""

    def schema(self) -> "pa.Schema": ...

    def __call__(self, batch: "pa.RecordBatch") -> RoutedBatch: ...


@dataclass(frozen=True, slots=True)
class MeasurementRouter:
    """Good rows into the raw table, malformed and late ones into the dead-letter topic."""

    def schema(self) -> "pa.Schema":
        return raw_schema()

    def __call__(self, batch: "pa.RecordBatch") -> RoutedBatch:
        import pyarrow.compute as pc

        is_good = pc.is_null(batch.column("error"))
        good, bad = batch.filter(is_good), batch.filter(pc.invert(is_good))
        return RoutedBatch(table_rows(good, raw_schema(), "timestamp"), dead_letters(bad))


@dataclass(frozen=True, slots=True)
class RollupRouter:
    """Every closed window into the table and into the topic."""

    numbers: tuple[str, ...]

    def schema(self) -> "pa.Schema":
        return rollup_schema(self.numbers)

    def __call__(self, batch: "pa.RecordBatch") -> RoutedBatch:
        rows = table_rows(batch, self.schema(), "window_start")
        return RoutedBatch(rows, rollup_records(batch, self.numbers))


@dataclass
class RouterCommitMessage(WriterCommitMessage):
    """What a task returns to the driver."""

    query_id: str | None
    files: WrittenFiles
    receipt: DeliveryReceipt


class RouterSink(DataSource):
    """`format("penstock-router")`: the table's options, the topic's options, and `route`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "RouterWriter":  # noqa: ARG002
        return RouterWriter(self.options, schema)


class RouterWriter(DataSourceStreamArrowWriter):
    """The writer that Spark takes to the tasks and keeps in the driver."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        topic = sink_options(options)
        self._split = _split(option(options, ROUTE), schema)
        self._table: TableOptions = table_options(options)
        self._delivery: TopicDelivery = delivery_for(topic)
        self._topic = topic.topic

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> RouterCommitMessage:
        task = _running_task()
        files = TaskFiles(self._table, self._split.schema(), task.partition, task.query_id)
        writer = TopicWriter(self._delivery, self._topic, task)
        try:
            for batch in iterator:
                if batch.num_rows:
                    routed = self._split(batch)
                    files.write(routed.rows)
                    if routed.records.num_rows:
                        writer.write_batch(routed.records)
            return RouterCommitMessage(task.query_id, files.finish(), writer.finish())
        except BaseException:
            try:
                writer.discard()
            finally:
                files.discard()
            raise

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        try:
            self._commit(_done(messages), batchId)
        except RowsAlreadyThere as refused:
            # The table's own advice is about options that a pipeline's configuration does not have.
            raise RowsAlreadyThere(refused.found, ANEW) from None

    def _commit(self, done: "Sequence[RouterCommitMessage]", batch_id: int) -> None:
        query_id = next((message.query_id for message in done if message.query_id), None)
        if self._table.origin_columns == () and any(message.files.files for message in done):
            # Windows come from no offset by which the table could tell that it has them.
            refuse_other_queries(self._table, query_id)
        self._delivery.commit([message.receipt for message in done], BatchId(query_id, batch_id))
        commit_files(
            self._table,
            self._split.schema(),
            [message.files for message in done],
            query_id=query_id,
            batch_id=batch_id,
        )

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        done = _done(messages)
        query_id = next((message.query_id for message in done if message.query_id), None)
        self._delivery.abort([message.receipt for message in done], BatchId(query_id, batchId))
        discard_files(self._table, [message.files for message in done], query_id=query_id, batch_id=batchId)


def _split(route: str | None, schema: "StructType") -> RowRouter:
    names = schema.fieldNames()
    if route == "measurements":
        return MeasurementRouter()
    if route == "rollups":
        return RollupRouter(tuple(names[names.index("count") :]))
    raise SparkOptionError(ROUTE, f"{route!r} is none of measurements, rollups")


def _running_task() -> TaskId:
    from pyspark import TaskContext

    context = TaskContext.get()
    query = running_query()
    query_id = query[0] if query else None
    if context is None:
        return TaskId(query_id, 0, 0)
    return TaskId(query_id, context.partitionId(), context.taskAttemptId())


def _done(messages: "Sequence[WriterCommitMessage | None]") -> list[RouterCommitMessage]:
    return [message for message in messages if isinstance(message, RouterCommitMessage)]
