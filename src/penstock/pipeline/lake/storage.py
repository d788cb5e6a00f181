"""The place where a table's files are: a directory of this machine, or an object store through delta-rs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.pipeline.lake.options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa


class Settled(NamedTuple):
    """A file that will not change any more."""

    size: int
    modified_ms: int


class Storage(Protocol):
    """Files below a table's address, by their relative path."""

    def create(self, path: str) -> "pa.NativeFile":
        """A new file to write; its directory comes into being with it."""

    def settle(self, path: str) -> Settled:
        """Make a closed file safe from a crash."""

    def open(self, path: str) -> "pa.NativeFile":
        """A file to read; FileNotFoundError where there is none."""

    def remove(self, path: str) -> None:
        """Delete a file that may be there."""


def open_storage(table: TableOptions) -> Storage:
    return Directory(Path(table.path)) if table.is_local else ObjectStore(table.path, table.storage_options)


class Directory:
    """A table on a filesystem: files and the directories that name them are synced before a commit."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, path: str) -> "pa.NativeFile":
        import pyarrow as pa

        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(where), "wb")

    def settle(self, path: str) -> Settled:
        where = self._root / path
        status = sync_path(where)
        for parent in where.relative_to(self._root).parents:
            sync_path(self._root / parent)
        sync_path(self._root.parent)
        return Settled(status.st_size, status.st_mtime_ns // 1_000_000)

    def open(self, path: str) -> "pa.NativeFile":
        import pyarrow as pa

        return pa.memory_map(str(self._root / path), "rb")

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / path).unlink()


class ObjectStore:
    """A table in an object store, through the filesystem that delta-rs brings."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        self._filesystem = fs.PyFileSystem(DeltaStorageHandler(uri, options))

    def create(self, path: str) -> "pa.NativeFile":
        return self._filesystem.open_output_stream(path)

    def settle(self, path: str) -> Settled:
        status = self._filesystem.get_file_info(path)
        assert status.size is not None, f"{path} was closed, so it has a size"
        return Settled(status.size, (status.mtime_ns or 0) // 1_000_000)

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
