"""What runs in a task: one span of one partition, as Arrow batches."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.client import PATIENCE_MS
from penstock.pipeline.errors import DataLost, PipelineError
from penstock.pipeline.formats import decoded_schema, decoder, is_decoded
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
class TaskReading:
    """Everything a task needs to know beside its span; travels with it."""

    settings: Mapping[str, str]
    include_headers: bool
    fail_on_data_loss: bool
    timeout_ms: int
    # How values are decoded, and the columns they are decoded to; without, they stay bytes.
    decoding: "tuple[Mapping[str, str], StructType] | None" = None

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The records of the task's span; a query with nothing to read has one task, without a span."""
        if not isinstance(partition, SpanTask):
            return
        if self.decoding is None:
            yield from self.records(partition.span)
            return
        decode = decoder(*self.decoding)
        for batch in self.records(partition.span):
            yield decode(batch)

    def records(self, span: Span) -> Iterator["pa.RecordBatch"]:
        """The records of a span, their values as bytes."""
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


def task_reading(options: Mapping[str, str], schema: "StructType | None" = None) -> TaskReading:
    """The part of the options that tasks need.

    `schema` are the columns that Spark expects of them; without, values are bytes whatever the options say.
    """
    return TaskReading(
        settings=reading_settings(options),
        include_headers=boolean_option(options, "includeHeaders", False),
        fail_on_data_loss=boolean_option(options, "failOnDataLoss", True),
        timeout_ms=integer_option(options, "retryTimeoutMs", PATIENCE_MS),
        decoding=_decoding(options, schema) if schema is not None else None,
    )


def record_columns(options: Mapping[str, str]) -> "StructType":
    """The official connector's columns, in Spark's words."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(record_schema(boolean_option(options, "includeHeaders", False)))


def _decoding(
    options: Mapping[str, str], schema: "StructType"
) -> "tuple[Mapping[str, str], StructType] | None":
    """How to decode values to the columns of `schema`, which must otherwise be those of a topic."""
    expected = record_columns(options)
    decoded = is_decoded(options)
    if decoded:
        # Spark asked for the columns when the query was made: those are what it gets.
        expected = decoded_schema(expected, _value_columns(schema))
    if [(one.name, one.dataType) for one in schema] != [(one.name, one.dataType) for one in expected]:
        raise PipelineError(
            f"the columns of a topic are {expected.simpleString()}; leave out .schema and cast what you get"
        )
    if not decoded:
        return None
    return {name: value for name, value in options.items() if name.lower().startswith("value")}, schema


def _value_columns(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StructType

    inside = schema["value"].dataType if "value" in schema.names else None
    if not isinstance(inside, StructType):
        raise PipelineError(
            f"with valueFormat the column value is a struct, not as in {schema.simpleString()}"
        )
    return inside
