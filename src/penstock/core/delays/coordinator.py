"""The machine of one partition of `__delayed`: what is pending, what is due, and who decides on it."""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from penstock.core.delays.commands import (
    CancelDelays,
    DelayCommand,
    DelayList,
    DelayReply,
    DelayResults,
    DelayTopics,
    DueDelays,
    EndDelays,
    FindDelays,
    ListDelays,
    OnDelayReply,
    ReleaseDelays,
    ScheduleRecords,
    TakeDueDelays,
)
from penstock.core.delays.delay_ids import ID_MAX
from penstock.core.delays.facts import (
    ANY_PARTITION,
    NO_OFFSET,
    DelayedRecords,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelaysStored,
    DelayTransactionEnded,
)
from penstock.core.delays.pending_delays import PendingDelay, PendingDelays
from penstock.core.delays.timer_wheel import TimerWheel
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Now, ProducerId, Timestamp
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass

_DAY_MS = 86_400_000
# Topics that waited once are remembered, up to so many.
_BLOCKED_MAX = 1_000
NOT_PENDING = ApiError(ErrorKind.INVALID_RECORD_STATE, "there is no such delay, or its record is published")
BEING_PUBLISHED = ApiError(
    ErrorKind.INVALID_RECORD_STATE, "the record is due, or nearly, and is being published"
)
TOO_MANY = ApiError(ErrorKind.THROTTLED, "too many records are delayed; try again later")
TOO_LARGE = ApiError(ErrorKind.BATCH_TOO_LARGE, "the record is too large to be delayed")
ID_TAKEN = ApiError(ErrorKind.INVALID_REQUEST, "another delay has this id")
BAD_COMMAND = ApiError(ErrorKind.INVALID_REQUEST, "the request names too many delays, or none")


@dataclass(frozen=True, slots=True)
class DelayOptions:
    """Limits of one delay coordinator."""

    delay_ms_max: int = 366 * _DAY_MS
    pending_max: int = 1_000_000
    pending_bytes_max: int = 64 << 30
    record_bytes_max: int = 1_000_000
    # Of one command.
    delays_max: int = 1_000
    command_bytes_max: int = 8_000_000
    # Of records that are stored together: all of them are read for each that is due.
    portion_bytes: int = 16 << 10
    # Delays that one command looks at to list some.
    scanned_max: int = 5_000
    # Delays are reported and given out so much before they are due: publishing them takes preparations.
    ahead_ms: int = 10
    # The wall clock may jump: what follows is found so much later at most.
    check_ms: int = 1_000
    # A topic that cannot be published to waits; twice as long with every failure.
    blocked_ms: int = 250
    blocked_ms_max: int = 30_000
    # What is due for so long is dropped if its topic could not be published to all the time.
    drop_ms: int = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class DelaysDue:
    """Delays of this machine are due, or nearly, or wait for the end of an earlier leader's transaction."""

    machine: "DelayCoordinator"


@dataclass(frozen=True, slots=True)
class DelaysDropped:
    """Records could not be published for too long."""

    topic: str
    records: int


DelayEvent: TypeAlias = DelaysDue | DelaysDropped


class DelayOutcome:
    """What becomes true, whom to reply to once it is durable, and what happened."""

    __slots__ = ("events", "facts", "responses")

    def __init__(self) -> None:
        self.facts: list[DelayFact] = []
        self.responses: list[tuple[OnDelayReply, DelayReply]] = []
        self.events: list[DelayEvent] = []

    def reply(self, on_reply: OnDelayReply, reply: DelayReply) -> None:
        self.responses.append((on_reply, reply))


class _Blocked:
    """A topic that could not be published to."""

    __slots__ = ("since", "until", "wait_ms")

    def __init__(self, since: Instant, until: Instant, wait_ms: int) -> None:
        self.since = since
        self.until = until
        self.wait_ms = wait_ms


class DelayCoordinator:
    """The delays of one partition.

    Recovery: `apply` every fact of the log, then `resume` once. Service: `decide` commands and `expire`
    deadlines; append the facts of each outcome and `apply` them before the next call.

    A pending delay is in the wheel, unless it was taken; `started` is any wall-clock time up to the present.
    """

    def __init__(self, started: Timestamp, options: DelayOptions | None = None) -> None:
        self._options = DelayOptions() if options is None else options
        self._pending = PendingDelays()
        self._wheel = TimerWheel(started, self._pending.dues_of)
        # Those that are out of the wheel: somebody publishes them, or a transaction decides.
        # By which lane; None: by nobody who would publish it.
        self._taken: dict[int, int | None] = {}
        # What each lane took last.
        self._lanes: dict[int, tuple[int, ...]] = {}
        self._ending: dict[int, TransactionProducer] = {}
        self._transactions: dict[ProducerId, list[int]] = {}
        self._blocked: dict[str, _Blocked] = {}
        self._now: Now | None = None
        # Since when somebody knows that delays are due.
        self._reported: Instant | None = None

    @property
    def pending(self) -> PendingDelays:
        """The durable state, read only."""
        return self._pending

    @property
    def ending(self) -> dict[int, TransactionProducer]:
        """Which transactions decide on which delays, read only."""
        return self._ending

    @property
    def first_due(self) -> int | None:
        """The time of the first delay that can be taken; some time ahead of it None, or too early."""
        return self._wheel.first_near()

    def apply(self, fact: DelayFact) -> None:
        """Apply a fact of the log."""
        match fact:
            case DelaysStored():
                self._store(fact)
            case DelaysEnding():
                self._end(self._pending_of(fact.ids), fact.producer)
            case DelaysFinished():
                self._remove(fact.ids)
            case DelayTransactionEnded():
                self._end_transaction(fact)
            case _:
                assert_never(fact)

    def resume(self, now: Now) -> DelayOutcome:
        """Begin to lead: an open transaction of an earlier leader is to be ended."""
        outcome = DelayOutcome()
        self._now = now
        if self._transactions:
            outcome.events.append(DelaysDue(self))
            self._reported = now.instant
        return outcome

    def decide(self, command: DelayCommand, now: Now) -> DelayOutcome:
        """Reply to the command; changes nothing durable."""
        outcome = DelayOutcome()
        self._now = now
        match command:
            case ScheduleRecords():
                self._schedule(command, now, outcome)
            case CancelDelays():
                self._cancel(command, outcome)
            case FindDelays():
                self._find(command, outcome)
            case ListDelays():
                self._list(command, outcome)
            case TakeDueDelays():
                self._take(command, now, outcome)
            case EndDelays():
                self._decide_end(command, outcome)
            case ReleaseDelays():
                self._release(command, now, outcome)
            case _:
                assert_never(command)
        return outcome

    def expire(self, now: Now) -> DelayOutcome:
        """Report that something is due, or nearly; the wheel moves on a bounded part of its way."""
        outcome = DelayOutcome()
        self._now = now
        until = now.wall + self._options.ahead_ms
        self._wheel.advance(until)
        if self._wheel.has_due(until):
            self._reported = now.instant
            outcome.events.append(DelaysDue(self))
        else:
            self._reported = None
        return outcome

    def next_deadline(self) -> Instant | None:
        """When to call `expire`, or to look at the wall clock again."""
        now, check_ms = self._now, self._options.check_ms
        if now is None:
            return None
        if self._reported is not None:
            # Somebody takes them. In case that was lost, they are reported once more.
            return Instant(self._reported + check_ms * MILLISECOND)
        due = self._wheel.next_due()
        if due is None:
            return None
        wait_ms = max(0, due - self._options.ahead_ms - now.wall)
        return Instant(now.instant + min(wait_ms, check_ms) * MILLISECOND)

    def _store(self, fact: DelaysStored) -> None:
        records, producer, offset = fact
        self._wheel.add(*self._pending.put(records, offset))
        if producer is not None:
            self._end(records.ids, producer)

    def _pending_of(self, ids: Sequence[int]) -> Sequence[int]:
        """Those that are pending; what was taken is."""
        if all(map(self._taken.__contains__, ids)):
            return ids
        dues = self._pending.dues_of(ids)
        return [delay_id for delay_id, due in zip(ids, dues, strict=True) if due is not None]

    def _end_transaction(self, fact: DelayTransactionEnded) -> None:
        ids = self._transactions.pop(fact.producer_id, [])
        if fact.is_commit:
            self._remove(ids)
        else:
            self._put_back([each for each in ids if self._ending.pop(each, None) is not None])

    def _end(self, ids: Sequence[int], producer: TransactionProducer) -> None:
        ending, producer_id = self._ending, producer.producer_id
        if ending.keys().isdisjoint(ids):
            new = ids
        else:
            new = [each for each in ids if each not in ending or ending[each].producer_id != producer_id]
        ending.update(dict.fromkeys(ids, producer))
        self._transactions.setdefault(producer_id, []).extend(new)

    def _remove(self, ids: Sequence[int]) -> None:
        ending, taken = self._ending, self._taken
        waiting = 0
        for delay_id in self._pending.remove(ids):
            ending.pop(delay_id, None)
            if delay_id in taken:
                del taken[delay_id]
            else:
                waiting += 1
        if waiting:
            self._wheel.cancelled(waiting)

    def _put_back(self, ids: Sequence[int]) -> None:
        taken = self._taken
        back = [each for each in ids if each in taken]
        for delay_id in back:
            del taken[delay_id]
        pairs = zip(back, self._pending.dues_of(back), strict=True)
        found = [(delay_id, due) for delay_id, due in pairs if due is not None]
        self._wheel.add([delay_id for delay_id, _ in found], [due for _, due in found])

    def _schedule(self, command: ScheduleRecords, now: Now, outcome: DelayOutcome) -> None:
        options, pending = self._options, self._pending
        count = sum(len(each.ids) for each in command.records)
        size = sum(len(each.content) for each in command.records)
        if not 0 < count <= options.delays_max or size > options.command_bytes_max:
            outcome.reply(command.on_reply, BAD_COMMAND)
            return
        if pending.size_bytes + size > options.pending_bytes_max:
            outcome.reply(command.on_reply, TOO_MANY)
            return
        errors: list[ApiError | None] = []
        new: dict[int, DelayedRecords] = {}
        room = options.pending_max - len(pending)
        for records in command.records:
            if len(new) + len(records.ids) <= room and self._is_sound(records, new, now.wall):
                new.update(dict.fromkeys(records.ids, records))
                errors += [None] * len(records.ids)
                kept = records
            else:
                places = self._check(records, new, room, now.wall, errors)
                if not places:
                    continue
                kept = records.only(places)
            outcome.facts += [DelaysStored(part) for part in kept.portions(options.portion_bytes)]
        outcome.reply(command.on_reply, DelayResults(tuple(errors)))

    def _is_sound(self, records: DelayedRecords, new: dict[int, DelayedRecords], wall: Timestamp) -> bool:
        """Whether `_check` would find nothing: nearly always, and quickly."""
        options, ids, times = self._options, records.ids, records.times
        return (
            len(set(ids)) == len(ids)
            and min(ids) >= 0
            and max(ids) <= ID_MAX
            and min(times) >= 0
            and max(times) <= wall + options.delay_ms_max
            and min(records.partitions) >= ANY_PARTITION
            and max(records.sizes) <= options.record_bytes_max
            and new.keys().isdisjoint(ids)
            and not self._pending.has_any_of(ids)
        )

    def _check(
        self,
        records: DelayedRecords,
        new: dict[int, DelayedRecords],
        room: int,
        wall: Timestamp,
        errors: list[ApiError | None],
    ) -> list[int]:
        """Add the error of each record, or None; returns the places of those that are to be stored."""
        places: list[int] = []
        for at, (delay_id, size_bytes) in enumerate(zip(records.ids, records.sizes, strict=True)):
            if delay_id in new or delay_id in self._pending:
                errors.append(None if self._is_same(records, at, new.get(delay_id)) else ID_TAKEN)
                continue
            problem = self._problem_with(records, at, size_bytes, wall)
            if problem is None and len(new) >= room:
                problem = TOO_MANY
            if problem is None:
                new[delay_id] = records
                places.append(at)
            errors.append(problem)
        return places

    def _is_same(self, records: DelayedRecords, at: int, seen: DelayedRecords | None) -> bool:
        """Whether it is the delay that is pending under its id, or that was before it in the command."""
        if seen is not None:
            known = seen.times[seen.ids.index(records.ids[at])], seen.topic
        else:
            pending = self._pending.get(records.ids[at])
            assert pending is not None
            known = pending.deliver_at, pending.topic
        return known == (records.times[at], records.topic)

    def _problem_with(
        self, records: DelayedRecords, at: int, size_bytes: int, wall: Timestamp
    ) -> ApiError | None:
        options = self._options
        if not 0 <= records.times[at] <= wall + options.delay_ms_max:
            days = options.delay_ms_max // _DAY_MS
            return ApiError(ErrorKind.INVALID_REQUEST, f"records are delayed by {days} days at most")
        if not 0 <= records.ids[at] <= ID_MAX or records.partitions[at] < ANY_PARTITION:
            return ApiError(ErrorKind.INVALID_REQUEST, "neither ids nor partitions are negative")
        return TOO_LARGE if size_bytes > options.record_bytes_max else None

    def _cancel(self, command: CancelDelays, outcome: DelayOutcome) -> None:
        ids, topics = command.ids, command.topics
        if not 0 < len(ids) <= self._options.delays_max or (topics and len(topics) != len(ids)):
            outcome.reply(command.on_reply, BAD_COMMAND)
            return
        errors: list[ApiError | None] = []
        cancelled: dict[int, None] = {}
        for at, delay_id in enumerate(ids):
            pending = self._pending.get(delay_id)
            is_other = pending is None or (topics and topics[at] != pending.topic)
            if is_other or delay_id in cancelled:
                errors.append(NOT_PENDING)
            elif delay_id in self._ending or delay_id in self._taken:
                errors.append(BEING_PUBLISHED)
            else:
                cancelled[delay_id] = None
                errors.append(None)
        if cancelled:
            outcome.facts.append(DelaysFinished(tuple(cancelled), DelayFinish.CANCELLED))
        outcome.reply(command.on_reply, DelayResults(tuple(errors)))

    def _find(self, command: FindDelays, outcome: DelayOutcome) -> None:
        if not 0 < len(command.ids) <= self._options.delays_max:
            outcome.reply(command.on_reply, BAD_COMMAND)
            return
        found = [self._pending.get(delay_id) for delay_id in command.ids]
        topics = tuple(None if each is None else each.topic for each in found)
        outcome.reply(command.on_reply, DelayTopics(topics))

    def _list(self, command: ListDelays, outcome: DelayOutcome) -> None:
        found: list[PendingDelay] = []
        last: int | None = None
        for looked_at, delay in enumerate(self._pending.after(command.after)):
            if len(found) >= command.count or looked_at >= self._options.scanned_max:
                outcome.reply(command.on_reply, DelayList(tuple(found), last))
                return
            last = delay.id
            if command.topic is None or delay.topic == command.topic:
                found.append(delay)
        outcome.reply(command.on_reply, DelayList(tuple(found), None))

    def _take(self, command: TakeDueDelays, now: Now, outcome: DelayOutcome) -> None:
        self._recall(command.lane)
        until = min(command.until, now.wall + self._options.ahead_ms)
        ids = self._wheel.pop_due(until, command.records_max)
        offsets, sizes = self._pending.places_of(ids)
        is_plain = (
            not self._blocked
            and len(set(ids)) == len(ids)
            and sum(sizes) <= command.bytes_max
            and self._taken.keys().isdisjoint(ids)
            and self._ending.keys().isdisjoint(ids)
            and NO_OFFSET not in offsets
        )
        if not is_plain:
            ids = self._choose(ids, command.bytes_max, now, outcome)
            offsets, _ = self._pending.places_of(ids)
        self._taken.update(dict.fromkeys(ids, command.lane))
        self._lanes[command.lane] = found = tuple(ids)
        # Whoever gets some asks again.
        self._reported = now.instant if found else None
        outcome.reply(command.on_reply, DueDelays(found, tuple(offsets)))

    def _choose(self, ids: list[int], bytes_max: int, now: Now, outcome: DelayOutcome) -> list[int]:
        """Those that can be published now; the others wait in the wheel, or are given up."""
        found: dict[int, None] = {}
        dropped: dict[str, list[int]] = {}
        size = 0
        for delay_id in ids:
            delay = self._pending.get(delay_id)
            if delay is None or delay_id in self._taken or delay_id in found:
                continue
            if delay_id in self._ending:
                self._taken[delay_id] = None
                continue
            blocked = self._blocked.get(delay.topic)
            if blocked is not None and self._is_hopeless(delay, blocked, now):
                dropped.setdefault(delay.topic, []).append(delay_id)
                self._taken[delay_id] = None
            elif blocked is not None and now.instant < blocked.until:
                wait_ms = max(1, (blocked.until - now.instant) // MILLISECOND)
                self._wheel.add((delay_id,), (now.wall + wait_ms,))
            elif found and size + delay.size_bytes > bytes_max:
                self._wheel.add((delay_id,), (delay.deliver_at,))
            else:
                found[delay_id] = None
                size += delay.size_bytes
        for topic, given_up in dropped.items():
            outcome.facts.append(DelaysFinished(tuple(given_up), DelayFinish.DROPPED))
            outcome.events.append(DelaysDropped(topic, len(given_up)))
        return list(found)

    def _is_hopeless(self, delay: PendingDelay, blocked: _Blocked, now: Now) -> bool:
        # Not by the wall clock alone: it may have jumped, or this cluster was down when the delay was due.
        drop_ms = self._options.drop_ms
        is_old = now.wall - delay.deliver_at > drop_ms
        return is_old and now.instant - blocked.since > drop_ms * MILLISECOND

    def _recall(self, lane: int) -> None:
        """Put back what the lane still holds: it got an error for its take, or for the release."""
        ids = self._lanes.pop(lane, ())
        held = [each for each in ids if self._taken.get(each) == lane and each not in self._ending]
        if held:
            self._put_back(held)

    def _decide_end(self, command: EndDelays, outcome: DelayOutcome) -> None:
        ids = command.ids
        if not self._ending.keys().isdisjoint(ids) or len(self._pending_of(ids)) != len(ids):
            outcome.reply(command.on_reply, NOT_PENDING)
            return
        outcome.facts.append(DelaysEnding(command.producer, ids))
        if self._blocked:
            for topic in {self._topic_of(delay_id): None for delay_id in ids}:
                self._blocked.pop(topic, None)
        outcome.reply(command.on_reply, DelayResults(()))

    def _topic_of(self, delay_id: int) -> str:
        delay = self._pending.get(delay_id)
        return "" if delay is None else delay.topic

    def _release(self, command: ReleaseDelays, now: Now, outcome: DelayOutcome) -> None:
        options = self._options
        if len(self._blocked) > _BLOCKED_MAX:
            self._blocked = {topic: each for topic, each in self._blocked.items() if now.instant < each.until}
        for topic in command.blocked:
            known = self._blocked.get(topic)
            wait_ms = options.blocked_ms if known is None else min(2 * known.wait_ms, options.blocked_ms_max)
            since = now.instant if known is None else known.since
            self._blocked[topic] = _Blocked(since, Instant(now.instant + wait_ms * MILLISECOND), wait_ms)
        # What a transaction decides on comes back with its end.
        self._put_back([each for each in command.ids if each not in self._ending])
        self._reported = None
        outcome.reply(command.on_reply, DelayResults(()))
