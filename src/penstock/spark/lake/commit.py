"""One commit per batch, made by the driver: it takes all files of the batch or none, and only once.

Tasks write files straight into the table's directory under names that cannot be guessed. Until the
one commit that names them no version has them: a crash leaves files that no reader looks at, and that
vacuum removes when they are old.

The table itself remembers, per query, the last batch it took (an application transaction). A commit
that finds its batch there adds nothing; two that race for the same batch conflict inside Delta,
and the loser finds it there when it looks again. Others may write and compact meanwhile: appends do
not conflict with them, and what does is tried again on the newer table.

Left out: buffering across batches. A batch makes at least one file per partition that it has rows
for, and `penstock pipeline run compact` puts small ones together.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake.delta_log import LOOK_BACK, NOTE, added_by, read_version, sync_log, version_of
from penstock.spark.lake.origins import (
    CommitOrigins,
    OriginRange,
    Recorded,
    merged,
    record_ends,
    record_origins,
)
from penstock.spark.lake.table import (
    CommitConflict,
    TableOptions,
    arrow_schema,
    compare_schemas,
    ensure_table,
    existing_table,
    is_disk_full,
    lake_full,
    open_storage,
    open_table,
    partition_columns,
    table_schema,
)
from penstock.spark.lake.task_files import CommitResult, WrittenFile, WrittenFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties

TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class _Batch:
    """All that one commit puts into the table."""

    table: TableOptions
    schema: "pa.Schema"
    files: tuple[WrittenFile, ...]
    origins: tuple[OriginRange, ...]
    query_id: str | None
    batch_id: int
    overwrite: bool
    commit_id: str


def commit_files(
    table: TableOptions,
    schema: "pa.Schema",
    written: Sequence[WrittenFiles],
    *,
    query_id: str | None = None,
    batch_id: int = 0,
    overwrite: bool = False,
) -> CommitResult:
    """Make the files of a batch part of the table; the same (query, batch) is taken once.

    `schema` is that of the rows, partition columns included. Without a query id, as for a batch
    job, every call adds. Files of a batch that was taken before are removed.
    """
    files = tuple(file for part in written for file in part.files)
    origins = merged(part.origins for part in written)
    commit_id = secrets.token_hex(8)
    batch = _Batch(table, table_schema(schema), files, origins, query_id, batch_id, overwrite, commit_id)
    try:
        if table.table_format == "iceberg":
            return _commit_to_iceberg(batch)
        if not files and not overwrite:
            ensure_table(table, schema)
            return CommitResult("empty")
        return _commit(batch)
    except Exception as error:
        if is_disk_full(error):
            raise lake_full(table.path, is_committed=_is_made(batch)) from error
        raise


def _is_made(batch: _Batch) -> bool:
    """Whether the commit is in the log all the same: what failed came after it."""
    opened = None if batch.table.table_format == "iceberg" else open_table(batch.table)
    if opened is None:
        return False
    storage, latest = open_storage(batch.table), opened.version()
    versions = (read_version(storage, number) for number in range(max(latest - LOOK_BACK, 0), latest + 1))
    return any(version is not None and version.note.get("commit") == batch.commit_id for version in versions)


def _commit_to_iceberg(batch: _Batch) -> CommitResult:
    from penstock.spark.lake.iceberg import IcebergBatch, commit_to_iceberg

    if batch.overwrite:
        raise SparkOptionError("tableFormat", "an iceberg table is appended to, and never overwritten here")
    if not batch.files:
        return CommitResult("empty")
    return commit_to_iceberg(
        IcebergBatch(batch.table, batch.schema, batch.files, batch.origins, batch.query_id, batch.batch_id)
    )


def discard_files(
    table: TableOptions, written: Sequence[WrittenFiles], *, query_id: str | None = None, batch_id: int = 0
) -> None:
    """Remove the files of a batch that failed, except those that a commit took after all."""
    paths = {file.path for part in written for file in part.files}
    if table.table_format == "iceberg":
        from penstock.spark.lake.iceberg import is_taken_by_iceberg

        paths = set() if is_taken_by_iceberg(table, query_id, batch_id) else paths
    else:
        paths -= _taken(table, paths, query_id, batch_id)
    storage = open_storage(table)
    for path in sorted(paths):
        storage.remove(path)


def _taken(table: TableOptions, paths: set[str], query_id: str | None, batch_id: int) -> set[str]:
    opened = open_table(table)
    if opened is None:
        return set()
    if query_id is None:
        # A batch job has no name to look for; what is in the table is in the table.
        return paths if _any_live(opened, paths) else set()
    if not _is_taken(opened, query_id, batch_id):
        return set()
    found = added_by(open_storage(table), opened.version(), query_id, batch_id)
    return paths if found is None else paths & found


def _any_live(opened: "DeltaTable", paths: set[str]) -> bool:
    return any(uri.endswith(path) for uri in opened.file_uris() for path in paths)


def _is_taken(opened: "DeltaTable", query_id: str, batch_id: int) -> bool:
    last = opened.transaction_version(query_id)
    return last is not None and last >= batch_id


def _commit(batch: _Batch) -> CommitResult:
    from deltalake.exceptions import CommitFailedError

    refusal: Exception | None = None
    before: int | None = None
    for _ in range(TRIES_MAX):
        opened = open_table(batch.table)
        if opened is None:
            if _create(batch):
                return _committed(batch, -1)
            continue
        if batch.query_id is not None and _is_taken(opened, batch.query_id, batch.batch_id):
            _remove_repeats(batch)
            return CommitResult("already")
        before = opened.version() if before is None else before
        try:
            if _append(batch, opened):
                return _committed(batch, before)
        except CommitFailedError as error:
            if is_disk_full(error):
                raise
            refusal = error
    raise CommitConflict(f"table {batch.table.path}: not committed after {TRIES_MAX} tries: {refusal}")


def _committed(batch: _Batch, before: int) -> CommitResult:
    """Make the commit durable, with those of others on which it stands."""
    opened = existing_table(batch.table)
    storage = open_storage(batch.table)
    version = version_of(storage, range(before + 1, opened.version() + 1), batch.commit_id)
    sync_log(batch.table, range(before + 1, version + 1))
    return CommitResult("committed", version, len(batch.files), sum(file.rows for file in batch.files))


def _remove_repeats(batch: _Batch) -> None:
    """Remove what this attempt wrote and no commit took: another attempt at the batch was faster."""
    discard_files(batch.table, [WrittenFiles(batch.files)], query_id=batch.query_id, batch_id=batch.batch_id)


def _create(batch: _Batch) -> bool:
    """Create the table with its first files; False where somebody else was faster."""
    from deltalake import Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import create_table_with_add_actions

    books = _books(batch, lambda _: None)
    try:
        create_table_with_add_actions(
            batch.table.path,
            Schema.from_arrow(batch.schema),
            [_add_action(file, batch.table.partition_columns or ()) for file in batch.files],
            mode="error",
            partition_by=list(batch.table.partition_columns or ()),
            storage_options=batch.table.storage_options,
            commit_properties=_properties(batch, books),
        )
    except DeltaError:
        if open_table(batch.table) is None:
            raise
        return False
    return True


def _append(batch: _Batch, opened: "DeltaTable") -> bool:
    """Commit the files; False where the table had to be widened first, and has to be looked at again."""
    columns = partition_columns(batch.table, opened)
    change = compare_schemas(batch.table.path, arrow_schema(opened), batch.schema, batch.table.merge_schema)
    books = _books(batch, opened.transaction_version)
    if change.added:
        _add_columns(opened, change.added)
        return False
    opened.create_write_transaction(
        [_add_action(file, columns) for file in batch.files],
        "overwrite" if batch.overwrite else "append",
        opened.schema(),
        list(columns),
        commit_properties=_properties(batch, books),
    )
    return True


def _add_columns(opened: "DeltaTable", added: "Sequence[pa.Field]") -> None:
    """Widen the table in a commit of its own; repeating it after a crash finds nothing left to add.

    What others committed meanwhile must not slip in unseen: it may be this very batch.
    """
    import pyarrow as pa
    from deltalake import Schema

    opened.alter.add_columns(Schema.from_arrow(pa.schema(list(added))).fields)


def _books(batch: _Batch, recorded: Recorded) -> CommitOrigins:
    if batch.query_id is None or batch.overwrite:
        return record_ends(recorded, batch.origins)
    return record_origins(batch.table, recorded, batch.query_id, batch.origins)


def _add_action(file: WrittenFile, columns: Sequence[str]) -> "AddAction":
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(zip(columns, file.partition_values, strict=True)),
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.statistics,
    )


def _properties(batch: _Batch, books: CommitOrigins) -> "CommitProperties":
    from deltalake.transaction import CommitProperties, Transaction

    note: dict[str, object] = {
        "commit": batch.commit_id,
        "origins": {f"{o.topic}/{o.partition}": [o.start, o.end] for o in batch.origins},
    }
    transactions = [Transaction(name, end) for name, end in sorted({**books.ends, **books.claims}.items())]
    if batch.query_id is not None:
        note |= {"queryId": batch.query_id, "batchId": batch.batch_id}
        transactions.append(Transaction(batch.query_id, batch.batch_id))
    return CommitProperties(custom_metadata={NOTE: note}, app_transactions=transactions)
