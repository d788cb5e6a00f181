"""The disk port on a real filesystem.

A broker keeps tens of thousands of segments, of which a handful are read at a time. Each
has its reader object; a `DescriptorPool` shares a few descriptors among them, and closes the
one that was not used for longest. Each log has a file that grows, and keeps it open. Once a log is
idle it parks that file: where descriptors are short, those of parked files are closed, and opened
again with the next append. So a node can have more logs than descriptors.

The kernel gives out the lowest free number, so that a descriptor's number says how many are in use.

Files are mapped without a descriptor each. Python's own `mmap` keeps a duplicate of the
descriptor for as long as the mapping exists, so ten thousand mapped indexes would need ten
thousand descriptors. The kernel needs none: a mapping outlives the descriptor it was made from.
"""

import ctypes
import errno as errnos
import fcntl
import os
import shutil
import stat
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence

from penstock.storage.disk.port import Buffer, DirectoryLocked, DiskSpace, File, Lock, disk_error, translated

_PROT_READ = 1
_MAP_SHARED = 1
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# What the kernel takes in one writev (IOV_MAX).
BUFFERS_PER_WRITE_MAX = 1024
# How far apart the bytes are that `_is_warm` probes.
PROBE_STEP_BYTES = 64 << 10
PAGE_BYTES = 4096
_PROBES = [bytearray(1)]
# Leaves room for sockets under the common limit of 1,024 descriptors.
READERS_OPEN_MAX = 256
# From which number on descriptors are short, if nobody says otherwise.
PLENTY = 1 << 30
# How many parked files are closed at a time.
UNPARKED_AT_ONCE = 16
NOT_PARKED = -1
# Of directories that are made here; those above the root are as the umask has them.
PRIVATE_MODE = 0o700
DIRECTORY_MODE = 0o777
SHORTAGE = (errnos.EMFILE, errnos.ENFILE)
CHUNK_BYTES = 1 << 20


class PooledDescriptor:
    """What the pool knows of one reader: where its file is, and its descriptor if open.

    `detached` means that the descriptor is all there is: it is not closed to make room,
    and not opened again.
    """

    __slots__ = ("absolute_path", "descriptor", "detached")

    def __init__(self, absolute_path: str) -> None:
        self.absolute_path = absolute_path
        self.descriptor = -1
        self.detached = False

    def __del__(self) -> None:
        # As with a PosixFile. Its reader may be freed after it, and must not close another's.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class ParkedFiles:
    """Files that nobody writes at the moment, the one that was parked first at the front."""

    def __init__(self) -> None:
        # The number from which on descriptors are short, and that from which on no log gets one: what is
        # left is for the files that are written so that others can be parked.
        self.short_from = PLENTY
        self.kept_from = PLENTY
        self.were_short = False
        self._files: dict[PosixFile, None] = {}

    def add(self, file: "PosixFile") -> None:
        self._files.pop(file, None)
        self._files[file] = None

    def discard(self, file: "PosixFile") -> None:
        self._files.pop(file, None)

    def open(self, absolute_path: str, flags: int, mode: int = 0o644) -> int:
        """Open a file, at the cost of parked ones if descriptors are short; raises OSError."""
        try:
            descriptor = os.open(absolute_path, flags, mode)
        except OSError as error:
            if error.errno not in SHORTAGE or not self._close_some():
                raise
            descriptor = os.open(absolute_path, flags, mode)
        if descriptor >= self.short_from:
            self._close_some()
        return descriptor

    def reopen(self, absolute_path: str) -> int:
        """Open a file that was parked, to write to it again; raises OSError."""
        # The second time with the number of one that was parked, and has just been closed for this one.
        for _ in range(2):
            descriptor = self.open(absolute_path, os.O_RDWR | os.O_CLOEXEC)
            if descriptor < self.kept_from:
                return descriptor
            os.close(descriptor)
        self.were_short = True
        raise OSError(errnos.EMFILE, os.strerror(errnos.EMFILE))

    def _close_some(self) -> bool:
        """Close the descriptors of some files that are parked still; returns whether there were any."""
        closed = 0
        while self._files and closed < UNPARKED_AT_ONCE:
            file = next(iter(self._files))
            del self._files[file]
            closed += file.give_up()
        self.were_short = self.were_short or not closed
        return closed > 0


class DescriptorPool:
    """At most `open_max` open descriptors, plus those of files that have lost their name."""

    def __init__(self, open_max: int, parked: ParkedFiles | None = None) -> None:
        assert open_max >= 1
        self._open_max = open_max
        self._parked = parked or ParkedFiles()
        self._open: OrderedDict[PooledDescriptor, None] = OrderedDict()
        self._by_path: dict[str, list[PooledDescriptor]] = {}

    def register(self, absolute_path: str) -> PooledDescriptor:
        """Open the file a first time; raises OSError if it is not there."""
        entry = PooledDescriptor(absolute_path)
        self.descriptor(entry)
        self._by_path.setdefault(absolute_path, []).append(entry)
        return entry

    def descriptor(self, entry: PooledDescriptor) -> int:
        """The reader's descriptor, good until the next call for another reader."""
        if entry.detached:
            return entry.descriptor
        if entry.descriptor >= 0:
            self._open.move_to_end(entry)
            return entry.descriptor
        self._close_to(self._open_max - 1)
        entry.descriptor = self._parked.open(entry.absolute_path, os.O_RDONLY | os.O_CLOEXEC)
        self._open[entry] = None
        return entry.descriptor

    def limit(self, open_max: int) -> None:
        """Have at most so many from now on."""
        self._open_max = open_max
        self._close_to(open_max)

    def _close_to(self, count: int) -> None:
        while len(self._open) > count:
            oldest, _ = self._open.popitem(last=False)
            os.close(oldest.descriptor)
            oldest.descriptor = -1

    def release(self, entry: PooledDescriptor) -> None:
        """Close the descriptor of a reader that is closed."""
        if entry.descriptor >= 0:
            os.close(entry.descriptor)
            entry.descriptor = -1
        # A closed reader that is used again must not quietly reopen its file.
        entry.detached = True
        self._open.pop(entry, None)
        self._drop_path(entry)

    def pin(self, absolute_path: str, *, tree: bool) -> None:
        """Keep the readers' descriptors of a file, or tree, that is about to lose its name.

        A reader of a removed file must go on reading it, and could not reopen it.
        """
        for path in self._paths(absolute_path, tree=tree):
            for entry in list(self._by_path[path]):
                self.descriptor(entry)
                entry.detached = True
                self._open.pop(entry, None)
                self._drop_path(entry)

    def renamed(self, old: str, new: str, *, tree: bool) -> None:
        """Reopen the file, or the tree, under its new name from now on."""
        for path in self._paths(old, tree=tree):
            entries = self._by_path.pop(path)
            moved = new + path[len(old) :]
            for entry in entries:
                entry.absolute_path = moved
            self._by_path.setdefault(moved, []).extend(entries)

    def _drop_path(self, entry: PooledDescriptor) -> None:
        entries = self._by_path.get(entry.absolute_path)
        if entries is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._by_path[entry.absolute_path]

    def _paths(self, absolute_path: str, *, tree: bool) -> list[str]:
        """The known paths at a file's place, or below a directory, which checks all of them."""
        if not tree:
            return [absolute_path] if absolute_path in self._by_path else []
        below = absolute_path + "/"
        return [path for path in self._by_path if path == absolute_path or path.startswith(below)]


def map_readonly(descriptor: int, size: int) -> memoryview:
    """The first `size` bytes of a file as memory; unmapped when the last view of it is gone.

    Raises OSError. As with every mapping, touching pages beyond the end of a file that was
    cut short in the meantime kills the process: drop the view before you truncate.
    """
    if size == 0:
        return memoryview(b"")
    address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    content = (ctypes.c_char * size).from_address(address)
    # Every view and slice refers to `content`, so it goes last. At exit the kernel unmaps.
    weakref.finalize(content, _libc.munmap, address, size).atexit = False
    return memoryview(content).cast("B").toreadonly()


class PosixFile:
    """A file with one writer, which keeps its own descriptor for as long as it is open and not parked."""

    __slots__ = ("__weakref__", "_absolute_path", "_descriptor", "_parked", "_parked_size", "_path", "_size")

    def __init__(self, path: str, descriptor: int, absolute_path: str, parked: ParkedFiles) -> None:
        self._path = path
        self._descriptor = descriptor
        self._absolute_path = absolute_path
        self._parked = parked
        # Its size when it was parked. One that grew since is not, which appends need not say.
        self._parked_size = NOT_PARKED
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
            if self._descriptor < 0 and self._opened() >= 0:
                return self.append(*buffers)
            raise disk_error(
                "append", self._path, error.errno or 0, torn=not self._cut_back(start)
            ) from error
        self._size = start + length
        return self._size

    def park(self) -> None:
        if self._descriptor >= 0 and self._parked_size != self._size:
            self._parked_size = self._size
            self._parked.add(self)

    def give_up(self) -> bool:
        """Close the descriptor, if the file is parked still; returns whether it was."""
        if self._parked_size != self._size or self._descriptor < 0:
            self._parked_size = NOT_PARKED
            return False
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        return True

    def _opened(self) -> int:
        """The descriptor, opened again if the file was parked; -1 if it is closed. Raises DiskFailed."""
        parked_size, self._parked_size = self._parked_size, NOT_PARKED
        if self._descriptor >= 0 or parked_size == NOT_PARKED:
            return self._descriptor
        try:
            descriptor = self._parked.reopen(self._absolute_path)
        except OSError as error:
            # It is parked still, and tried again with the next use.
            self._parked_size = parked_size
            raise disk_error("open", self._path, error.errno or 0) from error
        self._descriptor = descriptor
        return descriptor

    def _cut_back(self, size: int) -> bool:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            return False
        return True

    def pwrite(self, position: int, data: Buffer) -> None:
        length = len(data)
        descriptor = self._descriptor if self._parked_size == NOT_PARKED else self._opened()
        try:
            written = os.pwrite(descriptor, data, position)
            if written != length:
                _write_rest(descriptor, (data,), position, written)
        except OSError as error:
            raise disk_error("pwrite", self._path, error.errno or 0) from error
        if length and position + length > self._size:
            self._size = position + length

    def pread(self, position: int, length: int) -> bytes:
        return _pread(self._opened(), self._path, position, length)

    def is_warm(self, position: int, length: int) -> bool:
        return _is_warm(self._opened(), position, length)

    def modified_ns(self) -> int:
        return _modified_ns(self._opened(), self._path)

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        descriptor = self._opened()
        with translated("truncate", self._path):
            os.ftruncate(descriptor, size)
        self._size = size

    def allocate(self, size: int) -> None:
        """Nothing: Python's posix_fallocate changes the size, which recovery would have to undo."""

    def sync(self) -> None:
        if self._descriptor < 0 and self._parked_size != NOT_PARKED:
            # It was durable when it was parked.
            return
        _sync(self._descriptor, self._path)

    def map_readonly(self) -> memoryview:
        return _map(self._opened(), self._path, self._size)

    def fileno(self) -> int:
        if self._descriptor >= 0:
            # Somebody is about to sync it, and must find it open until that is done.
            self._parked_size = NOT_PARKED
        return self._descriptor

    def close(self) -> None:
        if self._parked_size != NOT_PARKED:
            self._parked_size = NOT_PARKED
            self._parked.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with translated("close", self._path):
                os.close(descriptor)

    def __del__(self) -> None:
        # A node that ends while a sync is underway drops the file that waited for it. The process goes on
        # if it is somebody else's.
        self.close()


class PosixReader:
    """A file that is only read, on a descriptor that it shares with others over time."""

    __slots__ = ("__weakref__", "_descriptors", "_entry", "_path")

    def __init__(self, path: str, absolute_path: str, descriptors: DescriptorPool) -> None:
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

    def park(self) -> None:
        """Nothing: readers share their descriptors anyway."""

    def truncate(self, size: int) -> None:
        raise disk_error("truncate", self._path, errnos.EBADF)

    def allocate(self, size: int) -> None:
        raise disk_error("allocate", self._path, errnos.EBADF)

    def pread(self, position: int, length: int) -> bytes:
        return _pread(self.fileno(), self._path, position, length)

    def is_warm(self, position: int, length: int) -> bool:
        # Does not count as a use for the pool: the range is sent next, which does.
        descriptor = self._entry.descriptor
        return _is_warm(descriptor if descriptor >= 0 else self.fileno(), position, length)

    def modified_ns(self) -> int:
        return _modified_ns(self.fileno(), self._path)

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


def _modified_ns(descriptor: int, path: str) -> int:
    try:
        return os.fstat(descriptor).st_mtime_ns
    except OSError as error:
        raise disk_error("stat", path, error.errno or 0) from error


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
        # The kernel returns less than asked above 2 GiB and after signals, not only at the end.
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


class PosixDisk:
    """Files below one directory of this machine.

    Files opened read-only share at most `readers_open_max` descriptors: the one that was
    not used for longest is closed, and reopened when it is used again. That is invisible
    to its user, also when the file is renamed or removed in between.
    """

    file_type: type[PosixFile] = PosixFile

    def __init__(self, root: str, *, readers_open_max: int = READERS_OPEN_MAX) -> None:
        self._root = os.path.abspath(root)
        self._parked = ParkedFiles()
        self._descriptors = DescriptorPool(readers_open_max, self._parked)
        self._directories: dict[str, PooledDescriptor] = {}

    @property
    def root(self) -> str:
        """The absolute path that all others are below."""
        return self._root

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> File:
        if readonly:
            return PosixReader(path, self._absolute(path), self._descriptors)
        flags = os.O_RDWR | os.O_CLOEXEC
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        absolute = self._absolute(path)
        with translated("open", path):
            return self.file_type(path, self._parked.open(absolute, flags), absolute, self._parked)

    def limit_descriptors(self, readers_open_max: int, short_from: int, kept_from: int = PLENTY) -> None:
        """Share so many descriptors among readers, and close parked files once numbers reach `short_from`.

        From `kept_from` on, files that were parked are not opened again.
        """
        self._descriptors.limit(readers_open_max)
        self._parked.short_from = short_from
        self._parked.kept_from = kept_from

    def space(self) -> DiskSpace | None:
        with translated("space", ""):
            found = os.statvfs(self._root)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def take_shortage(self) -> bool:
        was_short, self._parked.were_short = self._parked.were_short, False
        return was_short

    def read(self, path: str) -> bytes:
        # Not by a reader: a start reads several small files of each log, and has no use for the pool.
        with translated("open", path):
            descriptor = self._parked.open(self._absolute(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _pread(descriptor, path, 0, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._absolute(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(self._absolute(path))

    def size(self, path: str) -> int:
        with translated("size", path):
            return os.stat(self._absolute(path)).st_size

    def listdir(self, path: str) -> list[str]:
        with translated("listdir", path):
            return sorted(os.listdir(self._absolute(path)))

    def make_directory(self, path: str) -> None:
        with translated("make_directory", path):
            self._make_directory(self._absolute(path))

    def _make_directory(self, directory: str) -> None:
        """Make it with every directory above it, all of them closed to others; above the root as usual."""
        if directory == self._root:
            _make_durably(directory, PRIVATE_MODE)
            return
        try:
            os.mkdir(directory, PRIVATE_MODE)
        except FileNotFoundError:
            self._make_directory(os.path.dirname(directory))
            self._make_directory(directory)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise

    def rename(self, old: str, new: str) -> None:
        source, target = self._absolute(old), self._absolute(new)
        # Small files are replaced all the time: only for directories are all readers checked.
        tree = os.path.isdir(source)
        if tree:
            self._forget_directories(old)
        # A reader of the file that is about to lose its name goes on reading it.
        self._descriptors.pin(target, tree=tree)
        with translated("rename", old):
            os.rename(source, target)
        self._descriptors.renamed(source, target, tree=tree)

    def remove(self, path: str) -> None:
        self._descriptors.pin(self._absolute(path), tree=False)
        with translated("remove", path):
            os.unlink(self._absolute(path))

    def remove_tree(self, path: str) -> None:
        absolute = self._absolute(path)
        if not os.path.lexists(absolute):
            return
        self._forget_directories(path)
        self._descriptors.pin(absolute, tree=True)
        with translated("remove_tree", path):
            if os.path.isdir(absolute):
                shutil.rmtree(absolute)
            else:
                os.unlink(absolute)

    def sync_directory(self, path: str) -> None:
        with translated("sync_directory", path):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            descriptor = self._parked.open(self._absolute(path), flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def directory_fileno(self, path: str) -> int:
        with translated("open", path):
            entry = self._directories.get(path)
            if entry is None:
                entry = self._directories[path] = self._descriptors.register(self._absolute(path))
            return self._descriptors.descriptor(entry)

    def _forget_directories(self, path: str) -> None:
        """Close the directory descriptors of a tree that is about to lose its name."""
        for known in [known for known in self._directories if f"{known}/".startswith(f"{path}/")]:
            self._descriptors.release(self._directories.pop(known))

    def lock(self, path: str) -> Lock:
        absolute = self._absolute(path)
        with translated("lock", path):
            descriptor = os.open(absolute, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            except BlockingIOError:
                pid = _pid_in(os.pread(descriptor, 32, 0))
                os.close(descriptor)
                raise DirectoryLocked(absolute, pid) from None
            except OSError:
                os.close(descriptor)
                raise
        return _FlockLock(descriptor)

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class _FlockLock:
    """An flock: the kernel frees it when the process dies, however it dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _make_durably(directory: str, mode: int = DIRECTORY_MODE) -> None:
    """Make the root durably: users of this disk cannot sync the names above it."""
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    _make_durably(above)
    try:
        os.mkdir(directory, mode)
    except FileExistsError:
        # Another node was faster, for nodes of one machine may share what is above their roots.
        if not os.path.isdir(directory):
            raise
    descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pid_in(content: bytes) -> int | None:
    text = content.strip()
    return int(text) if text.isdigit() else None


def warmer(file: File, position: int, length: int) -> Callable[[], None]:
    """Work for another thread: read the range once, and forget it.

    It reads on a duplicate of the descriptor, because the file's own may be reused for another
    file, or closed, while the thread reads.
    """
    descriptor = file.fileno()
    if descriptor < 0:
        return _nothing
    with translated("warm", file.path):
        own = os.dup(descriptor)

    def read() -> None:
        scratch = bytearray(min(CHUNK_BYTES, length))
        at, end = position, position + length
        try:
            while at < end:
                count = os.preadv(own, [memoryview(scratch)[: end - at]], at)
                if count == 0:
                    break
                at += count
        finally:
            os.close(own)

    return read


def _nothing() -> None:
    """What is in memory is warm."""


class DetachedReader:
    """A file as another thread may read it, while the loop goes on using and closing the file itself.

    Made on the loop; read and closed by the thread.
    """

    __slots__ = ("_descriptor", "_file")

    def __init__(self, file: File) -> None:
        self._file = file
        descriptor = file.fileno()
        self._descriptor = -1
        if descriptor >= 0:
            with translated("detach", file.path):
                self._descriptor = os.dup(descriptor)

    def pread(self, position: int, length: int) -> bytes:
        if self._descriptor < 0:
            return self._file.pread(position, length)
        return _pread(self._descriptor, self._file.path, position, length)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
