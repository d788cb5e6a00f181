"""The batch side: everything between two positions, planned once."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.errors import SparkOptionError, in_one_line
from penstock.spark.reading import OffsetRange
from penstock.spark.source.broker_offsets import BrokerOffsets
from penstock.spark.source.options import SourceOptions, resolve, selecting_options
from penstock.spark.source.tasks import TaskReader, TopicInputPartition, divide, task_reading

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
# Where a query starts and ends says nothing about what its values look like.
_POSITIONS = ("starting", "ending")


class TopicBatchReader(DataSourceReader):
    """Plans a batch query in a process beside the driver; reads in tasks elsewhere."""

    def __init__(self, options: SourceOptions, reading: TaskReader) -> None:
        self._options = options
        self._reading = reading

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; the ends of the logs are those of now, however long the tasks take."""
        options = self._options
        for name, value in (("maxOffsetsPerTrigger", options.max_offsets), ("group", options.group)):
            if value is not None:
                _log.warning("option %s has no meaning in a batch query", name)
        spans = divide(self.spans(), options.min_partitions, options.max_records_per_partition)
        return [TopicInputPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        return self._reading.read(partition)

    def spans(self) -> list[OffsetRange]:
        """What there is between the two positions, partition by partition."""
        outlook = BrokerOffsets(self._options)
        partitions, _ = outlook.partitions()
        starts = resolve(self._options.starting, partitions, outlook.catalogue).positions
        ends = resolve(self._options.ending, partitions, outlook.catalogue).positions
        for one, start in sorted(starts.items()):
            if start > ends[one]:
                raise SparkOptionError(
                    self._options.ending.option,
                    f"{one[0]}/{one[1]}: ends at offset {ends[one]}, before its start at {start}",
                )
        return [
            OffsetRange(*one, start, ends[one]) for one, start in sorted(starts.items()) if start < ends[one]
        ]


def newest_values(options: Mapping[str, str], count: int) -> list[bytes | None]:
    """About `count` values from the ends of the logs, from which the columns of values are inferred."""
    plain = {name: value for name, value in options.items() if not name.lower().startswith("value")}
    outlook = BrokerOffsets(selecting_options(plain))
    reading = task_reading(plain)
    partitions, _ = outlook.partitions()
    earliest, latest = outlook.catalogue.earliest(partitions), outlook.catalogue.latest(partitions)
    share = -(-count // max(1, len(partitions)))
    values: list[bytes | None] = []
    for one in sorted(latest):
        span = OffsetRange(*one, max(earliest[one], latest[one] - share), latest[one])
        for batch in reading.records(span):
            values.extend(batch.column("value").to_pylist())
    return values
