"""Maintenance of tables through delta-rs: small files put together, and unused files removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake.table import (
    TARGET_FILE_BYTES,
    CommitConflict,
    TableOptions,
    existing_table,
    is_disk_full,
    lake_full,
    local_path,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

TRIES_MAX = 5
# Delta's own default. A batch that is being written has files that no version names yet, and a query
# that lags behind needs files that later versions have replaced: both are safe for this long.
RETENTION_HOURS = 168
RETENTION_HOURS_MIN = 1
# One condition per entry, all of which must hold: ("date", "=", "2026-11-15").
Conditions = Sequence[tuple[str, str, Any]]


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did; the rows of the table are the same as before."""

    path: str
    version: int
    files_removed: int
    files_added: int


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Which files were removed, or would be."""

    path: str
    dry_run: bool
    files: tuple[str, ...]


def compact(
    table: TableOptions | str,
    *,
    target_file_bytes: int = TARGET_FILE_BYTES,
    z_order_columns: Sequence[str] = (),
    partitions: Conditions = (),
    tasks_max: int | None = None,
) -> CompactReport:
    """Put the small files of each partition together, sorted along `z_order_columns` if any are given.

    Queries may write to the table and follow it meanwhile. Where others change the same files at the
    same time, the compaction starts again.
    """
    from deltalake.exceptions import CommitFailedError

    asked = _table(table)
    settings = {
        "partition_filters": list(partitions) or None,
        "target_size": target_file_bytes,
        "max_concurrent_tasks": tasks_max,
    }
    refusal: Exception | None = None
    for _ in range(TRIES_MAX):
        opened = existing_table(asked)
        _check_columns(opened, z_order_columns)
        try:
            metrics = _optimize(opened, z_order_columns, settings)
        except CommitFailedError as error:
            refusal = error
        except Exception as error:
            raise lake_full(asked.path) if is_disk_full(error) else error from error
        else:
            return CompactReport(
                path=asked.path,
                version=opened.version(),
                files_removed=metrics["numFilesRemoved"],
                files_added=metrics["numFilesAdded"],
            )
    raise CommitConflict(f"table {asked.path}: not compacted after {TRIES_MAX} tries: {refusal}")


def vacuum(
    table: TableOptions | str,
    retention_hours: int = RETENTION_HOURS,
    dry_run: bool = True,
    *,
    unsafe: bool = False,
) -> VacuumReport:
    """Remove files that no version of the last `retention_hours` names; only list them in a dry run.

    This includes what crashed tasks left behind. Versions older than that cannot be read any more, and
    a query that lags behind by more gets an error. `unsafe` allows less than an hour, which loses the
    files of a batch that is just being written: only for a table that nobody writes.
    """
    asked = _table(table)
    if retention_hours < RETENTION_HOURS_MIN and not unsafe:
        raise SparkOptionError(
            "retentionHours",
            f"{retention_hours} is less than {RETENTION_HOURS_MIN}: files of a batch that is being written"
            " would be lost",
        )
    removed = existing_table(asked).vacuum(
        retention_hours=retention_hours, dry_run=dry_run, enforce_retention_duration=False, full=True
    )
    return VacuumReport(asked.path, dry_run, tuple(sorted(removed)))


def _table(table: TableOptions | str) -> TableOptions:
    return TableOptions(local_path(table)) if isinstance(table, str) else table


def _check_columns(opened: "DeltaTable", columns: Sequence[str]) -> None:
    unknown = set(columns) - {field.name for field in opened.schema().fields}
    if unknown:
        raise SparkOptionError("zOrderColumns", f"table {opened.table_uri} has no column {min(unknown)!r}")


def _optimize(
    opened: "DeltaTable", z_order_columns: Sequence[str], settings: dict[str, Any]
) -> dict[str, Any]:
    if z_order_columns:
        return opened.optimize.z_order(list(z_order_columns), **settings)
    return opened.optimize.compact(**settings)
