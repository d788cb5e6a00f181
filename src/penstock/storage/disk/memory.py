"""A disk in memory whose power can be cut, for tests and for the simulator.

`crash` returns the disk as it is when the power comes back: everything that was synced,
and a random part of the rest. `cut_power_at` makes the n-th operation from now raise
`PowerCut`, so that a test can try every point of a run.

`PageCache` is the content of one file: what is durable, and what a power cut may do to the rest.

    durable   AAAAAAAA BBBBBBBB                      what the last sync left
    pending   write(16, CCCC...), resize(12), ...    since then, in order
    present   AAAAAAAA BBBB                          what the process reads

After a power cut each 512-byte sector holds what it held at some time since the last
sync, each sector at a time of its own; the size is that of some time, or anything
between two of them; and bytes that the size covers but that never arrived are zero. That
is what POSIX leaves open, and what filesystems without data journaling do.

`NameTree` holds the names: which are durable, and which a power cut may undo. Every create,
rename and remove is a change that waits until the directories it touches are synced.
After a power cut any subset of the waiting changes has happened, with two limits:
a rename happens as a whole, and a change implies the earlier ones of the same name.
"""

import errno as errnos
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple, Protocol, TypeVar

from penstock.storage.disk.port import Buffer, DirectoryLocked, DiskSpace, disk_error

SECTOR_BYTES = 512


class RandomSource(Protocol):
    """Where the crashable disk takes random numbers from; `random.Random` is one."""

    def random(self) -> float: ...

    def randint(self, a: int, b: int, /) -> int: ...


class PendingWrite(NamedTuple):
    """Bytes put at a position."""

    position: int
    content: bytes


class PendingResize(NamedTuple):
    """The file was cut, or extended with zeros."""

    size: int


Change = PendingWrite | PendingResize


class PageCache:
    """Present and durable content of one file."""

    __slots__ = ("durable", "pending", "present", "rotten")

    def __init__(self, content: bytes = b"") -> None:
        # Whether the device has damaged it. That shows when pages are read from there, so they are cold.
        self.rotten = False
        self.present = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Change] = []

    def write(self, position: int, content: bytes) -> None:
        change = PendingWrite(position, content)
        _apply(self.present, change)
        self.pending.append(change)

    def resize(self, size: int) -> None:
        change = PendingResize(size)
        _apply(self.present, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def lose_pending(self) -> None:
        """A sync failed: the kernel calls the pages clean, and never writes them again.

        The process still reads them, and no later sync makes them durable. A change of size
        by truncation is no page but part of the journal, and can still become durable.
        """
        self.pending = [change for change in self.pending if isinstance(change, PendingResize)]

    def copy(self) -> "PageCache":
        twin = PageCache()
        twin.present = bytearray(self.present)
        twin.durable = bytearray(self.durable)
        twin.pending = list(self.pending)
        return twin

    def after_crash(self, chance: RandomSource) -> bytes:
        """What a reader finds after the power came back."""
        if not self.pending:
            return bytes(self.durable)
        luck = chance.random()
        if luck < 0.2:
            return bytes(self.durable)
        if luck < 0.35:
            return bytes(self.present)
        if luck < 0.55:
            return self._stopped_at(chance.randint(0, len(self.pending) - 1), chance)
        return self._scattered(chance)

    def _stopped_at(self, last: int, chance: RandomSource) -> bytes:
        """Everything in order up to a point in the middle of one change."""
        content = bytearray(self.durable)
        for change in self.pending[:last]:
            _apply(content, change)
        torn = self.pending[last]
        if isinstance(torn, PendingWrite):
            torn = PendingWrite(torn.position, torn.content[: chance.randint(0, len(torn.content))])
        _apply(content, torn)
        return bytes(content)

    def _scattered(self, chance: RandomSource) -> bytes:
        """Every sector and the size at a time of their own."""
        moments = [bytearray(self.durable)]
        sizes = [len(self.durable)]
        for change in self.pending:
            moment = bytearray(moments[-1])
            _apply(moment, change)
            moments.append(moment)
            sizes.append(len(moment))
        size = self._size_after(sizes, chance)
        content = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            moment = moments[chance.randint(0, len(moments) - 1)]
            sector = moment[start : min(start + SECTOR_BYTES, size)]
            content[start : start + len(sector)] = sector
        return bytes(content)

    def _size_after(self, sizes: list[int], chance: RandomSource) -> int:
        if chance.random() < 0.7:
            return sizes[chance.randint(0, len(sizes) - 1)]
        return chance.randint(min(sizes), max(sizes))


def _apply(content: bytearray, change: Change) -> None:
    match change:
        case PendingWrite(position, written):
            if position > len(content):
                content.extend(bytes(position - len(content)))
            content[position : position + len(written)] = written
        case PendingResize(size):
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))


class PowerCut(BaseException):
    """The power went off. No `except Exception` of the code under test may survive it."""


class PowerSupply:
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

    def __init__(self, power: PowerSupply, path: str, content: PageCache, readonly: bool) -> None:
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
        return not self._content.rotten

    def modified_ns(self) -> int:
        return 0

    def size(self) -> int:
        self._check_open("size")
        return len(self._content.present)

    def map_readonly(self) -> memoryview:
        self._check_open("map_readonly")
        return memoryview(bytes(self._content.present))

    def fileno(self) -> int:
        return -1

    def park(self) -> None:
        """Nothing: memory has no descriptors."""

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


class Directory:
    """The durable and the present names of one directory."""

    __slots__ = ("durable", "present")

    def __init__(self) -> None:
        self.present: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Directory | PageCache
_NodeT = TypeVar("_NodeT", Directory, PageCache, Node)


class DirectoryEntry(NamedTuple):
    """A name in a directory."""

    directory: Directory
    name: str

    def same(self, other: "DirectoryEntry") -> bool:
        return self.directory is other.directory and self.name == other.name


class _Change:
    """Names set (to a node) or removed (None) together, until their directories are synced."""

    __slots__ = ("names", "settings", "unsynced")

    def __init__(self, settings: list[tuple[DirectoryEntry, Node | None]]) -> None:
        self.settings = settings
        self.names = [(id(place.directory), place.name) for place, _ in settings]
        self.unsynced = [place.directory for place, _ in settings]

    def apply_to_durable(self) -> None:
        for (directory, name), node in self.settings:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


class NameTree:
    """The tree of one disk, and the changes of names that are not durable yet."""

    def __init__(self) -> None:
        self.root = Directory()
        self._waiting: list[_Change] = []

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.present.get(name)
        return node

    def place(self, path: str) -> DirectoryEntry | None:
        """The directory and name that a path means, if that directory exists."""
        *above, name = _parts(path)
        directory = self.find("/".join(above))
        return DirectoryEntry(directory, name) if isinstance(directory, Directory) else None

    def change(self, *settings: tuple[DirectoryEntry, Node | None]) -> None:
        for (directory, name), node in settings:
            if node is None:
                directory.present.pop(name, None)
            else:
                directory.present[name] = node
        self._waiting.append(_Change(list(settings)))

    def sync(self, directory: Directory) -> None:
        for change in self._waiting:
            change.unsynced = [other for other in change.unsynced if other is not directory]
        self._settle([not change.unsynced for change in self._waiting])

    def settle_by_chance(self, chance: RandomSource) -> None:
        """The power is cut: some waiting changes happened, the others did not."""
        luck = chance.random()
        if luck < 0.25:
            happened = [False for _ in self._waiting]
        elif luck < 0.45:
            happened = [True for _ in self._waiting]
        else:
            happened = [chance.random() < 0.5 for _ in self._waiting]
        self._settle(happened)
        self._waiting.clear()

    def _settle(self, happened: list[bool]) -> None:
        changes = self._waiting
        # The names that later changes have settled: what was done to them before has happened too.
        settled: dict[tuple[int, str], None] = {}
        for number in reversed(range(len(changes))):
            names = changes[number].names
            if not happened[number] and any(name in settled for name in names):
                happened[number] = True
            if happened[number]:
                settled.update(dict.fromkeys(names))
        for change, did in zip(changes, happened, strict=True):
            if did:
                change.apply_to_durable()
        self._waiting = [change for change, did in zip(changes, happened, strict=True) if not did]

    def files(self) -> Iterator[tuple[str, PageCache]]:
        """Every file that has a name now, with its path, in order of path."""
        yield from _files_below(self.root, "")

    def copy(self) -> "NameTree":
        """A tree that shares nothing with this one."""
        twins: dict[int, Node] = {}
        twin = NameTree()
        twin.root = _copy(self.root, twins)
        for change in self._waiting:
            settings = [
                (DirectoryEntry(_copy(place.directory, twins), place.name), node and _copy(node, twins))
                for place, node in change.settings
            ]
            copied = _Change(settings)
            copied.unsynced = [_copy(directory, twins) for directory in change.unsynced]
            twin._waiting.append(copied)
        return twin

    def after_crash(self, chance: RandomSource) -> "NameTree":
        """The tree that a disk shows when the power comes back. This one stays as it is."""
        crashed = self.copy()
        crashed.settle_by_chance(chance)
        survivor = NameTree()
        survivor.root = _survivor(crashed.root, chance)
        return survivor


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _files_below(directory: Directory, prefix: str) -> Iterator[tuple[str, PageCache]]:
    for name, node in sorted(directory.present.items()):
        if isinstance(node, Directory):
            yield from _files_below(node, f"{prefix}{name}/")
        else:
            yield prefix + name, node


def _copy(node: _NodeT, twins: dict[int, Node]) -> _NodeT:
    """The copy of a node, made once: a name and a waiting change may mean the same node."""
    twin = twins.get(id(node))
    if twin is None:
        if isinstance(node, PageCache):
            twin = twins[id(node)] = node.copy()
        else:
            twin = twins[id(node)] = directory = Directory()
            directory.present = {name: _copy(child, twins) for name, child in node.present.items()}
            directory.durable = {name: _copy(child, twins) for name, child in node.durable.items()}
    assert isinstance(twin, type(node))
    return twin


def _survivor(directory: Directory, chance: RandomSource) -> Directory:
    """What is durable, as a directory in which nothing is waiting."""
    survivor = Directory()
    for name, node in sorted(directory.durable.items()):
        twin = _survivor(node, chance) if isinstance(node, Directory) else PageCache(node.after_crash(chance))
        survivor.present[name] = survivor.durable[name] = twin
    return survivor


class CrashableDisk:
    """Files in memory that remember what of them is durable."""

    def __init__(self) -> None:
        self._tree = NameTree()
        self._locks: set[str] = set()
        self._power = PowerSupply()

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

    def crash(self, chance: RandomSource) -> "CrashableDisk":
        """The disk after a power cut now. This one, and its open files, stay as they are."""
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
        content.rotten = True
        for kept in (content.present, content.durable):
            if bit // 8 < len(kept):
                kept[bit // 8] ^= 1 << (bit % 8)

    def cut_short(self, path: str, size: int) -> None:
        """Lose the end of a file for good, as a bad filesystem check does."""
        content = self._content("cut_short", path)
        content.rotten = True
        content.pending.clear()
        del content.present[size:]
        content.durable[:] = content.present

    def lose(self, path: str) -> None:
        """Lose a file or a whole directory for good, as a bad filesystem check does."""
        place = self._place("lose", path)
        for names in (place.directory.present, place.directory.durable):
            names.pop(place.name, None)

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

    def read(self, path: str) -> bytes:
        with closing(self.open(path, readonly=True)) as file:
            return file.pread(0, file.size())

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

    def space(self) -> DiskSpace | None:
        return None

    def take_shortage(self) -> bool:
        return False

    def lock(self, path: str) -> "_HeldLock":
        self._place("lock", path)
        if path in self._locks:
            raise DirectoryLocked(path)
        self._locks.add(path)
        return _HeldLock(self._locks, path)

    def _change(self, *settings: tuple[DirectoryEntry, Directory | PageCache | None]) -> None:
        cut = self._power.begin()
        self._tree.change(*settings)
        if cut:
            raise PowerCut

    def _place(self, operation: str, path: str) -> DirectoryEntry:
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
