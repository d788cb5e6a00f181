"""Arrow batches into topics: `df.write.format("penstock")` and `df.writeStream.format("penstock")`.

    options     the connector's options for writing, and the columns a frame must and may have
    writer      the rows of an Arrow batch, taken apart by topic and partition
    delivery    producers, and when a record counts
    batch_commit  the driver's request that commits what all tasks of a batch wrote
    spark       the two writers that Spark calls

                     driver                               tasks
    options, schema ──> checked ──────────────> TopicWriter.write_batch, write_batch, ...
                                                      └──> TaskDelivery: send, send, finish
    TopicDelivery.commit(receipts, batch) <── receipts ──────────┘

The columns are those of the official connector: `value` (string or binary, null is a tombstone),
and as they are wanted `key` (string or binary), `topic` (string; the option `topic` wins over
it), `partition` (int), `headers` (array of key and value). One is ours: `timestamp`, the time of
the record. Other columns are left alone.

`delivery` = exactly-once, the default where the broker offers batch commit: a task writes in a
transaction that it leaves open, and the driver commits those of all tasks at once under the key
(query, batch). Readers of committed records see every row once, whatever was tried again.
`delivery` = at-least-once: an idempotent producer per task, everything acknowledged by all
replicas in sync before the task ends. A task that fails or is tried again leaves what it sent,
so a reader may see a record twice; records carry a natural key that identifies repeats.

Left out: exactly-once over TLS or SASL, since batch commit is asked for over a plain connection.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.sink.delivery import (
    AtLeastOnceDelivery,
    BatchId,
    DeliveryReceipt,
    ExactlyOnceDelivery,
    TaskId,
    TopicDelivery,
    delivery_for,
)
from penstock.spark.sink.options import SinkOptions, sink_options
from penstock.spark.sink.writer import TopicWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

__all__ = [
    "batch_writer",
    "stream_writer",
    "SinkOptions",
    "sink_options",
    "TopicWriter",
    "TopicDelivery",
    "AtLeastOnceDelivery",
    "ExactlyOnceDelivery",
    "delivery_for",
    "DeliveryReceipt",
    "TaskId",
    "BatchId",
]


def batch_writer(options: Mapping[str, str], schema: "StructType") -> "DataSourceArrowWriter":
    """What writes one frame into a topic; SparkOptionError or PipelineError before anything is written."""
    from penstock.spark.sink.spark import TopicBatchWriter

    return TopicBatchWriter(options, schema)


def stream_writer(options: Mapping[str, str], schema: "StructType") -> "DataSourceStreamArrowWriter":
    """What writes each batch of a streaming query into a topic."""
    from penstock.spark.sink.spark import TopicStreamWriter

    return TopicStreamWriter(options, schema)
