"""Descriptors of files that are only read: few of them, lent to many files.

A broker keeps tens of thousands of segments, of which a handful are read at a time. Each
keeps its reader object; the descriptors behind them go round in order of last use.
"""

import os
from collections import OrderedDict


class Borrowed:
    """What the pool knows of one reader: where its file is, and its descriptor if open.

    `detached` means that the descriptor is all there is: it is not closed to make room,
    and not opened again.
    """

    __slots__ = ("absolute_path", "descriptor", "detached")

    def __init__(self, absolute_path: str) -> None:
        self.absolute_path = absolute_path
        self.descriptor = -1
        self.detached = False


class Descriptors:
    """At most `open_max` open descriptors, plus those of files that have lost their name."""

    def __init__(self, open_max: int) -> None:
        assert open_max >= 1
        self._open_max = open_max
        self._open: OrderedDict[Borrowed, None] = OrderedDict()
        self._by_path: dict[str, list[Borrowed]] = {}

    def register(self, absolute_path: str) -> Borrowed:
        """Open the file a first time; raises OSError if it is not there."""
        entry = Borrowed(absolute_path)
        self.descriptor(entry)
        self._by_path.setdefault(absolute_path, []).append(entry)
        return entry

    def descriptor(self, entry: Borrowed) -> int:
        """The reader's descriptor, good until the next call for another reader."""
        if entry.detached:
            return entry.descriptor
        if entry.descriptor >= 0:
            self._open.move_to_end(entry)
            return entry.descriptor
        while len(self._open) >= self._open_max:
            oldest, _ = self._open.popitem(last=False)
            os.close(oldest.descriptor)
            oldest.descriptor = -1
        entry.descriptor = os.open(entry.absolute_path, os.O_RDONLY | os.O_CLOEXEC)
        self._open[entry] = None
        return entry.descriptor

    def release(self, entry: Borrowed) -> None:
        """The reader is closed."""
        if entry.descriptor >= 0:
            os.close(entry.descriptor)
            entry.descriptor = -1
        # A closed reader that is used again must not quietly reopen its file.
        entry.detached = True
        self._open.pop(entry, None)
        self._drop_path(entry)

    def pin(self, absolute_path: str, *, tree: bool) -> None:
        """The file, or the tree, is about to lose its name: keep its readers' descriptors.

        A reader of a removed file must go on reading it, and could not reopen it.
        """
        for path in self._paths(absolute_path, tree=tree):
            for entry in list(self._by_path[path]):
                self.descriptor(entry)
                entry.detached = True
                self._open.pop(entry, None)
                self._drop_path(entry)

    def renamed(self, old: str, new: str, *, tree: bool) -> None:
        """The file, or the tree, has another name now: reopen it there."""
        for path in self._paths(old, tree=tree):
            entries = self._by_path.pop(path)
            moved = new + path[len(old) :]
            for entry in entries:
                entry.absolute_path = moved
            self._by_path.setdefault(moved, []).extend(entries)

    def _drop_path(self, entry: Borrowed) -> None:
        entries = self._by_path.get(entry.absolute_path)
        if entries is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._by_path[entry.absolute_path]

    def _paths(self, absolute_path: str, *, tree: bool) -> list[str]:
        """The known paths at a file's place, or below a directory, which costs a look at all of them."""
        if not tree:
            return [absolute_path] if absolute_path in self._by_path else []
        below = absolute_path + "/"
        return [path for path in self._by_path if path == absolute_path or path.startswith(below)]
