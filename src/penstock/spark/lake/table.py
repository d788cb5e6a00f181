"""A table: its options, its storage, its schema and partitions, and the errors of all of them."""

import datetime as dt
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import boolean_option, choice_option, integer_option, option

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
# One text per partition column, in their order; None is null.
Values = tuple[str | None, ...]
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FULL_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TARGET_FILE_BYTES = 128 * 1024 * 1024
STORAGE_PREFIX, CATALOG_PREFIX = "storage.", "catalog."
COMPRESSIONS = ("zstd", "snappy", "none")
ON_OVERLAP = ("error", "skip", "allow")
TABLE_FORMATS = ("delta", "iceberg")
# Every option there is; docs/reference/spark-lake.md says what they do.
TABLE_OPTIONS = ("path", "storage.*")
WRITE_OPTIONS = (
    "partitionColumns",
    "compression",
    "targetFileSize",
    "mergeSchema",
    "originColumns",
    "onOverlap",
    "tableFormat",
    "catalog.*",
)
BATCH_READ_OPTIONS = ("versionAsOf", "timestampAsOf")
STREAM_READ_OPTIONS = (
    "startingVersion",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
)
# Spark's own, which it hands over with ours.
_SPARKS = ("checkpointLocation", "queryName")
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def check_partition_columns(schema: "pa.Schema", columns: Sequence[str]) -> None:
    """Refuse columns that are not there or whose values make no directory names."""
    from pyarrow import types

    for column in columns:
        if column not in schema.names:
            raise SparkOptionError("partitionColumns", f"the rows have no column {column!r}")
        kind = schema.field(column).type
        if types.is_nested(kind) or types.is_binary(kind) or types.is_floating(kind):
            raise SparkOptionError(
                "partitionColumns", f"column {column!r} is {kind}, which names no directory"
            )
    if columns and len(columns) == len(schema.names):
        raise SparkOptionError("partitionColumns", "at least one column must be left to write")


def split(
    batch: "pa.RecordBatch", columns: Sequence[str], rest: "pa.Schema"
) -> Iterator[tuple[Values, "pa.RecordBatch"]]:
    """The rows of each partition, without the partition columns, in the order of first appearance."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        yield (), batch
        return
    data = batch.select(rest.names)
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    combined = _combined(encoded)
    if len(pc.unique(combined)) == 1:
        yield _values_at(encoded, 0), data
        return
    marks = pc.dictionary_encode(combined)
    firsts = pc.index_in(pa.array(range(len(marks.dictionary)), pa.int32()), marks.indices)
    for mark, first in enumerate(firsts.to_pylist()):
        yield _values_at(encoded, first), data.filter(pc.equal(marks.indices, mark))


def _combined(encoded: "list[pa.DictionaryArray]") -> "pa.Array":
    """One number per row that is the same exactly where all partition columns are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    combined = encoded[0].indices.cast(pa.int64())
    for array in encoded[1:]:
        combined = pc.add(pc.multiply(combined, len(array.dictionary)), array.indices.cast(pa.int64()))
    return combined


def _values_at(encoded: "list[pa.DictionaryArray]", row: int) -> Values:
    return tuple(to_text(array.dictionary[array.indices[row].as_py()].as_py()) for array in encoded)


def to_text(value: Any) -> str | None:
    """A partition value as Delta's log has it; the empty string is Delta's word for null."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def to_scalar(text: str | None, kind: "pa.DataType") -> "pa.Scalar":
    """A partition value of the log as a value of its column's type."""
    import pyarrow as pa
    from pyarrow import types

    if not text:
        return pa.scalar(None, kind)
    if types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text)
        return pa.scalar(moment.replace(tzinfo=dt.UTC) if kind.tz else moment, kind)
    return pa.scalar(text).cast(kind)


def directory(columns: Sequence[str], values: Values) -> str:
    """Where the files of a partition are: `date=2026-11-15/`, with what a path cannot hold escaped."""
    return "".join(
        f"{quote(column, safe='')}={NULL_DIRECTORY if value is None else quote(value, safe='')}/"
        for column, value in zip(columns, values, strict=True)
    )


class TableMissing(PipelineError):
    """There is no table at the given place."""


class SchemaConflict(PipelineError):
    """The rows do not fit into the table, and adding columns would not make them fit."""


class RowsAlreadyThere(PipelineError):
    """A new query brings records that an earlier query has put into the table."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}")
        self.found, self.advice = found, advice

    def __reduce__(self) -> tuple[type["RowsAlreadyThere"], tuple[str, str]]:
        return (RowsAlreadyThere, (self.found, self.advice))


class LakeFull(PipelineError):
    """The disk below the table is full; the batch failed as a whole."""


class VersionGone(PipelineError):
    """A version of the table, or a file of it, cannot be read any more."""


class RowsChanged(PipelineError):
    """A version took rows away, which a stream of added rows cannot tell."""


class CommitConflict(PipelineError):
    """Others changed the table at every try."""


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of the filesystem, of pyarrow or of delta-rs says that the disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL_NUMBERS:
        return True
    return any(words in str(error) for words in _FULL)


def lake_full(path: str, *, is_committed: bool = False) -> LakeFull:
    if is_committed:
        return LakeFull(
            f"table {path}: no space left on the disk, right after the batch was committed: free space and"
            " start the query again; what the batch brought is there, and will not be there twice"
        )
    return LakeFull(
        f"table {path}: no space left on the disk; the batch failed and nothing of it was committed:"
        " free space and start the query again, it goes on where it was"
    )


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What the table needs before the rows fit: columns to add, in the rows' order."""

    added: tuple["pa.Field", ...]


def table_schema(schema: "pa.Schema") -> "pa.Schema":
    """The schema under which rows are stored: UTC, one kind of string, and every column may be null.

    A column that can never be null could not be left out by later rows, so nullability is not taken
    over from a query, where it is an accident of how a column was computed.
    """
    import pyarrow as pa

    return pa.schema([pa.field(field.name, stored_type(field.type), True) for field in schema])


def stored_type(kind: "pa.DataType") -> "pa.DataType":
    """A type as it is stored, with everything inside nullable too."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type), True) for field in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type), True))
    return kind


def conform(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """The same rows under exactly this schema; columns that are not there become null."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [
        _column(batch, field) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: "pa.RecordBatch", field: "pa.Field") -> "pa.Array":
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def compare_schemas(place: str, table: "pa.Schema", rows: "pa.Schema", merge: bool) -> SchemaChange:
    """What has to be added to the table for these rows; SchemaConflict where they can never fit."""
    table, stored = _checkable(table), table_schema(rows)
    known = {field.name.lower(): field for field in table}
    added = []
    for field in stored:
        there = known.get(field.name.lower())
        if there is None:
            added.append(field)
        else:
            _refuse_change(place, there, field)
    if added and not merge:
        names = ", ".join(field.name for field in added)
        raise SchemaConflict(f"table {place}: it has no column {names}, and mergeSchema is false")
    missing = [field.name for field in table if not field.nullable and field.name not in stored.names]
    if missing:
        raise SchemaConflict(
            f"table {place}: column {missing[0]} must not be null there, and the rows have none"
        )
    return SchemaChange(tuple(added))


def _checkable(schema: "pa.Schema") -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([pa.field(field.name, stored_type(field.type), field.nullable) for field in schema])


def _refuse_change(place: str, there: "pa.Field", field: "pa.Field") -> None:
    if there.name != field.name:
        raise SchemaConflict(
            f"table {place}: column {field.name} is called {there.name} there,"
            " and names that differ only in case cannot stand side by side"
        )
    if not there.type.equals(field.type):
        raise SchemaConflict(
            f"table {place}: column {field.name} is {there.type} there and {field.type} in the rows;"
            " a column's type never changes: cast it, or write to another table"
        )


class OriginColumns(NamedTuple):
    """Which columns say where in a topic a row came from."""

    topic: str
    partition: str
    offset: str


ORIGIN_DEFAULTS = (
    OriginColumns("topic", "partition", "offset"),
    OriginColumns("_topic", "_partition", "_offset"),
)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A table, and how it is written.

    `partition_columns` is None where the user left it to the table; `origin_columns` is None where the
    usual names are taken if the rows have them, and empty where rows have no origin. An Iceberg table
    has an `identifier` in its catalog, and `path` is then where its files are.
    """

    path: str
    partition_columns: tuple[str, ...] | None = None
    storage: tuple[tuple[str, str], ...] = ()
    compression: str = "zstd"
    target_file_bytes: int = TARGET_FILE_BYTES
    merge_schema: bool = True
    origin_columns: OriginColumns | tuple[()] | None = None
    on_overlap: str = "error"
    table_format: str = "delta"
    catalog: tuple[tuple[str, str], ...] = ()
    identifier: str | None = None

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.storage) or None

    @property
    def is_local(self) -> bool:
        return "://" not in self.path


def table_options(options: Mapping[str, str]) -> TableOptions:
    """The table that Spark's options name."""
    table_format = choice_option(options, "tableFormat", TABLE_FORMATS, "delta")
    return TableOptions(
        path=table_path(options, table_format),
        partition_columns=_names(options, "partitionColumns"),
        storage=_below(options, STORAGE_PREFIX),
        compression=choice_option(options, "compression", COMPRESSIONS, "zstd"),
        target_file_bytes=integer_option(options, "targetFileSize", TARGET_FILE_BYTES, minimum=1),
        merge_schema=boolean_option(options, "mergeSchema", True),
        origin_columns=_origin_columns(options),
        on_overlap=choice_option(options, "onOverlap", ON_OVERLAP, "error"),
        table_format=table_format,
        catalog=_below(options, CATALOG_PREFIX),
    )


def check_names(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse an option that nobody would look at: a misspelt name must not change what a query does."""
    names = {name.lower() for name in (*TABLE_OPTIONS, *known, *_SPARKS)}
    prefixes = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    for name in options:
        if name.lower() not in names and not name.lower().startswith(prefixes):
            raise SparkOptionError(
                name, f"there is no such option here; there are {', '.join((*TABLE_OPTIONS, *known))}"
            )


def table_path(options: Mapping[str, str], table_format: str = "delta") -> str:
    """Where the table is; a local path as an absolute one, since executors have other working directories."""
    path = option(options, "path")
    if path is None:
        raise SparkOptionError("path", "say where the table is: save(path), start(path) or load(path)")
    if table_format == "iceberg":
        return path
    return local_path(path)


def local_path(path: str) -> str:
    """An absolute path for what is on this machine, and other addresses as they are."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.abspath(path)


def _names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = option(options, name)
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(names)) != len(names):
        raise SparkOptionError(name, f"{text!r} names a column twice")
    return names


def _origin_columns(options: Mapping[str, str]) -> OriginColumns | tuple[()] | None:
    names = _names(options, "originColumns")
    if names is None:
        return None
    if names in ((), ("none",)):
        return ()
    if len(names) != len(OriginColumns._fields):
        raise SparkOptionError(
            "originColumns", f"{','.join(names)!r} is not three columns: topic, partition, offset; or none"
        )
    return OriginColumns(*names)


def _below(options: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    found = ((key, value) for key, value in options.items() if key.lower().startswith(prefix))
    return tuple(sorted((key[len(prefix) :], value) for key, value in found))


def open_table(table: TableOptions, version: int | None = None) -> "DeltaTable | None":
    """The table as it is now (or was at a version), or None where there is none yet."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    if table.is_local and os.path.isfile(table.path):
        raise SparkOptionError("path", f"{table.path} is a file, and a table is a directory")
    try:
        return DeltaTable(table.path, version=version, storage_options=table.storage_options)
    except TableNotFoundError:
        return None


def existing_table(table: TableOptions, version: int | None = None) -> "DeltaTable":
    if table.table_format != "delta":
        raise SparkOptionError(
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
        from penstock.spark.lake.iceberg import resolve_iceberg

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
        raise SparkOptionError(
            "partitionColumns",
            f"{wanted}, but table {table.path} is partitioned by {', '.join(there) or 'nothing'}",
        )
    return there


class FinishedFile(NamedTuple):
    """A file that will not change any more."""

    size: int
    modified_ms: int


class TableStorage(Protocol):
    """Files below a table's address, by their relative path."""

    def create(self, path: str) -> "pa.NativeFile":
        """A new file to write; its directory comes into being with it."""

    def settle(self, path: str) -> FinishedFile:
        """Make a closed file safe from a crash."""

    def open(self, path: str) -> "pa.NativeFile":
        """A file to read; FileNotFoundError where there is none."""

    def remove(self, path: str) -> None:
        """Delete a file that may be there."""


def open_storage(table: TableOptions) -> TableStorage:
    return (
        LocalStorage(Path(table.path)) if table.is_local else ObjectStorage(table.path, table.storage_options)
    )


class LocalStorage:
    """A table on a filesystem: files and the directories that name them are synced before a commit."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, path: str) -> "pa.NativeFile":
        import pyarrow as pa

        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(where), "wb")

    def settle(self, path: str) -> FinishedFile:
        where = self._root / path
        status = sync_path(where)
        for parent in where.relative_to(self._root).parents:
            sync_path(self._root / parent)
        sync_path(self._root.parent)
        return FinishedFile(status.st_size, status.st_mtime_ns // 1_000_000)

    def open(self, path: str) -> "pa.NativeFile":
        import pyarrow as pa

        return pa.memory_map(str(self._root / path), "rb")

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / path).unlink()


class ObjectStorage:
    """A table in an object store, through the filesystem that delta-rs brings."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        self._filesystem = fs.PyFileSystem(DeltaStorageHandler(uri, options))

    def create(self, path: str) -> "pa.NativeFile":
        return self._filesystem.open_output_stream(path)

    def settle(self, path: str) -> FinishedFile:
        status = self._filesystem.get_file_info(path)
        assert status.size is not None, f"{path} was closed, so it has a size"
        return FinishedFile(status.size, (status.mtime_ns or 0) // 1_000_000)

    def open(self, path: str) -> "pa.NativeFile":
        return self._filesystem.open_input_file(path)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(path)


def sync_path(path: Path) -> os.stat_result:
    """Flush a file or directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


class RunningQuery(NamedTuple):
    """A streaming query, by the id in its checkpoint, and the batch that it is at."""

    query_id: str
    batch_id: int


def running_query() -> RunningQuery | None:
    """The query and batch of the task that is running here, or None outside a streaming query."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return None
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        return None
    return RunningQuery(query_id, int(batch_id))


def running_task() -> int:
    """The number of the task that is running here, 0 outside Spark."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()
