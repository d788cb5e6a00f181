"""What runs in a task: one span of one partition, as Arrow batches."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.client import PATIENCE_MS
from penstock.pipeline.errors import DataLost
from penstock.pipeline.reading import Span, open_reader, record_schema
from penstock.pipeline.settings import boolean_option, integer_option
from penstock.pipeline.source.options import reading_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


class SpanTask(InputPartition):
    """A task's share of a batch, as Spark carries it to an executor."""

    def __init__(self, span: Span) -> None:
        super().__init__(tuple(span))

    @property
    def span(self) -> Span:
        return Span(*self.value)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How values become columns: the options that say so, and the columns that Spark was told."""

    options: Mapping[str, str]
    schema: "StructType"

    def decoder(self) -> "Callable[[pa.RecordBatch], pa.RecordBatch]":
        from penstock.pipeline.formats import decoder

        return decoder(self.options, self.schema)


@dataclass(frozen=True, slots=True)
class TaskReading:
    """Everything a task needs to know beside its span; travels with it."""

    settings: Mapping[str, str]
    include_headers: bool
    fail_on_data_loss: bool
    timeout_ms: int
    decoding: Decoding | None = None

    def schema(self) -> "StructType":
        """The columns, in Spark's words."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(record_schema(self.include_headers))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The records of the task's span, their values decoded if that was asked for."""
        records = self._records(partition)
        return records if self.decoding is None else map(self.decoding.decoder(), records)

    def _records(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """A query with nothing to read has one task, without a span."""
        if not isinstance(partition, SpanTask):
            return
        span = partition.span
        reader = open_reader(self.settings, include_headers=self.include_headers, timeout_ms=self.timeout_ms)
        try:
            while span.start < span.end:
                try:
                    yield from reader.read(span)
                    return
                except DataLost as lost:
                    if self.fail_on_data_loss:
                        raise
                    _log.warning("%s", lost)
                    span = span._replace(start=max(lost.end, span.start + 1))
        finally:
            reader.close()


def task_reading(options: Mapping[str, str]) -> TaskReading:
    """The part of the options that tasks need."""
    return TaskReading(
        settings=reading_settings(options),
        include_headers=boolean_option(options, "includeHeaders", False),
        fail_on_data_loss=boolean_option(options, "failOnDataLoss", True),
        timeout_ms=integer_option(options, "retryTimeoutMs", PATIENCE_MS),
    )
