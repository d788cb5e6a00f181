"""Spans planned for tasks, and what runs in a task: one span of one partition, as Arrow batches."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from penstock.client import PATIENCE_MS
from penstock.spark.errors import DataLost, PartitionGone, PipelineError, TopicRecreated
from penstock.spark.formats import decoded_schema, decoder, is_decoded
from penstock.spark.kafka_options import boolean_option, integer_option
from penstock.spark.orphan import end_with_parent
from penstock.spark.reading import OffsetRange, open_reader, record_schema
from penstock.spark.source.offsets import Partition, SourceOffsets
from penstock.spark.source.options import reading_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


class TopicInputPartition(InputPartition):
    """A task's share of a batch, as Spark carries it to an executor."""

    def __init__(self, span: OffsetRange) -> None:
        super().__init__(tuple(span))

    @property
    def span(self) -> OffsetRange:
        return OffsetRange(*self.value)


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Everything a task needs to know beside its span; travels with it."""

    settings: Mapping[str, str] = field(repr=False)
    include_headers: bool
    fail_on_data_loss: bool
    timeout_ms: int
    # How values are decoded, and the columns they are decoded to; without, they stay bytes.
    decoding: "tuple[Mapping[str, str], StructType] | None" = None

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The records of the task's span; a query with nothing to read has one task, without a span."""
        end_with_parent()
        if not isinstance(partition, TopicInputPartition):
            return
        if self.decoding is None:
            yield from self.records(partition.span)
            return
        decode = decoder(*self.decoding)
        for batch in self.records(partition.span):
            yield decode(batch)

    def records(self, span: OffsetRange) -> Iterator["pa.RecordBatch"]:
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


def task_reading(options: Mapping[str, str], schema: "StructType | None" = None) -> TaskReader:
    """The part of the options that tasks need.

    `schema` are the columns that Spark expects of them; without, values are bytes whatever the options say.
    """
    return TaskReader(
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


class BatchRange(NamedTuple):
    """What lies between two offsets, and what should have lain there but does not."""

    spans: list[OffsetRange]
    losses: list[PipelineError]


def between(start: SourceOffsets, end: SourceOffsets, earliest: Mapping[Partition, int]) -> BatchRange:
    """The spans from `start` to `end` that the log still has; `earliest` is where it begins.

    A partition that `start` does not know is new, and read from its beginning. So is one whose topic
    was created anew: what it holds now was never read, whatever the offsets say.
    """
    found = BatchRange([], [])
    for one, stop in sorted(end.positions.items()):
        known = start.positions.get(one)
        if one not in earliest:
            if known is None or known < stop:
                found.losses.append(PartitionGone(*one, known or 0))
            continue
        begin = earliest[one]
        if known is not None and (end.differs_from(start, one[0]) or stop < known):
            found.losses.append(TopicRecreated(*one, known, stop))
        elif known is not None and known < begin and known < stop:
            found.losses.append(DataLost(*one, known, begin))
        elif known is not None:
            begin = known
        if begin < stop:
            found.spans.append(OffsetRange(*one, begin, stop))
    return found


def divide(
    spans: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One span per task, cut as by the official connector: about `min_partitions`, `max_records` at most."""
    if max_records is not None:
        spans = [part for span in spans for part in _cut(span, -(-(span.end - span.start) // max_records))]
    if min_partitions is None or len(spans) >= min_partitions:
        return list(spans)
    sizes = [span.end - span.start for span in spans]
    shares = [_share(size, sum(sizes), min_partitions) for size in sizes]
    # Spans too small to be cut are tasks of their own, and the others share what is left of the wish.
    total = sum(size for size, share in zip(sizes, shares, strict=True) if share > 1)
    wanted = max(1, min_partitions - shares.count(1))
    return [
        part
        for span, size, share in zip(spans, sizes, shares, strict=True)
        for part in _cut(span, _share(size, total, wanted) if share > 1 else 1)
    ]


def _share(size: int, total: int, wanted: int) -> int:
    """How many of `wanted` tasks a span gets, rounded half up as the official connector does."""
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(span: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    start = span.start
    for part in range(parts):
        end = start + (span.end - start) // (parts - part)
        if start < end:
            yield span._replace(start=start, end=end)
        start = end
