"""What one task writes: parquet files in the table's directory, which count when the driver commits them."""

import datetime as dt
import json
import math
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.spark.lake.origins import OriginRange, OriginRanges, find_repeats, origin_columns
from penstock.spark.lake.table import (
    TableOptions,
    Values,
    check_partition_columns,
    conform,
    directory,
    is_disk_full,
    lake_full,
    open_storage,
    split,
    table_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Delta's own bounds: statistics of so many columns, and so many characters of a text.
COLUMNS_MAX = 32
TEXT_MAX = 32
_HIGHEST = "\U0010ffff"
# Fewer rows per group make readers slow; more bytes than this are written out whatever their number.
GROUP_ROWS = 131_072
GROUP_BYTES_MAX = 128 * 1024 * 1024
# Over all partitions of a task together: what a task may hold in memory, and files open at a time.
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
OPEN_FILES_MAX = 64


def file_statistics(metadata: "pq.FileMetaData") -> str:
    """The `stats` of an add action: rows, and per top-level column least, greatest and number of nulls."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, COLUMNS_MAX)):
        name = metadata.schema.column(index).path
        if "." in name:
            # Inside a struct, list or map: the leaf's nulls are not the column's.
            continue
        statistics = [metadata.row_group(group).column(index).statistics for group in _groups(metadata)]
        if not statistics or any(each is None or not each.has_null_count for each in statistics):
            continue
        nulls[name] = sum(each.null_count for each in statistics)
        bounds = _bounds(statistics)
        if bounds is not None:
            least[name], greatest[name] = bounds
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _groups(metadata: "pq.FileMetaData") -> range:
    return range(metadata.num_row_groups)


def _bounds(statistics: list["pq.Statistics"]) -> tuple[Any, Any] | None:
    """Least and greatest as JSON, widened where JSON is coarser; None where readers could be misled."""
    # A row group of nulls alone has no bounds and says nothing against those of the others.
    known = [each for each in statistics if each.has_min_max]
    if not known or any(not each.has_min_max and each.num_values for each in statistics):
        return None
    low, high = min(each.min for each in known), max(each.max for each in known)
    match low:
        case bool() | bytes():
            return None
        case int():
            return low, high
        case float():
            return (low, high) if math.isfinite(low) and math.isfinite(high) else None
        case str():
            return low[:TEXT_MAX], high if len(high) <= TEXT_MAX else high[:TEXT_MAX] + _HIGHEST
        case dt.datetime():
            return _milliseconds(low, up=False), _milliseconds(high, up=True)
        case dt.date():
            return low.isoformat(), high.isoformat()
        case _:
            # A decimal would go through a binary fraction in most readers.
            return None


def _milliseconds(moment: dt.datetime, *, up: bool) -> str:
    excess = moment.microsecond % 1000
    if excess:
        moment += dt.timedelta(microseconds=1000 - excess if up else -excess)
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if moment.tzinfo is not None else text


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file: its path below the table, and what the log will say of it."""

    path: str
    size: int
    modified_ms: int
    rows: int
    partition_values: Values
    statistics: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a batch: taken now, taken before, or nothing to take.

    `version` is Delta's version or Iceberg's snapshot.
    """

    status: Literal["committed", "already", "empty"]
    version: int | None = None
    files: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What a task hands to the driver; small, and the same wherever it is unpickled."""

    files: tuple[WrittenFile, ...] = ()
    origins: tuple[OriginRange, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(slots=True)
class _Partition:
    """The rows of one partition that are not written yet, and the file that takes them."""

    values: Values
    batches: list["pa.RecordBatch"] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    path: str | None = None
    sink: "pa.NativeFile | None" = None
    writer: "pq.ParquetWriter | None" = None
    metadata: list["pq.FileMetaData"] = field(default_factory=list)


class TaskFiles:
    """Files of one task: opened, written batch by batch, and finished or discarded."""

    def __init__(
        self, table: TableOptions, schema: "pa.Schema", task: int = 0, query_id: str | None = None
    ) -> None:
        """`schema` is that of the rows that will come; partition columns are among them.

        The query's id is needed where rows are to be left out that other queries have brought.
        """
        import pyarrow as pa

        self._table = table
        self._columns = table.partition_columns or ()
        check_partition_columns(schema, self._columns)
        self._schema = table_schema(schema)
        # Delta has the values of partition columns in its log alone, Iceberg in the files.
        left_out = () if table.table_format == "iceberg" else self._columns
        self._file_schema = pa.schema([each for each in self._schema if each.name not in left_out])
        self._task = task
        self._storage = open_storage(table)
        columns = origin_columns(table, self._schema)
        self._ranges = OriginRanges(columns)
        self._repeats = find_repeats(table, columns, query_id)
        self._partitions: dict[Values, _Partition] = {}
        self._paths: list[str] = []
        self._finished: list[WrittenFile] = []

    def write(self, rows: "pa.RecordBatch | pa.Table") -> None:
        """Take rows; they reach a file when there are enough of them, or at the end."""
        import pyarrow as pa

        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            batch = self._repeats.without(conform(batch, self._schema))
            if batch.num_rows:
                self._take(batch)

    def finish(self) -> WrittenFiles:
        """Write what is left and make all files safe; nothing is part of the table yet."""
        for partition in list(self._partitions.values()):
            self._close(partition)
        self._partitions.clear()
        return WrittenFiles(tuple(self._finished), self._ranges.found())

    def discard(self) -> None:
        """Remove every file of this task."""
        for partition in self._partitions.values():
            if partition.writer is not None and partition.sink is not None:
                # The writer is left unclosed: closing would write a footer to a disk that may be full.
                partition.writer.is_open = False
                partition.sink.close()
        self._partitions.clear()
        for path in self._paths:
            self._storage.remove(path)
        self._paths.clear()
        self._finished.clear()

    def _take(self, batch: "pa.RecordBatch") -> None:
        self._ranges.note(batch)
        for values, rows in split(batch, self._columns, self._file_schema):
            partition = self._partitions.setdefault(values, _Partition(values))
            partition.batches.append(rows)
            partition.rows += rows.num_rows
            partition.size += rows.nbytes
            if partition.rows >= GROUP_ROWS or partition.size >= GROUP_BYTES_MAX:
                self._write_group(partition)
        while sum(each.size for each in self._partitions.values()) > BUFFERED_BYTES_MAX:
            self._write_group(max(self._partitions.values(), key=lambda each: each.size))

    def _write_group(self, partition: _Partition) -> None:
        import pyarrow as pa

        if not partition.batches:
            return
        try:
            writer = partition.writer or self._open(partition)
            group = pa.Table.from_batches(partition.batches, self._file_schema)
            writer.write_table(group, row_group_size=max(partition.rows, 1))
            partition.batches, partition.rows, partition.size = [], 0, 0
            assert partition.sink is not None
            if partition.sink.tell() >= self._table.target_file_bytes:
                self._close(partition)
        except OSError as error:
            raise lake_full(self._table.path) if is_disk_full(error) else error from error

    def _open(self, partition: _Partition) -> "pq.ParquetWriter":
        import pyarrow.parquet as pq

        opened = [each for each in self._partitions.values() if each.writer is not None]
        if len(opened) >= OPEN_FILES_MAX:
            self._close(opened[0])
        # A name nobody can guess: two attempts at the same task never meet in one file.
        suffix = "" if self._table.compression == "none" else f".{self._table.compression}"
        name = f"part-{self._task:05}-{secrets.token_hex(16)}{suffix}.parquet"
        partition.path = directory(self._columns, partition.values) + name
        self._paths.append(partition.path)
        partition.sink = self._storage.create(partition.path)
        partition.writer = pq.ParquetWriter(
            partition.sink,
            self._file_schema,
            compression=self._table.compression,
            metadata_collector=partition.metadata,
        )
        return partition.writer

    def _close(self, partition: _Partition) -> None:
        self._write_group(partition)
        if partition.writer is None or partition.path is None or partition.sink is None:
            return
        try:
            partition.writer.close()
            partition.sink.close()
            settled = self._storage.settle(partition.path)
        except OSError as error:
            raise lake_full(self._table.path) if is_disk_full(error) else error from error
        metadata = partition.metadata.pop()
        self._finished.append(
            WrittenFile(
                path=partition.path,
                size=settled.size,
                modified_ms=settled.modified_ms,
                rows=metadata.num_rows,
                partition_values=partition.values,
                statistics=file_statistics(metadata),
            )
        )
        partition.path = partition.sink = partition.writer = None
