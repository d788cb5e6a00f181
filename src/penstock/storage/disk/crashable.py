"""A disk in memory whose power can be cut, for tests and for the simulator.

`crash` answers the disk as it is when the power comes back: everything that was synced,
and of the rest whatever chance let through. `cut_power_at` makes the n-th operation from
now raise `PowerCut`, so that a test can try every moment of a run.
"""

import errno as errnos

from penstock.storage.disk.errors import DirectoryLocked, disk_error
from penstock.storage.disk.name_tree import Directory, NameTree, Place
from penstock.storage.disk.page_cache import Chance, PageCache
from penstock.storage.disk.port import Buffer


class PowerCut(BaseException):
    """The power went off. No `except Exception` of the code under test may survive it."""


class CrashableDisk:
    """Files in memory that remember what of them is durable."""

    def __init__(self) -> None:
        self._tree = NameTree()
        self._locks: set[str] = set()
        self._operations = 0
        self._cut_at: int | None = None

    @property
    def operations(self) -> int:
        """How many operations changed or synced something so far."""
        return self._operations

    def cut_power_at(self, operation: int | None) -> None:
        """Let the n-th changing operation from now (1 is the next) raise PowerCut; None: never.

        A write or a change of names that is cut has been begun, so its effect may survive; a
        sync that is cut has made nothing durable for sure. Afterwards everything raises.
        """
        self._cut_at = None if operation is None else self._operations + operation

    def crash(self, chance: Chance) -> "CrashableDisk":
        """The disk after a power cut at this moment. This one, and its open files, stay as they are."""
        survivor = CrashableDisk()
        survivor._tree = self._tree.after_crash(chance)
        return survivor

    def copy(self) -> "CrashableDisk":
        """The same disk once more, unsynced changes included, without the open files and locks."""
        twin = CrashableDisk()
        twin._tree = self._tree.copy()
        return twin

    def files(self) -> list[str]:
        """The paths of all files, sorted."""
        return [path for path, _ in self._tree.files()]

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage a file as a bad device does: present and durable content alike."""
        content = self._content("flip_bit", path)
        for kept in (content.present, content.durable):
            if bit // 8 < len(kept):
                kept[bit // 8] ^= 1 << (bit % 8)

    def cut_short(self, path: str, size: int) -> None:
        """Lose the end of a file for good, as a bad filesystem check does."""
        content = self._content("cut_short", path)
        content.pending.clear()
        del content.present[size:]
        content.durable[:] = content.present

    def begin(self) -> bool:
        """Count a changing operation; True means that the power goes off during it."""
        if self._cut_at is not None and self._operations >= self._cut_at:
            raise PowerCut
        self._operations += 1
        return self._operations == self._cut_at

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> "CrashableFile":
        place = self._place("open", path)
        node = place.directory.present.get(place.name)
        if isinstance(node, Directory):
            raise disk_error("open", path, errnos.EISDIR)
        if node is not None and exclusive and not readonly:
            raise disk_error("open", path, errnos.EEXIST)
        if node is None:
            if readonly or not (create or exclusive):
                raise disk_error("open", path, errnos.ENOENT)
            node = PageCache()
            self._change((place, node))
        return CrashableFile(self, path, node, readonly)

    def exists(self, path: str) -> bool:
        return self._tree.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._tree.find(path), Directory)

    def size(self, path: str) -> int:
        return len(self._content("size", path).present)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory("listdir", path).present)

    def make_directory(self, path: str) -> None:
        above = ""
        for name in path.split("/"):
            above = f"{above}/{name}" if above else name
            node = self._tree.find(above)
            if node is None:
                self._change((self._place("make_directory", above), Directory()))
            elif not isinstance(node, Directory):
                raise disk_error("make_directory", above, errnos.EEXIST)

    def rename(self, old: str, new: str) -> None:
        source, target = self._place("rename", old), self._place("rename", new)
        node = source.directory.present.get(source.name)
        if node is None:
            raise disk_error("rename", old, errnos.ENOENT)
        replaced = target.directory.present.get(target.name)
        if isinstance(replaced, Directory) and (isinstance(node, PageCache) or replaced.present):
            raise disk_error(
                "rename", old, errnos.ENOTEMPTY if isinstance(node, Directory) else errnos.EISDIR
            )
        if isinstance(replaced, PageCache) and isinstance(node, Directory):
            raise disk_error("rename", old, errnos.ENOTDIR)
        if not source.same(target):
            self._change((source, None), (target, node))

    def remove(self, path: str) -> None:
        place = self._place("remove", path)
        node = place.directory.present.get(place.name)
        if node is None:
            raise disk_error("remove", path, errnos.ENOENT)
        if isinstance(node, Directory):
            raise disk_error("remove", path, errnos.EISDIR)
        self._change((place, None))

    def remove_tree(self, path: str) -> None:
        node = self._tree.find(path)
        if node is None:
            return
        if isinstance(node, Directory):
            for name in sorted(node.present):
                self.remove_tree(f"{path}/{name}")
        self._change((self._place("remove_tree", path), None))

    def sync_directory(self, path: str) -> None:
        directory = self._directory("sync_directory", path)
        if self.begin():
            raise PowerCut
        self._tree.sync(directory)

    def lock(self, path: str) -> "_HeldLock":
        self._place("lock", path)
        if path in self._locks:
            raise DirectoryLocked(path)
        self._locks.add(path)
        return _HeldLock(self._locks, path)

    def _change(self, *settings: tuple[Place, Directory | PageCache | None]) -> None:
        cut = self.begin()
        self._tree.change(*settings)
        if cut:
            raise PowerCut

    def _place(self, operation: str, path: str) -> Place:
        place = self._tree.place(path)
        if place is None:
            raise disk_error(operation, path, errnos.ENOENT)
        return place

    def _directory(self, operation: str, path: str) -> Directory:
        node = self._tree.find(path)
        if not isinstance(node, Directory):
            raise disk_error(operation, path, errnos.ENOENT if node is None else errnos.ENOTDIR)
        return node

    def _content(self, operation: str, path: str) -> PageCache:
        node = self._tree.find(path)
        if not isinstance(node, PageCache):
            raise disk_error(operation, path, errnos.ENOENT if node is None else errnos.EISDIR)
        return node


class _HeldLock:
    """A lock in memory: gone with the disk it was taken on."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def close(self) -> None:
        self._locks.discard(self._path)


class CrashableFile:
    """An open file of a CrashableDisk."""

    def __init__(self, disk: CrashableDisk, path: str, content: PageCache, readonly: bool) -> None:
        self._disk = disk
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
        if self._disk.begin():
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

    def map_readonly(self) -> Buffer:
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
        return self._disk.begin()

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise disk_error(operation, self._path, errnos.EBADF)
