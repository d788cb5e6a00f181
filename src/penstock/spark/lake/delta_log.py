"""Delta's log, entry by entry: what each version of a table added and took away.

_delta_log/00000000000000000007.json        one action per line
    {"commitInfo": {..., "penstock": {"queryId": ..., "batchId": ...}}}
    {"add": {"path": ..., "partitionValues": {...}, "size": ..., "dataChange": true, ...}}
    {"remove": {"path": ..., "dataChange": true, ...}}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.spark.lake.table import TableOptions, TableStorage, sync_path

LOG = "_delta_log"
NOTE = "penstock"
# How far back a batch is looked for: it was committed moments ago, by whoever raced or crashed.
LOOK_BACK = 200


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table, with its path as it is on the disk."""

    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    has_deletions: bool = False


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What one version did to the rows; files that were only rewritten are left out."""

    number: int
    added: tuple[DataFile, ...]
    removed_rows: bool
    note: Mapping[str, Any]


def entry_path(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def read_version(storage: TableStorage, number: int) -> TableVersion | None:
    """One entry of the log, or None where there is no such entry (any more, or yet)."""
    try:
        with storage.open(entry_path(number)) as file:
            lines = file.read().decode().splitlines()
    except FileNotFoundError:
        return None
    actions = [json.loads(line) for line in lines if line]
    return TableVersion(
        number=number,
        added=tuple(_file(each["add"]) for each in actions if _changes(each.get("add"))),
        removed_rows=any(_changes(each.get("remove")) for each in actions),
        note=next((each["commitInfo"].get(NOTE, {}) for each in actions if "commitInfo" in each), {}),
    )


def _changes(action: Mapping[str, Any] | None) -> bool:
    return action is not None and action.get("dataChange", True)


def _file(add: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=unquote(add["path"]),
        size=add["size"],
        modified_ms=add["modificationTime"],
        partition_values=add["partitionValues"],
        has_deletions=add.get("deletionVector") is not None,
    )


def added_by(storage: TableStorage, latest: int, query_id: str, batch_id: int) -> frozenset[str] | None:
    """The files that a batch brought, or None where the log does not say."""
    for number in range(latest, max(latest - LOOK_BACK, -1), -1):
        version = read_version(storage, number)
        if version is None:
            return None
        if (version.note.get("queryId"), version.note.get("batchId")) == (query_id, batch_id):
            return frozenset(file.path for file in version.added)
    return None


def version_of(storage: TableStorage, versions: range, commit_id: str) -> int:
    """Which of some versions a commit made; others may have committed right before and after it."""
    for number in versions:
        version = read_version(storage, number)
        if version is not None and version.note.get("commit") == commit_id:
            return number
    raise AssertionError(f"commit {commit_id} succeeded, so it is among versions {versions}")


def sync_log(table: TableOptions, versions: range) -> None:
    """Make commits of a table on this machine outlive a crash of the machine."""
    if table.is_local:
        log = Path(table.path) / LOG
        for path in (*(Path(table.path) / entry_path(version) for version in versions), log, log.parent):
            sync_path(path)
