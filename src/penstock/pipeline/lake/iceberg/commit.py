"""One commit per batch into an Iceberg table, which takes each (query, batch) once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import CommitRefused, TableMissing
from penstock.pipeline.lake.iceberg.catalog import DATA, open_iceberg
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.schemas import compare_schemas
from penstock.pipeline.lake.writing.origins import Bookkeeping, Origin, Recorded, keep_books, record_ends
from penstock.pipeline.lake.writing.outcome import CommitOutcome, FileWritten

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

TRIES_MAX = 10
QUERY, BATCH = "penstock.query-id", "penstock.batch-id"
_RETRIES = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class IcebergBatch:
    """All that one commit puts into the table."""

    table: TableOptions
    schema: "pa.Schema"
    files: Sequence[FileWritten]
    origins: Sequence[Origin]
    query_id: str | None
    batch_id: int


def commit_to_iceberg(batch: IcebergBatch) -> CommitOutcome:
    """Add the files of a batch in one snapshot, unless the table has taken the batch before."""
    from pyiceberg.exceptions import CommitFailedException

    refusal: Exception | None = None
    for _ in range(TRIES_MAX):
        opened = _existing(batch.table)
        if batch.query_id is not None and _is_taken(opened, batch.query_id, batch.batch_id):
            return CommitOutcome("already")
        try:
            _add(batch, opened)
        except CommitFailedException as error:
            refusal = error
            continue
        snapshot = opened.current_snapshot()
        version = None if snapshot is None else snapshot.snapshot_id
        rows = sum(file.rows for file in batch.files)
        return CommitOutcome("committed", version, len(batch.files), rows)
    raise CommitRefused(f"table {batch.table.identifier}: not committed after {TRIES_MAX} tries: {refusal}")


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


def _books(batch: IcebergBatch, recorded: Recorded) -> Bookkeeping:
    if batch.query_id is None:
        return record_ends(recorded, batch.origins)
    return keep_books(batch.table, recorded, batch.query_id, batch.origins)
