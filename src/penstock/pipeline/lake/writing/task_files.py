"""What one task writes: parquet files in the table's directory, which count when the driver commits them."""

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import is_disk_full, lake_full
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.partitions import Values, check_partition_columns, directory, split
from penstock.pipeline.lake.schemas import conform, table_schema
from penstock.pipeline.lake.storage import open_storage
from penstock.pipeline.lake.writing.origins import Origin, OriginRanges, origin_columns
from penstock.pipeline.lake.writing.outcome import FileWritten
from penstock.pipeline.lake.writing.repeats import find_repeats
from penstock.pipeline.lake.writing.statistics import file_statistics

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Fewer rows per group make readers slow; more bytes than this are written out whatever their number.
GROUP_ROWS = 131_072
GROUP_BYTES_MAX = 128 * 1024 * 1024
# Over all partitions of a task together: what a task may hold in memory, and files open at a time.
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
OPEN_FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """What a task hands to the driver; small, and the same wherever it is unpickled."""

    files: tuple[FileWritten, ...] = ()
    origins: tuple[Origin, ...] = ()

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
        self._finished: list[FileWritten] = []

    def write(self, rows: "pa.RecordBatch | pa.Table") -> None:
        """Take rows; they reach a file when there are enough of them, or at the end."""
        import pyarrow as pa

        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            batch = self._repeats.without(conform(batch, self._schema))
            if batch.num_rows:
                self._take(batch)

    def finish(self) -> FilesWritten:
        """Write what is left and make all files safe; nothing is part of the table yet."""
        for partition in list(self._partitions.values()):
            self._close(partition)
        self._partitions.clear()
        return FilesWritten(tuple(self._finished), self._ranges.found())

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
            FileWritten(
                path=partition.path,
                size=settled.size,
                modified_ms=settled.modified_ms,
                rows=metadata.num_rows,
                partition_values=partition.values,
                statistics=file_statistics(metadata),
            )
        )
        partition.path = partition.sink = partition.writer = None
