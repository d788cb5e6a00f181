"""Transactions on this node: the machine of `core.transactions` on the coordinators of `__transaction_state`.

    TransactionService ── transactional id ──► Coordinator ── TransactionCoordinator (core, decides)
      │                                          └── transaction_records: facts in Kafka's own schemas
      │ a transaction is prepared
      ├─► FindPrepared ── committed ──► MarkerSender ── every partition has its marker ──► CompleteTransaction
      └ list, locate

`FindPrepared` is a read, and its reply waits for the log as every reply does: no marker is sent for an
outcome that may still be lost. When the partition moves, its new leader sends the markers again; those
that are there already change nothing. While it does not move, whatever fails begins again with
`FindPrepared`: no transaction stays prepared, and none is completed while markers of it are under way.

Transactional ids of the form `<sink>#<task>` are coordinated where `<sink>` is, so that one coordinator
has all transactions of a sink.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import chain
from typing import Protocol

from penstock.broker.coordinator import transaction_records
from penstock.broker.coordinator.coordinators import (
    Coordinators,
    InternalTopicCreator,
    LedPartitions,
)
from penstock.broker.coordinator.runtime import (
    Coordinator,
    CoordinatorOptions,
    CoordinatorSpec,
    CoordinatorState,
)
from penstock.broker.coordinator.transaction_metrics import TransactionMetrics, TransactionObserver
from penstock.broker.producer_ids import OnProducerId
from penstock.broker.transactions.markers import TransactionMarker
from penstock.core.groups.topic_patterns import InvalidPattern, TopicPattern
from penstock.core.metadata import TRANSACTIONS_TOPIC, MetadataImage, broker_setting
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.metadata.levels import METADATA_VERSION, TRANSACTIONS_LEVEL
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    NodeId,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from penstock.core.transactions import (
    Command,
    CommitBatch,
    CompleteTransaction,
    DescribeTransaction,
    EndTransaction,
    Fact,
    FindPrepared,
    InitProducer,
    ListedTransactions,
    ListTransactions,
    PreparedTransaction,
    ProducerIdentity,
    ProducerIdNeeded,
    Reply,
    TransactionCoordinator,
    TransactionOk,
    TransactionOptions,
    TransactionState,
    TransactionStored,
    VerifyPartitions,
    sink_of,
)
from penstock.core.values import dataclass
from penstock.runtime import Runtime

# Records have room for 32,767 bytes, whatever the characters.
ID_CHARS_MAX = 8_000
# How soon a coordinator that could not go on with a prepared transaction tries again.
RETRY_MS = 100
# Transactions in one answer. Writing it is one step of the loop.
LISTED_MAX = 100_000
TOO_MANY = ApiError(
    ErrorKind.INVALID_REQUEST,
    f"more than {LISTED_MAX:,} transactional ids; ask by state, producer id, duration or pattern",
)
TOO_LONG = ApiError(ErrorKind.INVALID_REQUEST, f"a transactional id has 1 to {ID_CHARS_MAX} characters")
NOT_SURE = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE, "this broker has lost contact with the controller; try again"
)
LEVEL_TOO_LOW = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    f"transactions need {METADATA_VERSION} {TRANSACTIONS_LEVEL}; see `penstock cluster upgrade`",
)


@dataclass(frozen=True, slots=True)
class TransactionServiceOptions:
    """Options of the transactions on this node."""

    machine: TransactionOptions = field(default_factory=TransactionOptions)
    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)


def transaction_options_of(
    image: MetadataImage, node_id: NodeId, static: Mapping[str, str] = NO_CONFIGS
) -> TransactionServiceOptions:
    """The options under Kafka's names, as they are when the node starts."""

    def number(key: str) -> int:
        value = broker_setting(image, key, node_id, static)
        assert isinstance(value, int), key
        return value

    return TransactionServiceOptions(
        TransactionOptions(
            timeout_ms_max=number("transaction.max.timeout.ms"),
            id_expiration_ms=number("transactional.id.expiration.ms"),
        )
    )


class MarkerSender(Protocol):
    """Tells partitions, wherever they are led, how a transaction ended."""

    def send(
        self, marker: TransactionMarker, is_current: Callable[[], bool], done: Callable[[bool], None]
    ) -> None:
        """Send until every partition has the marker (True), or until it is not current any more (False)."""


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    """What transactions need besides coordinators: producer ids, a way to the partitions, metrics."""

    next_producer_id: Callable[[OnProducerId], None]
    markers: MarkerSender
    metrics: TransactionMetrics = field(default_factory=TransactionMetrics)


class TransactionService:
    """Passes commands to the coordinator of their transactional id, and ends what is prepared.

    Call `on_metadata` after `ReplicaManager.on_metadata`.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: LedPartitions,
        topics: InternalTopicCreator,
        ports: TransactionPorts,
        options: TransactionServiceOptions | None = None,
    ) -> None:
        options = options or TransactionServiceOptions()
        self._ports = ports
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._lease = partitions.lease
        spec: CoordinatorSpec[TransactionCoordinator, Command, Fact] = CoordinatorSpec(
            TRANSACTIONS_TOPIC,
            lambda: TransactionCoordinator(options.machine),
            transaction_records,
            TransactionObserver(ports.metrics, self._markers_due),
            (VerifyPartitions, DescribeTransaction, ListTransactions, FindPrepared),
        )
        self._coordinators = Coordinators(node_id, runtime, partitions, topics, spec, options.coordinator)
        self._image = MetadataImage()
        # Transactions whose markers are being sent, and the coordinator that they were found at.
        self._ending: dict[str, Coordinator[TransactionCoordinator, Command, Fact]] = {}
        ports.metrics.open.read(self._count_open)

    def submit(self, command: Command) -> None:
        """Serve a command about one transactional id or sink; its callback gets the reply, maybe at once."""
        assert not isinstance(command, ListTransactions), "this is not about one transactional id"
        key = command.sink if isinstance(command, CommitBatch) else command.transactional_id
        error = self._problem_with(key)
        coordinator = error or self._coordinators.find(sink_of(key))
        if isinstance(coordinator, ApiError):
            command.on_reply(coordinator)
        elif isinstance(command, InitProducer | EndTransaction):
            self._submit_with_id(coordinator, command)
        else:
            coordinator.submit(command)

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        """Whether the transaction has the partition, if its coordinator is here and can tell at once."""
        if self._problem_with(transactional_id) is not None:
            return False
        coordinator = self._coordinators.find(sink_of(transactional_id))
        if isinstance(coordinator, ApiError) or not coordinator.is_settled:
            return False
        producer = ProducerIdentity(ProducerId(producer_id), ProducerEpoch(producer_epoch))
        return coordinator.machine.has_partition(transactional_id, producer, partition)

    def list_transactions(
        self,
        states: tuple[TransactionState, ...],
        producer_ids: tuple[int, ...],
        duration_ms_min: int,
        pattern: str | None,
        done: Callable[[ListedTransactions | ApiError], None],
    ) -> None:
        """The transactional ids of every coordinator on this node; an error while one of them loads."""
        if self._clock.now() >= self._lease.until:
            done(NOT_SURE)
            return
        finish = partial(self._finish_listing, done)
        if pattern:
            try:
                finish = partial(self._keep_matching, TopicPattern(pattern), finish)
            except InvalidPattern as error:
                done(ApiError(ErrorKind.INVALID_REGULAR_EXPRESSION, str(error)))
                return

        def gathered(listed: list[ListedTransactions] | ApiError) -> None:
            if isinstance(listed, ApiError):
                done(listed)
            else:
                finish([each.transactions for each in listed])

        self._coordinators.ask_each(
            lambda on_reply: ListTransactions(
                on_reply=on_reply,
                states=states,
                producer_ids=producer_ids,
                duration_ms_min=duration_ms_min,
            ),
            gathered,
        )

    def _keep_matching(
        self,
        pattern: TopicPattern,
        finish: Callable[[list[tuple[TransactionStored, ...]]], None],
        listed: list[tuple[TransactionStored, ...]],
    ) -> None:
        """Compare the ids with the pattern, in each turn of the loop some of one coordinator."""
        steps = _matching(pattern, listed)

        def go_on() -> None:
            try:
                next(steps)
            except StopIteration as end:
                finish(end.value)
            else:
                self._timers.soon(go_on)

        go_on()

    def _finish_listing(
        self,
        done: Callable[[ListedTransactions | ApiError], None],
        listed: list[tuple[TransactionStored, ...]],
    ) -> None:
        if sum(map(len, listed)) > LISTED_MAX:
            done(TOO_MANY)
        else:
            found = ListedTransactions(tuple(sorted(chain.from_iterable(listed), key=_id)))
            self._timers.soon(partial(done, found))

    def locate(self, transactional_id: str, done: Callable[[NodeId | ApiError], None]) -> None:
        """Find the node that coordinates the id; the transaction topic is created on the first call."""
        error = self._problem_with(transactional_id)
        if error is not None:
            done(error)
        else:
            self._coordinators.locate(sink_of(transactional_id), done)

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        self._image = image
        self._coordinators.on_metadata(image)

    def roles_changed(self) -> None:
        """The node leads other partitions than before."""
        self._coordinators.on_leadership_change()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._coordinators.stop()

    def __iter__(self) -> Iterator[Coordinator[TransactionCoordinator, Command, Fact]]:
        return iter(self._coordinators)

    def _count_open(self) -> int:
        return sum(coordinator.machine.open_transactions for coordinator in self._coordinators)

    def _problem_with(self, transactional_id: str) -> ApiError | None:
        if not 0 < len(transactional_id) <= ID_CHARS_MAX:
            return TOO_LONG
        # Nodes of a version without transactions would coordinate some ids, or be asked to write markers.
        return LEVEL_TOO_LOW if self._image.feature_level(METADATA_VERSION) < TRANSACTIONS_LEVEL else None

    def _submit_with_id(
        self,
        coordinator: Coordinator[TransactionCoordinator, Command, Fact],
        command: InitProducer | EndTransaction,
    ) -> None:
        """Submit a command that may need a new producer id, and then once more with one."""

        def replied(reply: Reply) -> None:
            if isinstance(reply, ProducerIdNeeded):
                self._ports.next_producer_id(partial(self._submit_again, coordinator, command))
            else:
                command.on_reply(reply)

        coordinator.submit(replace(command, on_reply=replied))

    def _submit_again(
        self,
        coordinator: Coordinator[TransactionCoordinator, Command, Fact],
        command: InitProducer | EndTransaction,
        producer_id: ProducerId | ApiError,
    ) -> None:
        if isinstance(producer_id, ApiError):
            detail = f"no producer id: {producer_id}"
            command.on_reply(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, detail))
        else:
            coordinator.submit(replace(command, new_producer_id=producer_id))

    def _markers_due(self, transactional_id: str) -> None:
        # Not now: the machine is in the middle of a step.
        self._timers.soon(partial(self._find_prepared, transactional_id))

    def _find_prepared(self, transactional_id: str) -> None:
        coordinator = self._coordinators.find(sink_of(transactional_id))
        if isinstance(coordinator, ApiError):
            # Not ours any more, or its log is opened again: whoever reads it begins with what is prepared.
            return

        def found(reply: Reply) -> None:
            if isinstance(reply, PreparedTransaction):
                if reply.transaction is not None:
                    self._end(coordinator, reply.transaction)
            elif _is_open(coordinator):
                self._later(partial(self._find_prepared, transactional_id))

        coordinator.submit(FindPrepared(on_reply=found, transactional_id=transactional_id))

    def _later(self, fire: Callable[[], None]) -> None:
        self._timers.at(Instant(self._clock.now() + RETRY_MS * MILLISECOND), fire)

    def _end(
        self, coordinator: Coordinator[TransactionCoordinator, Command, Fact], prepared: TransactionStored
    ) -> None:
        if self._ending.get(prepared.transactional_id) is coordinator:
            return
        self._ending[prepared.transactional_id] = coordinator
        marker = TransactionMarker(
            prepared.producer_id,
            prepared.producer_epoch,
            coordinator.partition.leader_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.client_version,
            prepared.partitions,
        )

        def sent(everywhere: bool) -> None:
            # Before it is completed: then the next transaction may be prepared at once.
            if self._ending.get(prepared.transactional_id) is coordinator:
                del self._ending[prepared.transactional_id]
            if everywhere:
                self._complete(coordinator, prepared)
            elif _is_open(coordinator):
                self._later(partial(self._find_prepared, prepared.transactional_id))

        self._ports.markers.send(marker, partial(_is_open, coordinator), sent)

    def _complete(
        self, coordinator: Coordinator[TransactionCoordinator, Command, Fact], prepared: TransactionStored
    ) -> None:
        def completed(reply: Reply) -> None:
            if isinstance(reply, TransactionOk) or not _is_open(coordinator):
                return
            # Not this command again: the log may have been read again, and the markers be sent again. One
            # that arrives after the completion would end the next transaction.
            self._later(partial(self._find_prepared, prepared.transactional_id))

        coordinator.submit(
            CompleteTransaction(
                on_reply=completed,
                transactional_id=prepared.transactional_id,
                producer=ProducerIdentity(prepared.producer_id, prepared.producer_epoch),
            )
        )


def _is_open(coordinator: Coordinator[TransactionCoordinator, Command, Fact]) -> bool:
    """Whether this node still leads what the coordinator was made for."""
    return coordinator.state is not CoordinatorState.CLOSED


def _matching(
    pattern: TopicPattern, listed: list[tuple[TransactionStored, ...]]
) -> Generator[None, None, list[tuple[TransactionStored, ...]]]:
    """Those of each coordinator whose id matches; pauses after each, and within."""
    kept = []
    for transactions in listed:
        by_id = {transaction.transactional_id: transaction for transaction in transactions}
        names = yield from pattern.search(list(by_id))
        kept.append(tuple(by_id[name] for name in names))
        yield
    return kept


def _id(transaction: TransactionStored) -> str:
    return transaction.transactional_id
