"""The log: a port to what storage keeps, and how much of it is durable."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.core.raft.types import Entry, Index, SnapshotMeta, Term


class LogView(Protocol):
    """The stored log as the host shows it. What it shows at the start must be durable."""

    @property
    def snapshot(self) -> SnapshotMeta:
        """The newest snapshot, or the bootstrap snapshot."""

    @property
    def first(self) -> Index:
        """The lowest index whose entry is kept, or `last + 1`. At most `snapshot.index + 1`."""

    @property
    def last(self) -> Index:
        """The highest index: of an entry, or of the snapshot."""

    def term_at(self, index: Index) -> Term | None:
        """The term of an entry that is kept, or of the snapshot; None for any other index."""

    def entries(self, start: Index, bytes_max: int) -> Sequence[Entry]:
        """Entries from `start` (which is kept) on, as many as fit and at least one."""


class RaftLog:
    """The view, and what this step adds to it before the host has carried it out.

        first ............ persisted ............ last
          |  durable here     |  written, sync runs  |

    Writes are numbered. A write that is cut off before its sync ends must not count for
    what was written in its place, even if that has the same index and term.
    """

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._fresh: list[Entry] = []
        self._running: deque[tuple[int, Index]] = deque()
        self._writes = 0
        self.last = view.last
        self.last_term = self._last_term()
        self.persisted = view.last

    def _last_term(self) -> Term:
        term = self._view.term_at(self.last)
        assert term is not None, "a log knows the term of its last entry"
        return term

    @property
    def snapshot(self) -> SnapshotMeta:
        return self._view.snapshot

    @property
    def first(self) -> Index:
        return self._view.first

    def begin_step(self) -> None:
        """Begin a step: the host has carried out the effects of the last one."""
        if self._fresh:
            self._fresh.clear()
            assert self._view.last == self.last, "the host has not stored what it was given"

    def term_at(self, index: Index) -> Term | None:
        if index >= self.last:
            return self.last_term if index == self.last else None
        fresh = self._fresh
        if fresh and index >= fresh[0].index:
            return fresh[index - fresh[0].index].term
        return self._view.term_at(index)

    def entries(self, start: Index, bytes_max: int) -> tuple[Entry, ...]:
        """As many entries from `start` on as fit, and at least one; none from the end on."""
        if start > self.last:
            return ()
        fresh = self._fresh
        if not fresh or start < fresh[0].index:
            return tuple(self._view.entries(start, bytes_max))
        end = begin = start - fresh[0].index
        size = 0
        while end < len(fresh):
            size += fresh[end].size_bytes
            if size > bytes_max and end > begin:
                break
            end += 1
        return tuple(fresh[begin:end])

    def agreement(self, index: Index, term: Term) -> tuple[Index, Term]:
        """The highest entry, not above `index`, of `term` or an earlier one: the logs may agree there."""
        index = min(index, self.last)
        while (own := self.term_at(index)) is not None and own > term:
            index = Index(index - 1)
        return index, Term(0) if own is None else own

    def append(self, entries: Sequence[Entry]) -> int:
        """Take entries that follow the last one; returns the number of the write."""
        assert entries[0].index == self.last + 1
        self._fresh += entries
        self.last, self.last_term = entries[-1].index, entries[-1].term
        self._writes += 1
        self._running.append((self._writes, self.last))
        return self._writes

    def truncate(self, start: Index) -> None:
        """Forget every entry from `start` on; `append` must follow in the same step."""
        self.last = Index(start - 1)
        self._fresh.clear()
        self._clip(self.last)

    def _clip(self, last: Index) -> None:
        self.persisted = min(self.persisted, last)
        self._running = deque((write, min(end, last)) for write, end in self._running)

    def synced(self, write: int) -> None:
        while self._running and self._running[0][0] <= write:
            self.persisted = max(self.persisted, self._running.popleft()[1])

    def restart(self) -> None:
        """The view has been replaced by a snapshot."""
        self._fresh.clear()
        self.last = self._view.last
        self.last_term = self._last_term()
        self._clip(self.last)
        self.persisted = self.last
