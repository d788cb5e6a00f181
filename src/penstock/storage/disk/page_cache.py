"""The content of one file in memory: what is durable, and what a power cut may do to the rest.

    durable   AAAAAAAA BBBBBBBB                      what the last sync left
    pending   write(16, CCCC...), resize(12), ...    since then, in order
    present   AAAAAAAA BBBB                          what the process reads

After a power cut each 512-byte sector holds what it held at some moment since the last
sync, each sector at a moment of its own; the size is that of some moment, or anything
between two of them; and bytes that the size covers but that never arrived are zero. That
is what POSIX leaves open, and what filesystems without data journaling do.
"""

from typing import NamedTuple, Protocol

SECTOR_BYTES = 512


class Chance(Protocol):
    """Where the crashable disk takes its luck from; `random.Random` is one."""

    def random(self) -> float: ...

    def randint(self, a: int, b: int, /) -> int: ...


class Write(NamedTuple):
    """Bytes put at a position."""

    position: int
    content: bytes


class Resize(NamedTuple):
    """The file was cut, or extended with zeros."""

    size: int


Change = Write | Resize


class PageCache:
    """Present and durable content of one file."""

    __slots__ = ("durable", "pending", "present")

    def __init__(self, content: bytes = b"") -> None:
        self.present = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Change] = []

    def write(self, position: int, content: bytes) -> None:
        change = Write(position, content)
        _apply(self.present, change)
        self.pending.append(change)

    def resize(self, size: int) -> None:
        change = Resize(size)
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
        self.pending = [change for change in self.pending if isinstance(change, Resize)]

    def copy(self) -> "PageCache":
        twin = PageCache()
        twin.present = bytearray(self.present)
        twin.durable = bytearray(self.durable)
        twin.pending = list(self.pending)
        return twin

    def after_crash(self, chance: Chance) -> bytes:
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

    def _stopped_at(self, last: int, chance: Chance) -> bytes:
        """Everything in order up to a point in the middle of one change."""
        content = bytearray(self.durable)
        for change in self.pending[:last]:
            _apply(content, change)
        torn = self.pending[last]
        if isinstance(torn, Write):
            torn = Write(torn.position, torn.content[: chance.randint(0, len(torn.content))])
        _apply(content, torn)
        return bytes(content)

    def _scattered(self, chance: Chance) -> bytes:
        """Every sector and the size at a moment of their own."""
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

    def _size_after(self, sizes: list[int], chance: Chance) -> int:
        if chance.random() < 0.7:
            return sizes[chance.randint(0, len(sizes) - 1)]
        return chance.randint(min(sizes), max(sizes))


def _apply(content: bytearray, change: Change) -> None:
    match change:
        case Write(position, written):
            if position > len(content):
                content.extend(bytes(position - len(content)))
            content[position : position + len(written)] = written
        case Resize(size):
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))
