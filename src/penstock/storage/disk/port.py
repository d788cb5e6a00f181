"""The disk port: what the log, the metadata and the data directory may ask of a disk.

Paths are relative to the disk's root and joined with `/`. No OSError crosses this
border: failures are `DiskFailed` and its kinds. A file has one writer.

Durability has two halves, and both are the caller's to ask for: `File.sync` makes the
content and size of a file durable, `Disk.sync_directory` makes the names in one
directory durable. A synced file in an unsynced directory can be gone after a power cut.
"""

import errno as errnos
import os
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.model import StorageError

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> str:
        """Where the file was when it was opened, relative to the disk's root."""

    def append(self, *buffers: Buffer) -> int:
        """Write all buffers at the end, or raise; returns the size after it.

        When it raises, the file has its former size again, unless the error says `torn`.
        """

    def pwrite(self, position: int, data: Buffer) -> None: ...

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes: fewer only where the file ends."""

    def is_warm(self, position: int, length: int) -> bool:
        """Whether reading this range would not wait for the device."""

    def modified_ns(self) -> int:
        """When the content was last written, as the filesystem says: differs after a write by anybody."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserve space without changing the size, where the filesystem can."""

    def sync(self) -> None:
        """Wait until content and size are durable. Blocks: see `storage.commit` for the loop."""

    def map_readonly(self) -> memoryview:
        """The present content; later appends are not part of it. Costs no descriptor.

        Drop the view before the file is truncated: touching what was cut off is fatal.
        """

    def fileno(self) -> int:
        """The descriptor for sendfile and the sync helper, or -1 if there is none.

        Ask again before every use: a file that is only read may be closed and reopened
        under another number between two calls. Off the loop, use a duplicate of it.
        """

    def park(self) -> None:
        """Nobody writes for now, and all that was written is durable: the descriptor may be given to others.

        The file stays open for its owner: the next use opens it again.
        """

    def close(self) -> None:
        """Free the descriptor. Makes nothing durable. Closing twice is fine."""


class Lock(Protocol):
    """A lock that is held until it is closed, or its process ends."""

    def close(self) -> None: ...


class DiskSpace(NamedTuple):
    """How much a filesystem holds, and how much more it takes from this process."""

    free_bytes: int
    size_bytes: int


class Disk(Protocol):
    """A tree of files below one root."""

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> File:
        """Open a file; `create` makes it if missing, `exclusive` insists on making it."""

    def read(self, path: str) -> bytes:
        """The whole content of a file: what opening, reading and closing it would give, for less."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make a directory and the missing ones above it; "" is the root. Fine if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Move a file over whatever file has the new name, or a directory to a free name."""

    def remove(self, path: str) -> None:
        """Remove one file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it, or a file. Fine if it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Wait until names created, renamed and removed in this directory are durable."""

    def directory_fileno(self, path: str) -> int:
        """A descriptor of the directory for the sync helper, or -1 if there is none.

        Ask again before every use, as with `File.fileno`. Syncing it does what `sync_directory` does.
        """

    def space(self) -> DiskSpace | None:
        """How much room there is; None where nobody can tell. Blocks."""

    def take_shortage(self) -> bool:
        """Whether descriptors were short since the last call: files should be parked soon."""

    def lock(self, path: str) -> Lock:
        """Take the lock with this name, or raise DirectoryLocked at once."""


class DiskFailed(StorageError):
    """An operation on a file or directory failed; says which, where and with what errno.

    `torn` means that an append failed and the bytes it left behind could not be cut
    off again: the file ends with part of that append.
    """

    def __init__(self, operation: str, path: str, errno: int, *, torn: bool = False) -> None:
        reason = os.strerror(errno) if errno else "unknown error"
        super().__init__(f"{operation} {path!r}: {reason}{' (file left torn)' if torn else ''}")
        self.operation = operation
        self.path = path
        self.errno = errno
        self.torn = torn


class DiskFull(DiskFailed):
    """There is no space left, or no quota."""


class NoSuchFile(DiskFailed):
    """The path does not exist."""


class FileAlreadyExists(DiskFailed):
    """The path exists, and the caller asked for a new one."""


class DirectoryLocked(StorageError):
    """The lock is held already, most likely by another process on the same data directory."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        holder = f" by process {pid}" if pid else ""
        super().__init__(f"{path!r} is locked{holder}")
        self.path = path
        self.pid = pid


_KINDS: dict[int, type[DiskFailed]] = {
    errnos.ENOENT: NoSuchFile,
    errnos.ENOTDIR: NoSuchFile,
    errnos.EEXIST: FileAlreadyExists,
    errnos.ENOSPC: DiskFull,
    errnos.EDQUOT: DiskFull,
}


def disk_error(operation: str, path: str, errno: int, *, torn: bool = False) -> DiskFailed:
    """The error of the right kind for an errno."""
    return _KINDS.get(errno, DiskFailed)(operation, path, errno, torn=torn)


class translated:  # noqa: N801 - used like the functions of contextlib
    """Turn an OSError of the block into a DiskFailed. For the paths that are not hot.

    No generator: a start passes here a dozen times for every log.
    """

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            raise disk_error(self._operation, self._path, error.errno or 0) from error
