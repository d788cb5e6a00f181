"""One queue: a group's records of one partition that are not finished.

    ──────────────────────────────┬──────────────────────────────────────┬───────── the log
     finished, but for entries:   │ 7 leased · 9 available · 12 moving    │ not offered yet
     offsets below the first one  │ (8, 10, 11 are finished)             end
                                  └ finished_below

What is stored is `end` and an entry for each record below it that is not finished. So memory does not grow
with what is finished, nor with the backlog: records beyond `end` are the log's business.
"""

from collections.abc import Iterable
from typing import assert_never

from penstock.core.model import MILLISECOND, Instant, Now, Offset, Timestamp
from penstock.core.queues.delivery_order import DeliveryOrder, QueueEntry, in_order
from penstock.core.queues.facts import (
    Failure,
    Lease,
    LeasesProlonged,
    QueueFact,
    QueueForgotten,
    QueueStored,
    QueueTransactionEnded,
    RecordsDropped,
    RecordsEnding,
    RecordsFinished,
    RecordsGivenUp,
    RecordsLeased,
    RecordsReleased,
    RecordsReturned,
    RecordsStored,
    RecordsTaken,
    RecordState,
    offsets_in,
)


class Queue:
    """The state of a queue, changed by facts alone; and, while this node leads, the order of deliveries."""

    __slots__ = ("end", "entries", "order", "stored")

    def __init__(self, stored: QueueStored) -> None:
        self.stored = stored
        self.end = stored.end
        self.entries: dict[Offset, QueueEntry] = {}
        self.order: DeliveryOrder | None = None

    @property
    def head(self) -> QueueStored:
        """The queue without its records, as it is now."""
        known = self.stored
        return QueueStored(known.queue, self.end, known.leader_epoch, known.settings, known.is_paused)

    @property
    def finished_below(self) -> Offset:
        return min(self.entries, default=self.end)

    def go_live(self, now: Now) -> None:
        """Put all entries in order. Leases that have no deadline yet, and delays, count from now."""
        ordered = list(in_order(self.entries))
        self.entries = {entry.offset: entry for entry in ordered}
        self.order = DeliveryOrder(self.entries, self.stored.settings.is_key_ordered)
        for entry in ordered:
            self.order.add(entry, now)

    def apply(self, fact: QueueFact, now: Now | None) -> None:  # noqa: C901, PLR0912 - one case per fact
        """Total: a fact about records that are not here changes nothing. `now` is None during the replay."""
        match fact:
            case RecordsTaken():
                self._take(fact, now)
            case RecordsLeased():
                self._lease(fact, now)
            case LeasesProlonged():
                self._prolong(fact)
            case RecordsReturned():
                self._return(fact, now)
            case RecordsReleased():
                self._release(fact, now)
            case RecordsGivenUp():
                self._give_up(fact)
            case RecordsFinished():
                self._remove(offsets_in(fact.runs))
            case RecordsEnding():
                self._await_transaction(fact)
            case RecordsDropped():
                self._remove([each for each in self.entries if fact.start <= each < fact.end])
            case RecordsStored():
                self._store(fact, now)
            case QueueStored():
                self.end, self.stored = fact.end, fact
                if self.order is not None and self.order.is_key_ordered != fact.settings.is_key_ordered:
                    assert now is not None
                    self.go_live(now)
            case QueueForgotten() | QueueTransactionEnded():
                raise AssertionError("these are about more than the queue's records")
            case _:
                assert_never(fact)

    def end_transaction(self, offset: Offset, *, is_commit: bool) -> None:
        """A record that waits for the end of a transaction is finished, or as it was."""
        if is_commit:
            self._remove((offset,))
            return
        entry = self.entries[offset]
        if self.order is not None:
            self.order.leave(entry)
        entry.producer = None
        if self.order is not None:
            self.order.enter(entry, None)

    def _take(self, fact: RecordsTaken, now: Now | None) -> None:
        self.end = max(self.end, fact.end)
        if not fact.records:
            known = self.entries
            taken = {offset: QueueEntry(offset) for offset in offsets_in(fact.plain) if offset not in known}
            known.update(taken)
            if taken and self.order is not None:
                self.order.add_plain(taken)
            return
        entries = [QueueEntry(offset) for offset in offsets_in(fact.plain)]
        entries += [QueueEntry(record.offset, record) for record in fact.records]
        entries.sort(key=_offset)
        for entry in entries:
            if entry.offset not in self.entries:
                self.entries[entry.offset] = entry
                if self.order is not None:
                    assert now is not None
                    self.order.add(entry, now)

    def _lease(self, fact: RecordsLeased, now: Now | None) -> None:
        known, lease = self.entries, fact.lease
        entries = [known[offset] for offset in offsets_in(fact.runs) if offset in known]
        if self.order is not None:
            assert now is not None
            self.order.lease(entries, lease, now)
        else:
            for entry in entries:
                entry.deliver(lease)

    def _prolong(self, fact: LeasesProlonged) -> None:
        prolonged: dict[int, Lease] = {}
        for offset in offsets_in(fact.runs):
            entry = self.entries.get(offset)
            if entry is not None and entry.lease is not None:
                token, consumer, _ = entry.lease
                entry.lease = prolonged.setdefault(token, Lease(token, consumer, fact.lease_ms))

    def _return(self, fact: RecordsReturned, now: Now | None) -> None:
        for offset in offsets_in(fact.runs):
            entry = self.entries.get(offset)
            if entry is not None:
                if self.order is not None:
                    self.order.leave(entry)
                entry.state, entry.lease, entry.producer = RecordState.AVAILABLE, None, None
                entry.attempts = max(0, entry.attempts - 1)
                if self.order is not None:
                    self.order.enter(entry, now)

    def _release(self, fact: RecordsReleased, now: Now | None) -> None:
        for offset, delay_ms in fact.released:
            entry = self.entries.get(offset)
            if entry is not None:
                self._fail(entry, fact.failed_at, fact.reason)
                entry.state, entry.delay_ms = RecordState.AVAILABLE, delay_ms
                if self.order is not None:
                    self.order.enter(entry, now)

    def _give_up(self, fact: RecordsGivenUp) -> None:
        for offset in offsets_in(fact.runs):
            entry = self.entries.get(offset)
            if entry is not None:
                self._fail(entry, fact.failed_at, fact.reason)
                entry.state, entry.delay_ms = RecordState.MOVING, 0
                if self.order is not None:
                    self.order.enter(entry, None)
                    self.order.unblock(entry)

    def _fail(self, entry: QueueEntry, failed_at: Timestamp, reason: str) -> None:
        if self.order is not None:
            self.order.leave(entry)
        first_at = failed_at if entry.failure is None else entry.failure.first_at
        entry.failure = Failure(first_at, failed_at, reason)
        entry.lease = entry.producer = None

    def _await_transaction(self, fact: RecordsEnding) -> None:
        for offset in offsets_in(fact.runs):
            entry = self.entries.get(offset)
            if entry is not None:
                if self.order is not None:
                    self.order.leave(entry)
                entry.producer = fact.producer
                if self.order is not None:
                    self.order.enter(entry, None)

    def _remove(self, offsets: Iterable[Offset]) -> None:
        entries = self.entries
        removed = [entries.pop(offset) for offset in offsets if offset in entries]
        if self.order is not None:
            self.order.remove(removed)

    def _store(self, fact: RecordsStored, now: Now | None) -> None:
        is_changed = False
        for stored in fact.records:
            known = self.entries.get(stored.record.offset)
            # While this node leads, these are copies of what it has: they change nothing, no deadline either.
            if known is None or known.stored() != stored:
                self.entries[stored.record.offset] = QueueEntry.of(stored)
                is_changed = True
        if is_changed and self.order is not None:
            assert now is not None
            self.go_live(now)


def lease_deadline(now: Now, lease_ms: int) -> Instant:
    return Instant(now.instant + lease_ms * MILLISECOND)


def _offset(entry: QueueEntry) -> Offset:
    return entry.offset
