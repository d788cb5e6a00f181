"""Which record of a queue is delivered next, and what is due when. Nothing here is stored.

    available ─┬─ ready      a heap: the highest priority first, then the lowest offset; and beside it a
               │             queue of those without attributes that were not delivered yet, in their order
               ├─ delayed    two heaps: after a failure on the monotonic clock, `deliver_at` on the wall clock
               └─ blocked    behind another record of their key, in key-ordered mode; nowhere but in `_keys`
    leased     ─── by acquisition, with one entry in a heap for the earliest of its deadlines
    moving     ─── to the dead-letter topic
    ending     ─── a transaction decides; no deadline meanwhile, transactions have their own

Items of the heaps that are out of date are skipped when they come up.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

from penstock.core.model import MILLISECOND, Instant, Now, Offset
from penstock.core.queues.facts import (
    Failure,
    Lease,
    QueueRecord,
    RecordState,
    StoredRecord,
    TransactionProducer,
)

NOT_ARMED = Instant(-(2**63))


class QueueEntry:
    """A record that is not finished."""

    __slots__ = (
        "attempts",
        "deadline",
        "delay_ms",
        "failure",
        "lease",
        "offset",
        "producer",
        "record",
        "state",
    )

    def __init__(self, offset: Offset, record: QueueRecord | None = None) -> None:
        self.offset = offset
        # None for one without attributes: there are many of them.
        self.record = record
        self.state = RecordState.AVAILABLE
        self.attempts = 0
        self.delay_ms = 0
        self.lease: Lease | None = None
        self.failure: Failure | None = None
        self.producer: TransactionProducer | None = None
        # When the lease ends. Not stored.
        self.deadline = NOT_ARMED

    def deliver(self, lease: Lease) -> None:
        """One delivery more."""
        self.state = RecordState.LEASED
        self.lease = lease
        self.delay_ms = 0
        self.attempts += 1
        self.producer = None

    @staticmethod
    def of(stored: StoredRecord) -> "QueueEntry":
        record = stored.record
        is_plain = record == QueueRecord(record.offset)
        entry = QueueEntry(record.offset, None if is_plain else record)
        entry.state, entry.attempts, entry.delay_ms = stored.state, stored.attempts, stored.delay_ms
        entry.lease, entry.failure, entry.producer = stored.lease, stored.failure, stored.producer
        return entry

    def stored(self) -> StoredRecord:
        return StoredRecord(
            self.record or QueueRecord(self.offset),
            self.state,
            self.attempts,
            self.delay_ms,
            self.lease,
            self.failure,
            self.producer,
        )


class DeliveryOrder:
    """The entries of one queue by what is to be done with them. `entries` is the queue's own dictionary."""

    __slots__ = (
        "_armed",
        "_deadlines",
        "_delays",
        "_deliveries",
        "_entries",
        "_fresh",
        "_heap",
        "_keys",
        "_leases",
        "delayed",
        "ending",
        "ending_moves",
        "is_key_ordered",
        "leased",
        "moving",
        "ready",
        "unarmed",
    )

    def __init__(self, entries: dict[Offset, QueueEntry], is_key_ordered: bool) -> None:
        self._entries = entries
        self.is_key_ordered = is_key_ordered
        self.ready: dict[Offset, None] = {}
        self._heap: list[tuple[int, Offset]] = []
        # Ascending. Those that are not ready any more are skipped when they come up, as in the heap.
        self._fresh: deque[Offset] = deque()
        # The item of one of the heaps; another item of the same offset is out of date.
        self.delayed: dict[Offset, tuple[int, Offset]] = {}
        self._delays: list[tuple[int, Offset]] = []
        self._deliveries: list[tuple[int, Offset]] = []
        # In the order of the log. Those that are finished or moving are skipped when they come up.
        self._keys: dict[int, deque[Offset]] = {}
        self._leases: dict[int, dict[Offset, QueueEntry]] = {}
        self._deadlines: list[tuple[Instant, int]] = []
        self._armed: dict[int, Instant] = {}
        self.leased = 0
        self.moving: dict[Offset, QueueEntry] = {}
        self.ending: dict[Offset, QueueEntry] = {}
        # How many of those are dead letters.
        self.ending_moves = 0
        # Leased again by the end of a transaction, which comes without a time.
        self.unarmed: dict[Offset, QueueEntry] = {}

    def add(self, entry: QueueEntry, now: Now) -> None:
        """A record that is new here; in ascending order."""
        key = self._key_of(entry)
        if key is not None:
            self._keys.setdefault(key, deque()).append(entry.offset)
        self.enter(entry, now)

    def add_plain(self, entries: dict[Offset, QueueEntry]) -> None:
        """Records without attributes that are new here; in ascending order."""
        self.ready.update(dict.fromkeys(entries))
        if self._fresh and next(iter(entries)) <= self._fresh[-1]:
            # The queue was set back.
            for offset in entries:
                heapq.heappush(self._heap, (0, offset))
        else:
            self._fresh.extend(entries)

    def enter(self, entry: QueueEntry, now: Now | None) -> None:
        """The entry has the state that it has from now on."""
        if entry.producer is not None:
            self.ending[entry.offset] = entry
            self.ending_moves += entry.state is RecordState.MOVING
        elif entry.state is RecordState.LEASED:
            self._enter_leased(entry, now)
        elif entry.state is RecordState.MOVING:
            self.moving[entry.offset] = entry
        else:
            assert now is not None
            self._enter_available(entry, now)

    def leave(self, entry: QueueEntry) -> None:
        """The entry is about to change: it is where it was no longer."""
        offset = entry.offset
        if entry.producer is not None:
            del self.ending[offset]
            self.ending_moves -= entry.state is RecordState.MOVING
        elif entry.state is RecordState.LEASED:
            self._leave_leased(entry)
        elif entry.state is RecordState.MOVING:
            del self.moving[offset]
        elif self.ready.pop(offset, entry) is entry:
            self.delayed.pop(offset, None)

    def lease(self, entries: list[QueueEntry], lease: Lease, now: Now) -> None:
        """These are delivered once more."""
        if not entries:
            return
        ready, available = self.ready, RecordState.AVAILABLE
        deadline = Instant(now.instant + lease.lease_ms * MILLISECOND)
        for entry in entries:
            if entry.state is available and entry.producer is None and entry.offset in ready:
                del ready[entry.offset]
            else:
                self.leave(entry)
            entry.deliver(lease)
            entry.deadline = deadline
        held = self._leases.setdefault(lease.token, {})
        held.update([(entry.offset, entry) for entry in entries])
        self.leased += len(entries)
        self._arm(lease.token, deadline)

    def remove(self, entries: list[QueueEntry]) -> None:
        """These are not among the queue's entries any more."""
        leases, unarmed, leased = self._leases, self.unarmed, RecordState.LEASED
        for entry in entries:
            if entry.state is not leased or entry.producer is not None or unarmed:
                self.leave(entry)
                continue
            assert entry.lease is not None
            token = entry.lease.token
            held = leases[token]
            del held[entry.offset]
            self.leased -= 1
            if not held:
                del leases[token]
                self._armed.pop(token, None)
        if self.is_key_ordered:
            for entry in entries:
                self.unblock(entry)

    def unblock(self, entry: QueueEntry) -> None:
        """The entry is finished, or given up: the next one of its key may go."""
        key = self._key_of(entry)
        following = None if key is None else self._first_of(key)
        if (
            following is not None
            and following.state is RecordState.AVAILABLE
            and following.offset not in self.delayed
            and following.offset not in self.ready
        ):
            self._make_ready(following)

    def select(self, records_max: int, now: Now, expired_max: int) -> tuple[list[QueueEntry], list[Offset]]:
        """The records to deliver next, and those whose time to live is over. All of them change next."""
        chosen: dict[Offset, QueueEntry] = {}
        expired: list[Offset] = []
        heap, fresh, ready, entries, wall = self._heap, self._fresh, self.ready, self._entries, now.wall
        while (heap or fresh) and len(chosen) < records_max and len(expired) < expired_max:
            if fresh and (not heap or heap[0] > (0, fresh[0])):
                offset = fresh.popleft()
            else:
                offset = heapq.heappop(heap)[1]
            if offset not in ready or offset in chosen:
                continue
            entry = entries[offset]
            if entry.record is not None and 0 <= entry.record.expires_at <= wall:
                expired.append(offset)
            else:
                chosen[offset] = entry
        return list(chosen.values()), expired

    def select_among(
        self, offsets: Sequence[Offset], records_max: int, now: Now
    ) -> tuple[list[QueueEntry], list[Offset]]:
        """The first of them that are ready, as in `select`. What the heap has of them is out of date."""
        chosen: dict[Offset, QueueEntry] = {}
        expired: dict[Offset, None] = {}
        for offset in offsets:
            if len(chosen) >= records_max:
                break
            if offset in self.ready:
                entry = self._entries[offset]
                if entry.record is not None and 0 <= entry.record.expires_at <= now.wall:
                    expired[offset] = None
                else:
                    chosen[offset] = entry
        if len(self._heap) + len(self._fresh) > 2 * len(self.ready) + 64:
            # Nothing else takes out what was chosen this way and came back.
            self._heap = [self._heap_item(self._entries[offset]) for offset in self.ready]
            heapq.heapify(self._heap)
            self._fresh.clear()
        return list(chosen.values()), list(expired)

    def held_by(self, consumer: str) -> list[QueueEntry]:
        return [
            entry
            for held in self._leases.values()
            for entry in held.values()
            if entry.lease is not None and entry.lease.consumer == consumer
        ]

    def has_token(self, token: int) -> bool:
        return token in self._leases

    def renew(self, entry: QueueEntry, deadline: Instant) -> None:
        """The lease ends at another time."""
        assert entry.lease is not None
        self.unarmed.pop(entry.offset, None)
        entry.deadline = deadline
        self._arm(entry.lease.token, deadline)

    def arm(self, now: Now) -> None:
        """Count leases in full whose beginning had no time."""
        unarmed, self.unarmed = self.unarmed, {}
        for entry in unarmed.values():
            assert entry.lease is not None
            self.renew(entry, Instant(now.instant + entry.lease.lease_ms * MILLISECOND))

    def due_leases(self, now: Instant, leases_max: int) -> list[QueueEntry]:
        """Entries whose leases are over. All of them change state next. Call `arm` before."""
        assert not self.unarmed
        found: list[QueueEntry] = []
        while len(found) < leases_max:
            at = self._next_lease()
            if at is None or at > now:
                break
            _, token = heapq.heappop(self._deadlines)
            del self._armed[token]
            for entry in self._leases[token].values():
                if entry.deadline <= now and len(found) < leases_max:
                    found.append(entry)
                else:
                    self._arm(token, entry.deadline)
        return found

    def end_delays(self, now: Now, delays_max: int) -> int:
        """Make ready what is due; returns how many there were."""
        ended = 0
        for heap, until in ((self._delays, now.instant), (self._deliveries, now.wall)):
            while heap and heap[0][0] <= until and ended < delays_max:
                item = heapq.heappop(heap)
                offset = item[1]
                if self.delayed.get(offset) is item:
                    ended += 1
                    del self.delayed[offset]
                    self._make_ready_if_first(self._entries[offset])
        return ended

    def next_deadline(self, now: Now, check_ms: int) -> Instant | None:
        """When something is due, as of `now`; or when to look at the wall clock again."""
        if self.unarmed:
            return now.instant
        earliest = self._next_lease()
        for heap in (self._delays, self._deliveries):
            while heap and self.delayed.get(heap[0][1]) is not heap[0]:
                heapq.heappop(heap)
        if self._delays and (earliest is None or self._delays[0][0] < earliest):
            earliest = Instant(self._delays[0][0])
        if self._deliveries:
            due_ms = self._deliveries[0][0] - now.wall
            check = Instant(now.instant + min(max(0, due_ms), check_ms) * MILLISECOND)
            earliest = check if earliest is None or check < earliest else earliest
        return earliest

    def _key_of(self, entry: QueueEntry) -> int | None:
        return entry.record.key if self.is_key_ordered and entry.record is not None else None

    def _enter_available(self, entry: QueueEntry, now: Now) -> None:
        deliver_at = -1 if entry.record is None else entry.record.deliver_at
        if entry.delay_ms > 0:
            self._delay(entry, self._delays, now.instant + entry.delay_ms * MILLISECOND)
        elif deliver_at > now.wall and entry.attempts == 0:
            self._delay(entry, self._deliveries, deliver_at)
        else:
            self._make_ready_if_first(entry)

    def _delay(self, entry: QueueEntry, heap: list[tuple[int, Offset]], due: int) -> None:
        self.delayed[entry.offset] = item = (due, entry.offset)
        heapq.heappush(heap, item)

    def _make_ready_if_first(self, entry: QueueEntry) -> None:
        key = self._key_of(entry)
        if key is None or self._first_of(key) is entry:
            self._make_ready(entry)

    def _make_ready(self, entry: QueueEntry) -> None:
        self.ready[entry.offset] = None
        heapq.heappush(self._heap, self._heap_item(entry))

    @staticmethod
    def _heap_item(entry: QueueEntry) -> tuple[int, Offset]:
        return (0 if entry.record is None else -entry.record.priority, entry.offset)

    def _first_of(self, key: int) -> QueueEntry | None:
        offsets = self._keys.get(key)
        while offsets:
            entry = self._entries.get(offsets[0])
            if entry is not None and entry.state is not RecordState.MOVING:
                return entry
            offsets.popleft()
        self._keys.pop(key, None)
        return None

    def _enter_leased(self, entry: QueueEntry, now: Now | None) -> None:
        assert entry.lease is not None
        self.leased += 1
        self._leases.setdefault(entry.lease.token, {})[entry.offset] = entry
        if now is None:
            self.unarmed[entry.offset] = entry
            return
        if entry.deadline == NOT_ARMED:
            entry.deadline = Instant(now.instant + entry.lease.lease_ms * MILLISECOND)
        self._arm(entry.lease.token, entry.deadline)

    def _leave_leased(self, entry: QueueEntry) -> None:
        assert entry.lease is not None
        self.leased -= 1
        entry.deadline = NOT_ARMED
        self.unarmed.pop(entry.offset, None)
        held = self._leases[entry.lease.token]
        del held[entry.offset]
        if not held:
            del self._leases[entry.lease.token]
            self._armed.pop(entry.lease.token, None)

    def _arm(self, token: int, deadline: Instant) -> None:
        if token in self._armed and self._armed[token] <= deadline:
            return
        self._armed[token] = deadline
        heapq.heappush(self._deadlines, (deadline, token))
        if len(self._deadlines) > 2 * len(self._armed) + 64:
            # Records are finished long before their leases end: what they leave here must not pile up.
            self._deadlines = [(at, each) for each, at in self._armed.items()]
            heapq.heapify(self._deadlines)

    def _next_lease(self) -> Instant | None:
        deadlines = self._deadlines
        while deadlines and self._armed.get(deadlines[0][1]) != deadlines[0][0]:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None


def in_order(entries: dict[Offset, QueueEntry]) -> Iterator[QueueEntry]:
    """The entries by offset."""
    return (entries[offset] for offset in sorted(entries))
