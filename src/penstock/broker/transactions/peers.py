"""What coordinators and partition leaders ask of each other, on this node or another.

    coordinator ── write_markers ──► WriteMarkers ──► MarkerWriter of the partitions' leader
    leader ── ask ─────────────────► AskPartitions ─► TransactionService of the id's coordinator

This node itself is asked without a message. A request that got no reply may have been carried out: both
kinds can be repeated.

Markers that got no reply may also still be under way, on a link that has ended for the sender. When they
arrive behind their repetition, the next transaction may be open, and that of an older client has the
same epoch: they are refused (`MarkerOrder`).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import (
    AskPartitions,
    AskPartitionsReply,
    Respond,
    RpcError,
    RpcReply,
    WriteMarkers,
    WriteMarkersReply,
)
from penstock.broker.transactions.markers import MarkerResults, TransactionMarker
from penstock.core.model import ApiError, ErrorKind, NodeId, ProducerEpoch, ProducerId, TopicPartition
from penstock.core.transactions import (
    EPOCH_PER_TRANSACTION,
    AddPartitions,
    Command,
    PartitionResults,
    ProducerIdentity,
    Reply,
    VerifyPartitions,
)

# How long a leader waits for a coordinator, and a coordinator for a leader that waits for its replicas.
ASK_TIMEOUT_MS = 2_000
WRITE_TIMEOUT_MS = 3_000
# Producers whose last markers are remembered. Requests are overtaken within seconds.
PRODUCERS_MAX = 50_000
UNREACHABLE = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "the transaction coordinator cannot be reached")
NO_LEADER = ApiError(ErrorKind.NOT_LEADER, "the partition's leader cannot be reached")
OVERTAKEN = ApiError(ErrorKind.NOT_LEADER, "a later request of the coordinator has arrived before")
NOTHING = ApiError(ErrorKind.INVALID_REQUEST)
PartitionErrors: TypeAlias = Mapping[TopicPartition, ApiError | None]


class TransactionCoordinators(Protocol):
    """The transaction coordinators of the cluster, and the commands of those that are here."""

    def submit(self, command: Command) -> None: ...

    def locate(self, transactional_id: str, done: Callable[[NodeId | ApiError], None]) -> None: ...

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool: ...


class LocalMarkerWriter(Protocol):
    """Writes markers into the partitions that this node leads."""

    def write(self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]) -> None: ...


class MarkerOrder:
    """Which markers come behind later ones of the same coordinator."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._max = producers_max
        # By producer, the one heard of last at the end: coordinator epoch and order of its last request.
        self._last: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def is_overtaken(self, marker: TransactionMarker, order: int) -> bool:
        """Note the marker; returns whether it is late. The sender repeats it, if it still has a reason to."""
        if marker.transaction_version >= EPOCH_PER_TRANSACTION:
            return False
        epoch, last = self._last.get(marker.producer_id, (marker.coordinator_epoch, order))
        if epoch == marker.coordinator_epoch and order < last:
            return True
        if epoch <= marker.coordinator_epoch:
            self._last[marker.producer_id] = (marker.coordinator_epoch, order)
            self._last.move_to_end(marker.producer_id)
            if len(self._last) > self._max:
                self._last.popitem(last=False)
        return False


class TransactionPeers:
    """Sends requests about transactions to the nodes they are for, and serves those of others."""

    def __init__(self, rpc: PeerRpc, node_id: NodeId) -> None:
        self._rpc = rpc
        self._node_id = node_id
        self._coordinators: TransactionCoordinators | None = None
        self._writer: LocalMarkerWriter | None = None
        self._order = MarkerOrder()
        self._sent = 0
        rpc.serve(AskPartitions, self._on_ask)
        rpc.serve(WriteMarkers, self._on_write)

    def serve(self, coordinators: TransactionCoordinators, writer: LocalMarkerWriter) -> None:
        """Have these carry out requests; before, this node refuses them."""
        self._coordinators = coordinators
        self._writer = writer

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        """Whether a coordinator on this node can say at once that the transaction has the partition."""
        return self._coordinators is not None and self._coordinators.confirms_now(
            transactional_id, producer_id, producer_epoch, partition
        )

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Add partitions to a transaction, or ask whether they are in it; `done` is called once."""
        question = AskPartitions(
            transactional_id, producer_id, producer_epoch, tuple(partitions), verify_only
        )

        def located(node: NodeId | ApiError) -> None:
            if isinstance(node, ApiError):
                done(dict.fromkeys(partitions, node))
            elif node == self._node_id:
                self._ask_here(question, lambda results: done(dict(zip(partitions, results, strict=True))))
            elif not self._rpc.call(node, question, ASK_TIMEOUT_MS, answered):
                done(dict.fromkeys(partitions, UNREACHABLE))

        def answered(reply: RpcReply | None) -> None:
            if isinstance(reply, AskPartitionsReply) and len(reply.results) == len(partitions):
                done(dict(zip(partitions, map(_read_error, reply.results), strict=True)))
            else:
                done(dict.fromkeys(partitions, UNREACHABLE))

        if self._coordinators is None:
            done(dict.fromkeys(partitions, UNREACHABLE))
        else:
            self._coordinators.locate(transactional_id, located)

    def write_markers(
        self, node: NodeId, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        """Have the node write markers into partitions that it leads; `done` is called once."""

        def answered(reply: RpcReply | None) -> None:
            if isinstance(reply, WriteMarkersReply) and _fits(reply, markers):
                done(
                    [
                        dict(zip(marker.partitions, map(_read_error, row), strict=True))
                        for marker, row in zip(markers, reply.results, strict=True)
                    ]
                )
            else:
                done(_nowhere(markers))

        self._sent += 1
        question = WriteMarkers(tuple(markers), self._sent)
        if node == self._node_id and self._writer is not None:
            self._writer.write(markers, done)
        elif node == self._node_id or not self._rpc.call(node, question, WRITE_TIMEOUT_MS, answered):
            done(_nowhere(markers))

    def _ask_here(self, question: AskPartitions, done: Callable[[list[ApiError | None]], None]) -> None:
        def replied(reply: Reply) -> None:
            if isinstance(reply, PartitionResults):
                done([None if kind is None else ApiError(kind) for _, kind in reply.partitions])
            else:
                error = reply if isinstance(reply, ApiError) else NOTHING
                done([error] * len(question.partitions))

        assert self._coordinators is not None
        producer = ProducerIdentity(ProducerId(question.producer_id), ProducerEpoch(question.producer_epoch))
        command = (
            VerifyPartitions(
                on_reply=replied,
                transactional_id=question.transactional_id,
                producer=producer,
                partitions=question.partitions,
            )
            if question.verify_only
            else AddPartitions(
                on_reply=replied,
                transactional_id=question.transactional_id,
                producer=producer,
                partitions=question.partitions,
                client_version=EPOCH_PER_TRANSACTION,
            )
        )
        self._coordinators.submit(command)

    def _on_ask(self, _peer: Peer, question: AskPartitions, respond: Respond) -> None:
        def told(results: list[ApiError | None]) -> None:
            respond(AskPartitionsReply(tuple(map(_write_error, results))))

        if self._coordinators is None:
            # It is about to start: whoever asks need not wait for longer than that.
            told([UNREACHABLE] * len(question.partitions))
        else:
            self._ask_here(question, told)

    def _on_write(self, _peer: Peer, question: WriteMarkers, respond: Respond) -> None:
        markers = [TransactionMarker(*row) for row in question.markers]

        def written(results: MarkerResults) -> None:
            respond(
                WriteMarkersReply(
                    tuple(
                        tuple(_write_error(errors.get(partition)) for partition in marker.partitions)
                        for marker, errors in zip(markers, results, strict=True)
                    )
                )
            )

        if self._writer is None:
            written(_nowhere(markers))
            return
        late = [self._order.is_overtaken(marker, question.order) for marker in markers]
        if any(late):
            written([dict.fromkeys(marker.partitions, OVERTAKEN) for marker in markers])
        else:
            self._writer.write(markers, written)


def _fits(reply: WriteMarkersReply, markers: Sequence[TransactionMarker]) -> bool:
    return [len(row) for row in reply.results] == [len(marker.partitions) for marker in markers]


def _nowhere(markers: Sequence[TransactionMarker]) -> MarkerResults:
    return [dict.fromkeys(marker.partitions, NO_LEADER) for marker in markers]


def _read_error(error: RpcError | None) -> ApiError | None:
    return None if error is None else ApiError(error.kind, error.detail)


def _write_error(error: ApiError | None) -> RpcError | None:
    return None if error is None else RpcError(error.kind, error.detail)
