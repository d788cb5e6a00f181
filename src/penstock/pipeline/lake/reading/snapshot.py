"""All files of a table at one version, in an order that stays the same."""

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.pipeline.errors import BadOption, PipelineError
from penstock.pipeline.lake.errors import VersionGone
from penstock.pipeline.lake.log import DataFile
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.partitions import to_text
from penstock.pipeline.lake.tables import existing_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PARTITION = "partition."


def table_at(table: TableOptions, version: int | None = None, timestamp: str | None = None) -> "DeltaTable":
    """The table as it is, as it was at a version, or as it was at a time."""
    from deltalake.exceptions import DeltaError

    opened = existing_table(table)
    if version is None and timestamp is None:
        return opened
    try:
        opened.load_as_version(_moment(timestamp) if version is None else version)
    except (DeltaError, ValueError) as error:
        wanted = f"as of {timestamp}" if version is None else f"version {version}"
        raise VersionGone(
            f"table {table.path}: {wanted} cannot be read, the newest version is"
            f" {existing_table(table).version()}: {error}"
        ) from error
    return opened


def _moment(timestamp: str | None) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(timestamp or "")
    except ValueError:
        raise BadOption(
            "timestampAsOf", f"{timestamp!r} is not a time such as 2026-11-15T12:00:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def live_files(opened: "DeltaTable") -> tuple[DataFile, ...]:
    """The files that make up a version, oldest first."""
    import pyarrow as pa

    _refuse_deletion_vectors(opened)
    rows = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    files = [
        DataFile(
            path=unquote(row["path"]),
            size=row["size_bytes"],
            modified_ms=_milliseconds(row["modification_time"]),
            partition_values=_partition_values(row),
        )
        for row in rows
    ]
    return tuple(sorted(files, key=lambda file: (file.modified_ms, file.path)))


def _partition_values(row: dict[str, Any]) -> dict[str, str | None]:
    return {
        name.removeprefix(_PARTITION): to_text(value)
        for name, value in row.items()
        if name.startswith(_PARTITION)
    }


def _milliseconds(moment: int | dt.datetime) -> int:
    return moment if isinstance(moment, int) else int(moment.timestamp() * 1000)


def _refuse_deletion_vectors(opened: "DeltaTable") -> None:
    features = opened.protocol().reader_features or []
    if "deletionVectors" in features and opened.deletion_vectors().read_all().num_rows:
        raise PipelineError(
            f"table {opened.table_uri}: it has deletion vectors, which are not read here; compact it first"
        )


def check_columns(opened: "DeltaTable", names: Iterable[str]) -> None:
    """Refuse columns that a user asks for and the table does not have."""
    there = {field.name for field in opened.schema().fields}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise BadOption("schema", f"table {opened.table_uri} has no column {unknown[0]!r}")
