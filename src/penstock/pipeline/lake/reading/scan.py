"""Files of a table as Arrow batches that have exactly the schema Spark was told."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import VersionGone
from penstock.pipeline.lake.log import DataFile
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.partitions import to_scalar
from penstock.pipeline.lake.schemas import conform
from penstock.pipeline.lake.storage import open_storage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 65_536
# Opening a file costs about as much as reading so many bytes; a task takes files up to so many.
OPENING_BYTES = 4 * 1024 * 1024
TASK_BYTES_MAX = 128 * 1024 * 1024


def pack(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
    """The files in tasks of similar size: no task per tiny file, and no core without work."""
    total = sum(file.size + OPENING_BYTES for file in files)
    share = min(TASK_BYTES_MAX, max(OPENING_BYTES, total // (os.cpu_count() or 1)))
    tasks: list[tuple[DataFile, ...]] = []
    held: list[DataFile] = []
    size = 0
    for file in files:
        if held and size + file.size > share:
            tasks.append(tuple(held))
            held, size = [], 0
        held.append(file)
        size += file.size + OPENING_BYTES
    return [*tasks, tuple(held)] if held else tasks


def read_files(
    table: TableOptions, files: Iterable[DataFile], schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    """The rows of some files; a column that a file does not have is null."""
    import pyarrow.parquet as pq

    storage = open_storage(table)
    for file in files:
        try:
            source = storage.open(file.path)
        except FileNotFoundError:
            raise VersionGone(
                f"table {table.path}: file {file.path} is gone before it was read (vacuumed):"
                " read a newer version, or start the query with a new checkpoint"
            ) from None
        with source:
            yield from _read_file(pq.ParquetFile(source), file, schema)


def _read_file(parquet: "pq.ParquetFile", file: DataFile, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    there = set(parquet.schema_arrow.names) - set(file.partition_values)
    wanted = [name for name in schema.names if name in there]
    if wanted:
        batches = parquet.iter_batches(BATCH_ROWS, columns=wanted)
    else:
        # Only partition columns, or columns younger than the file: the rows are known by their number.
        rows = pa.nulls(parquet.metadata.num_rows)
        batches = iter([pa.RecordBatch.from_arrays([rows], ["rows"])])
    for batch in batches:
        yield conform(_with_partition(batch, file, schema), schema)


def _with_partition(batch: "pa.RecordBatch", file: DataFile, schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    for name in schema.names:
        if name in file.partition_values:
            value = to_scalar(file.partition_values[name], schema.field(name).type)
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch
