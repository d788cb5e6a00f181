"""Iceberg tables as sinks, through pyiceberg: `tableFormat=iceberg`.

Tasks write files as they do for Delta, below the table's `data` directory, partition columns
included; the driver adds them in one commit. What Delta keeps as application transactions is kept
here as properties of the table, set in the same commit that adds the files: unlike snapshots, which
expire, properties stay.

Left out: reading, overwriting, compaction and vacuum, for which pyiceberg and Iceberg's own tools
serve; transforms of partition columns other than the value itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake.origins import CommitOrigins, OriginRange, Recorded, record_ends, record_origins
from penstock.spark.lake.table import (
    CommitConflict,
    TableMissing,
    TableOptions,
    check_partition_columns,
    compare_schemas,
    local_path,
    table_schema,
)
from penstock.spark.lake.task_files import CommitResult, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

DATA = "data"
CATALOG_NAME = "penstock"
TRIES_MAX = 10
QUERY, BATCH = "penstock.query-id", "penstock.batch-id"
_RETRIES = "commit.retry.num-retries"


def open_catalog(table: TableOptions) -> "Catalog":
    """The catalog that the `catalog.*` options name."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise SparkOptionError(
            "tableFormat", "iceberg needs pyiceberg: pip install 'penstock[iceberg]'"
        ) from None
    if not table.catalog:
        raise SparkOptionError(
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
        raise SparkOptionError("path", f"{table.path!r} is not a table of a catalog such as metrics.raw")
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
        raise SparkOptionError(
            "path", f"table {table.path} is partitioned by more than plain columns: {opened.spec()}"
        )
    if table.partition_columns not in (None, there):
        wanted = ", ".join(table.partition_columns or ()) or "nothing"
        raise SparkOptionError(
            "partitionColumns",
            f"{wanted}, but table {table.path} is partitioned by {', '.join(there) or 'nothing'}",
        )
    return there


@dataclass(frozen=True, slots=True)
class IcebergBatch:
    """All that one commit puts into the table."""

    table: TableOptions
    schema: "pa.Schema"
    files: Sequence[WrittenFile]
    origins: Sequence[OriginRange]
    query_id: str | None
    batch_id: int


def commit_to_iceberg(batch: IcebergBatch) -> CommitResult:
    """Add the files of a batch in one snapshot, unless the table has taken the batch before."""
    from pyiceberg.exceptions import CommitFailedException

    refusal: Exception | None = None
    for _ in range(TRIES_MAX):
        opened = _existing(batch.table)
        if batch.query_id is not None and _is_taken(opened, batch.query_id, batch.batch_id):
            return CommitResult("already")
        try:
            _add(batch, opened)
        except CommitFailedException as error:
            refusal = error
            continue
        snapshot = opened.current_snapshot()
        version = None if snapshot is None else snapshot.snapshot_id
        rows = sum(file.rows for file in batch.files)
        return CommitResult("committed", version, len(batch.files), rows)
    raise CommitConflict(f"table {batch.table.identifier}: not committed after {TRIES_MAX} tries: {refusal}")


def is_taken_by_iceberg(table: TableOptions, query_id: str | None, batch_id: int) -> bool:
    """Whether a batch is in the table; a batch job, which has no name, may be."""
    return query_id is None or _is_taken(_existing(table), query_id, batch_id)


def recorded_by_iceberg(table: TableOptions) -> Recorded:
    """What the table has in its books."""
    return _recorded(_existing(table))


def _existing(table: TableOptions) -> "Table":
    opened = open_iceberg(table)
    if opened is None:
        raise TableMissing(f"table {table.identifier}: it is not in the catalog (any more)")
    return opened


def _recorded(opened: "Table") -> Recorded:
    def recorded(name: str) -> int | None:
        value = opened.properties.get(name)
        return None if value is None else int(value)

    return recorded


def _taken_property(query_id: str) -> str:
    return f"penstock/{query_id}"


def _is_taken(opened: "Table", query_id: str, batch_id: int) -> bool:
    last = _recorded(opened)(_taken_property(query_id))
    return last is not None and last >= batch_id


def _add(batch: IcebergBatch, opened: "Table") -> None:
    place = str(batch.table.identifier)
    change = compare_schemas(place, opened.schema().as_arrow(), batch.schema, batch.table.merge_schema)
    # pyiceberg would try again by itself on a newer table, without a look at whether the batch is in it.
    opened.metadata.properties[_RETRIES] = "0"
    with opened.transaction() as transaction:
        if change.added:
            with transaction.update_schema() as update:
                update.union_by_name(batch.schema)
        transaction.set_properties(_properties(batch, opened))
        transaction.add_files(
            [f"{opened.location()}/{DATA}/{file.path}" for file in batch.files],
            snapshot_properties={QUERY: batch.query_id or "", BATCH: str(batch.batch_id)},
        )


def _properties(batch: IcebergBatch, opened: "Table") -> dict[str, str]:
    books = _books(batch, _recorded(opened))
    properties = {name: str(end) for name, end in {**books.ends, **books.claims}.items()}
    if batch.query_id is not None:
        properties[_taken_property(batch.query_id)] = str(batch.batch_id)
    return properties


def _books(batch: IcebergBatch, recorded: Recorded) -> CommitOrigins:
    if batch.query_id is None:
        return record_ends(recorded, batch.origins)
    return record_origins(batch.table, recorded, batch.query_id, batch.origins)
