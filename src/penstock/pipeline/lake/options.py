"""What a user says about a table: where it is, how files are written, what to do with repeats."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import boolean_option, choice_option, integer_option, option

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
    """Refuse an option that nobody would look at: a slip of the pen must not change what a query does."""
    names = {name.lower() for name in (*TABLE_OPTIONS, *known, *_SPARKS)}
    prefixes = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    for name in options:
        if name.lower() not in names and not name.lower().startswith(prefixes):
            raise BadOption(
                name, f"there is no such option here; there are {', '.join((*TABLE_OPTIONS, *known))}"
            )


def table_path(options: Mapping[str, str], table_format: str = "delta") -> str:
    """Where the table is; a local path as an absolute one, since executors have other working directories."""
    path = option(options, "path")
    if path is None:
        raise BadOption("path", "say where the table is: save(path), start(path) or load(path)")
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
        raise BadOption(name, f"{text!r} names a column twice")
    return names


def _origin_columns(options: Mapping[str, str]) -> OriginColumns | tuple[()] | None:
    names = _names(options, "originColumns")
    if names is None:
        return None
    if names in ((), ("none",)):
        return ()
    if len(names) != len(OriginColumns._fields):
        raise BadOption(
            "originColumns", f"{','.join(names)!r} is not three columns: topic, partition, offset; or none"
        )
    return OriginColumns(*names)


def _below(options: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    found = ((key, value) for key, value in options.items() if key.lower().startswith(prefix))
    return tuple(sorted((key[len(prefix) :], value) for key, value in found))
