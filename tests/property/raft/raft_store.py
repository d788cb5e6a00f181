"""A raft log in memory that loses what was not synced when it crashes."""

import random
from collections import deque
from collections.abc import Callable, Sequence

from penstock.core.raft import (
    BLANK_BALLOT,
    Configuration,
    ConfigurationAt,
    Entry,
    HardState,
    Index,
    RecoveredState,
    SnapshotMeta,
    Term,
    bootstrap_snapshot,
)

State = tuple[bytes, ...]


class MemoryStore:
    """Log, hard state and snapshot of one directory: what the process sees, and what is durable."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        # None: it was lost.
        self.ballot: HardState | None = BLANK_BALLOT
        self.snapshot = bootstrap_snapshot() if configuration is None else bootstrap_snapshot(configuration)
        self.state: State = ()  # what the snapshot holds
        self.first = Index(1)
        self._entries: list[Entry] = []
        self._durable: list[Entry] = []
        # Writes that no sync covers yet, oldest first.
        self._underway: deque[tuple[int, Callable[[list[Entry]], None]]] = deque()

    @property
    def last(self) -> Index:
        return self._entries[-1].index if self._entries else Index(self.first - 1)

    def term_at(self, index: Index) -> Term | None:
        if index == self.snapshot.index:
            return self.snapshot.term
        if self.first <= index <= self.last:
            return self._entries[index - self.first].term
        return None

    def entries(self, start: Index, bytes_max: int) -> Sequence[Entry]:
        assert self.first <= start <= self.last
        taken: list[Entry] = []
        size = 0
        for entry in self._entries[start - self.first :]:
            size += entry.size_bytes
            if taken and size > bytes_max:
                break
            taken.append(entry)
        return taken

    def at(self, index: Index) -> Entry:
        return self._entries[index - self.first]

    def truncate(self, start: Index) -> None:
        _cut(self._entries, start)
        self._underway.append((-1, lambda entries: _cut(entries, start)))

    def append(self, entries: Sequence[Entry], write: int) -> None:
        self._entries += entries
        self._underway.append((write, lambda kept: kept.extend(entries)))

    def sync(self, write: int) -> None:
        while self._underway and self._underway[0][0] <= write:
            self._underway.popleft()[1](self._durable)

    def take_snapshot(self, meta: SnapshotMeta, state: State, keep_from: Index) -> None:
        """Replace the entries below `keep_from` by a snapshot; it is durable at once."""
        self.sync(1 << 60)
        self.snapshot, self.state = meta, state
        for entries in (self._entries, self._durable):
            entries[:] = [entry for entry in entries if entry.index >= keep_from]
        self.first = keep_from

    def install(self, meta: SnapshotMeta, state: State) -> None:
        self._underway.clear()
        self._entries, self._durable = [], []
        self.snapshot, self.state = meta, state
        self.first = Index(meta.index + 1)

    def crash(self, luck: random.Random) -> None:
        """Of what was not synced, chance decides how much of its beginning is left."""
        for _, write in list(self._underway)[: luck.randint(0, len(self._underway))]:
            write(self._durable)
        self._underway.clear()
        self._entries = list(self._durable)

    def lose_tail(self, count: int) -> None:
        """The disk has lost synced entries, which shows at the next start."""
        del self._durable[len(self._durable) - min(count, self._behind_snapshot()) :]
        self._entries = list(self._durable)
        if self.ballot is not None:
            self.ballot = self.ballot._replace(doubt=self.ballot.term)

    def _behind_snapshot(self) -> int:
        return sum(entry.index > self.snapshot.index for entry in self._durable)

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is here durably, as itself or in the snapshot."""
        return entry.index <= self.snapshot.index or entry in self._durable

    def recovered(self) -> RecoveredState:
        found = (
            ConfigurationAt(entry.index, entry.content)
            for entry in self._entries
            if isinstance(entry.content, Configuration)
        )
        return RecoveredState(self.ballot, tuple(found))


def _cut(entries: list[Entry], start: Index) -> None:
    while entries and entries[-1].index >= start:
        entries.pop()
