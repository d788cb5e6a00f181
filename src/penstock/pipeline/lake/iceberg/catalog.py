"""A table in a catalog: found or created, and asked for its shape."""

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.pipeline.errors import BadOption
from penstock.pipeline.lake.options import TableOptions, local_path
from penstock.pipeline.lake.partitions import check_partition_columns
from penstock.pipeline.lake.schemas import compare_schemas, table_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

DATA = "data"
CATALOG_NAME = "penstock"


def open_catalog(table: TableOptions) -> "Catalog":
    """The catalog that the `catalog.*` options name."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise BadOption("tableFormat", "iceberg needs pyiceberg: pip install 'penstock[iceberg]'") from None
    if not table.catalog:
        raise BadOption(
            "catalog.type", "say which catalog has the table: catalog.type, catalog.uri, catalog.warehouse"
        )
    options = dict(table.catalog)
    return load_catalog(options.pop("name", CATALOG_NAME), **options)


def open_iceberg(table: TableOptions) -> "Table | None":
    """The table as it is now, or None where there is none yet."""
    from pyiceberg.exceptions import NoSuchTableError

    catalog = open_catalog(table)
    try:
        return catalog.load_table(table.identifier or table.path)
    except NoSuchTableError:
        return None


def resolve_iceberg(table: TableOptions, schema: "pa.Schema") -> TableOptions:
    """The options with the place of the table's files and its partition columns; creates the table."""
    if "." not in table.path:
        raise BadOption("path", f"{table.path!r} is not a table of a catalog such as metrics.raw")
    opened = open_iceberg(table)
    if opened is None:
        opened = _create(table, schema)
    columns = _partition_columns(table, opened)
    compare_schemas(table.path, opened.schema().as_arrow(), schema, table.merge_schema)
    check_partition_columns(schema, columns)
    place = local_path(f"{opened.location()}/{DATA}")
    return replace(table, identifier=table.path, path=place, partition_columns=columns)


def _create(table: TableOptions, schema: "pa.Schema") -> "Table":
    from pyiceberg.exceptions import TableAlreadyExistsError
    from pyiceberg.transforms import IdentityTransform

    check_partition_columns(schema, table.partition_columns or ())
    catalog = open_catalog(table)
    catalog.create_namespace_if_not_exists(table.path.rpartition(".")[0])
    try:
        with (
            catalog.create_table_transaction(table.path, table_schema(schema)) as creation,
            creation.update_spec() as partitions,
        ):
            for column in table.partition_columns or ():
                partitions.add_field(column, IdentityTransform(), column)
    except TableAlreadyExistsError:
        # Somebody else was faster, which is as good.
        pass
    return catalog.load_table(table.path)


def _partition_columns(table: TableOptions, opened: "Table") -> tuple[str, ...]:
    names = {field.field_id: field.name for field in opened.schema().fields}
    fields = opened.spec().fields
    there = tuple(names.get(field.source_id, field.name) for field in fields)
    if any(str(field.transform) != "identity" for field in fields):
        raise BadOption(
            "path", f"table {table.path} is partitioned by more than plain columns: {opened.spec()}"
        )
    if table.partition_columns not in (None, there):
        wanted = ", ".join(table.partition_columns or ()) or "nothing"
        raise BadOption(
            "partitionColumns",
            f"{wanted}, but table {table.path} is partitioned by {', '.join(there) or 'nothing'}",
        )
    return there
