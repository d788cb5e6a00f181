"""Files on a real filesystem: one that is written, and one that is only read."""

import errno as errnos
import os
import stat
from collections.abc import Sequence

from penstock.storage.disk.descriptors import Descriptors
from penstock.storage.disk.errors import disk_error, translated
from penstock.storage.disk.mapping import map_readonly
from penstock.storage.disk.port import Buffer

# What the kernel takes in one writev (IOV_MAX).
BUFFERS_PER_WRITE_MAX = 1024
# How far apart the bytes are that a probe looks at.
PROBE_STEP_BYTES = 64 << 10
PAGE_BYTES = 4096
_PROBES = [bytearray(1)]


class PosixFile:
    """A file with one writer, which keeps its own descriptor for as long as it is open."""

    __slots__ = ("__weakref__", "_descriptor", "_path", "_size")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def path(self) -> str:
        return self._path

    def append(self, *buffers: Buffer) -> int:
        start = self._size
        length = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        try:
            written = (
                os.pwritev(self._descriptor, buffers, start) if len(buffers) <= BUFFERS_PER_WRITE_MAX else 0
            )
            if written != length:
                _write_rest(self._descriptor, buffers, start, written)
        except OSError as error:
            raise disk_error(
                "append", self._path, error.errno or 0, torn=not self._cut_back(start)
            ) from error
        self._size = start + length
        return self._size

    def _cut_back(self, size: int) -> bool:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            return False
        return True

    def pwrite(self, position: int, data: Buffer) -> None:
        with translated("pwrite", self._path):
            _write_rest(self._descriptor, (data,), position, 0)
        if data:
            self._size = max(self._size, position + len(data))

    def pread(self, position: int, length: int) -> bytes:
        return _pread(self._descriptor, self._path, position, length)

    def is_warm(self, position: int, length: int) -> bool:
        return _is_warm(self._descriptor, position, length)

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        with translated("truncate", self._path):
            os.ftruncate(self._descriptor, size)
        self._size = size

    def allocate(self, size: int) -> None:
        """Nothing: Python's posix_fallocate changes the size, which recovery would have to undo."""

    def sync(self) -> None:
        _sync(self._descriptor, self._path)

    def map_readonly(self) -> memoryview:
        return _map(self._descriptor, self._path, self._size)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with translated("close", self._path):
                os.close(descriptor)


class PosixReader:
    """A file that is only read, on a descriptor that it shares with others over time."""

    __slots__ = ("__weakref__", "_descriptors", "_entry", "_path")

    def __init__(self, path: str, absolute_path: str, descriptors: Descriptors) -> None:
        self._path = path
        self._descriptors = descriptors
        with translated("open", path):
            self._entry = descriptors.register(absolute_path)
            if stat.S_ISDIR(os.fstat(self._entry.descriptor).st_mode):
                descriptors.release(self._entry)
                raise IsADirectoryError(errnos.EISDIR, "a directory cannot be read")

    @property
    def path(self) -> str:
        return self._path

    def append(self, *buffers: Buffer) -> int:
        raise disk_error("append", self._path, errnos.EBADF)

    def pwrite(self, position: int, data: Buffer) -> None:
        raise disk_error("pwrite", self._path, errnos.EBADF)

    def truncate(self, size: int) -> None:
        raise disk_error("truncate", self._path, errnos.EBADF)

    def allocate(self, size: int) -> None:
        raise disk_error("allocate", self._path, errnos.EBADF)

    def pread(self, position: int, length: int) -> bytes:
        return _pread(self.fileno(), self._path, position, length)

    def is_warm(self, position: int, length: int) -> bool:
        # Without making it the latest one used: it is sent next, which does.
        descriptor = self._entry.descriptor
        return _is_warm(descriptor if descriptor >= 0 else self.fileno(), position, length)

    def size(self) -> int:
        descriptor = self.fileno()
        with translated("size", self._path):
            return os.fstat(descriptor).st_size

    def sync(self) -> None:
        _sync(self.fileno(), self._path)

    def map_readonly(self) -> memoryview:
        return _map(self.fileno(), self._path, self.size())

    def fileno(self) -> int:
        try:
            return self._descriptors.descriptor(self._entry)
        except OSError as error:
            raise disk_error("open", self._path, error.errno or 0) from error

    def close(self) -> None:
        self._descriptors.release(self._entry)


def _write_rest(descriptor: int, buffers: Sequence[Buffer], position: int, written: int) -> None:
    """Write what a short write left over; ends with everything written, or an OSError."""
    skip = written
    position += written
    for buffer in buffers:
        if skip >= len(buffer):
            skip -= len(buffer)
            continue
        rest = memoryview(buffer)[skip:]
        skip = 0
        while rest:
            count = os.pwrite(descriptor, rest, position)
            if count == 0:
                raise OSError(errnos.EIO, "the device takes no bytes")
            position += count
            rest = rest[count:]


def _sync(descriptor: int, path: str) -> None:
    if descriptor < 0:
        raise disk_error("sync", path, errnos.EBADF)
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        raise disk_error("sync", path, error.errno or 0) from error


def _pread(descriptor: int, path: str, position: int, length: int) -> bytes:
    try:
        content = os.pread(descriptor, length, position)
        if len(content) == length or not content:
            return content
        # The kernel answers less than asked above 2 GiB and after signals, not only at the end.
        parts = [content]
        missing = length - len(content)
        while missing and (content := os.pread(descriptor, missing, position + length - missing)):
            parts.append(content)
            missing -= len(content)
        return b"".join(parts)
    except OSError as error:
        raise disk_error("pread", path, error.errno or 0) from error


def _is_warm(descriptor: int, position: int, length: int) -> bool:
    """Whether a byte of every stretch is cached: the kernel reads and evicts in larger pieces.

    Looking at every byte would copy the range, which is what sendfile is there to avoid.
    """
    if length <= 0:
        return True
    last = position + length - 1
    first = position if position // PAGE_BYTES != last // PAGE_BYTES else last
    try:
        for at in (*range(first, last, PROBE_STEP_BYTES), last):
            if os.preadv(descriptor, _PROBES, at, os.RWF_NOWAIT) == 0:
                # Behind the end of the file there is nothing to wait for.
                return bool(at >= os.fstat(descriptor).st_size)
    except BlockingIOError:
        return False
    except OSError:
        # The filesystem cannot tell. Saying "cold" would send every read off the loop.
        return True
    return True


def _map(descriptor: int, path: str, size: int) -> memoryview:
    with translated("map_readonly", path):
        return map_readonly(descriptor, size)
