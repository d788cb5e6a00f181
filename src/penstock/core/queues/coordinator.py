"""The machine of one queue-coordinator partition: offers, leases, failures, dead letters."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias, assert_never

from penstock.core.model import (
    ApiError,
    ErrorKind,
    Instant,
    LeaderEpoch,
    Now,
    Offset,
    ProducerId,
    Timestamp,
)
from penstock.core.queues.commands import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimCommand,
    ClaimResults,
    DeadLetter,
    DeadLettersFound,
    Demand,
    DescribeQueue,
    FindDeadLetters,
    FindLeases,
    FinishMoves,
    ForgetQueue,
    LeasedRun,
    LeasesFound,
    OfferRecords,
    OnReply,
    OpenQueue,
    PauseQueue,
    PeekedRecord,
    PeekedState,
    PeekRecords,
    QueueCommand,
    QueueDescription,
    QueueOk,
    QueueOpened,
    QueueReply,
    RecordsAccepted,
    RecordsAcquired,
    RecordsPeeked,
    RejectRecords,
    ReleaseConsumer,
    ReleaseRecords,
    RenewLeases,
    ResetQueue,
    ReturnRecords,
)
from penstock.core.queues.delivery_order import DeliveryOrder, QueueEntry
from penstock.core.queues.facts import (
    OFFSET_MAX,
    PRIORITY_MAX,
    FinishCause,
    Lease,
    LeasesProlonged,
    QueueFact,
    QueueForgotten,
    QueueId,
    QueueRecord,
    QueueSettings,
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
    ReleasedRecord,
    Run,
    runs_of,
)
from penstock.core.queues.queue import Queue, lease_deadline
from penstock.core.queues.receipts import ATTEMPTS_MAX, TOKEN_MAX, LeaseClaim, claims_count
from penstock.core.values import dataclass

LEASE_ENDED = "the lease ended without an acknowledgement"
CONSUMER_LOST = "the consumer was lost"
REJECTED = "the consumer rejected the record"
RELEASED = "the consumer released the record"
# About what a queue takes in memory, with what the leader of its data partition keeps while it is consumed.
QUEUE_BYTES = 4_000
NO_ROOM = ApiError(ErrorKind.GROUP_FULL, "the node has no memory left for more queues of this group")
_INT64_MAX = (1 << 63) - 1
_64_BITS = 2**64 - 1
_PEEKED = {
    RecordState.AVAILABLE: PeekedState.AVAILABLE,
    RecordState.LEASED: PeekedState.LEASED,
    RecordState.MOVING: PeekedState.MOVING,
}


def _always(_group_id: str, _size_bytes: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Limits of one queue coordinator, each for one queue."""

    # Whether a group may have so many bytes more for a queue that it did not have.
    has_room: Callable[[str, int], bool] = _always

    # Records that are ready, leased or moving. While there are as many, none is taken from the log.
    window_max: int = 10_000
    # Delayed ones besides.
    delayed_max: int = 100_000
    # How many ready records to have, for priorities to choose among.
    look_ahead: int = 1_000
    # Of one command: what takes a few milliseconds.
    acquired_max: int = 1_000
    claims_max: int = 2_000
    lease_ms_max: int = 43_200_000
    delay_ms_max: int = 43_200_000
    consumer_chars_max: int = 250
    reason_chars_max: int = 250
    # One call of `expire` ends no more than this many leases and delays of a queue.
    expired_per_turn_max: int = 1_000
    # The wall clock may jump: what follows is found so much later at most.
    check_ms: int = 1_000
    # Records in one fact of a snapshot. The rewrite takes facts by the hundreds in a step.
    stored_per_fact: int = 16


@dataclass(frozen=True, slots=True)
class DeadLettersDue:
    """A queue has given up records: once that is committed, they are to be moved."""

    queue: QueueId


@dataclass(frozen=True, slots=True)
class RecordsReady:
    """Records can be delivered that could not be before: whoever waits for some may ask again."""

    queue: QueueId


@dataclass(frozen=True, slots=True)
class LeasesExpired:
    """Leases ended without an acknowledgement."""

    queue: QueueId
    records: int


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    """Records were not delivered within their time to live."""

    queue: QueueId
    records: int


QueueEvent: TypeAlias = DeadLettersDue | RecordsReady | LeasesExpired | RecordsExpired


class QueueOutcome:
    """What becomes true, whom to reply to once it is durable, and what happened."""

    __slots__ = ("events", "facts", "now", "responses")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.facts: list[QueueFact] = []
        self.responses: list[tuple[OnReply, QueueReply]] = []
        self.events: list[QueueEvent] = []

    def reply(self, on_reply: OnReply, reply: QueueReply) -> None:
        self.responses.append((on_reply, reply))


class QueueCoordinator:
    """The queues of one partition of `__queue_state`.

    Recovery: `apply` every fact of the log, then `resume` once. Service: `decide` commands
    and `expire` deadlines; append the facts of each outcome and `apply` them before the next
    call; release its replies when the log end is committed. When an append fails, drop the machine.
    """

    def __init__(self, options: QueueOptions | None = None) -> None:
        self._options = QueueOptions() if options is None else options
        self._queues: dict[QueueId, Queue] = {}
        # Of all queues.
        self._entries = 0
        # About what queues take in memory without their records, all together and by group.
        self.held_bytes = 0
        self._bytes_by_group: dict[str, int] = {}
        # Records that wait for the end of a producer's transaction.
        self._ending: dict[ProducerId, dict[tuple[QueueId, Offset], None]] = {}
        # None until this node leads.
        self._now: Now | None = None
        self._agenda = _Agenda()
        # Queues that changed since their deadline was last asked for; and those in which the end of a
        # transaction has made records ready, or dead letters due, which is to be reported.
        self._changed: dict[QueueId, None] = {}
        self._woken: dict[QueueId, None] = {}

    @property
    def queues(self) -> dict[QueueId, Queue]:
        """The durable state, read only."""
        return self._queues

    def held_bytes_of(self, group_id: str) -> int:
        """What the group's queues take of it."""
        return self._bytes_by_group.get(group_id, 0)

    def has_dead_letters(self, queue_id: QueueId) -> bool:
        """Whether there is such a queue, and it has records to move; never unless this node leads.

        One, too, whose records a transaction moves already: whoever began it may be gone.
        """
        queue = self._queues.get(queue_id)
        order = None if queue is None else queue.order
        return order is not None and bool(order.moving or order.ending_moves)

    def apply(self, fact: QueueFact) -> None:
        """Apply a fact of the log."""
        if isinstance(fact, QueueTransactionEnded):
            self._end_transaction(fact)
            return
        self._changed[fact.queue] = None
        queue = self._queues.get(fact.queue)
        if queue is None:
            if isinstance(fact, QueueStored):
                self._queues[fact.queue] = queue = Queue(fact)
                self._hold(fact.queue, 1)
                if self._now is not None:
                    queue.go_live(self._now)
            return
        self._entries -= len(queue.entries)
        if isinstance(fact, QueueForgotten):
            del self._queues[fact.queue]
            self._hold(fact.queue, -1)
            self._woken.pop(fact.queue, None)
            return
        queue.apply(fact, self._now)
        self._entries += len(queue.entries)
        self._note_producers(fact)

    def _hold(self, queue: QueueId, sign: int) -> None:
        size_bytes = sign * size_of(queue)
        self.held_bytes += size_bytes
        held = self._bytes_by_group.get(queue.group_id, 0) + size_bytes
        if held:
            self._bytes_by_group[queue.group_id] = held
        else:
            del self._bytes_by_group[queue.group_id]

    def size(self) -> int:
        """How many facts `snapshot` has, give or take one for each queue. Asked for with every append."""
        return len(self._queues) + self._entries // self._options.stored_per_fact

    def snapshot(self) -> Iterator[QueueFact]:
        """The durable state as facts, each as it is when the iterator reaches it."""
        for queue_id in list(self._queues):
            queue = self._queues.get(queue_id)
            if queue is None:
                continue
            yield queue.head
            offsets = list(queue.entries)
            for start in range(0, len(offsets), self._options.stored_per_fact):
                portion = offsets[start : start + self._options.stored_per_fact]
                records = tuple(queue.entries[each].stored() for each in portion if each in queue.entries)
                if records and self._queues.get(queue_id) is queue:
                    yield RecordsStored(queue_id, records)

    def resume(self, now: Now) -> QueueOutcome:
        """Begin to lead: leases and delays last in full from now on; dead letters are moved."""
        outcome = QueueOutcome(now)
        self._now = now
        for queue_id, queue in self._queues.items():
            queue.go_live(now)
            self._changed[queue_id] = None
            if _order(queue).moving:
                outcome.events.append(DeadLettersDue(queue_id))
        return outcome

    def decide(self, command: QueueCommand, now: Now) -> QueueOutcome:  # noqa: C901, PLR0912 - one case each
        """Reply to the command; changes nothing durable."""
        outcome = QueueOutcome(now)
        self._now = now
        queue = self._queues.get(command.queue)
        if isinstance(command, OpenQueue):
            self._open(queue, command, outcome)
            return outcome
        if queue is None:
            detail = "the group has no queue on this partition"
            outcome.reply(command.on_reply, ApiError(ErrorKind.UNKNOWN_GROUP, detail))
            return outcome
        match command:
            case OfferRecords():
                self._offer(queue, command, outcome)
            case AcquireRecords():
                self._acquire(queue, command, outcome)
            case AcknowledgeRecords() | ReleaseRecords() | ReturnRecords() | RejectRecords() | RenewLeases():
                self._settle_claims(queue, command, outcome)
            case FindLeases():
                tokens = {entry.lease.token: None for entry in _held(queue, command.consumer) if entry.lease}
                outcome.reply(command.on_reply, LeasesFound(tuple(tokens)))
            case ReleaseConsumer():
                self._release_consumer(queue, command, outcome)
            case FindDeadLetters():
                self._find_dead_letters(queue, command, outcome)
            case FinishMoves():
                self._finish_moves(queue, command, outcome)
            case PauseQueue():
                head = queue.head
                if head.is_paused != command.is_paused:
                    outcome.facts.append(_changed(head, is_paused=command.is_paused))
                    outcome.events.append(RecordsReady(command.queue))
                outcome.reply(command.on_reply, QueueOk())
            case ResetQueue():
                outcome.facts.append(RecordsDropped(command.queue, Offset(0), OFFSET_MAX))
                outcome.facts.append(_changed(queue.head, end=command.offset))
                outcome.reply(command.on_reply, QueueOk())
            case ForgetQueue():
                outcome.facts.append(QueueForgotten(command.queue))
                outcome.reply(command.on_reply, QueueOk())
            case DescribeQueue():
                outcome.reply(command.on_reply, _description(queue))
            case PeekRecords():
                outcome.reply(command.on_reply, self._peek(queue, command))
            case _:
                assert_never(command)
        return outcome

    def expire(self, now: Now) -> QueueOutcome:
        """Do what is due in one queue, a bounded part of it: call again while `next_deadline` is past."""
        outcome = QueueOutcome(now)
        self._arm_changed()
        self._now = now
        queue_id = self._agenda.pop(now.instant)
        queue = None if queue_id is None else self._queues.get(queue_id)
        if queue_id is None or queue is None:
            return outcome
        self._changed[queue_id] = None
        order, limit = _order(queue), self._options.expired_per_turn_max
        order.arm(now)
        ended = order.end_delays(now, limit)
        is_woken = queue_id in self._woken
        self._woken.pop(queue_id, None)
        if ended or is_woken:
            outcome.events.append(RecordsReady(queue_id))
        if is_woken and order.moving:
            outcome.events.append(DeadLettersDue(queue_id))
        due = order.due_leases(now.instant, limit)
        if due:
            self._fail(queue, [(entry, 0) for entry in due], LEASE_ENDED, outcome)
            outcome.events.append(LeasesExpired(queue_id, len(due)))
        return outcome

    def next_deadline(self) -> Instant | None:
        """When to call `expire`."""
        self._arm_changed()
        return self._agenda.next()

    def _arm_changed(self) -> None:
        if self._now is None:
            return
        changed, self._changed = self._changed, {}
        for queue_id in changed:
            queue = self._queues.get(queue_id)
            deadline = None
            if queue_id in self._woken:
                deadline = self._now.instant
            elif queue is not None:
                deadline = _order(queue).next_deadline(self._now, self._options.check_ms)
            self._agenda.arm(queue_id, deadline)

    def _create(self, command: OpenQueue, outcome: QueueOutcome) -> None:
        if not self._options.has_room(command.queue.group_id, size_of(command.queue)):
            outcome.reply(command.on_reply, NO_ROOM)
            return
        start = Offset(min(max(command.start, command.log_start), command.log_end))
        outcome.facts.append(QueueStored(command.queue, start, command.leader_epoch, command.settings))
        outcome.reply(command.on_reply, QueueOpened(Demand(start, self._wanted(None))))

    def _open(self, queue: Queue | None, command: OpenQueue, outcome: QueueOutcome) -> None:
        problem = _problem_with(command.settings, self._options)
        if problem is not None:
            outcome.reply(command.on_reply, ApiError(ErrorKind.INVALID_REQUEST, problem))
            return
        if queue is None:
            self._create(command, outcome)
            return
        head = queue.head
        if command.leader_epoch < head.leader_epoch:
            outcome.reply(command.on_reply, _fenced(head.leader_epoch))
            return
        if queue.finished_below < command.log_start:
            outcome.facts.append(RecordsDropped(command.queue, Offset(0), command.log_start))
        end = Offset(max(head.end, command.log_start))
        # Within an epoch no log gets shorter: then the command is late, and others have overtaken it.
        if command.leader_epoch > head.leader_epoch:
            later = [start for epoch, start in command.epochs if epoch > head.leader_epoch]
            kept_end = min([command.log_end, *later])
            if kept_end < end:
                # An unclean election. Other records get these offsets: they are not finished.
                outcome.facts.append(RecordsDropped(command.queue, kept_end, OFFSET_MAX))
                end = kept_end
        after = QueueStored(command.queue, end, command.leader_epoch, command.settings, head.is_paused)
        if after != head:
            outcome.facts.append(after)
        outcome.reply(command.on_reply, QueueOpened(Demand(end, self._wanted(queue))))

    def _offer(self, queue: Queue, command: OfferRecords, outcome: QueueOutcome) -> None:
        error = _problem_with_epoch(queue, command.leader_epoch) or _problem_with_records(command.records)
        if error is not None:
            outcome.reply(command.on_reply, error)
            return
        end, taken = queue.end, 0
        # Records in between may have been missed: the leader is told where to go on.
        if command.start <= end < command.end:
            fact, expired = self._taken(queue, command, outcome.now.wall)
            if fact.end > end:
                outcome.facts.append(fact)
                end = fact.end
                taken = len(fact.records) + sum(run.end - run.start for run in fact.plain)
            if expired:
                outcome.events.append(RecordsExpired(command.queue, expired))
        wanted = max(0, self._wanted(queue) - taken)
        outcome.reply(command.on_reply, RecordsAccepted(Demand(end, wanted)))

    def _taken(self, queue: Queue, command: OfferRecords, wall: Timestamp) -> tuple[RecordsTaken, int]:
        """What the queue has room for, and how many records have outlived their time already."""
        options, order = self._options, _order(queue)
        window_max = self._window_max(queue)
        room = window_max + options.delayed_max - len(queue.entries)
        window = window_max - (len(queue.entries) - len(order.delayed))
        plain: list[Run] = []
        records: list[QueueRecord] = []
        expired = 0
        pieces: Iterable[Run | QueueRecord] = heapq.merge(command.plain, command.records, key=itemgetter(0))
        for piece in pieces:
            if isinstance(piece, Run):
                start = max(piece.start, queue.end)
                count = min(piece.end - start, room, window)
                if count > 0:
                    plain.append(Run(Offset(start), Offset(start + count)))
                    room, window = room - count, window - count
                if start + max(0, count) < piece.end:
                    return _taken_up_to(command, start + max(0, count), plain, records), expired
            elif piece.offset >= queue.end:
                if 0 <= piece.expires_at <= wall:
                    expired += 1
                    continue
                if room <= 0 or (window <= 0 and piece.deliver_at <= wall):
                    return _taken_up_to(command, piece.offset, plain, records), expired
                records.append(piece)
                room, window = room - 1, window - (piece.deliver_at <= wall)
        return _taken_up_to(command, command.end, plain, records), expired

    def _acquire(self, queue: Queue, command: AcquireRecords, outcome: QueueOutcome) -> None:
        error = _problem_with_epoch(queue, command.leader_epoch) or self._problem_with_acquire(queue, command)
        if error is not None:
            outcome.reply(command.on_reply, error)
            return
        lease_ms = queue.stored.settings.lease_ms if command.lease_ms is None else command.lease_ms
        chosen: list[QueueEntry] = []
        if not queue.stored.is_paused:
            order, options = _order(queue), self._options
            records_max = min(command.records_max, options.acquired_max)
            if command.offsets:
                offsets = command.offsets[: options.claims_max]
                chosen, expired = order.select_among(offsets, records_max, outcome.now)
            else:
                chosen, expired = order.select(records_max, outcome.now, options.expired_per_turn_max)
            if expired:
                runs = runs_of(sorted(expired))
                outcome.facts.append(RecordsFinished(command.queue, runs, FinishCause.EXPIRED))
                outcome.events.append(RecordsExpired(command.queue, len(expired)))
            if chosen:
                runs = runs_of(sorted([entry.offset for entry in chosen]))
                lease = Lease(command.token, command.consumer, lease_ms)
                outcome.facts.append(RecordsLeased(command.queue, lease, runs))
        wanted = self._wanted(queue, leaving=len(chosen))
        if not chosen and command.offsets and max(command.offsets) >= queue.end:
            # They may be behind more records than are ready as a rule.
            wanted = self._room(queue)
        demand = Demand(queue.end, wanted)
        outcome.reply(
            command.on_reply,
            RecordsAcquired(command.token, lease_ms, _leased(chosen), demand, queue.stored.is_paused),
        )

    def _problem_with_acquire(self, queue: Queue, command: AcquireRecords) -> ApiError | None:
        options = self._options
        detail = ""
        if not 0 < len(command.consumer) <= options.consumer_chars_max:
            detail = f"a consumer's id has 1 to {options.consumer_chars_max} characters"
        elif command.records_max < 1:
            detail = "at least one record must be asked for"
        elif command.lease_ms is not None and not 1 <= command.lease_ms <= options.lease_ms_max:
            detail = f"a lease lasts 1 to {options.lease_ms_max} ms"
        elif not 0 <= command.token <= TOKEN_MAX or _order(queue).has_token(command.token):
            detail = "the token is in use"
        return ApiError(ErrorKind.INVALID_REQUEST, detail) if detail else None

    def _settle_claims(self, queue: Queue, command: ClaimCommand, outcome: QueueOutcome) -> None:
        detail = self._problem_with_claims(command)
        if detail:
            outcome.reply(command.on_reply, ApiError(ErrorKind.INVALID_REQUEST, detail))
            return
        granted: dict[Offset, QueueEntry] = {}
        errors: list[ErrorKind | None] = []
        entries, consumer = queue.entries, command.consumer
        for claim in command.claims:
            for offset in range(claim.offset, claim.offset + claim.records):
                entry = entries.get(Offset(offset))
                error = _problem_with_claim(entry, claim, consumer)
                if error is None and offset in granted:
                    error = ErrorKind.INVALID_RECORD_STATE
                if error is None and entry is not None:
                    granted[entry.offset] = entry
                errors.append(error)
        if granted:
            self._settle(queue, command, granted, outcome)
        outcome.reply(command.on_reply, ClaimResults(tuple(errors)))

    def _settle(
        self, queue: Queue, command: ClaimCommand, granted: dict[Offset, QueueEntry], outcome: QueueOutcome
    ) -> None:
        match command:
            case AcknowledgeRecords(producer=None):
                runs = runs_of(sorted(granted))
                outcome.facts.append(RecordsFinished(command.queue, runs, FinishCause.ACKNOWLEDGED))
                _unblock(queue, outcome)
            case AcknowledgeRecords():
                assert command.producer is not None
                runs = runs_of(sorted(granted))
                outcome.facts.append(RecordsEnding(command.queue, command.producer, runs))
            case ReleaseRecords():
                settings, delay_ms, jitter = queue.stored.settings, command.delay_ms, command.jitter
                failed = [
                    (entry, backoff_ms(settings, entry.attempts, jitter ^ offset))
                    if delay_ms is None
                    else (entry, delay_ms)
                    for offset, entry in granted.items()
                ]
                self._fail(queue, failed, command.reason or RELEASED, outcome)
            case ReturnRecords():
                outcome.facts.append(RecordsReturned(command.queue, runs_of(sorted(granted))))
                outcome.events.append(RecordsReady(command.queue))
            case RejectRecords():
                self._give_up(queue, sorted(granted), command.reason or REJECTED, outcome)
            case RenewLeases():
                self._renew(queue, command, granted, outcome)
            case _:
                assert_never(command)

    def _problem_with_claims(self, command: ClaimCommand) -> str:
        options = self._options
        if claims_count(command.claims) > options.claims_max:
            return f"one request is about {options.claims_max:,} records at most"
        match command:
            case ReleaseRecords(delay_ms=int(delay_ms)) if not 0 <= delay_ms <= options.delay_ms_max:
                return f"a delay lasts 0 to {options.delay_ms_max} ms"
            case RenewLeases(lease_ms=int(lease_ms)) if not 1 <= lease_ms <= options.lease_ms_max:
                return f"a lease lasts 1 to {options.lease_ms_max} ms"
            case _:
                return ""

    def _renew(
        self, queue: Queue, command: RenewLeases, granted: dict[Offset, QueueEntry], outcome: QueueOutcome
    ) -> None:
        order = _order(queue)
        prolonged = []
        for offset, entry in granted.items():
            assert entry.lease is not None
            lease_ms = entry.lease.lease_ms if command.lease_ms is None else command.lease_ms
            # A new leader counts the stored duration in full, so that the renewal itself need not be stored.
            order.renew(entry, lease_deadline(outcome.now, lease_ms))
            if lease_ms != entry.lease.lease_ms:
                prolonged.append(offset)
        self._changed[command.queue] = None
        if prolonged:
            assert command.lease_ms is not None
            fact = LeasesProlonged(command.queue, command.lease_ms, runs_of(sorted(prolonged)))
            outcome.facts.append(fact)

    def _release_consumer(self, queue: Queue, command: ReleaseConsumer, outcome: QueueOutcome) -> None:
        tokens = frozenset(command.tokens)
        held = [
            entry for entry in _held(queue, command.consumer) if entry.lease and entry.lease.token in tokens
        ]
        if held:
            self._fail(queue, [(entry, 0) for entry in held], CONSUMER_LOST, outcome)
        outcome.reply(command.on_reply, QueueOk())

    def _find_dead_letters(self, queue: Queue, command: FindDeadLetters, outcome: QueueOutcome) -> None:
        moving = _order(queue).moving
        oldest = heapq.nsmallest(min(command.records_max, self._options.claims_max), moving)
        records = []
        for offset in oldest:
            entry = moving[offset]
            assert entry.failure is not None
            records.append(DeadLetter(offset, entry.attempts, entry.failure))
        outcome.reply(command.on_reply, DeadLettersFound(tuple(records)))

    def _peek(self, queue: Queue, command: PeekRecords) -> RecordsPeeked:
        count = max(0, min(command.count, self._options.claims_max))
        offsets = heapq.nsmallest(count, (each for each in queue.entries if each >= command.from_offset))
        delayed = _order(queue).delayed
        records = []
        for offset in offsets:
            entry = queue.entries[offset]
            state = PeekedState.DELAYED if offset in delayed else _PEEKED[entry.state]
            consumer = None if entry.lease is None else entry.lease.consumer
            reason = None if entry.failure is None else entry.failure.reason
            records.append(PeekedRecord(offset, state, entry.attempts, consumer, reason))
        return RecordsPeeked(tuple(records), queue.end)

    def _finish_moves(self, queue: Queue, command: FinishMoves, outcome: QueueOutcome) -> None:
        moving = _order(queue).moving
        runs = runs_of(sorted({offset: None for offset in command.offsets if offset in moving}))
        if runs and command.producer is not None:
            outcome.facts.append(RecordsEnding(command.queue, command.producer, runs))
        elif runs:
            outcome.facts.append(RecordsFinished(command.queue, runs, FinishCause.MOVED))
        errors = [None if each in moving else ErrorKind.INVALID_RECORD_STATE for each in command.offsets]
        outcome.reply(command.on_reply, ClaimResults(tuple(errors)))

    def _fail(
        self, queue: Queue, failed: list[tuple[QueueEntry, int]], reason: str, outcome: QueueOutcome
    ) -> None:
        """Deliveries failed: deliver again after the delays (ms), or give up."""
        deliveries_max = queue.stored.settings.deliveries_max
        failed.sort(key=_offset_of_failed)
        released = [
            ReleasedRecord(entry.offset, delay_ms)
            for entry, delay_ms in failed
            if entry.attempts < deliveries_max
        ]
        given_up = [entry.offset for entry, _ in failed if entry.attempts >= deliveries_max]
        reason = reason[: self._options.reason_chars_max]
        if released:
            fact = RecordsReleased(queue.stored.queue, tuple(released), outcome.now.wall, reason)
            outcome.facts.append(fact)
            if any(each.delay_ms == 0 for each in released):
                outcome.events.append(RecordsReady(queue.stored.queue))
        if given_up:
            self._give_up(queue, given_up, reason, outcome)

    def _give_up(self, queue: Queue, offsets: list[Offset], reason: str, outcome: QueueOutcome) -> None:
        queue_id, runs = queue.stored.queue, runs_of(offsets)
        if queue.stored.settings.has_dead_letters:
            reason = reason[: self._options.reason_chars_max]
            outcome.facts.append(RecordsGivenUp(queue_id, runs, outcome.now.wall, reason))
            outcome.events.append(DeadLettersDue(queue_id))
        else:
            outcome.facts.append(RecordsFinished(queue_id, runs, FinishCause.DISCARDED))
        _unblock(queue, outcome)

    def _end_transaction(self, fact: QueueTransactionEnded) -> None:
        for queue_id, offset in self._ending.pop(fact.producer_id, {}):
            queue = self._queues.get(queue_id)
            entry = None if queue is None else queue.entries.get(offset)
            if queue is None or entry is None or entry.producer is None:
                continue
            if entry.producer.producer_id == fact.producer_id:
                self._entries -= len(queue.entries)
                queue.end_transaction(offset, is_commit=fact.is_commit)
                self._entries += len(queue.entries)
                self._changed[queue_id] = None
                is_unblocked = fact.is_commit and queue.stored.settings.is_key_ordered
                is_moving = not fact.is_commit and entry.state is RecordState.MOVING
                if self._now is not None and (is_unblocked or is_moving):
                    self._woken[queue_id] = None

    def _note_producers(self, fact: QueueFact) -> None:
        if isinstance(fact, RecordsEnding):
            ending = self._ending.setdefault(fact.producer.producer_id, {})
            for start, end in fact.runs:
                ending.update({(fact.queue, Offset(offset)): None for offset in range(start, end)})
        elif isinstance(fact, RecordsStored):
            for stored in fact.records:
                if stored.producer is not None:
                    place = (fact.queue, stored.record.offset)
                    self._ending.setdefault(stored.producer.producer_id, {})[place] = None

    def _wanted(self, queue: Queue | None, *, leaving: int = 0) -> int:
        """How many records the leader should offer next, when so many more are leased."""
        if queue is None:
            return min(self._options.look_ahead, self._options.window_max)
        missing = self._options.look_ahead + leaving - len(_order(queue).ready)
        return max(0, min(missing, self._room(queue)))

    def _room(self, queue: Queue) -> int:
        window_max, entries = self._window_max(queue), len(queue.entries)
        window = window_max - (entries - len(_order(queue).delayed))
        return max(0, min(window, window_max + self._options.delayed_max - entries))

    def _window_max(self, queue: Queue) -> int:
        return min(self._options.window_max, queue.stored.settings.window_max)


class _Agenda:
    """When each queue has something to do. Items of the heap that are out of date are skipped."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, QueueId]] = []
        self._due: dict[QueueId, Instant] = {}

    def arm(self, queue_id: QueueId, at: Instant | None) -> None:
        if at is None:
            self._due.pop(queue_id, None)
        elif self._due.get(queue_id) != at:
            self._due[queue_id] = at
            heapq.heappush(self._heap, (at, queue_id))
            if len(self._heap) > 2 * len(self._due) + 64:
                self._heap = [(due, each) for each, due in self._due.items()]
                heapq.heapify(self._heap)

    def next(self) -> Instant | None:
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: Instant) -> QueueId | None:
        """A queue that has something to do."""
        at = self.next()
        if at is None or at > now:
            return None
        _, queue_id = heapq.heappop(self._heap)
        del self._due[queue_id]
        return queue_id


def size_of(queue: QueueId) -> int:
    """About what a queue takes in memory without its records."""
    group_id = queue.group_id
    return QUEUE_BYTES + (len(group_id) if group_id.isascii() else 4 * len(group_id))


def backoff_ms(settings: QueueSettings, attempts: int, jitter: int) -> int:
    """Doubles with every failure; between half of that and all of it, so that retries spread."""
    full = min(settings.backoff_ms_max, settings.backoff_ms << min(max(0, attempts - 1), 32))
    half = full // 2
    return full - half + _mixed(jitter) % (half + 1)


def _mixed(number: int) -> int:
    """Bits that look random from those that do not (the finalizer of splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _64_BITS
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return number ^ (number >> 31)


def _problem_with(settings: QueueSettings, options: QueueOptions) -> str | None:
    if not 1 <= settings.deliveries_max <= ATTEMPTS_MAX:
        return f"a record is delivered 1 to {ATTEMPTS_MAX} times"
    if not 1 <= settings.lease_ms <= options.lease_ms_max:
        return f"a lease lasts 1 to {options.lease_ms_max} ms"
    if not 0 <= settings.backoff_ms <= settings.backoff_ms_max <= options.delay_ms_max:
        return f"a backoff lasts 0 to {options.delay_ms_max} ms, and starts with less than it ends with"
    if settings.window_max < 1:
        return "a queue has at least one record in flight"
    return None


def _problem_with_epoch(queue: Queue, leader_epoch: LeaderEpoch) -> ApiError | None:
    known = queue.stored.leader_epoch
    if leader_epoch < known:
        return _fenced(known)
    # A new leader may know of truncations: it opens the queue before anything else.
    return ApiError(ErrorKind.UNKNOWN_LEADER_EPOCH) if leader_epoch > known else None


def _problem_with_records(records: Iterable[QueueRecord]) -> ApiError | None:
    """Records that do not fit the log: a fact that cannot be stored would end this coordinator."""
    for offset, key, priority, deliver_at, expires_at in records:
        numbers = (offset, key or 0, deliver_at, expires_at)
        if min(numbers) < -_INT64_MAX - 1 or max(numbers) > _INT64_MAX or not 0 <= priority <= PRIORITY_MAX:
            return ApiError(ErrorKind.INVALID_REQUEST, f"the record at offset {offset} cannot be stored")
    return None


def _fenced(leader_epoch: LeaderEpoch) -> ApiError:
    return ApiError(ErrorKind.FENCED_LEADER_EPOCH, f"the queue is served by leader epoch {leader_epoch}")


def _problem_with_claim(
    entry: QueueEntry | None, claim: LeaseClaim, consumer: str | None
) -> ErrorKind | None:
    """A late claim must not touch the delivery to another consumer."""
    if entry is None or entry.state is not RecordState.LEASED or entry.lease is None:
        return ErrorKind.INVALID_RECORD_STATE
    if claim.token is None:
        is_holder = entry.lease.consumer == consumer
    else:
        is_holder = entry.lease.token == claim.token and entry.attempts == claim.attempt
    if not is_holder:
        return ErrorKind.INVALID_RECORD_STATE
    return None if entry.producer is None else ErrorKind.CONCURRENT_TRANSACTIONS


def _taken_up_to(
    command: OfferRecords, end: int, plain: list[Run], records: list[QueueRecord]
) -> RecordsTaken:
    return RecordsTaken(command.queue, Offset(end), tuple(plain), tuple(records))


def _leased(entries: Iterable[QueueEntry]) -> tuple[LeasedRun, ...]:
    """The entries as runs, in their order."""
    runs: list[LeasedRun] = []
    start, end, attempts = Offset(0), -1, -1
    for entry in entries:
        if entry.offset != end or entry.attempts != attempts:
            if end > start:
                runs.append(LeasedRun(start, Offset(end), attempts + 1))
            start, attempts = entry.offset, entry.attempts
        end = entry.offset + 1
    if end > start:
        runs.append(LeasedRun(start, Offset(end), attempts + 1))
    return tuple(runs)


def _unblock(queue: Queue, outcome: QueueOutcome) -> None:
    """The next records of keys may be ready."""
    if queue.stored.settings.is_key_ordered:
        outcome.events.append(RecordsReady(queue.stored.queue))


def _order(queue: Queue) -> DeliveryOrder:
    assert queue.order is not None, "commands come after `resume`"
    return queue.order


def _held(queue: Queue, consumer: str) -> list[QueueEntry]:
    return _order(queue).held_by(consumer)


def _changed(head: QueueStored, *, end: Offset | None = None, is_paused: bool | None = None) -> QueueStored:
    return QueueStored(
        head.queue,
        head.end if end is None else end,
        head.leader_epoch,
        head.settings,
        head.is_paused if is_paused is None else is_paused,
    )


def _description(queue: Queue) -> QueueDescription:
    order = _order(queue)
    leased = order.leased + len(order.ending) - order.ending_moves
    moving = len(order.moving) + order.ending_moves
    ready, delayed = len(order.ready), len(order.delayed)
    blocked = len(queue.entries) - ready - delayed - leased - moving
    return QueueDescription(queue.head, queue.finished_below, ready, blocked, delayed, leased, moving)


def _offset_of_failed(failed: tuple[QueueEntry, int]) -> Offset:
    return failed[0].offset
