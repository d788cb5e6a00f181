"""What a disk can answer instead of doing what it was asked."""

import errno as errnos
import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.model import StorageError


class DiskFailed(StorageError):
    """An operation on a file or directory failed; says which, where and with what errno.

    `torn` means that an append failed and the bytes it left behind could not be cut
    off again: the file ends with something nobody asked for.
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


class AlreadyThere(DiskFailed):
    """The path exists, and the caller asked for a new one."""


class DirectoryLocked(StorageError):
    """Somebody else holds the lock, most likely another process on the same data directory."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        holder = f" by process {pid}" if pid else ""
        super().__init__(f"{path!r} is locked{holder}")
        self.path = path
        self.pid = pid


_KINDS: dict[int, type[DiskFailed]] = {
    errnos.ENOENT: NoSuchFile,
    errnos.ENOTDIR: NoSuchFile,
    errnos.EEXIST: AlreadyThere,
    errnos.ENOSPC: DiskFull,
    errnos.EDQUOT: DiskFull,
}


def disk_error(operation: str, path: str, errno: int, *, torn: bool = False) -> DiskFailed:
    """The error of the right kind for an errno."""
    return _KINDS.get(errno, DiskFailed)(operation, path, errno, torn=torn)


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    """Turn an OSError of the block into a DiskFailed. For the paths that are not hot."""
    try:
        yield
    except OSError as error:
        raise disk_error(operation, path, error.errno or 0) from error
