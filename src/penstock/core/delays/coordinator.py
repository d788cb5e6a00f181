"""The machine of one partition of `__delayed`: what is pending, what is due, and who decides on it."""

from collections.abc import Iterable
from typing import TypeAlias, assert_never

from penstock.core.delays.commands import (
    CancelDelays,
    DelayCommand,
    DelayList,
    DelayReply,
    DelayResults,
    DueDelays,
    EndDelays,
    ListDelays,
    NewDelay,
    OnDelayReply,
    ReleaseDelays,
    ScheduleRecords,
    TakeDueDelays,
)
from penstock.core.delays.delay_ids import ID_MAX
from penstock.core.delays.facts import (
    ANY_PARTITION,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelayStored,
    DelayTransactionEnded,
)
from penstock.core.delays.pending_delays import PendingDelay, PendingDelays
from penstock.core.delays.timer_wheel import TimerWheel
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Now, Offset, ProducerId, Timestamp
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass

_DAY_MS = 86_400_000
# Topics that waited once are remembered, up to so many.
_BLOCKED_MAX = 1_000
NOT_PENDING = ApiError(ErrorKind.INVALID_RECORD_STATE, "there is no such delay, or its record is published")
BEING_PUBLISHED = ApiError(ErrorKind.INVALID_RECORD_STATE, "the record is due and is being published")
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
    # Delays that one command looks at to list some.
    scanned_max: int = 5_000
    # The wall clock may jump: what follows is found so much later at most.
    check_ms: int = 1_000
    # A topic that cannot be published to waits; twice as long with every failure.
    blocked_ms: int = 250
    blocked_ms_max: int = 30_000
    # What is due for so long is dropped if its topic could not be published to all the time.
    drop_ms: int = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class DelaysDue:
    """Delays of this machine are due, or wait for the end of an earlier leader's transaction."""

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
        self._wheel = TimerWheel(started, self._pending.due_of)
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

    def apply(self, fact: DelayFact) -> None:
        """Apply a fact of the log."""
        match fact:
            case DelayStored():
                self._store(fact)
            case DelaysEnding():
                due_of = self._pending.due_of
                for delay_id in fact.ids:
                    if due_of(delay_id) is not None:
                        self._end(delay_id, fact.producer)
            case DelaysFinished():
                for delay_id in fact.ids:
                    self._remove(delay_id)
            case DelayTransactionEnded():
                self._end_transaction(fact)
            case _:
                assert_never(fact)

    def load(self, delays: Iterable[tuple[int, Timestamp, Offset, int, str]]) -> None:
        """Apply that these delays were stored: id, time, offset, size and topic of each."""
        put, add = self._pending.put, self._wheel.add
        for delay_id, deliver_at, offset, size_bytes, topic in delays:
            if put(delay_id, deliver_at, offset, size_bytes, topic):
                add(delay_id, max(0, deliver_at))

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
        """Report that something is due; the wheel moves on a bounded part of its way."""
        outcome = DelayOutcome()
        self._now = now
        self._wheel.advance(now.wall)
        if self._wheel.has_due(now.wall):
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
        return Instant(now.instant + min(max(0, due - now.wall), check_ms) * MILLISECOND)

    def _store(self, fact: DelayStored) -> None:
        delay_id, deliver_at, record, producer, offset = fact
        if self._pending.put(delay_id, deliver_at, offset, record.size_bytes, record.topic):
            self._wheel.add(delay_id, max(0, deliver_at))
        if producer is not None:
            self._end(delay_id, producer)

    def _end_transaction(self, fact: DelayTransactionEnded) -> None:
        for delay_id in self._transactions.pop(fact.producer_id, ()):
            if fact.is_commit:
                self._remove(delay_id)
            elif self._ending.pop(delay_id, None) is not None:
                self._put_back(delay_id)

    def _end(self, delay_id: int, producer: TransactionProducer) -> None:
        known = self._ending.get(delay_id)
        self._ending[delay_id] = producer
        if known is None or known.producer_id != producer.producer_id:
            self._transactions.setdefault(producer.producer_id, []).append(delay_id)

    def _remove(self, delay_id: int) -> None:
        if not self._pending.remove(delay_id):
            return
        self._ending.pop(delay_id, None)
        if delay_id in self._taken:
            del self._taken[delay_id]
        else:
            self._wheel.cancelled()

    def _put_back(self, delay_id: int) -> None:
        if delay_id in self._taken:
            del self._taken[delay_id]
            due = self._pending.due_of(delay_id)
            if due is not None:
                self._wheel.add(delay_id, max(0, due))

    def _schedule(self, command: ScheduleRecords, now: Now, outcome: DelayOutcome) -> None:
        options, delays = self._options, command.delays
        sizes = [delay.record.size_bytes for delay in delays]
        size = sum(sizes)
        if not 0 < len(delays) <= options.delays_max or size > options.command_bytes_max:
            outcome.reply(command.on_reply, BAD_COMMAND)
            return
        errors: list[ApiError | None] = []
        new: dict[int, NewDelay] = {}
        due_of, room = self._pending.due_of, options.pending_max - len(self._pending)
        for delay, size_bytes in zip(delays, sizes, strict=True):
            if delay.id in new or due_of(delay.id) is not None:
                errors.append(None if self._is_same(delay, new.get(delay.id)) else ID_TAKEN)
                continue
            problem = self._problem_with(delay, size_bytes, now.wall)
            if problem is None and len(new) >= room:
                problem = TOO_MANY
            if problem is None:
                new[delay.id] = delay
            errors.append(problem)
        if self._pending.size_bytes + size > options.pending_bytes_max:
            outcome.reply(command.on_reply, TOO_MANY)
            return
        outcome.facts += [DelayStored(*delay) for delay in new.values()]
        outcome.reply(command.on_reply, DelayResults(tuple(errors)))

    def _is_same(self, delay: NewDelay, seen: NewDelay | None) -> bool:
        """Whether it is the delay that is pending under its id, or that was before it in the command."""
        if seen is not None:
            known = seen.deliver_at, seen.record.topic
        else:
            pending = self._pending.get(delay.id)
            assert pending is not None
            known = pending.deliver_at, pending.topic
        return known == (delay.deliver_at, delay.record.topic)

    def _problem_with(self, delay: NewDelay, size_bytes: int, wall: Timestamp) -> ApiError | None:
        options = self._options
        if not 0 <= delay.deliver_at <= wall + options.delay_ms_max:
            days = options.delay_ms_max // _DAY_MS
            return ApiError(ErrorKind.INVALID_REQUEST, f"records are delayed by {days} days at most")
        if not 0 <= delay.id <= ID_MAX or delay.record.partition < ANY_PARTITION:
            return ApiError(ErrorKind.INVALID_REQUEST, "neither ids nor partitions are negative")
        return TOO_LARGE if size_bytes > options.record_bytes_max else None

    def _cancel(self, command: CancelDelays, outcome: DelayOutcome) -> None:
        if not 0 < len(command.ids) <= self._options.delays_max:
            outcome.reply(command.on_reply, BAD_COMMAND)
            return
        errors: list[ApiError | None] = []
        cancelled: dict[int, None] = {}
        for delay_id in command.ids:
            if delay_id not in self._pending or delay_id in cancelled:
                errors.append(NOT_PENDING)
            elif delay_id in self._ending or delay_id in self._taken:
                errors.append(BEING_PUBLISHED)
            else:
                cancelled[delay_id] = None
                errors.append(None)
        if cancelled:
            outcome.facts.append(DelaysFinished(tuple(cancelled), DelayFinish.CANCELLED))
        outcome.reply(command.on_reply, DelayResults(tuple(errors)))

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
        found: list[PendingDelay] = []
        dropped: dict[str, list[int]] = {}
        size = 0
        self._recall(command.lane)
        ids = self._wheel.pop_due(now.wall, command.records_max)
        for delay_id in ids:
            delay = self._pending.get(delay_id)
            if delay is None or delay_id in self._taken:
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
                self._wheel.add(delay_id, now.wall + wait_ms)
            elif found and size + delay.size_bytes > command.bytes_max:
                self._wheel.add(delay_id, max(0, delay.deliver_at))
            else:
                found.append(delay)
                size += delay.size_bytes
                self._taken[delay_id] = command.lane
        for topic, given_up in dropped.items():
            outcome.facts.append(DelaysFinished(tuple(given_up), DelayFinish.DROPPED))
            outcome.events.append(DelaysDropped(topic, len(given_up)))
        self._lanes[command.lane] = tuple(delay.id for delay in found)
        # Whoever gets some asks again.
        self._reported = now.instant if found else None
        outcome.reply(command.on_reply, DueDelays(tuple(found)))

    def _is_hopeless(self, delay: PendingDelay, blocked: _Blocked, now: Now) -> bool:
        # Not by the wall clock alone: it may have jumped, or this cluster was down when the delay was due.
        drop_ms = self._options.drop_ms
        is_old = now.wall - delay.deliver_at > drop_ms
        return is_old and now.instant - blocked.since > drop_ms * MILLISECOND

    def _recall(self, lane: int) -> None:
        """Put back what the lane still holds: it got an error for its take, or for the release."""
        for delay_id in self._lanes.pop(lane, ()):
            if self._taken.get(delay_id) == lane and delay_id not in self._ending:
                self._put_back(delay_id)

    def _decide_end(self, command: EndDelays, outcome: DelayOutcome) -> None:
        due_of, ending = self._pending.due_of, self._ending
        for delay_id in command.ids:
            if delay_id in ending or due_of(delay_id) is None:
                outcome.reply(command.on_reply, NOT_PENDING)
                return
        outcome.facts.append(DelaysEnding(command.producer, command.ids))
        if self._blocked:
            for topic in {self._topic_of(delay_id): None for delay_id in command.ids}:
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
        for delay_id in command.ids:
            # What a transaction decides on comes back with its end.
            if delay_id not in self._ending:
                self._put_back(delay_id)
        self._reported = None
        outcome.reply(command.on_reply, DelayResults(()))
