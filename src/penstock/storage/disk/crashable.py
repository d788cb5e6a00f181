"""A disk in memory whose power can be cut, for tests and for the simulator.

`crash` answers the disk as it is when the power comes back: everything that was synced,
and of the rest whatever chance let through. `cut_power_at` makes the n-th operation from
now raise `PowerCut`, so that a test can try every moment of a run.
"""

import errno as errnos

from penstock.storage.disk.crashable_file import CrashableFile, Power, PowerCut
from penstock.storage.disk.errors import DirectoryLocked, disk_error
from penstock.storage.disk.name_tree import Directory, NameTree, Place
from penstock.storage.disk.page_cache import Chance, PageCache


class CrashableDisk:
    """Files in memory that remember what of them is durable."""

    def __init__(self) -> None:
        self._tree = NameTree()
        self._locks: set[str] = set()
        self._power = Power()

    @property
    def operations(self) -> int:
        """How many operations changed or synced something so far."""
        return self._power.operations

    def cut_power_at(self, operation: int | None) -> None:
        """Let the n-th changing operation from now (1 is the next) raise PowerCut; None: never.

        A write or a change of names that is cut has been begun, so its effect may survive; a
        sync that is cut has made nothing durable for sure. Afterwards everything raises.
        """
        self._power.cut_at(operation)

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

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> CrashableFile:
        place = self._place("open", path)
        node = place.directory.present.get(place.name)
        if node is not None and exclusive and not readonly:
            raise disk_error("open", path, errnos.EEXIST)
        if isinstance(node, Directory):
            raise disk_error("open", path, errnos.EISDIR)
        if node is None:
            if readonly or not (create or exclusive):
                raise disk_error("open", path, errnos.ENOENT)
            node = PageCache()
            self._change((place, node))
        return CrashableFile(self._power, path, node, readonly)

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
                raise disk_error("make_directory", path, errnos.EEXIST if above == path else errnos.ENOTDIR)

    def rename(self, old: str, new: str) -> None:
        source, target = self._place("rename", old), self._place("rename", new)
        node = source.directory.present.get(source.name)
        if node is None:
            raise disk_error("rename", old, errnos.ENOENT)
        if source.same(target):
            return
        replaced = target.directory.present.get(target.name)
        if isinstance(replaced, Directory) and (isinstance(node, PageCache) or replaced.present):
            raise disk_error(
                "rename", old, errnos.ENOTEMPTY if isinstance(node, Directory) else errnos.EISDIR
            )
        if isinstance(replaced, PageCache) and isinstance(node, Directory):
            raise disk_error("rename", old, errnos.ENOTDIR)
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
        if self._power.begin():
            raise PowerCut
        self._tree.sync(directory)

    def directory_fileno(self, path: str) -> int:
        return -1

    def lock(self, path: str) -> "_HeldLock":
        self._place("lock", path)
        if path in self._locks:
            raise DirectoryLocked(path)
        self._locks.add(path)
        return _HeldLock(self._locks, path)

    def _change(self, *settings: tuple[Place, Directory | PageCache | None]) -> None:
        cut = self._power.begin()
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
