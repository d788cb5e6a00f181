"""An open file of the in-memory disk, and the power that both live on."""

import errno as errnos

from penstock.storage.disk.errors import disk_error
from penstock.storage.disk.page_cache import PageCache
from penstock.storage.disk.port import Buffer


class PowerCut(BaseException):
    """The power went off. No `except Exception` of the code under test may survive it."""


class Power:
    """Counts the operations that change or sync something, and fails at a chosen one."""

    __slots__ = ("_cut_at", "operations")

    def __init__(self) -> None:
        self.operations = 0
        self._cut_at: int | None = None

    def cut_at(self, operation: int | None) -> None:
        """Go off during the n-th operation from now (1 is the next), or never."""
        self._cut_at = None if operation is None else self.operations + operation

    def begin(self) -> bool:
        """Count an operation; True means that the power goes off during it."""
        if self._cut_at is not None and self.operations >= self._cut_at:
            raise PowerCut
        self.operations += 1
        return self.operations == self._cut_at


class CrashableFile:
    """An open file of a CrashableDisk."""

    def __init__(self, power: Power, path: str, content: PageCache, readonly: bool) -> None:
        self._power = power
        self._path = path
        self._content = content
        self._readonly = readonly
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def append(self, *buffers: Buffer) -> int:
        self._write("append", len(self._content.present), b"".join(buffers))
        return len(self._content.present)

    def pwrite(self, position: int, data: Buffer) -> None:
        if data:
            self._write("pwrite", position, bytes(data))

    def _write(self, operation: str, position: int, content: bytes) -> None:
        cut = self._begin(operation)
        self._content.write(position, content)
        if cut:
            raise PowerCut

    def truncate(self, size: int) -> None:
        cut = self._begin("truncate")
        self._content.resize(size)
        if cut:
            raise PowerCut

    def allocate(self, size: int) -> None:
        """Nothing: memory has no extents."""

    def sync(self) -> None:
        self._check_open("sync")
        if self._power.begin():
            raise PowerCut
        self._content.sync()

    def lose_unsynced(self) -> None:
        """What a failed fsync does: no later sync makes durable what was pending now."""
        self._content.lose_pending()

    def pread(self, position: int, length: int) -> bytes:
        self._check_open("pread")
        return bytes(self._content.present[position : position + length])

    def is_warm(self, position: int, length: int) -> bool:
        return True

    def size(self) -> int:
        self._check_open("size")
        return len(self._content.present)

    def map_readonly(self) -> memoryview:
        self._check_open("map_readonly")
        return memoryview(bytes(self._content.present))

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._closed = True

    def _begin(self, operation: str) -> bool:
        self._check_open(operation)
        if self._readonly:
            raise disk_error(operation, self._path, errnos.EBADF)
        return self._power.begin()

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise disk_error(operation, self._path, errnos.EBADF)
