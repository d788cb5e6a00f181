"""A table opened, created, and asked for its shape."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.pipeline.errors import BadOption
from penstock.pipeline.lake.errors import TableMissing
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.partitions import check_partition_columns
from penstock.pipeline.lake.schemas import compare_schemas, table_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def open_table(table: TableOptions, version: int | None = None) -> "DeltaTable | None":
    """The table as it is now (or was at a version), or None where there is none yet."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    if table.is_local and os.path.isfile(table.path):
        raise BadOption("path", f"{table.path} is a file, and a table is a directory")
    try:
        return DeltaTable(table.path, version=version, storage_options=table.storage_options)
    except TableNotFoundError:
        return None


def existing_table(table: TableOptions, version: int | None = None) -> "DeltaTable":
    if table.table_format != "delta":
        raise BadOption(
            "tableFormat", f"{table.table_format} tables are written here, and read by other tools"
        )
    opened = open_table(table, version)
    if opened is None:
        raise TableMissing(f"table {table.path}: there is no Delta table")
    return opened


def arrow_schema(opened: "DeltaTable") -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(opened.schema().to_arrow())


def ensure_table(table: TableOptions, schema: "pa.Schema") -> None:
    """Create an empty table where there is none, so that readers may start before the first row."""
    from deltalake import DeltaTable, Schema

    if open_table(table) is None:
        check_partition_columns(schema, table.partition_columns or ())
        DeltaTable.create(
            table.path,
            Schema.from_arrow(table_schema(schema)),
            mode="ignore",
            partition_by=list(table.partition_columns or ()),
            storage_options=table.storage_options,
        )


def resolve(table: TableOptions, schema: "pa.Schema") -> TableOptions:
    """The options with the table's own partition columns, refusing rows that would never fit."""
    if table.table_format == "iceberg":
        from penstock.pipeline.lake.iceberg import resolve_iceberg

        return resolve_iceberg(table, schema)
    opened = open_table(table)
    if opened is None:
        wanted = table.partition_columns or ()
    else:
        wanted = partition_columns(table, opened)
        compare_schemas(table.path, arrow_schema(opened), schema, table.merge_schema)
    check_partition_columns(schema, wanted)
    return replace(table, partition_columns=wanted)


def partition_columns(table: TableOptions, opened: "DeltaTable") -> tuple[str, ...]:
    """How an existing table is partitioned, which nobody can change afterwards."""
    there = tuple(opened.metadata().partition_columns)
    if table.partition_columns not in (None, there):
        wanted = ", ".join(table.partition_columns or ()) or "nothing"
        raise BadOption(
            "partitionColumns",
            f"{wanted}, but table {table.path} is partitioned by {', '.join(there) or 'nothing'}",
        )
    return there
