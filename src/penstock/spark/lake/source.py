"""Rows out of a table: the readers that Spark calls for a batch job and for a streaming query.

A batch job reads the files of one version. A stream begins with all files of the version that it
finds, its *base*, and goes on with the files that each later version added. A position names the next
file to read:

    version          7 (base)           8            9 (compaction)     10
    files        [a, b, c, d]        [e, f]              []            [g]
    position         ^ {version 7, index 1, snapshot}
                                        ^ {version 8, index 1}
                                                                           ^ {version 11, index 0}

Compaction adds files too, but marks them as changing no data, and those are passed over: a table may
be compacted at any time while queries follow it. A file that is named but gone was vacuumed, and the
error says so.

Spark compares positions as JSON text, so the keys are sorted. It also forgets the first position: a
query that is started again before its first batch is done asks for one anew, and by then the table is
at another version. Every position carries its base, so the end that Spark did keep tells where the
batch began.

Left out: filters and column pruning, which Spark does not pass to sources written in Python; splitting
a file between tasks; tables with deletion vectors.
"""

import datetime as dt
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import boolean_option, integer_option, option
from penstock.spark.lake.delta_log import DataFile, TableVersion, read_version
from penstock.spark.lake.sink import spark_to_arrow
from penstock.spark.lake.table import (
    BATCH_READ_OPTIONS,
    STREAM_READ_OPTIONS,
    RowsChanged,
    TableOptions,
    VersionGone,
    check_names,
    conform,
    existing_table,
    open_storage,
    table_options,
    to_scalar,
    to_text,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

BATCH_ROWS = 65_536
# Opening a file costs about as much as reading so many bytes; a task takes files up to so many.
OPENING_BYTES = 4 * 1024 * 1024
TASK_BYTES_MAX = 128 * 1024 * 1024
_PARTITION = "partition."
VERSIONS_CACHED = 1024


@dataclass(frozen=True, slots=True)
class LakeOffset:
    """The next file to read. Index -1 stands before a query that has not begun yet."""

    table: str
    base: int
    version: int
    index: int
    snapshot: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "index": self.index,
            "snapshot": self.snapshot,
            "table": self.table,
            "version": self.version,
        }

    def next_version(self) -> "LakeOffset":
        return replace(self, version=self.version + 1, index=0, snapshot=False)

    def at(self, index: int) -> "LakeOffset":
        return replace(self, index=index)


def position_from_json(offset: Mapping[str, Any]) -> LakeOffset:
    try:
        return LakeOffset(
            table=offset["table"],
            base=offset["base"],
            version=offset["version"],
            index=offset["index"],
            snapshot=offset["snapshot"],
        )
    except KeyError as error:
        raise PipelineError(f"the checkpoint is of another query: its offset has no {error}") from None


def beginning_of(start: LakeOffset, end: LakeOffset) -> LakeOffset:
    """Where a batch that ends at `end` began, if `start` may have been made up anew."""
    if start.base == end.base and start.table == end.table:
        return start
    # The base of a query that read a snapshot is that snapshot; any other began with the base's own files.
    return replace(end, version=end.base, index=0, snapshot=start.snapshot)


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
        raise SparkOptionError(
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
        raise SparkOptionError("schema", f"table {opened.table_uri} has no column {unknown[0]!r}")


@dataclass(frozen=True, slots=True)
class LakeStreamOptions:
    """Where to begin, and what to make of versions that take rows away.

    `starting_version` is None for everything that is there, "latest" for what comes, or the first
    version whose files are read. With `whole_versions` a query that reads everything begins with the
    oldest version that will do, since the files of a snapshot cannot be distinguished by version.
    """

    starting_version: int | str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    whole_versions: bool = False


class TableStream:
    """One table as seen by the driver of one query."""

    def __init__(self, table: TableOptions, options: LakeStreamOptions) -> None:
        self._table = table
        self._options = options
        self._opened: DeltaTable = existing_table(table)
        self._id = str(self._opened.metadata().id)
        self._read = lru_cache(VERSIONS_CACHED)(self._read_version)
        self._snapshot = lru_cache(1)(lambda base: live_files(table_at(table, base)))

    def latest_version(self) -> int:
        self._opened.update_incremental()
        return self._opened.version()

    def first(self, version_max: int | None = None) -> LakeOffset:
        """Where a query begins that has no checkpoint, and that may see versions up to `version_max`."""
        latest = self.latest_version() if version_max is None else version_max
        match self._options.starting_version:
            case None:
                base = 0 if self._options.whole_versions and self._all_is_there(latest) else latest
                return LakeOffset(self._id, base, base, 0, snapshot=True)
            case int(version):
                if version > latest + 1:
                    raise SparkOptionError(
                        "startingVersion", f"{version}, but table {self._table.path} is at version {latest}"
                    )
                return LakeOffset(self._id, version, version, 0, snapshot=False)
            case _:
                # Index -1 makes the first batch an empty one, which writes the beginning down:
                # otherwise a crash before the first row would begin anew, at a later end.
                return LakeOffset(self._id, latest + 1, latest + 1, -1, snapshot=False)

    def advance(self, start: LakeOffset, files_max: int | None, version_max: int | None) -> LakeOffset:
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

    def advance_by_versions(self, start: LakeOffset, bytes_max: int, version_max: int | None) -> LakeOffset:
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

    def between(self, start: LakeOffset, end: LakeOffset) -> tuple[DataFile, ...]:
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

    def _check(self, position: LakeOffset) -> None:
        latest = self.latest_version()
        if position.table != self._id or position.version > latest + 1:
            raise PipelineError(
                f"table {self._table.path}: the checkpoint is at version {position.version} of another table"
                f" (the one here is at version {latest}): was it created anew? Start with a new checkpoint"
            )

    def _files_of(self, position: LakeOffset) -> tuple[DataFile, ...]:
        if position.snapshot:
            return self._snapshot(position.version)
        version = self._read(position.version)
        self._refuse_changes(version)
        return version.added

    def _read_version(self, number: int) -> TableVersion:
        version = read_version(open_storage(self._table), number)
        if version is None:
            raise VersionGone(
                f"table {self._table.path}: version {number} is not in its log any more, so what it added"
                " is not known; start with a new checkpoint"
            )
        return version

    def _refuse_changes(self, version: TableVersion) -> None:
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


@dataclass
class FilesToRead(InputPartition):
    """The files of one task."""

    files: tuple[DataFile, ...]


def asked_table(options: Mapping[str, str]) -> "DeltaTable":
    """The table that a batch job asks for, at the version or time it names."""
    version, timestamp = integer_option(options, "versionAsOf"), option(options, "timestampAsOf")
    if version is not None and timestamp is not None:
        raise SparkOptionError("versionAsOf", "timestampAsOf is given as well; give one of them")
    return table_at(table_options(options), version, timestamp)


def asked_schema(options: Mapping[str, str]) -> "StructType":
    """The schema that a table has for Spark."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(asked_table(options).schema().to_json()))
    assert isinstance(schema, StructType)
    return schema


def _read(table: TableOptions, schema: "StructType", partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    if not isinstance(partition, FilesToRead):
        # Spark makes up an empty partition where a table has no files.
        return iter(())
    return read_files(table, partition.files, spark_to_arrow(schema))


class LakeReader(DataSourceReader):
    """All rows of one version of a table."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        check_names(options, BATCH_READ_OPTIONS)
        self._options, self._schema = dict(options), schema
        self._table = table_options(options)

    def partitions(self) -> Sequence[InputPartition]:
        opened = asked_table(self._options)
        check_columns(opened, self._schema.names)
        return [FilesToRead(files) for files in pack(live_files(opened))]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._table, self._schema, partition)


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The rows of a table as its versions bring them."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        check_names(options, STREAM_READ_OPTIONS)
        self._schema = schema
        self._table = table_options(options)
        self._options = _stream_options(options)
        self._files_max = integer_option(options, "maxFilesPerTrigger", None, minimum=1)
        self._bytes_max = integer_option(options, "maxBytesPerTrigger", None, minimum=1)
        if self._files_max is not None and self._bytes_max is not None:
            raise SparkOptionError(
                "maxBytesPerTrigger", "maxFilesPerTrigger is given as well; give one of them"
            )
        self._stream: TableStream | None = None
        self._first: LakeOffset | None = None
        self._version_max: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        # Spark asks twice, and the table may have grown in between.
        if self._first is None:
            self._first = self._opened().first(self._version_max)
        return self._first.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._bytes_max is not None:
            return ReadMaxBytes(self._bytes_max)
        return ReadAllAvailable() if self._files_max is None else ReadMaxFiles(self._files_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        stream, position = self._opened(), position_from_json(start)
        if isinstance(limit, ReadMaxBytes):
            return stream.advance_by_versions(position, limit.max_bytes, self._version_max).to_json()
        files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return stream.advance(position, files_max, self._version_max).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"version": self._opened().latest_version()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._version_max = self._opened().latest_version()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        files = self._opened().between(position_from_json(start), position_from_json(end))
        return [FilesToRead(each) for each in pack(files)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._table, self._schema, partition)

    def _opened(self) -> TableStream:
        # Only in the driver, and not before it is needed: this object travels to tasks.
        if self._stream is None:
            self._stream = TableStream(self._table, self._options)
            check_columns(table_at(self._table), self._schema.names)
        return self._stream


def _stream_options(options: Mapping[str, str]) -> LakeStreamOptions:
    return LakeStreamOptions(
        starting_version=_starting_version(options),
        ignore_deletes=boolean_option(options, "ignoreDeletes", False),
        ignore_changes=boolean_option(options, "ignoreChanges", False),
        whole_versions=option(options, "maxBytesPerTrigger") is not None,
    )


def _starting_version(options: Mapping[str, str]) -> int | str | None:
    match option(options, "startingVersion", "earliest").strip().lower():
        case "earliest":
            return None
        case "latest":
            return "latest"
        case _:
            return integer_option(options, "startingVersion")
