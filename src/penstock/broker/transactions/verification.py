"""Whether a transactional batch may be appended: the leader's side of KIP-890.

    first batch ── guard ── ask the coordinator ──► verified ── append: the transaction is open
                     │        more batches wait                   └ more batches are appended at once
                     └ a marker drops it

A partition's leader appends to a transaction only what its coordinator knows of, or a marker would never
come, and the last stable offset would stand still for ever. Clients of transaction version 2 leave it to
the leader to add the partition; for older ones the leader asks whether they have added it.

The guard closes the gap between the coordinator's answer and the append: a marker that is written in
between drops it, and the batch, which belongs to the transaction that has just ended, is refused.

Batches of one producer wait for the answer in the order in which they came; those of others do not wait. A
producer whose first batch failed cannot begin with its second: the guard remembers the lowest sequence, where
the partition knows nothing else of the producer.

Anybody can name a producer id, an epoch and a transactional id. What belongs together has a guard of its own,
and the coordinator is asked for each: what it does not know changes nothing for others, and an epoch that it
knows ends those before.

All questions of one turn of the loop about one transaction go to the coordinator together. One that is on
this node and has nothing uncommitted need not be asked: its state is read, and the batch does not wait.
"""

import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.partitions import LeaderPartition
from penstock.core.model import ApiError, ErrorKind, ProducerId, TopicPartition
from penstock.core.records import BatchHeader
from penstock.runtime import Timers

# Guards of one producer id in a partition. A producer has one, and one more while another takes its place.
GUARDS_PER_PRODUCER_MAX = 8
# Guards that failed and are remembered for their sequences, on this node: about 10 MB.
FAILED_MAX = 10_000
# Bytes of batches that wait for a coordinator, on this node; and about what a batch takes besides its own.
PARKED_BYTES_MAX = 64 << 20
PARKED_BATCH_BYTES = 1_000
NO_ANSWER = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "the transaction coordinator did not answer")
NOT_AVAILABLE = ApiError(ErrorKind.INVALID_TRANSACTION, "transactions are not available on this node")
ENDED = ApiError(ErrorKind.INVALID_TRANSACTION, "the batch belongs to a transaction that has ended")
FENCED = ApiError(ErrorKind.PRODUCER_FENCED)
BUSY = ApiError(
    ErrorKind.NOT_ENOUGH_REPLICAS, "too many batches wait for transaction coordinators; try again"
)
# Errors of the way to the coordinator. Producers of all versions try again after NOT_ENOUGH_REPLICAS.
RETRIABLE = (
    ErrorKind.COORDINATOR_LOADING,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.TIMED_OUT,
)
# Called when it is the batch's turn, with the error if it may not be appended.
VerifiedTurn: TypeAlias = Callable[[ApiError | None], None]


class TransactionPartitions(Protocol):
    """The coordinator of a transactional id, on this node or another."""

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        """Whether it can say at once that the partition is in the transaction; False: ask."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Callable[[Mapping[TopicPartition, ApiError | None]], None],
    ) -> None:
        """Add the partitions to the transaction, or ask whether they are in it; `done` is called once."""


class NoTransactions:
    """A node without transaction coordinators: every transaction is refused."""

    def confirms_now(
        self,
        transactional_id: str,  # noqa: ARG002
        producer_id: int,  # noqa: ARG002
        producer_epoch: int,  # noqa: ARG002
        partition: TopicPartition,  # noqa: ARG002
    ) -> bool:
        return False

    def ask(
        self,
        transactional_id: str,  # noqa: ARG002
        producer_id: int,  # noqa: ARG002
        producer_epoch: int,  # noqa: ARG002
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,  # noqa: ARG002
        done: Callable[[Mapping[TopicPartition, ApiError | None]], None],
    ) -> None:
        done(dict.fromkeys(partitions, NOT_AVAILABLE))


class TransactionalRequest(NamedTuple):
    """What a request says about the transaction that its batches belong to.

    `adds_partitions`: transaction version 2, the first batch adds its partition. `knows_abortable`: the
    client aborts by itself on TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    adds_partitions: bool
    knows_abortable: bool


class TransactionWriter(NamedTuple):
    """Who writes, under which transactional id."""

    request: TransactionalRequest
    producer_id: int
    producer_epoch: int


class GuardState(enum.Enum):
    """How far the verification of a transaction in a partition is."""

    ASKING = enum.auto()
    VERIFIED = enum.auto()
    FAILED = enum.auto()
    DROPPED = enum.auto()


class TransactionGuard:
    """The verification of one producer's next transaction in one partition."""

    __slots__ = ("lowest_sequence", "producer", "state", "turns")

    def __init__(self, producer: TransactionWriter, sequence: int) -> None:
        self.producer = producer
        self.lowest_sequence = sequence
        self.state = GuardState.FAILED
        self.turns: deque[tuple[VerifiedTurn, int]] = deque()

    @property
    def epoch(self) -> int:
        return self.producer.producer_epoch


class TransactionVerification:
    """The guards of every partition that this node leads."""

    def __init__(self, timers: Timers, coordinators: TransactionPartitions) -> None:
        self._timers = timers
        self._coordinators = coordinators
        # By partition and producer id, the oldest first.
        self._guards: dict[LeaderPartition, dict[int, list[TransactionGuard]]] = {}
        # Those that nothing waits for any more, the oldest first.
        self._failed: dict[TransactionGuard, LeaderPartition] = {}
        # What is asked at the end of this turn of the loop.
        self._asking: dict[TransactionWriter, list[tuple[LeaderPartition, TransactionGuard]]] = {}
        self._parked_bytes = 0

    def admits(self, partition: LeaderPartition, producer_id: int, producer_epoch: int) -> bool:
        """Whether a batch may be appended: its transaction is open, or verified and not ended since."""
        if is_open(partition, producer_id, producer_epoch):
            return True
        return any(
            guard.state is GuardState.VERIFIED and guard.epoch == producer_epoch
            for guard in self._guards_of(partition, producer_id)
        )

    def admits_now(self, partition: LeaderPartition, producer_id: int, producer_epoch: int) -> bool:
        """Whether, besides, no earlier batches of the producer wait for the coordinator's answer."""
        if self._is_waiting(partition, producer_id, producer_epoch):
            return False
        return self.admits(partition, producer_id, producer_epoch)

    def is_asking(self, partition: LeaderPartition, header: BatchHeader) -> bool:
        """Whether earlier batches of the same producer and epoch wait for the coordinator's answer."""
        return self._is_waiting(partition, header.producer_id, header.producer_epoch)

    def check_sequence(
        self, partition: LeaderPartition, producer: TransactionWriter, sequence: int, *, is_turn: bool
    ) -> ApiError | None:
        """The error of a batch that cannot be the producer's first one, if nothing of it is in the log."""
        if partition.log.producers.get(ProducerId(producer.producer_id)) is not None:
            return None
        known = self._guard(partition, producer)
        if known is not None and known.turns and not is_turn:
            # Behind others it waits for its turn; then they are in the log, or failed.
            return None
        if producer.request.adds_partitions:
            # Every transaction has an epoch of its own, and begins with sequence 0.
            is_first = sequence == 0
        else:
            is_first = known is None or sequence <= known.lowest_sequence
        return None if is_first else ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)

    def verify_now(self, partition: LeaderPartition, producer: TransactionWriter, sequence: int) -> bool:
        """Verify with a coordinator that is on this node and need not be waited for; False: `park`.

        What is known of the producer already, or waits, is left to `park`.
        """
        if producer.request.adds_partitions or self._guards_of(partition, producer.producer_id):
            return False
        if not self._coordinators.confirms_now(
            producer.request.transactional_id, producer.producer_id, producer.producer_epoch, partition.name
        ):
            return False
        guard = self._add(partition, producer, sequence)
        assert guard is not None, "there is none yet"
        # As after an answer: the batch may go to a worker first, and a marker drops the guard meanwhile.
        guard.state = GuardState.VERIFIED
        return True

    def park(
        self,
        partition: LeaderPartition,
        producer: TransactionWriter,
        turn: VerifiedTurn,
        *,
        sequence: int = -1,
        size_bytes: int = 0,
    ) -> ApiError | None:
        """Have `turn` called when the coordinator has answered, never at once; or return why not."""
        if self._parked_bytes + size_bytes > PARKED_BYTES_MAX:
            return BUSY
        guards = self._guards_of(partition, producer.producer_id)
        if any(each.state is GuardState.VERIFIED and each.epoch > producer.producer_epoch for each in guards):
            return FENCED
        guard = self._guard(partition, producer) or self._add(partition, producer, sequence)
        if guard is None:
            return BUSY
        guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        is_first = not guard.turns
        guard.turns.append((turn, size_bytes))
        self._parked_bytes += size_bytes
        if guard.state is GuardState.FAILED:
            guard.state = GuardState.ASKING
            self._failed.pop(guard, None)
            self._ask_soon(partition, producer, guard)
        elif guard.state is GuardState.VERIFIED and is_first:
            # Something else with this producer's id and epoch waits, and nothing of its own was appended yet.
            self._ask_soon(partition, producer, guard)
        return None

    def appended(self, partition: LeaderPartition, producer_id: int, producer_epoch: int) -> None:
        """A batch was appended: the transaction is open, and what follows needs no guard."""
        if partition not in self._guards:
            return
        for guard in list(self._guards_of(partition, producer_id)):
            # While batches wait, it keeps those that come now behind them.
            if guard.epoch == producer_epoch and not guard.turns:
                self._remove(partition, guard)

    def marker_written(
        self, partition: LeaderPartition, producer_id: int, producer_epoch: int, transaction_version: int
    ) -> None:
        """The transaction has ended: what was verified before belongs to it.

        With transaction version 2 a marker has the next transaction's epoch, whose first batch may wait
        here for exactly this marker.
        """
        for guard in list(self._guards_of(partition, producer_id)):
            if transaction_version < 2 or guard.epoch < producer_epoch:
                self._drop(partition, guard)

    def _guards_of(self, partition: LeaderPartition, producer_id: int) -> Sequence[TransactionGuard]:
        guards = self._guards.get(partition)
        return () if guards is None else guards.get(producer_id, ())

    def _guard(self, partition: LeaderPartition, producer: TransactionWriter) -> TransactionGuard | None:
        for guard in self._guards_of(partition, producer.producer_id):
            if guard.producer == producer:
                return guard
        return None

    def _is_waiting(self, partition: LeaderPartition, producer_id: int, producer_epoch: int) -> bool:
        if partition not in self._guards:
            return False
        guards = self._guards_of(partition, producer_id)
        return any(guard.turns and guard.epoch == producer_epoch for guard in guards)

    def _add(
        self, partition: LeaderPartition, producer: TransactionWriter, sequence: int
    ) -> TransactionGuard | None:
        """A new guard, unless too many of this producer id are waiting for answers."""
        known = self._guards_of(partition, producer.producer_id)
        if len(known) >= GUARDS_PER_PRODUCER_MAX:
            oldest = next((guard for guard in known if guard in self._failed), None)
            if oldest is None:
                return None
            self._remove(partition, oldest)
        if partition not in self._guards:
            self._forget_stopped()
        guard = TransactionGuard(producer, sequence)
        self._guards.setdefault(partition, {}).setdefault(producer.producer_id, []).append(guard)
        return guard

    def _forget_stopped(self) -> None:
        for partition in [each for each in self._guards if each.stopped is not None]:
            # Its batches get their error when the coordinator has answered.
            for guards in self._guards.pop(partition).values():
                for guard in guards:
                    self._failed.pop(guard, None)

    def _drop(self, partition: LeaderPartition, guard: TransactionGuard) -> None:
        guard.state = GuardState.DROPPED
        self._remove(partition, guard)

    def _remove(self, partition: LeaderPartition, guard: TransactionGuard) -> None:
        by_producer, producer_id = self._guards[partition], guard.producer.producer_id
        guards = by_producer[producer_id]
        guards.remove(guard)
        self._failed.pop(guard, None)
        if not guards:
            del by_producer[producer_id]
            if not by_producer:
                del self._guards[partition]

    def _remember_failed(self, partition: LeaderPartition, guard: TransactionGuard) -> None:
        self._failed[guard] = partition
        if len(self._failed) > FAILED_MAX:
            oldest = next(iter(self._failed))
            self._remove(self._failed[oldest], oldest)

    def _ask_soon(
        self, partition: LeaderPartition, producer: TransactionWriter, guard: TransactionGuard
    ) -> None:
        if not self._asking:
            self._timers.soon(self._ask)
        self._asking.setdefault(producer, []).append((partition, guard))

    def _ask(self) -> None:
        asking, self._asking = self._asking, {}
        for producer, waiting in asking.items():

            def done(
                answers: Mapping[TopicPartition, ApiError | None],
                producer: TransactionWriter = producer,
                waiting: list[tuple[LeaderPartition, TransactionGuard]] = waiting,
            ) -> None:
                for partition, guard in waiting:
                    self._answered(partition, producer, guard, answers.get(partition.name, NO_ANSWER))

            self._coordinators.ask(
                producer.request.transactional_id,
                producer.producer_id,
                producer.producer_epoch,
                [partition.name for partition, _ in waiting],
                verify_only=not producer.request.adds_partitions,
                done=done,
            )

    def _answered(
        self,
        partition: LeaderPartition,
        producer: TransactionWriter,
        guard: TransactionGuard,
        error: ApiError | None,
    ) -> None:
        error = self._judged(partition, guard, error)
        # Those that come while these have their turn have other guards, or wait behind them.
        waiting = len(guard.turns)
        while guard.turns and (error is None or waiting):
            turn, size_bytes = guard.turns[0]
            turn(error)
            guard.turns.popleft()
            self._parked_bytes -= size_bytes
            waiting -= 1
        if guard not in self._guards_of(partition, producer.producer_id):
            return
        if is_open(partition, producer.producer_id, producer.producer_epoch):
            self._remove(partition, guard)
        elif guard.turns:
            # They came while others got the error.
            guard.state = GuardState.ASKING
            self._ask_soon(partition, producer, guard)
        elif guard.state is GuardState.FAILED:
            self._remember_failed(partition, guard)

    def _judged(
        self, partition: LeaderPartition, guard: TransactionGuard, error: ApiError | None
    ) -> ApiError | None:
        """Take over the coordinator's answer; returns what the batches that wait get."""
        if guard.state is GuardState.DROPPED:
            return error or ENDED
        guard.state = GuardState.VERIFIED if error is None else GuardState.FAILED
        if error is None:
            for other in list(self._guards_of(partition, guard.producer.producer_id)):
                if other.epoch < guard.epoch:
                    self._drop(partition, other)
        return error


def is_open(partition: LeaderPartition, producer_id: int, producer_epoch: int) -> bool:
    """Whether the producer has a transaction open in this partition, in this epoch."""
    producers = partition.log.producers
    if producers.transactions.first_offset_of(ProducerId(producer_id)) is None:
        return False
    known = producers.get(ProducerId(producer_id))
    return known is not None and known.epoch == producer_epoch


def produce_error(error: ApiError, request: TransactionalRequest) -> ApiError:
    """The coordinator's error as producers of this version understand it."""
    kind = error.kind
    if kind in RETRIABLE or (kind is ErrorKind.CONCURRENT_TRANSACTIONS and not request.adds_partitions):
        return ApiError(ErrorKind.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified: {error}")
    if kind is ErrorKind.TRANSACTION_ABORTABLE and not request.knows_abortable:
        return ApiError(ErrorKind.INVALID_TRANSACTION, error.detail)
    if kind is ErrorKind.INVALID_TRANSACTION and request.knows_abortable and not request.adds_partitions:
        return ApiError(ErrorKind.TRANSACTION_ABORTABLE, error.detail)
    return error


def offsets_error(error: ApiError, request: TransactionalRequest) -> ApiError:
    """The same for TxnOffsetCommit: all its clients try again while a coordinator is loading."""
    retriable = (*RETRIABLE, ErrorKind.CONCURRENT_TRANSACTIONS, BUSY.kind)
    if error.kind in retriable:
        return ApiError(ErrorKind.COORDINATOR_LOADING, f"the transaction could not be verified: {error}")
    return produce_error(error, request)
