"""`format("penstock")` as a source: which offsets a batch covers, and how they are split into tasks.

    options          the query's options: which partitions it reads, where it starts and ends
    offsets          how far it got, as the JSON in Spark's checkpoint
    broker_offsets   where the logs begin and end just now
    batch            all of it for `spark.read`
    stream           all of it for `spark.readStream`: the first offsets, the size of a batch
    tasks            spans planned for tasks, and one span read in an executor
    group            the query as a consumer group, and the listener that commits for it

Three processes run this code. The driver's Python makes the data source and asks for its columns.
A process beside the driver plans: it has the one connection that asks the broker where logs begin
and end. Tasks read spans and know nothing else. What crosses between them are frozen values.

Options, columns and offsets are the official connector's, with two things more: the offsets say
which topic they belong to, so that a topic created anew under a checkpoint is noticed; and `group`
makes the query visible to the broker. Only committed records are read unless an option says otherwise.

Left out: filters and columns pushed down (Spark does not pass them to a stream in Python), metrics
of the source's own, and Spark's real-time mode.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.formats import columns as value_columns
from penstock.spark.formats import decoded_schema, is_decoded
from penstock.spark.source.batch import TopicBatchReader, newest_values
from penstock.spark.source.group import GroupOffsetCommitter, GroupOffsets
from penstock.spark.source.offsets import SourceOffsets, offsets_behind_latest, read_offsets
from penstock.spark.source.options import SourceOptions, selecting_options, source_options
from penstock.spark.source.stream import TopicStreamReader
from penstock.spark.source.tasks import TaskReader, record_columns, task_reading

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "columns",
    "batch_reader",
    "stream_reader",
    "SourceOptions",
    "source_options",
    "TopicBatchReader",
    "TopicStreamReader",
    "TaskReader",
    "task_reading",
    "GroupOffsets",
    "GroupOffsetCommitter",
    "SourceOffsets",
    "read_offsets",
    "offsets_behind_latest",
]


def columns(options: Mapping[str, str]) -> "StructType":
    """The columns that a query with these options gets; SparkOptionError if no query could have them."""
    selecting_options(options)
    ours = record_columns(options)
    if not is_decoded(options):
        return ours
    return decoded_schema(ours, value_columns(options, lambda count: newest_values(options, count)))


def batch_reader(options: Mapping[str, str], schema: "StructType") -> TopicBatchReader:
    """What `spark.read` reads with."""
    return TopicBatchReader(source_options(options, streaming=False), task_reading(options, schema))


def stream_reader(options: Mapping[str, str], schema: "StructType") -> TopicStreamReader:
    """What `spark.readStream` reads with."""
    return TopicStreamReader(source_options(options, streaming=True), task_reading(options, schema))
