"""The two writers that Spark calls: one frame, or one batch after the other."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.errors import in_one_line
from penstock.spark.sink.delivery import BatchId, DeliveryReceipt, TaskId, TopicDelivery, delivery_for
from penstock.spark.sink.options import COLUMNS, refuse_unknown, sink_columns, sink_options
from penstock.spark.sink.writer import TopicWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Spark's own names for the query that a task works for.
QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass
class TopicCommitMessage(WriterCommitMessage):
    """A receipt on its way to the driver."""

    receipt: DeliveryReceipt


class TopicBatchWriter(DataSourceArrowWriter):
    """One frame into topics.

    It is a batch of its own even inside a query's foreachBatch, which may write several: only
    `txnAppId` and `txnVersion` say that two of them are the same.
    """

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._sending = _Sending.checked(options, schema)
        self._batch = BatchId(*(self._sending.application or (f"job-{secrets.token_hex(8)}", 0)))

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._sending.run(iterator, running_task()._replace(query_id=self._batch.query_id))

    @in_one_line
    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        self._sending.delivery.commit(_receipts(messages), self._batch)

    @in_one_line
    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        self._sending.delivery.abort(_receipts(messages), self._batch)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Every batch of a query into topics."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._sending = _Sending.checked(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._sending.run(iterator, running_task())

    @in_one_line
    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        receipts = _receipts(messages)
        self._sending.delivery.commit(receipts, BatchId(_query(receipts), batchId))

    @in_one_line
    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803
        receipts = _receipts(messages)
        self._sending.delivery.abort(receipts, BatchId(_query(receipts), batchId))


@dataclass(frozen=True, slots=True)
class _Sending:
    """What a task needs to know; both writers carry one to the workers."""

    delivery: TopicDelivery
    topic: str | None
    application: tuple[str, int] | None

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: "StructType") -> "_Sending":
        import pyarrow as pa

        from penstock.spark.formats.schema import arrow_type

        refuse_unknown(options)
        known = sink_options(options)
        ours = [(one.name, arrow_type(one.dataType)) for one in schema if one.name in COLUMNS]
        sink_columns(pa.schema(ours), known.topic)
        return cls(delivery_for(known), known.topic, known.application)

    def run(self, batches: "Iterator[pa.RecordBatch]", task: TaskId) -> TopicCommitMessage:
        writer = TopicWriter(self.delivery, self.topic, task)
        try:
            for batch in batches:
                writer.write_batch(batch)
            return TopicCommitMessage(writer.finish())
        except BaseException:
            writer.discard()
            raise


def running_task() -> TaskId:
    """Which task this is, as Spark knows it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskId(None, 0, 0)
    return TaskId(
        context.getLocalProperty(QUERY_PROPERTY) or None, context.partitionId(), context.taskAttemptId()
    )


def _receipts(messages: "Sequence[WriterCommitMessage | None]") -> list[DeliveryReceipt]:
    return [message.receipt for message in messages if isinstance(message, TopicCommitMessage)]


def _query(receipts: list[DeliveryReceipt]) -> str | None:
    return next((receipt.task.query_id for receipt in receipts), None)
