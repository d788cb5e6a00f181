"""What Spark does with Arrow batches that cost nothing to make: the upper bound for any Python source."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH = 131_072
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)


class Bound(DataSource):
    """`format("bound")` with `rows`, `tasks` and `valueBytes`: the same batch over and over."""

    @classmethod
    def name(cls) -> str:
        return "bound"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - as Spark has it
        wanted = int(self.options["rows"]), int(self.options["tasks"]), int(self.options["valueBytes"])
        return BoundReader(*wanted)


class BoundReader(DataSourceReader):
    """So many tasks with equal shares."""

    def __init__(self, rows: int, tasks: int, value_bytes: int) -> None:
        self._rows, self._tasks, self._value_bytes = rows, tasks, value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        batch = made(partition.value, self._value_bytes)
        left = self._rows // self._tasks
        while left > 0:
            yield batch.slice(0, min(left, ROWS_PER_BATCH))
            left -= ROWS_PER_BATCH


def made(partition: int, value_bytes: int) -> "pa.RecordBatch":
    """A batch in the columns of the source."""
    import pyarrow as pa

    from penstock.spark.reading import record_schema

    count = ROWS_PER_BATCH
    columns = [
        pa.array([b"key-%06d" % (number % 1_000) for number in range(count)], pa.binary()),
        pa.array([b"%0*d" % (value_bytes, number) for number in range(count)], pa.binary()),
        pa.array(["metrics"] * count, pa.string()),
        pa.array([partition] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=record_schema(False))
