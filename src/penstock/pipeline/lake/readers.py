"""Spark's side of reading: the readers for a batch job and for a streaming query."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from penstock.pipeline.errors import BadOption
from penstock.pipeline.lake.log import DataFile
from penstock.pipeline.lake.options import (
    BATCH_READ_OPTIONS,
    STREAM_READ_OPTIONS,
    TableOptions,
    check_names,
    table_options,
)
from penstock.pipeline.lake.reading import (
    Position,
    StreamOptions,
    TableStream,
    check_columns,
    live_files,
    pack,
    position_from_json,
    read_files,
    table_at,
)
from penstock.pipeline.lake.writers import spark_to_arrow
from penstock.pipeline.settings import boolean_option, integer_option, option

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType


@dataclass
class FilesToRead(InputPartition):
    """The files of one task."""

    files: tuple[DataFile, ...]


def asked_table(options: Mapping[str, str]) -> "DeltaTable":
    """The table that a batch job asks for, at the version or time it names."""
    version, timestamp = integer_option(options, "versionAsOf"), option(options, "timestampAsOf")
    if version is not None and timestamp is not None:
        raise BadOption("versionAsOf", "timestampAsOf is given as well; give one of them")
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
            raise BadOption("maxBytesPerTrigger", "maxFilesPerTrigger is given as well; give one of them")
        self._stream: TableStream | None = None
        self._first: Position | None = None
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


def _stream_options(options: Mapping[str, str]) -> StreamOptions:
    return StreamOptions(
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
