"""A table followed by a query: which files lie between two positions, and how far a batch may go."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.pipeline.errors import BadOption, PipelineError
from penstock.pipeline.lake.errors import RowsChanged, VersionGone
from penstock.pipeline.lake.log import DataFile, Version, read_version
from penstock.pipeline.lake.options import TableOptions
from penstock.pipeline.lake.reading.positions import Position, beginning_of
from penstock.pipeline.lake.reading.snapshot import live_files, table_at
from penstock.pipeline.lake.storage import open_storage
from penstock.pipeline.lake.tables import existing_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

VERSIONS_CACHED = 1024


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Where to begin, and what to make of versions that take rows away.

    `starting_version` is None for everything that is there, "latest" for what comes, or the first
    version whose files are read. With `whole_versions` a query that reads everything begins with the
    oldest version that will do, since the files of a snapshot can not be told apart by version.
    """

    starting_version: int | str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    whole_versions: bool = False


class TableStream:
    """One table as seen by the driver of one query."""

    def __init__(self, table: TableOptions, options: StreamOptions) -> None:
        self._table = table
        self._options = options
        self._opened: DeltaTable = existing_table(table)
        self._id = str(self._opened.metadata().id)
        self._read = lru_cache(VERSIONS_CACHED)(self._read_version)
        self._snapshot = lru_cache(1)(lambda base: live_files(table_at(table, base)))

    def latest_version(self) -> int:
        self._opened.update_incremental()
        return self._opened.version()

    def first(self, version_max: int | None = None) -> Position:
        """Where a query begins that has no checkpoint, and that may see versions up to `version_max`."""
        latest = self.latest_version() if version_max is None else version_max
        match self._options.starting_version:
            case None:
                base = 0 if self._options.whole_versions and self._all_is_there(latest) else latest
                return Position(self._id, base, base, 0, snapshot=True)
            case int(version):
                if version > latest + 1:
                    raise BadOption(
                        "startingVersion", f"{version}, but table {self._table.path} is at version {latest}"
                    )
                return Position(self._id, version, version, 0, snapshot=False)
            case _:
                # Index -1 makes the first batch an empty one, which writes the beginning down:
                # otherwise a crash before the first row would begin anew, at a later end.
                return Position(self._id, latest + 1, latest + 1, -1, snapshot=False)

    def advance(self, start: Position, files_max: int | None, version_max: int | None) -> Position:
        """How far a batch from `start` goes: to the end, or as far as so many files lead."""
        self._check(start)
        position = start.at(max(start.index, 0))
        latest = self.latest_version() if version_max is None else version_max
        left = files_max
        while position.version <= latest:
            remaining = len(self._files_of(position)) - position.index
            if left is not None and remaining > left:
                return position.at(position.index + left)
            left = None if left is None else left - remaining
            position = position.next_version()
        return position

    def advance_by_versions(self, start: Position, bytes_max: int, version_max: int | None) -> Position:
        """How far whole versions lead whose files have so many bytes together; one version at least."""
        self._check(start)
        position = start.at(max(start.index, 0))
        latest = self.latest_version() if version_max is None else version_max
        taken = 0
        while position.version <= latest:
            size = sum(file.size for file in self._files_of(position)[position.index :])
            if taken and taken + size > bytes_max:
                break
            taken += size
            position = position.next_version()
        return position

    def between(self, start: Position, end: Position) -> tuple[DataFile, ...]:
        """The files from `start` up to, not including, `end`."""
        self._check(end)
        position = beginning_of(start, end)
        position = position.at(max(position.index, 0))
        files: list[DataFile] = []
        while position.version < end.version:
            files += self._files_of(position)[position.index :]
            position = position.next_version()
        if position.index < end.index:
            files += self._files_of(position)[position.index : end.index]
        return tuple(files)

    def _all_is_there(self, latest: int) -> bool:
        """Whether version by version nothing else comes than what the newest one has.

        Otherwise the table was compacted or rows were removed, old files may be vacuumed any moment,
        and old entries of the log may be gone already.
        """
        storage = open_storage(self._table)
        added: set[str] = set()
        for number in range(latest + 1):
            version = read_version(storage, number)
            if version is None:
                return False
            added.update(file.path for file in version.added)
        return added == {file.path for file in self._snapshot(latest)}

    def _check(self, position: Position) -> None:
        latest = self.latest_version()
        if position.table != self._id or position.version > latest + 1:
            raise PipelineError(
                f"table {self._table.path}: the checkpoint is at version {position.version} of another table"
                f" (the one here is at version {latest}): was it created anew? Start with a new checkpoint"
            )

    def _files_of(self, position: Position) -> tuple[DataFile, ...]:
        if position.snapshot:
            return self._snapshot(position.version)
        version = self._read(position.version)
        self._refuse_changes(version)
        return version.added

    def _read_version(self, number: int) -> Version:
        version = read_version(open_storage(self._table), number)
        if version is None:
            raise VersionGone(
                f"table {self._table.path}: version {number} is not in its log any more, so what it added"
                " is not known; start with a new checkpoint"
            )
        return version

    def _refuse_changes(self, version: Version) -> None:
        place = f"table {self._table.path}: version {version.number}"
        if any(file.has_deletions for file in version.added):
            raise RowsChanged(f"{place} has deletion vectors, which are not read here")
        if not version.removed_rows or self._options.ignore_changes:
            return
        if version.added:
            raise RowsChanged(
                f"{place} overwrote or updated rows; set ignoreChanges to true to read what it wrote"
                " (rows may come again), or start with a new checkpoint"
            )
        if not self._options.ignore_deletes:
            raise RowsChanged(f"{place} deleted rows; set ignoreDeletes to true to go on without telling")
