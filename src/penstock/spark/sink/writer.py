"""The rows of Arrow batches, taken apart by topic and partition and sent as columns."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.client import ANY_PARTITION, SingleRecord
from penstock.spark.errors import PipelineError
from penstock.spark.orphan import end_with_parent
from penstock.spark.sink.delivery import DeliveryReceipt, TaskId, TopicDelivery
from penstock.spark.sink.options import TOPIC_MISSING, SinkColumns, sink_columns

if TYPE_CHECKING:
    import pyarrow as pa

Cells = list[bytes | None]


class TopicWriter:
    """Writes the batches of one task; `finish` returns when every record is acknowledged."""

    def __init__(self, delivery: TopicDelivery, topic: str | None, task: TaskId) -> None:
        end_with_parent()
        self._delivery = delivery.open(task)
        self._topic = topic
        self._known: tuple[pa.Schema, SinkColumns] | None = None

    def write_batch(self, batch: "pa.RecordBatch") -> None:
        """Send the rows in their order; PipelineError names what is wrong with a row or a topic."""
        columns = self._columns_of(batch.schema)
        if not columns.topic and not columns.partition:
            assert self._topic is not None
            self._send(self._topic, ANY_PARTITION, batch, columns)
            return
        for (topic, partition), rows in _destinations(batch, self._topic, columns).items():
            some = batch if len(rows) == batch.num_rows else batch.take(rows)
            self._send(topic, partition, some, columns)

    def finish(self) -> DeliveryReceipt:
        return self._delivery.finish()

    def discard(self) -> None:
        self._delivery.discard()

    def _columns_of(self, schema: "pa.Schema") -> SinkColumns:
        if self._known is None or not self._known[0].equals(schema):
            self._known = (schema, sink_columns(schema, self._topic))
        return self._known[1]

    def _send(self, topic: str, partition: int, batch: "pa.RecordBatch", columns: SinkColumns) -> None:
        if columns.headers or columns.timestamp:
            self._delivery.send_each(topic, _lone_records(batch, partition, columns))
            return
        keys = _cells(batch.column("key")) if columns.key else None
        self._delivery.send(topic, _cells(batch.column("value")), keys, partition)


def _destinations(
    batch: "pa.RecordBatch", fixed: str | None, columns: SinkColumns
) -> dict[tuple[str, int], list[int]]:
    """The rows for each topic and partition; a null partition is left to the key."""
    count = batch.num_rows
    topics = batch.column("topic").to_pylist() if columns.topic else [fixed] * count
    partitions = batch.column("partition").to_pylist() if columns.partition else [None] * count
    found: dict[tuple[str, int], list[int]] = {}
    for row, (topic, partition) in enumerate(zip(topics, partitions, strict=True)):
        if not topic:
            raise PipelineError(f"a row has no topic: {TOPIC_MISSING.partition('; ')[2]}")
        if partition is not None and partition < 0:
            raise PipelineError(f"{topic}: a row has partition {partition}")
        found.setdefault((topic, ANY_PARTITION if partition is None else partition), []).append(row)
    return found


def _lone_records(batch: "pa.RecordBatch", partition: int, columns: SinkColumns) -> Iterator[SingleRecord]:
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    keys = _cells(batch.column("key")) if columns.key else nothing
    headers = batch.column("headers").to_pylist() if columns.headers else nothing
    times = _times(batch.column("timestamp")) if columns.timestamp else [0] * count
    values = _cells(batch.column("value"))
    for value, key, time_ms, given in zip(values, keys, times, headers, strict=True):
        yield SingleRecord(value, key, partition, time_ms, _headers(given))


def _headers(given: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]] | None:
    if not given:
        return None
    if any(one is None or one["key"] is None for one in given):
        raise PipelineError("column headers: a header without a key")
    return [(one["key"], one["value"]) for one in given if one is not None]


def _cells(column: "pa.Array") -> Cells:
    import pyarrow as pa

    cells: Cells = column.to_pylist() if pa.types.is_null(column.type) else _bytes(column).to_pylist()
    return cells


def _bytes(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    # Text and its bytes are the same buffers: this copies nothing.
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.large_binary() if large else pa.binary())


def _times(column: "pa.Array") -> list[int]:
    """Times in ms; 0, which is now, for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    times: list[int] = pc.fill_null(column, 0).to_pylist()
    return times
