"""What the nodes ask of each other about queues.

    leader, consumer ── submit ──────────► SubmitQueueCommand ──► QueueService of the queue's coordinator
    coordinator ── records_ready, … ─────► NotifyQueueLeader ───► QueueView of the data partition's leader
    any node ── receive ─────────────────► ReceiveRecords ──────► QueueView of the data partition's leader
    any node ── await_records ───────────► AwaitRecords ────────► QueueView of the data partitions' leader
    leader ── submit_transaction ────────► SubmitTransaction ───► TransactionService of the id's coordinator
    leader ── append ────────────────────► AppendInTransaction ─► ProduceService of the partition's leader

This node itself is asked without a message. A request that got no reply may have been carried out, and one
that was given up may still arrive: offers and openings of a leader epoch can be repeated and overtaken;
leases that nobody heard of end by themselves.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import (
    AppendInTransaction,
    AppendInTransactionReply,
    AwaitRecords,
    AwaitRecordsReply,
    NotifyQueueLeader,
    NotifyQueueLeaderReply,
    ReceiveRecords,
    ReceiveRecordsReply,
    Respond,
    RpcError,
    RpcReply,
    SubmitQueueCommand,
    SubmitQueueCommandReply,
    SubmitTransaction,
    SubmitTransactionReply,
)
from penstock.broker.coordinator.queues import LEVEL_TOO_LOW
from penstock.broker.queues.command_codec import (
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from penstock.core.metadata import NO_LEADER, MetadataImage
from penstock.core.metadata.levels import METADATA_VERSION, QUEUES_LEVEL
from penstock.core.model import (
    ApiError,
    ErrorKind,
    NodeId,
    Offset,
    PartitionIndex,
    ProtocolError,
    TopicId,
    TopicPartition,
)
from penstock.core.queues import QueueCommand, QueueId, Receipt, write_receipt
from penstock.core.records import Record, RecordSlice, records_in
from penstock.core.transactions import Command, EndTransaction, InitProducer
from penstock.core.values import dataclass
from penstock.runtime import Callback

# A coordinator waits for its replicas for 5 s before it says that it cannot tell.
COMMAND_TIMEOUT_MS = 6_000
NOTICE_TIMEOUT_MS = 2_000
UNREACHABLE = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached")
NO_LEADER_HERE = ApiError(ErrorKind.NOT_LEADER, "the partition's leader cannot be reached")
UNKNOWN = ApiError(ErrorKind.UNKNOWN_PARTITION, "there is no such partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveRequest:
    """What a consumer wants of one queue."""

    queue: QueueId
    consumer: str
    records_max: int
    # Fewer records are leased where large ones are among them. One record may be larger.
    bytes_max: int = 1 << 20
    # How long to wait if there is nothing to deliver.
    wait_ms: int = 0
    lease_ms: int | None = None
    # These records and no others; empty: whichever are next.
    offsets: tuple[Offset, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """A record that was leased: the how-manieth delivery it is, and the receipt to settle it with."""

    record: Record
    attempt: int
    receipt: str


class LeasedSlice(NamedTuple):
    """Neighbouring records of the log that were leased: the how-manieth delivery that is for each of them."""

    attempt: int
    piece: RecordSlice


@dataclass(frozen=True, slots=True)
class ReceivedRecords:
    """What was leased, the most urgent first. Consumers count `lease_ms` from when they asked."""

    queue: QueueId
    slices: tuple[LeasedSlice, ...] = ()
    token: int = 0
    lease_ms: int = 0
    is_paused: bool = False

    @property
    def records(self) -> tuple[DeliveredRecord, ...]:
        """One by one, decoded."""
        _, topic_id, partition = self.queue
        return tuple(
            [
                DeliveredRecord(
                    record,
                    attempt,
                    write_receipt(Receipt(topic_id, partition, Offset(record.offset), attempt, self.token)),
                )
                for attempt, piece in self.slices
                for record in records_in(piece)
            ]
        )


class ReadyQueues(NamedTuple):
    """Queues that may have records to lease; `is_news`: nobody else was told."""

    queues: tuple[QueueId, ...] = ()
    is_news: bool = False


OnReceived: TypeAlias = Callable[[ReceivedRecords | ApiError], None]
# None: the leader cannot be asked.
OnReady: TypeAlias = Callable[[ReadyQueues | None], None]
OnAppended: TypeAlias = Callable[[ApiError | None], None]


class QueueCoordinators(Protocol):
    """Where queues are coordinated."""

    def locate(self, queue: QueueId, done: Callable[[NodeId | ApiError], None]) -> None: ...


class LocalCommands(Protocol):
    """Commands to the queues of this node, also in transactions."""

    def submit(self, command: QueueCommand, transactional_id: str | None) -> None: ...


class LocalLeaders(Protocol):
    """The queues of the data partitions that this node leads."""

    def receive_here(self, request: ReceiveRequest, done: OnReceived) -> None: ...

    def await_records_here(self, queues: Sequence[QueueId], wait_ms: int, done: OnReady) -> Callback: ...

    def records_ready_here(self, queue: QueueId) -> None: ...

    def dead_letters_due_here(self, queue: QueueId) -> None: ...


class LocalTransactions(Protocol):
    """The transactions of the cluster."""

    def submit(self, command: Command) -> None: ...

    def locate(self, transactional_id: str, done: Callable[[NodeId | ApiError], None]) -> None: ...


class LocalAppender(Protocol):
    """Appends transactional batches to partitions that this node leads."""

    def append(
        self, partition: TopicPartition, transactional_id: str, batch: bytes, done: OnAppended
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class QueuePorts:
    """What of this node carries out requests."""

    coordinators: QueueCoordinators
    commands: LocalCommands
    leaders: LocalLeaders
    transactions: LocalTransactions
    appender: LocalAppender


class QueuePeers:
    """Sends requests about queues to the nodes they are for, and serves those of others."""

    def __init__(self, rpc: PeerRpc, node_id: NodeId) -> None:
        self._rpc = rpc
        self._node_id = node_id
        self._image = MetadataImage()
        self._ports: QueuePorts | None = None
        rpc.serve(SubmitQueueCommand, self._on_submit)
        rpc.serve(NotifyQueueLeader, self._on_notice)
        rpc.serve(ReceiveRecords, self._on_receive)
        rpc.serve(AwaitRecords, self._on_await)
        rpc.serve(SubmitTransaction, self._on_transaction)
        rpc.serve(AppendInTransaction, self._on_append)

    def serve(self, ports: QueuePorts) -> None:
        """Have these carry out requests; before, this node refuses them."""
        self._ports = ports

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def submit(self, command: QueueCommand, transactional_id: str | None = None) -> None:
        """Have the queue's coordinator decide; the command's callback gets the reply, perhaps at once."""
        ports = self._ports
        if ports is None:
            command.on_reply(UNREACHABLE)
            return

        def located(node: NodeId | ApiError) -> None:
            if isinstance(node, ApiError):
                command.on_reply(node)
            elif node == self._node_id:
                ports.commands.submit(command, transactional_id)
            else:
                try:
                    question = SubmitQueueCommand(*encode_command(command), transactional_id)
                except ProtocolError as error:
                    command.on_reply(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
                    return
                if not self._rpc.call(node, question, COMMAND_TIMEOUT_MS, answered):
                    command.on_reply(UNREACHABLE)

        def answered(reply: RpcReply | None) -> None:
            command.on_reply(_read(reply) if isinstance(reply, SubmitQueueCommandReply) else UNREACHABLE)

        ports.coordinators.locate(command.queue, located)

    def submit_transaction(self, command: InitProducer | EndTransaction) -> None:
        """The same for a transaction of the node itself."""
        ports = self._ports
        if ports is None:
            command.on_reply(UNREACHABLE)
            return

        def located(node: NodeId | ApiError) -> None:
            if isinstance(node, ApiError):
                command.on_reply(node)
            elif node == self._node_id:
                ports.transactions.submit(command)
            else:
                question = SubmitTransaction(*encode_command(command))
                if not self._rpc.call(node, question, COMMAND_TIMEOUT_MS, answered):
                    command.on_reply(UNREACHABLE)

        def answered(reply: RpcReply | None) -> None:
            command.on_reply(_read(reply) if isinstance(reply, SubmitTransactionReply) else UNREACHABLE)

        ports.transactions.locate(command.transactional_id, located)

    def append(
        self, partition: TopicPartition, transactional_id: str, batch: bytes, done: OnAppended
    ) -> None:
        """Have the partition's leader append a batch; `done` is called once, when it is committed."""
        placed = self._image.partition(*partition)
        if placed is None:
            done(UNKNOWN)
        elif placed.leader == self._node_id and self._ports is not None:
            self._ports.appender.append(partition, transactional_id, batch, done)
        else:

            def answered(reply: RpcReply | None) -> None:
                known = isinstance(reply, AppendInTransactionReply)
                done(_read_error(reply.error) if known else NO_LEADER_HERE)  # type: ignore[union-attr]

            question = AppendInTransaction(partition, transactional_id, batch)
            if placed.leader == NO_LEADER or not self._rpc.call(
                placed.leader, question, COMMAND_TIMEOUT_MS, answered
            ):
                done(NO_LEADER_HERE)

    def receive(self, request: ReceiveRequest, done: OnReceived) -> None:
        """Have the data partition's leader lease records; `done` is called once."""
        leader = self.leader_of(request.queue)
        if isinstance(leader, ApiError):
            done(leader)
            return
        if leader == self._node_id:
            if self._ports is None:
                done(NO_LEADER_HERE)
            else:
                self._ports.leaders.receive_here(request, done)
            return

        def answered(reply: RpcReply | None) -> None:
            done(
                _received(request.queue, reply) if isinstance(reply, ReceiveRecordsReply) else NO_LEADER_HERE
            )

        question = ReceiveRecords(
            *request.queue,
            request.consumer,
            request.records_max,
            request.bytes_max,
            request.wait_ms,
            request.lease_ms,
            request.offsets,
        )
        timeout_ms = request.wait_ms + COMMAND_TIMEOUT_MS
        if not self._rpc.call(leader, question, timeout_ms, answered):
            done(NO_LEADER_HERE)

    def leader_of(self, queue: QueueId) -> NodeId | ApiError:
        """The node that serves consumers of the queue."""
        if self._image.feature_level(METADATA_VERSION) < QUEUES_LEVEL:
            return LEVEL_TOO_LOW
        return self._leader_of(queue)

    def await_records(
        self, leader: NodeId, queues: Sequence[QueueId], wait_ms: int, done: OnReady
    ) -> Callback:
        """Ask which of a group's queues may have records, of partitions with this leader.

        `done` is called once, perhaps at once, unless what is returned is called before: that ends the
        wait. Another node is not told of it, and what it says then is told the queue's other consumers.
        """
        if self._ports is not None and leader == self._node_id:
            return self._ports.leaders.await_records_here(queues, wait_ms, done)
        group_id = queues[0].group_id
        is_cancelled = False

        def cancel() -> None:
            nonlocal is_cancelled
            is_cancelled = True

        def answered(reply: RpcReply | None) -> None:
            ready = _ready(group_id, reply) if isinstance(reply, AwaitRecordsReply) else None
            if not is_cancelled:
                done(ready)
            elif ready is not None and ready.is_news:
                for queue in ready.queues:
                    self.records_ready(queue)

        rows = tuple((queue.topic_id, int(queue.partition)) for queue in queues)
        question = AwaitRecords(group_id, rows, wait_ms)
        if not self._rpc.call(leader, question, wait_ms + COMMAND_TIMEOUT_MS, answered):
            done(None)
        return cancel

    def records_ready(self, queue: QueueId) -> None:
        """Tell the leader of the data partition, once."""
        self._notify(queue, are_ready=True)

    def dead_letters_due(self, queue: QueueId) -> None:
        """Tell the leader of the data partition, once."""
        self._notify(queue, has_dead_letters=True)

    def _notify(self, queue: QueueId, *, are_ready: bool = False, has_dead_letters: bool = False) -> None:
        leader = self._leader_of(queue)
        if isinstance(leader, ApiError):
            return
        notice = NotifyQueueLeader(*queue, are_ready, has_dead_letters)
        if leader == self._node_id:
            self._take(notice)
        else:
            self._rpc.call(leader, notice, NOTICE_TIMEOUT_MS, lambda _: None)

    def _leader_of(self, queue: QueueId) -> NodeId | ApiError:
        topic = self._image.topic_by_id(queue.topic_id)
        placed = None if topic is None else topic.partition(queue.partition)
        if placed is None:
            return UNKNOWN
        return NO_LEADER_HERE if placed.leader == NO_LEADER else placed.leader

    def _take(self, notice: NotifyQueueLeader) -> None:
        if self._ports is None:
            return
        queue = _queue(notice.group_id, notice.topic_id, notice.partition)
        if notice.are_ready:
            self._ports.leaders.records_ready_here(queue)
        if notice.has_dead_letters:
            self._ports.leaders.dead_letters_due_here(queue)

    def _on_submit(self, _peer: Peer, question: SubmitQueueCommand, respond: Respond) -> None:
        def replied(reply: Any) -> None:
            respond(SubmitQueueCommandReply(*encode_reply(reply)))

        try:
            command = decode_command(question.name, question.content, replied)
        except ProtocolError as error:
            replied(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
            return
        if self._ports is None:
            replied(UNREACHABLE)
        else:
            self._ports.commands.submit(command, question.transactional_id)

    def _on_transaction(self, _peer: Peer, question: SubmitTransaction, respond: Respond) -> None:
        def replied(reply: Any) -> None:
            respond(SubmitTransactionReply(*encode_reply(reply)))

        try:
            command = decode_command(question.name, question.content, replied)
        except ProtocolError as error:
            replied(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
            return
        if self._ports is None:
            replied(UNREACHABLE)
        else:
            self._ports.transactions.submit(command)

    def _on_notice(self, _peer: Peer, notice: NotifyQueueLeader, respond: Respond) -> None:
        self._take(notice)
        respond(NotifyQueueLeaderReply())

    def _on_receive(self, _peer: Peer, question: ReceiveRecords, respond: Respond) -> None:
        def done(reply: ReceivedRecords | ApiError) -> None:
            respond(_receive_reply(reply))

        if self._ports is None:
            done(NO_LEADER_HERE)
            return
        request = ReceiveRequest(
            queue=_queue(question.group_id, question.topic_id, question.partition),
            consumer=question.consumer,
            records_max=question.records_max,
            bytes_max=question.bytes_max,
            wait_ms=question.wait_ms,
            lease_ms=question.lease_ms,
            offsets=tuple(map(Offset, question.offsets)),
        )
        self._ports.leaders.receive_here(request, done)

    def _on_await(self, _peer: Peer, question: AwaitRecords, respond: Respond) -> None:
        def done(ready: ReadyQueues | None) -> None:
            found = ready or ReadyQueues()
            rows = tuple((queue.topic_id, int(queue.partition)) for queue in found.queues)
            respond(AwaitRecordsReply(rows, found.is_news))

        if self._ports is not None and question.queues:
            queues = [_queue(question.group_id, *each) for each in question.queues]
            self._ports.leaders.await_records_here(queues, question.wait_ms, done)

    def _on_append(self, _peer: Peer, question: AppendInTransaction, respond: Respond) -> None:
        def done(error: ApiError | None) -> None:
            respond(AppendInTransactionReply(None if error is None else RpcError(error.kind, error.detail)))

        if self._ports is None:
            done(NO_LEADER_HERE)
        else:
            self._ports.appender.append(question.partition, question.transactional_id, question.batch, done)


def _queue(group_id: str, topic_id: Any, partition: int) -> QueueId:
    return QueueId(group_id, TopicId(topic_id), PartitionIndex(partition))


def _ready(group_id: str, reply: AwaitRecordsReply) -> ReadyQueues:
    return ReadyQueues(tuple(_queue(group_id, *each) for each in reply.queues), reply.is_news)


def _read(reply: SubmitQueueCommandReply | SubmitTransactionReply) -> Any:
    try:
        return decode_reply(reply.name, reply.content)
    except ProtocolError as error:
        return ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, str(error))


def _read_error(error: RpcError | None) -> ApiError | None:
    return None if error is None else ApiError(error.kind, error.detail)


def _receive_reply(reply: ReceivedRecords | ApiError) -> ReceiveRecordsReply:
    if isinstance(reply, ApiError):
        return ReceiveRecordsReply(error=RpcError(reply.kind, reply.detail))
    rows = tuple((attempt, *piece) for attempt, piece in reply.slices)
    return ReceiveRecordsReply(rows, reply.token, reply.lease_ms, reply.is_paused)


def _received(queue: QueueId, reply: ReceiveRecordsReply) -> ReceivedRecords | ApiError:
    if reply.error is not None:
        return ApiError(reply.error.kind, reply.error.detail)
    slices = tuple(LeasedSlice(row[0], RecordSlice(*row[1:])) for row in reply.slices)
    return ReceivedRecords(queue, slices, reply.token, reply.lease_ms, reply.is_paused)
