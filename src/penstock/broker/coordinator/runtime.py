"""One coordinator: a machine on the log of a partition.

    submit ── decide ── facts ── append ── apply ── replies wait for the current log end
                 ▲                                       │ committed
          expire (timer)                                 ▼
                                                  command.on_reply(reply)

Every reply waits, errors and reads too: they may rest on facts that are not durable yet. When
everything is committed already, there is no wait, which is the case for nearly every heartbeat. The
exception are commands of this node itself that only prepare a later one (`unlogged_commands`).

A new leader's log may end with facts that may not be on all replicas yet. It is read once they are
known to be committed, so that no reply rests on facts that may be undone.

Without the broker's lease (see `broker.lease`) nothing is decided and no reply is released: another
node may coordinate by now. If something was due meanwhile, the machine is dropped and loaded again
once the lease is back, with sessions in full: members could not reach this node.

Nothing here depends on what the machine does. To add one, implement

    CoordinatorMachine    decide, apply, resume, expire, next_deadline; size and snapshot for the rewrite,
                          unless it has one of its own
    RecordCodec           facts as keys and values of records
    CoordinatorObserver   metrics and events

and puts them into a `CoordinatorSpec`.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from penstock.broker.coordinator.log_replay import STEP_BYTES, LogReplay, ReplayRequest
from penstock.broker.coordinator.log_rewrite import CoordinatorRewrite, RewritableLog, rewrite_if_due
from penstock.broker.lease import NOT_COORDINATING, BrokerLease
from penstock.broker.partitions import LeaderPartition, PartitionStopped, ReplicaRole
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Now,
    Offset,
    PenstockError,
    ProtocolError,
    StorageError,
    Timestamp,
    TopicPartition,
)
from penstock.core.records import BatchHeader, ControlRecord, Record, read_header, write_batch
from penstock.core.values import dataclass
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer, Timers
from penstock.storage.log import BatchTooLarge

START_OVER_MS = 500
LEASE_RETRY_MS = 100
# Doubled with every failure: reading a damaged log again costs time on the loop.
LOAD_RETRY_MS, LOAD_RETRY_MS_MAX = 500, 60_000
# Facts that are appended in one turn where there may be any number, and replies that are given in one.
FACTS_PER_TURN_MAX, REPLIES_PER_TURN_MAX = 500, 100
# Batches stay below Kafka's default limit for a message.
BATCH_BYTES_MAX = 900_000
_OVERHEAD_BYTES = 30


class CoordinatorCommand(Protocol):
    """A command for a machine. `on_reply` is called once, and identifies the command until then."""

    @property
    def on_reply(self) -> Callable[[Any], None]: ...


C = TypeVar("C", bound=CoordinatorCommand)
F = TypeVar("F")
C_contra = TypeVar("C_contra", contravariant=True)
F_co = TypeVar("F_co", covariant=True)
F_contra = TypeVar("F_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)


class CoordinatorOutcome(Protocol[F_co, E_co]):
    """What a step leads to: facts to store, replies to give once they are stored, events to report."""

    @property
    def facts(self) -> Sequence[F_co]: ...
    @property
    def responses(self) -> Sequence[tuple[Callable[[Any], None], Any]]: ...
    @property
    def events(self) -> Sequence[E_co]: ...


class CoordinatorMachine(Protocol[C_contra, F, E_co]):
    """A replicated machine: its facts, replayed in order, rebuild its durable state.

    The facts of every outcome are appended and applied before the next call. What a machine
    keeps besides (parked requests, sessions) may run ahead of the log: when an append fails, the
    machine is dropped, and no reply was released for anything that did not become durable.
    """

    def apply(self, fact: F) -> None:
        """Take over a fact of the log. Total: any fact may follow any other."""

    def resume(self, now: Now) -> CoordinatorOutcome[F, E_co]:
        """The log is replayed and this node leads: called once, before the first command."""

    def decide(self, command: C_contra, now: Now) -> CoordinatorOutcome[F, E_co]:
        """Return what the command leads to; nothing durable changes."""

    def expire(self, now: Now) -> CoordinatorOutcome[F, E_co]:
        """Do what is due, a bounded part of it at a time: called again while `next_deadline` is past."""

    def next_deadline(self) -> Instant | None:
        """When to call `expire`; too early does no harm."""


class RecordCodec(Protocol[F]):
    """Facts as records of the internal topic: one record per fact, one key per piece of state."""

    def encode(self, fact: F) -> tuple[bytes, bytes | None]:
        """The key and value of the fact's record; no value where the fact removes the key."""

    def decode(self, key: bytes | None, value: bytes | None) -> F | None:
        """The fact in a record; None for kinds of state that are not supported yet.

        Raises ProtocolError for a value that cannot be decoded: skipping it would restore the key's
        previous value.
        """


class TransactionalFacts(Protocol[F]):
    """Facts that clients' transactions decide on: records of transactional batches, and their markers."""

    def producer_of(self, fact: F) -> tuple[int, int] | None:
        """The producer id and epoch of the batch that the fact's record belongs to, if any."""

    def in_transaction(self, fact: F, producer_id: int, producer_epoch: int) -> F:
        """The fact of a record that stands in a transactional batch."""

    def ended(self, marker: ControlRecord) -> F:
        """The fact of a marker."""

    def to_copy_before(self, machine: Any, marker: ControlRecord, *, is_rewriting: bool) -> Sequence[F]:
        """What the marker decides on and has to stand once more before it."""


M = TypeVar("M", bound=CoordinatorMachine[Any, Any, Any])
M_contra = TypeVar("M_contra", bound=CoordinatorMachine[Any, Any, Any], contravariant=True)


class CoordinatorObserver(Protocol[M_contra, F_contra]):
    """Observes the machines of one topic, for metrics and logs alone."""

    def on_fact(self, machine: M_contra, fact: F_contra, *, is_new: bool) -> None:
        """A fact is about to be applied; it is new unless it was read from the log."""

    def on_event(self, event: Any) -> None:
        """A machine reports something."""

    def on_closed(self, machine: M_contra) -> None:
        """The machine was dropped."""

    def on_load_failed(self, partition: TopicPartition) -> None:
        """A coordinator could not be rebuilt from its log."""


def nothing_to_correct(_: object) -> Iterable[Any]:
    """For machines whose logs need no correction."""
    return ()


@dataclass(frozen=True, slots=True)
class CoordinatorSpec(Generic[M, C, F]):
    """One kind of coordinator: its machine, its topic, and how its facts are stored there."""

    topic: str
    new_machine: Callable[[], M]
    codec: RecordCodec[F]
    observer: CoordinatorObserver[M, F]
    # Commands that are served while too few replicas are in sync to write to: those that write
    # nothing, and those that only this node itself sends.
    served_below_min_isr: tuple[type, ...] = ()
    # Commands that only this node itself sends: they are decided without a lease.
    own_commands: tuple[type, ...] = ()
    # What to append before the first command, to correct for changes while there was no leader; None where
    # there was nothing to correct, so that looking takes turns.
    corrections: Callable[[M], Iterable[F | None]] = nothing_to_correct
    # For machines that take part in clients' transactions.
    transactional: TransactionalFacts[F] | None = None
    # For machines that read their records again: the fact with the offset of its record.
    located: Callable[[F, Offset], F] | None = None
    # So many bytes of the log are read in a turn of the loop.
    load_step_bytes: int = STEP_BYTES
    # Batches stay below Kafka's default limit for a message.
    batch_bytes_max: int = BATCH_BYTES_MAX
    # How the log is kept short.
    rewrite: Callable[[RewritableLog, Timers, int, Callable[[], None]], CoordinatorRewrite | None] = (
        rewrite_if_due
    )
    # Commands whose replies do not wait for the log: nothing may come of them before this node has appended
    # to the same log.
    unlogged_commands: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """Limits for the logs of coordinators, and timeouts."""

    # A log is not rewritten before it has this many records. Reading them takes a third of a second
    # when the node starts; rewriting them stops the loop for a few syncs.
    rewrite_records_min: int = 20_000
    # How long a reply waits for the other replicas of what it rests on.
    commit_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class CoordinatorContext(Generic[M, C, F]):
    """What all coordinators of one topic share on a node."""

    spec: CoordinatorSpec[M, C, F]
    runtime: Runtime
    replay: LogReplay
    lease: BrokerLease
    options: CoordinatorOptions


class CoordinatorState(enum.Enum):
    """What a coordinator is doing; the values are the errors that commands get."""

    LOADING = ErrorKind.COORDINATOR_LOADING
    ACTIVE = None
    FAILED = ErrorKind.COORDINATOR_NOT_AVAILABLE
    CLOSED = ErrorKind.NOT_COORDINATOR


class Coordinator(Generic[M, C, F]):
    """Serves the commands of one partition of an internal topic, while this node leads it."""

    def __init__(self, partition: LeaderPartition, context: CoordinatorContext[M, C, F]) -> None:
        self.partition = partition
        self.state = CoordinatorState.LOADING
        self._context = context
        self._spec = context.spec
        self._clock = context.runtime.clock
        self._lease = context.lease
        self._timers = context.runtime.timers
        self._epoch = partition.leader_epoch
        self.machine = context.spec.new_machine()
        # Commands without a reply: parked by the machine, or waiting for the log.
        self._waiting: dict[Callable[[Any], None], None] = {}
        self._retry_ms = LOAD_RETRY_MS
        self._has_begun = False
        self._timer: Timer | None = None
        self._timer_at: Instant | None = None
        self._rewrite: CoordinatorRewrite | None = None
        self._check = self._check_partition  # one bound method: partitions compare watchers by identity

    @property
    def waiting(self) -> int:
        """How many commands have no reply yet."""
        return len(self._waiting)

    @property
    def is_settled(self) -> bool:
        """Whether the machine's state is committed as it is, and this node may say so: reads need no wait."""
        partition = self.partition
        return (
            self.state is CoordinatorState.ACTIVE
            and partition.stopped is None
            and partition.log.end <= partition.high_watermark
            and self._clock.now() < self._lease.until
        )

    def start(self) -> None:
        """Read the log as soon as what is in it is known to be committed, then serve."""
        self.partition.watch(self._check)
        self._begin()

    def submit(self, command: C) -> None:
        """Pass the command to the machine; its callback gets the reply once that is committed."""
        clock = self._clock
        now = clock.now()
        if now >= self._lease.until and not isinstance(command, self._spec.own_commands):
            command.on_reply(NOT_COORDINATING)
            return
        if self.state is not CoordinatorState.ACTIVE or not self.partition.has_min_isr:
            kind = self._error_kind(command)
            if kind is not None:
                command.on_reply(ApiError(kind))
                return
        self._waiting[command.on_reply] = None
        outcome = self.machine.decide(command, Now(now, clock.wall()))
        self._settle(outcome, waits=not isinstance(command, self._spec.unlogged_commands))

    def append(self, facts: Sequence[F]) -> bool:
        """Append facts and apply them; False: they are not in the log, and the machine was dropped."""
        try:
            self._check_epoch()
            now = self._clock.wall()
            spec = self._spec
            batches, headers = write_batches(facts, spec.codec, now, spec.transactional, spec.batch_bytes_max)
            appended = self.partition.append(batches, headers, now)
        except BatchTooLarge as error:
            self._start_over(error, ApiError(ErrorKind.BATCH_TOO_LARGE, str(error)))
            return False
        except ProtocolError as error:
            # A client's value does not fit the schemas; the server's handler should have checked it.
            self._start_over(error, ApiError(ErrorKind.INVALID_REQUEST, str(error)))
            return False
        except StorageError as error:
            self._start_over(error, ApiError(ErrorKind.NOT_COORDINATOR, str(error)))
            return False
        except PartitionStopped as error:
            self.close(str(error))
            return False
        machine, observer, located = self.machine, spec.observer, spec.located
        if located is not None:
            start = appended.last_offset - len(facts) + 1
            facts = [located(fact, Offset(start + at)) for at, fact in enumerate(facts)]
        for fact in facts:
            observer.on_fact(machine, fact, is_new=True)
            machine.apply(fact)
        return True

    def end_transaction(
        self, append: Callable[[], Offset | ApiError], marker: ControlRecord
    ) -> Offset | ApiError:
        """Append a marker, and have the machine take it over; returns the log end behind it."""
        kind: ErrorKind | None = self.state.value
        if kind is not None:
            # The machine would miss it; whoever sends markers tries again.
            return ApiError(kind)
        assert self._spec.transactional is not None
        # Before the marker, not behind it: this node may end between the two.
        copies = self._spec.transactional.to_copy_before(
            self.machine, marker, is_rewriting=self._rewrite is not None
        )
        if copies and not self.append(copies):
            return ApiError(ErrorKind.NOT_COORDINATOR)
        self._check_epoch()
        end = append()
        if not isinstance(end, ApiError):
            fact = self._spec.transactional.ended(marker)
            self._spec.observer.on_fact(self.machine, fact, is_new=True)
            self.machine.apply(fact)
            self._arm_for_machine()
        return end

    def close(self, reason: str, *, is_stopping: bool = False) -> None:
        """Stop serving: commands that wait get NOT_COORDINATOR."""
        if self.state is CoordinatorState.CLOSED:
            return
        # A node that stops closes all its coordinators, which is not worth a log line for each.
        report = events.debug if is_stopping else events.info
        report("coordinator.closed", partition=str(self.partition.name), reason=reason)
        self.partition.unwatch(self._check)
        for on_reply in self._drop_machine(CoordinatorState.CLOSED):
            on_reply(ApiError(ErrorKind.NOT_COORDINATOR, reason))

    def _error_kind(self, command: C) -> ErrorKind | None:
        kind: ErrorKind | None = self.state.value
        if kind is ErrorKind.COORDINATOR_LOADING:
            self._context.replay.prioritize(self.partition)
        if self.partition.has_min_isr or kind not in (None, ErrorKind.COORDINATOR_LOADING):
            return kind
        if kind is None and isinstance(command, self._spec.served_below_min_isr):
            return None
        # A write now might be acknowledged much later, or never.
        return ErrorKind.COORDINATOR_NOT_AVAILABLE

    def _check_epoch(self) -> None:
        if self.partition.leader_epoch != self._epoch:
            raise PartitionStopped(f"{self.partition.name}: leader epoch {self._epoch} is over")

    def _check_partition(self, _: ReplicaRole) -> None:
        if self.partition.stopped is not None:
            self.close(str(self.partition.stopped))
        else:
            self._begin()

    def _begin(self) -> None:
        if self._has_begun or not self.partition.is_established:
            return
        self._has_begun = True
        if self.partition.log.start == self.partition.log.end:
            self._loaded(None)
        else:
            self._load()

    def _load(self) -> None:
        self._timer = None
        self.state = CoordinatorState.LOADING
        self.machine = machine = self._spec.new_machine()

        def loaded(error: PenstockError | None) -> None:
            if self.state is CoordinatorState.LOADING:
                self._loaded(error)

        # One load at a time: it ends before this coordinator is active, and only an active one starts over.
        self._context.replay.start(
            ReplayRequest(
                self.partition,
                partial(self._take_record, machine),
                partial(self._take_marker, machine),
                loaded,
                self._spec.load_step_bytes,
            )
        )

    def _take_record(self, machine: M, record: Record, header: BatchHeader) -> bool:
        """Apply a record of the log; False for one of a kind that is not supported yet."""
        fact = self._spec.codec.decode(record.key, record.value)
        if fact is None:
            return False
        if self._spec.located is not None:
            fact = self._spec.located(fact, Offset(record.offset))
        transactional = self._spec.transactional
        if header.is_transactional and transactional is not None:
            fact = transactional.in_transaction(fact, header.producer_id, header.producer_epoch)
        self._take(machine, fact)
        return True

    def _take_marker(self, machine: M, marker: ControlRecord) -> None:
        if self._spec.transactional is not None:
            self._take(machine, self._spec.transactional.ended(marker))

    def _take(self, machine: M, fact: F) -> None:
        if self.state is CoordinatorState.LOADING:
            self._spec.observer.on_fact(machine, fact, is_new=False)
            machine.apply(fact)

    def _loaded(self, error: PenstockError | None) -> None:
        if error is not None:
            self._load_failed(error)
            return
        self._retry_ms = LOAD_RETRY_MS
        self._correct(self.machine, iter(self._spec.corrections(self.machine)))

    def _correct(self, machine: M, corrections: Iterator[F | None]) -> None:
        """Append corrections, a portion in a turn, and begin to serve when all are in the log."""
        if self.state is not CoordinatorState.LOADING or self.machine is not machine:
            return
        portion = list(islice(corrections, FACTS_PER_TURN_MAX))
        facts = [fact for fact in portion if fact is not None]
        if facts and not self.append(facts):
            return
        if len(portion) == FACTS_PER_TURN_MAX:
            self._timers.soon(partial(self._correct, machine, corrections))
            return
        self.state = CoordinatorState.ACTIVE
        self._settle(machine.resume(Now(self._clock.now(), self._clock.wall())))

    def _load_failed(self, error: PenstockError) -> None:
        """Retry later: the device may recover, or an operator may restore a segment."""
        self.state = CoordinatorState.FAILED
        retry_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, LOAD_RETRY_MS_MAX)
        name = self.partition.name
        events.error("coordinator.load_failed", partition=str(name), error=error, retry_ms=retry_ms)
        self._spec.observer.on_load_failed(name)
        self._spec.observer.on_closed(self.machine)
        self._timer = self._after_ms(retry_ms, self._load)

    def _after_ms(self, delay_ms: int, fire: Callable[[], None]) -> Timer:
        return self._timers.at(Instant(self._clock.now() + delay_ms * MILLISECOND), fire)

    def _settle(self, outcome: CoordinatorOutcome[F, Any], *, waits: bool = True) -> None:
        facts, replies, partition = outcome.facts, outcome.responses, self.partition
        if facts and not self.append(facts):
            return
        for event in outcome.events:
            self._spec.observer.on_event(event)
        if replies:
            end = partition.log.end
            if waits and end > partition.high_watermark:
                self._release_when_committed(end, replies)
            else:
                self._release(replies)
        # A callback may have submitted another command, which may have dropped the machine.
        if self.state is not CoordinatorState.ACTIVE:
            return
        self._arm_for_machine()
        if facts and self._rewrite is None:
            self._rewrite_if_due()

    def _release_when_committed(
        self, end: Offset, replies: Sequence[tuple[Callable[[Any], None], Any]]
    ) -> None:
        def committed(error: object) -> None:
            if error is None:
                self._release(replies)
            elif self.partition.stopped is None:
                # The replicas took too long. When the partition stops, commands that wait get their error by
                # `close`, which its watchers call.
                refused = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, str(error))
                self._release([(on_reply, refused) for on_reply, _ in replies])

        if self.partition.when_acknowledged(end, committed, self._context.options.commit_timeout_ms):
            self._release(replies)

    def _release(self, replies: Sequence[tuple[Callable[[Any], None], Any]]) -> None:
        if len(replies) > REPLIES_PER_TURN_MAX:
            # Those of a large group, whose members all wait for the same.
            self._timers.soon(partial(self._release, replies[REPLIES_PER_TURN_MAX:]))
            replies = replies[:REPLIES_PER_TURN_MAX]
        waiting = self._waiting
        has_lease = self._clock.now() < self._lease.until
        for on_reply, reply in replies:
            # One that does not wait any more got its error when an earlier machine was dropped.
            if on_reply in waiting:
                del waiting[on_reply]
                on_reply(reply if has_lease else NOT_COORDINATING)

    def _arm_for_machine(self) -> None:
        """Have a timer that is not later than the machine's deadline; an early one does no harm."""
        deadline = self.machine.next_deadline()
        if deadline is not None and (self._timer_at is None or deadline < self._timer_at):
            self._arm(deadline)

    def _arm(self, deadline: Instant) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._timers.at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_at = None
        now = self._clock.now()
        if self.state is not CoordinatorState.ACTIVE:
            return
        if now < self._lease.until:
            self._settle(self.machine.expire(Now(now, self._clock.wall())))
            return
        # Members were silent because this node did not serve them, if it is not another's turn anyway.
        waiting = self._drop_machine(CoordinatorState.LOADING)
        self._timer = self._after_ms(LEASE_RETRY_MS, self._load_with_lease)
        for on_reply in waiting:
            on_reply(NOT_COORDINATING)

    def _load_with_lease(self) -> None:
        if self._clock.now() < self._lease.until:
            self._load()
        else:
            self._timer = self._after_ms(LEASE_RETRY_MS, self._load_with_lease)

    def _rewrite_if_due(self) -> None:
        records_min = self._context.options.rewrite_records_min
        self._rewrite = self._spec.rewrite(self, self._timers, records_min, self._rewritten)
        if self._rewrite is not None:
            self._rewrite.start()

    def _rewritten(self) -> None:
        self._rewrite = None

    def _start_over(self, error: PenstockError, refused: ApiError) -> None:
        """An append failed: drop the machine, which is ahead of the log, and rebuild it."""
        if self.partition.stopped is not None:
            self.close(str(self.partition.stopped))
            return
        events.error("coordinator.append_failed", partition=str(self.partition.name), error=error)
        waiting = self._drop_machine(CoordinatorState.LOADING)
        # Not at once: a full disk stays full for a while, and reading the log costs time on the loop.
        self._timer = self._after_ms(START_OVER_MS, self._load)
        for on_reply in waiting:
            on_reply(refused)

    def _drop_machine(self, state: CoordinatorState) -> list[Callable[[Any], None]]:
        """Drop the machine; returns the callbacks of commands without a reply, which may submit again."""
        self.state = state
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None
        if self._rewrite is not None:
            self._rewrite.cancel()
            self._rewrite = None
        self._spec.observer.on_closed(self.machine)
        waiting = list(self._waiting)
        # Keep the same dictionary: a caller may be iterating over replies right now.
        self._waiting.clear()
        return waiting


def write_batches(
    facts: Sequence[F],
    codec: RecordCodec[F],
    now: Timestamp,
    transactional: TransactionalFacts[F] | None = None,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> tuple[bytearray, list[BatchHeader]]:
    """The facts as record batches: one, or as many as their size and their transactions take."""
    portions: list[tuple[tuple[int, int] | None, list[Record]]] = []
    size_bytes = 0
    for fact in facts:
        key, value = codec.encode(fact)
        producer = None if transactional is None else transactional.producer_of(fact)
        record_bytes = len(key) + len(value or b"") + _OVERHEAD_BYTES
        if not portions or producer != portions[-1][0] or size_bytes + record_bytes > batch_bytes_max:
            portions.append((producer, []))
            size_bytes = 0
        portions[-1][1].append(Record(0, now, key, value))
        size_bytes += record_bytes
    buffer, headers = bytearray(), []
    for producer, records in portions:
        if producer is None:
            batch = write_batch(records)
        else:
            # Without sequences, as Kafka writes them: the coordinator knows what it has written.
            batch = write_batch(
                records, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        headers.append(read_header(batch))
        # Nearly always there is one batch, and no copy is made of it.
        buffer = buffer + batch if buffer else batch
    return buffer, headers
