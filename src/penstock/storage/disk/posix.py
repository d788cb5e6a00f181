"""The disk port on a real filesystem."""

import fcntl
import os
import shutil

from penstock.storage.disk.descriptors import Borrowed, Descriptors
from penstock.storage.disk.errors import DirectoryLocked, translated
from penstock.storage.disk.port import File, Lock
from penstock.storage.disk.posix_file import PosixFile, PosixReader

# Leaves room for sockets under the common limit of 1,024 descriptors.
READERS_OPEN_MAX = 256


class PosixDisk:
    """Files below one directory of this machine.

    Files opened read-only share at most `readers_open_max` descriptors: the one that was
    not used for longest is closed, and reopened when it is used again. That is invisible
    to its user, also when the file is renamed or removed in between.
    """

    def __init__(self, root: str, *, readers_open_max: int = READERS_OPEN_MAX) -> None:
        self._root = os.path.abspath(root)
        self._descriptors = Descriptors(readers_open_max)
        self._directories: dict[str, Borrowed] = {}

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
        with translated("open", path):
            return PosixFile(path, os.open(self._absolute(path), flags, 0o644))

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
            if path:
                os.makedirs(self._absolute(path), exist_ok=True)
            else:
                _make_durably(self._root)

    def rename(self, old: str, new: str) -> None:
        source, target = self._absolute(old), self._absolute(new)
        # Small files are replaced all the time: only directories may cost a look at every reader.
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
            descriptor = os.open(self._absolute(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
        """The tree is about to lose its name, and nobody reads directories that have none."""
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


def _make_durably(directory: str) -> None:
    """Make the root: nobody who uses this disk could sync the names above it."""
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    _make_durably(above)
    try:
        os.mkdir(directory)
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
