"""The names of an in-memory disk: which are durable, and which a power cut may undo.

Every create, rename and remove is a change that waits until the directories it touches are
synced. After a power cut any subset of the waiting changes has happened, with two limits:
a rename happens as a whole, and a change implies the earlier ones of the same name.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from penstock.storage.disk.page_cache import Chance, PageCache


class Directory:
    """The durable and the present names of one directory."""

    __slots__ = ("durable", "present")

    def __init__(self) -> None:
        self.present: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Directory | PageCache
_NodeT = TypeVar("_NodeT", Directory, PageCache, Node)


class Place(NamedTuple):
    """A name in a directory."""

    directory: Directory
    name: str

    def same(self, other: "Place") -> bool:
        return self.directory is other.directory and self.name == other.name


class _Change:
    """Names set (to a node) or removed (None) together, until their directories are synced."""

    __slots__ = ("names", "settings", "unsynced")

    def __init__(self, settings: list[tuple[Place, Node | None]]) -> None:
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

    def place(self, path: str) -> Place | None:
        """The directory and name that a path means, if that directory exists."""
        *above, name = _parts(path)
        directory = self.find("/".join(above))
        return Place(directory, name) if isinstance(directory, Directory) else None

    def change(self, *settings: tuple[Place, Node | None]) -> None:
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

    def settle_by_chance(self, chance: Chance) -> None:
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
                (Place(_copy(place.directory, twins), place.name), node and _copy(node, twins))
                for place, node in change.settings
            ]
            copied = _Change(settings)
            copied.unsynced = [_copy(directory, twins) for directory in change.unsynced]
            twin._waiting.append(copied)
        return twin

    def after_crash(self, chance: Chance) -> "NameTree":
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


def _survivor(directory: Directory, chance: Chance) -> Directory:
    """What is durable, as a directory in which nothing is waiting."""
    survivor = Directory()
    for name, node in sorted(directory.durable.items()):
        twin = _survivor(node, chance) if isinstance(node, Directory) else PageCache(node.after_crash(chance))
        survivor.present[name] = survivor.durable[name] = twin
    return survivor
