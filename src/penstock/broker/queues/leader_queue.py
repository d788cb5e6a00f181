"""One queue at the leader of its data partition: offers records of the log, and leases them to consumers.

    receive ── OpenQueue, once per leadership ── AcquireRecords ── leased ── values from the log ──► consumer
                    │                                 └ nothing: wait
                    └─ demand ── committed records ── OfferRecords ── taken: whoever waits asks again

The coordinator says what to offer next (`Demand`) with every reply. While a consumer waits, it asks again
when the queue has taken records, when the coordinator says that some are ready, and once a second in case
that was lost; the first one asks first, and the next one when that got something. Whoever waits for several
queues at once watches them instead (`QueueWatcher`), and asks one of them when it may have something.

The coordinator may be on another node, and may move. What it did not reply to is repeated where that does no
harm: openings and offers. A lease whose reply was lost ends by itself, and counts as a failed delivery.

A record that the log does not have any more when it was leased (compaction, retention) is acknowledged here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Protocol, TypeAlias

from penstock.broker.list_offsets import UNSURE
from penstock.broker.partitions import LeaderPartition, ReplicaRole
from penstock.broker.queues.leased_records import LeasedRecords
from penstock.broker.queues.peers import (
    NO_LEADER_HERE,
    OnReceived,
    ReceivedRecords,
    ReceiveRequest,
)
from penstock.broker.queues.record_cache import RecordCache
from penstock.broker.queues.record_reader import CommittedRecords, RecordReader
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Offset
from penstock.core.queues import (
    REDRIVE_GROUP,
    TOKEN_MAX,
    AcknowledgeRecords,
    AcquireRecords,
    Demand,
    LeaseClaim,
    LeasedRun,
    OfferRecords,
    OpenQueue,
    QueueCommand,
    QueueId,
    QueueOffer,
    QueueOpened,
    QueueRecord,
    QueueReply,
    QueueSettings,
    RecordsAccepted,
    RecordsAcquired,
    ReleaseRecords,
    ReturnRecords,
    Run,
    may_matter,
    merged,
    offer_of,
    runs_in,
)
from penstock.core.records import RecordSlice, records_in
from penstock.core.values import dataclass
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

# How often whoever waits asks without being told to.
CHECK_MS = 1_000
# How soon what failed is tried again.
RETRY_MS = 100
# How long a consumer that does not want to wait waits for the queue to be opened.
OPEN_TIMEOUT_MS = 5_000
# A queue without consumers is closed after this time; opening it again costs one command.
IDLE_MS = 60_000
WAITING_MAX = 1_000
WATCHERS_MAX = 10_000
# Of the partition's leader epochs, the last: far more than begin while nobody consumes.
EPOCHS_MAX = 1_000
RETRIABLE = (
    ErrorKind.COORDINATOR_LOADING,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
)
# The coordinator does not know this leadership: the queue has to be opened.
UNOPENED = (ErrorKind.UNKNOWN_LEADER_EPOCH, ErrorKind.UNKNOWN_GROUP)
TOO_MANY = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE, f"more than {WAITING_MAX} consumers wait for records of this queue"
)
# What is wrong with a log itself: reading again may not help.
DAMAGE = (ErrorKind.DAMAGED_LOG, ErrorKind.STORAGE_FAILED)
UNREADABLE = "the record could not be read from the log"
Leases: TypeAlias = tuple[LeasedRun, ...]


class QueueCommands(Protocol):
    """The coordinators of queues, wherever they are."""

    def submit(self, command: QueueCommand) -> None: ...


class QueueWatcher(Protocol):
    """Waits until a queue may have records to lease; told once, and not before it watches."""

    def records_ready(self, queue: QueueId) -> bool:
        """Whether it is going to ask. If not, the next one is told."""


@dataclass(frozen=True, slots=True)
class LeaderQueueContext:
    """What all queues of a leader share."""

    commands: QueueCommands
    reader: RecordReader
    runtime: Runtime
    on_closed: "Callable[[LeaderQueue], None]"
    # Whether new queues of a group begin with what comes.
    starts_at_end: Callable[[str], bool] = lambda _group_id: False
    cache: RecordCache = field(default_factory=RecordCache)


class PendingReceive:
    """A consumer that waits for records."""

    __slots__ = ("deadline", "done", "empty", "error", "request", "seen_wakes", "timer")

    def __init__(self, request: ReceiveRequest, done: OnReceived, deadline: Instant) -> None:
        self.request = request
        self.done: OnReceived | None = done
        self.deadline = deadline
        self.timer: Timer | None = None
        # The reply if nothing comes; None until the queue was asked.
        self.empty: ReceivedRecords | None = None
        self.error: ApiError = NO_LEADER_HERE
        self.seen_wakes = -1

    @property
    def is_finished(self) -> bool:
        return self.done is None

    def finish(self, reply: ReceivedRecords | ApiError) -> bool:
        """False: it has its reply already."""
        done, self.done = self.done, None
        if done is None:
            return False
        if self.timer is not None:
            self.timer.cancel()
        done(reply)
        return True


class LeaderQueue:
    """A queue, as long as this node leads its data partition and somebody consumes from it."""

    def __init__(
        self,
        queue: QueueId,
        partition: LeaderPartition,
        settings: QueueSettings,
        context: LeaderQueueContext,
    ) -> None:
        runtime = context.runtime
        self.queue = queue
        self.partition = partition
        self._settings = settings
        self._commands = context.commands
        self._reader = context.reader
        self._clock = runtime.clock
        self._timers = runtime.timers
        self._entropy = runtime.entropy
        self._on_closed = context.on_closed
        self._starts_at_end = context.starts_at_end
        self._is_open = False
        self._is_opening = False
        self._is_closed = False
        self._log_start = Offset(0)
        self._demand = Demand(Offset(0), 0)
        self._is_offering = False
        # The largest record that was offered in this leadership.
        self._record_bytes_max = 1
        self._cache = context.cache
        self._cached_log = queue.topic_id, queue.partition, partition.leader_epoch
        self._waiting: deque[PendingReceive] = deque()
        self._watchers: dict[QueueWatcher, None] = {}
        # False once somebody asked in vain, until something happens.
        self._may_have_records = True
        # Whether the first of those that waited is asking.
        self._is_asking = False
        self._in_flight = 0
        self._wakes = 0
        self._used_at = self._clock.now()
        self._timer: Timer | None = None
        self._retry: Timer | None = None
        self._watch = self._log_changed  # one bound method: partitions compare watchers by identity
        partition.watch(self._watch)
        self._check_later()

    def receive(self, request: ReceiveRequest, done: OnReceived) -> None:
        """Lease records to a consumer, or wait; `done` is called once, perhaps at once."""
        if self._is_closed or self.partition.stopped is not None:
            done(self.partition.stopped or NO_LEADER_HERE)
            return
        if len(self._waiting) >= WAITING_MAX:
            done(TOO_MANY)
            return
        self._used_at = now = self._clock.now()
        pending = PendingReceive(request, done, Instant(now + max(0, request.wait_ms) * MILLISECOND))
        pending.timer = self._timers.at(pending.deadline, partial(self._time_is_up, pending))
        if self._waiting or not self._is_open:
            self._waiting.append(pending)
            self._open()
        else:
            self._acquire(pending, self._acquired)

    def watch(self, watcher: QueueWatcher) -> bool:
        """Whether there may be records already; if not, the watcher is told when there may be.

        One too many is not told.
        """
        self._used_at = self._clock.now()
        if self._is_closed or (self._is_open and self._may_have_records):
            return True
        if len(self._watchers) < WATCHERS_MAX:
            self._watchers[watcher] = None
        self._open()
        return False

    def unwatch(self, watcher: QueueWatcher) -> None:
        self._watchers.pop(watcher, None)

    def change_settings(self, settings: QueueSettings) -> None:
        """The queue is opened again, if that changes something."""
        if settings != self._settings:
            self._settings = settings
            self._is_open = False
            self._open()

    def wake(self) -> None:
        """Records may be ready: the first of those that wait asks."""
        self._wakes += 1
        self._may_have_records = True
        self._ask_first()
        self._tell_watcher()

    def _tell_watcher(self) -> None:
        """The one that has waited longest; the next one is told when that got something."""
        if not self._is_open:
            return
        while self._watchers:
            watcher = next(iter(self._watchers))
            del self._watchers[watcher]
            if watcher.records_ready(self.queue):
                return

    def close(self, reason: ApiError) -> None:
        """End: another node leads the partition, or nobody consumes. Consumers look elsewhere."""
        if self._is_closed:
            return
        self._is_closed = True
        self.partition.unwatch(self._watch)
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._on_closed(self)
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.finish(reason)
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher.records_ready(self.queue)

    def _log_changed(self, _: ReplicaRole) -> None:
        if self._is_closed:
            return
        if self.partition.stopped is not None:
            self.close(self.partition.stopped)
        elif self._is_open and self.partition.log.start > self._log_start:
            # Records were deleted at the front: the queue has to know.
            self._is_open = False
            self._open()
        else:
            self._offer()

    def _check_later(self) -> None:
        self._timer = self._timers.at(Instant(self._clock.now() + CHECK_MS * MILLISECOND), self._check)

    def _check(self) -> None:
        is_waited_for = self._waiting or self._watchers
        is_used = is_waited_for or self._in_flight or self._is_opening or self._is_offering
        if not is_used and self._clock.now() - self._used_at > IDLE_MS * MILLISECOND:
            self.close(NO_LEADER_HERE)
            return
        self._check_later()
        self._open()
        self.wake()
        self._offer()

    def _retry_later(self) -> None:
        if self._retry is None and not self._is_closed:
            at = Instant(self._clock.now() + RETRY_MS * MILLISECOND)
            self._retry = self._timers.at(at, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._open()
        self.wake()
        self._offer()

    # The queue is opened under this leadership.

    def _open(self) -> None:
        if self._is_open or self._is_opening or self._is_closed or self._retry is not None:
            return
        self._is_opening = True
        log = self.partition.log
        self._log_start = log.start
        self._commands.submit(
            OpenQueue(
                on_reply=partial(self._opened, self._settings),
                queue=self.queue,
                leader_epoch=self.partition.leader_epoch,
                settings=self._settings,
                log_start=log.start,
                log_end=log.end,
                start=log.last_stable_offset if self._starts_at_end(self.queue.group_id) else log.start,
                epochs=tuple((each.epoch, each.start) for each in log.epochs.entries()[-EPOCHS_MAX:]),
            )
        )

    def _opened(self, settings: QueueSettings, reply: QueueReply) -> None:
        self._is_opening = False
        if self._is_closed or settings is not self._settings:
            # Changed meanwhile: once more.
            self._open()
            return
        if isinstance(reply, QueueOpened):
            self._is_open = True
            self._demand = reply.demand
            self._offer()
            if not self._is_offering:
                self.wake()
            return
        assert isinstance(reply, ApiError), reply
        self._not_opened(reply)

    def _not_opened(self, reply: ApiError) -> None:
        if self._is_transient(reply):
            for pending in self._waiting:
                pending.error = reply
            self._retry_later()
        elif reply.kind is ErrorKind.GROUP_FULL:
            # There is no such queue: nothing is kept of it here, and whoever watches asks and is told.
            self.close(reply)
        elif not self._is_closed:
            waiting, self._waiting = self._waiting, deque()
            for pending in waiting:
                pending.finish(reply)

    def _is_transient(self, error: ApiError) -> bool:
        """Whether to try again; a leader that was replaced is closed."""
        if error.kind in UNOPENED:
            self._is_open = False
            return True
        if error.kind is ErrorKind.FENCED_LEADER_EPOCH:
            self.close(ApiError(ErrorKind.NOT_LEADER, str(error)))
            return False
        return error.kind in RETRIABLE

    # Records of the log are offered.

    def _offer(self) -> None:
        if self._is_offering or not self._is_open or self._is_closed or self._retry is not None:
            return
        if self._demand.records <= 0 or self._demand.next_offset >= self.partition.log.last_stable_offset:
            return
        self._is_offering = True
        start = self._demand.next_offset
        cached = None if self.partition.log.is_unsure else self._cache.find(self._cached_log, start)
        if cached is None:
            self._reader.read(self.partition, start, partial(self._read, start))
        else:
            self._read(start, CommittedRecords((cached,), start, Offset(cached.end)))

    def _read(self, start: Offset, found: CommittedRecords | ApiError) -> None:
        if start != self._demand.next_offset:
            # The queue was opened again meanwhile, and goes on elsewhere.
            self._is_offering = False
            self._offer()
            if not self._is_offering:
                self.wake()
            return
        if isinstance(found, ApiError):
            self._is_offering = False
            if found.kind is ErrorKind.OFFSET_OUT_OF_RANGE:
                self._is_open = False
            elif found.kind is not ErrorKind.NOT_LEADER:
                events.warning(
                    "queue.offer_failed", partition=str(self.partition.name), offset=start, error=str(found)
                )
            self._retry_later()
            return
        self._cache.put(self._cached_log, found.batches)
        offer, end = self._offer_of(found, self._demand.records)
        self._commands.submit(
            OfferRecords(
                on_reply=self._offered,
                queue=self.queue,
                leader_epoch=self.partition.leader_epoch,
                start=start,
                end=end,
                plain=offer.plain,
                records=offer.records,
            )
        )

    def _offer_of(self, found: CommittedRecords, wanted: int) -> tuple[QueueOffer, Offset]:
        """So many of these, and where the rest begins."""
        plain: list[Run] = []
        special: list[QueueRecord] = []
        end = found.end
        for batch in found.batches:
            first = batch.place(found.start)
            offsets = batch.offsets[first : first + wanted]
            piece = batch.slice(offsets[0], offsets[-1] + 1) if offsets else None
            if piece is not None:
                wanted -= len(offsets)
                self._record_bytes_max = max(self._record_bytes_max, batch.record_bytes_max)
                offer = self._attributes_of(piece, offsets)
                plain += offer.plain
                special += offer.records
            if first + len(offsets) < len(batch.offsets):
                end = Offset(batch.offsets[first + len(offsets)])
                break
        return QueueOffer(merged(plain), tuple(special)), end

    def _attributes_of(self, piece: RecordSlice, offsets: Sequence[int]) -> QueueOffer:
        """What matters about records. What a dead letter says is for the queues it is redriven to."""
        is_key_ordered = self._settings.is_key_ordered
        if self.queue.group_id == REDRIVE_GROUP or not may_matter(piece, is_key_ordered=is_key_ordered):
            return QueueOffer(runs_in(offsets), ())
        return offer_of(records_in(piece), is_key_ordered=is_key_ordered)

    def _offered(self, reply: QueueReply) -> None:
        self._is_offering = False
        if isinstance(reply, RecordsAccepted):
            self._demand = reply.demand
            self.wake()
            self._offer()
            return
        assert isinstance(reply, ApiError), reply
        if self._is_transient(reply):
            self._retry_later()
        elif not self._is_closed:
            events.error("queue.offer_refused", partition=str(self.partition.name), error=str(reply))

    # Records are leased to consumers.

    def _ask_first(self) -> None:
        if self._is_asking or not self._is_open or self._is_closed:
            return
        while self._waiting:
            pending = self._waiting.popleft()
            if pending.done is not None:
                self._is_asking = True
                self._acquire(pending, self._asked_again)
                return

    def _asked_again(self, pending: PendingReceive, reply: QueueReply) -> None:
        self._is_asking = False
        self._acquired(pending, reply)
        if isinstance(reply, RecordsAcquired) and reply.runs:
            self._ask_first()

    def _acquire(
        self, pending: PendingReceive, replied: Callable[[PendingReceive, QueueReply], None]
    ) -> None:
        request = pending.request
        pending.seen_wakes = self._wakes
        self._in_flight += 1
        fitting = max(1, request.bytes_max // self._record_bytes_max)
        token = int.from_bytes(self._entropy.bytes(8), "big") & TOKEN_MAX
        self._commands.submit(
            AcquireRecords(
                on_reply=partial(replied, pending),
                queue=self.queue,
                leader_epoch=self.partition.leader_epoch,
                consumer=request.consumer,
                records_max=min(request.records_max, fitting),
                token=token,
                lease_ms=request.lease_ms,
                offsets=request.offsets,
            )
        )

    def _acquired(self, pending: PendingReceive, reply: QueueReply) -> None:
        self._in_flight -= 1
        if isinstance(reply, ApiError):
            self._refused(pending, reply)
            return
        assert isinstance(reply, RecordsAcquired), reply
        if not self._is_offering:
            self._demand = reply.demand
            self._offer()
        if reply.runs:
            self._tell_watcher()
            self._deliver(pending, reply)
            return
        if pending.seen_wakes == self._wakes and not pending.request.offsets:
            self._may_have_records = False
        pending.empty = ReceivedRecords(self.queue, lease_ms=reply.lease_ms, is_paused=reply.is_paused)
        is_over = self._clock.now() >= pending.deadline and self._is_in_vain(pending)
        if is_over or self._is_closed:
            pending.finish(pending.empty)
            return
        self._waiting.appendleft(pending)
        if pending.seen_wakes != self._wakes:
            # Something became ready while it asked.
            self._timers.soon(self._ask_first)

    def _refused(self, pending: PendingReceive, error: ApiError) -> None:
        if not self._is_transient(error) or self._is_closed:
            pending.finish(NO_LEADER_HERE if self._is_closed else error)
            return
        if pending.empty is not None and self._clock.now() >= pending.deadline:
            pending.finish(pending.empty)
            return
        pending.error = error
        self._waiting.appendleft(pending)
        self._retry_later()

    def _is_in_vain(self, pending: PendingReceive) -> bool:
        """Whether the queue has nothing; what is offered just now may be for those, too, that do not wait."""
        return pending.empty is not None and (not self._is_offering or pending.empty.is_paused)

    def _time_is_up(self, pending: PendingReceive) -> None:
        if pending.done is None:
            return
        now, last = self._clock.now(), pending.deadline + OPEN_TIMEOUT_MS * MILLISECOND
        if pending in self._waiting and (self._is_in_vain(pending) or now >= last):
            self._waiting.remove(pending)
            pending.finish(pending.error if pending.empty is None else pending.empty)
            return
        if pending in self._waiting and self._is_open:
            # Behind others that wait: whether there is something for it nobody has asked.
            self._waiting.remove(pending)
            self._acquire(pending, self._acquired)
            if pending.is_finished:
                return
        # It is asking just now, and the reply ends it unless that is an error; or was not asked for yet.
        again = Instant(max(last, now + RETRY_MS * MILLISECOND))
        pending.timer = self._timers.at(again, partial(self._time_is_up, pending))

    def _deliver(self, pending: PendingReceive, acquired: RecordsAcquired) -> None:
        self._used_at = self._clock.now()
        leased = LeasedRecords(acquired.runs, self.partition.log.start)
        missing = leased.take_cached(partial(self._cache.find, self._cached_log))

        def read(part: CommittedRecords) -> None:
            for batch in part.batches:
                leased.take(batch)

        def ended(error: ApiError | None) -> None:
            if error is not None:
                self._give_back(acquired.runs, acquired.token, error)
                pending.finish(error)
                return
            gone = leased.gone()
            if gone:
                self._acknowledge(gone, acquired.token)
            slices = leased.slices()
            if slices or self._is_closed or self._clock.now() >= pending.deadline:
                pending.finish(ReceivedRecords(self.queue, slices, acquired.token, acquired.lease_ms))
            else:
                self._acquire(pending, self._acquired)

        if missing:
            self._reader.collect(self.partition, missing, read, ended)
        else:
            ended(None)

    def _give_back(self, leases: Leases, token: int, error: ApiError) -> None:
        claims = _claims(leases, token)
        # With other replicas, what is unsure about a log is soon repaired.
        if error.kind in DAMAGE and error is not UNSURE:
            self._commands.submit(
                ReleaseRecords(on_reply=partial(_ignore), queue=self.queue, claims=claims, reason=UNREADABLE)
            )
        else:
            # A matter of the leader, not of the records: no delivery has failed.
            self._commands.submit(ReturnRecords(on_reply=partial(_ignore), queue=self.queue, claims=claims))

    def _acknowledge(self, leases: Leases, token: int) -> None:
        self._commands.submit(
            AcknowledgeRecords(on_reply=lambda _: None, queue=self.queue, claims=_claims(leases, token))
        )


def _ignore(_: QueueReply) -> None:
    """Leases that could not be given back end by themselves."""


def _claims(leases: Leases, token: int) -> tuple[LeaseClaim, ...]:
    return tuple(LeaseClaim(start, attempt, token, end - start) for start, end, attempt in leases)
