"""Requests between the nodes of a cluster, besides Raft and records: the control channel.

    CommandForwarder ── SubmitCommand ──┐             commands, decided by the leader
    BrokerHeartbeat ─── SendHeartbeat ──┼─► PeerRpc   sessions of brokers, kept by the leader
    Bootstrap ───────── Introduction ───┤             which nodes exist, and where
    QuorumJoiner ────── JoinQuorum ─────┤             newcomers
    TransactionPeers ── WriteMarkers ───┤             what coordinators and partition leaders ask
                        AskPartitions                 of each other
    QueuePeers ──────── SubmitQueueCommand ┘          what consumers and partition leaders ask of queues,
                        ReceiveRecords, …             and how dead letters are moved
    DelayPeers ──────── SubmitDelayCommand            records that are published later
    AuditTopic ──────── AppendAudit                   entries of audit logs, for the leader of `__audit`
    LiveBrokersBarrier  AwaitMetadata                 who may what counts on every broker

A request gets one reply, or none: then the caller is notified that it was lost, because the link
ended or the timeout passed. A request that arrives twice is handled once. Nothing is retried
automatically, since only the caller knows whether that is safe.

A message may get new fields with defaults: nodes that do not know them skip them. A new message is
sent only at a level of `metadata.version` that knows it; those of a bootstrap never change otherwise.

    frame     version 1 │ 0 request, 1 reply │ kind 1 │ number 8 │ MessagePack of the message

Left out: requests that are larger than a frame; priorities among requests.
"""

import enum
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args
from uuid import UUID

import msgspec
from msgspec import Struct

from penstock.broker.cluster.peers import BasePeerWatcher, Channel, Peer, PeerManager
from penstock.core.metadata import Command, FeatureRange, Reply
from penstock.core.model import (
    MILLISECOND,
    BrokerEpoch,
    ErrorKind,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    ProtocolError,
    Timestamp,
    TopicPartition,
)
from penstock.core.raft import Configuration
from penstock.observability import log as events
from penstock.runtime import Address, CloseReason, Runtime, Timer

VERSION = 1
_HEAD = struct.Struct("<BBBQ")
_COMMANDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Command)}
_REPLIES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Reply)}
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}
_encode = msgspec.msgpack.Encoder().encode
# How many requests of one node are remembered, to recognise duplicates.
HEARD_MAX = 1_000


class Voter(NamedTuple):
    """An initial voter of the metadata quorum, and its address for peers."""

    node_id: NodeId
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class Introduction(Struct, frozen=True):
    """The sender's identity, address and configured voters; asks for the receiver's.

    `known` are the voters that the sender has reached, with their directories.
    """

    address: Address | None
    voters: tuple[Voter, ...] = ()
    known: dict[NodeId, UUID] = {}


class IntroductionReply(Struct, frozen=True):
    """The receiver: blank, or a member of a quorum. `founding` are its members, if they never changed."""

    is_member: bool
    cluster_id: UUID | None
    founding: Configuration | None
    voters: tuple[Voter, ...] = ()
    known: dict[NodeId, UUID] = {}
    # The feature levels that it supports.
    features: tuple[FeatureRange, ...] = ()


class JoinQuorum(Struct, frozen=True):
    """Make the sender a learner; with `wants_vote` a voter, once it has caught up."""

    wants_vote: bool


class JoinStatus(enum.Enum):
    """The outcome of a request to join."""

    LEARNER = "learner"
    VOTER = "voter"
    LATER = "later"
    REFUSED = "refused"


class JoinQuorumReply(Struct, frozen=True):
    """How far the newcomer is; it asks again until it is the member it wants to be."""

    how: JoinStatus
    detail: str = ""


class NotController(Struct, frozen=True):
    """The receiver does not lead, and has done nothing. `leader` leads, as far as it knows."""

    leader: NodeId | None
    address: Address | None


class SubmitCommand(Struct, frozen=True):
    """Decide this command: its name, and its content in MessagePack."""

    name: str
    content: bytes


class SubmitCommandReply(Struct, frozen=True):
    """The reply; it holds for an image that has every fact below `end`."""

    name: str
    content: bytes
    end: Offset


class SendHeartbeat(Struct, frozen=True):
    """A broker is alive. `committed` is how much metadata it has seen."""

    node_id: NodeId
    epoch: BrokerEpoch
    committed: Offset


class BrokerPresence(enum.Enum):
    """How the cluster sees a broker."""

    LIVE = "live"
    FENCED = "fenced"
    STALE = "stale"


class SendHeartbeatReply(Struct, frozen=True):
    """The reply to a heartbeat."""

    presence: BrokerPresence
    # The current epoch, if the broker's own is stale.
    epoch: BrokerEpoch | None = None
    # A live broker has the lease once its image has every fact below `end`; None: it is being fenced.
    end: Offset | None = None


class RequestReadIndex(Struct, frozen=True):
    """Ask for the log end that covers everything acknowledged so far."""


class ReadIndexReply(Struct, frozen=True):
    """The log end to catch up with."""

    end: Offset


class QuorumMemberStatus(Struct, frozen=True):
    """One voter or learner: where its log ends, when it was heard, and when it last had everything."""

    node_id: NodeId
    directory_id: UUID
    log_end: Offset
    heard_at: Timestamp | None
    caught_up_at: Timestamp | None
    address: Address | None


class QuorumStatus(Struct, frozen=True):
    """The state of the quorum, as its leader sees it. Offsets count entries of the metadata log."""

    leader: NodeId
    epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumMemberStatus, ...]
    learners: tuple[QuorumMemberStatus, ...]


class DescribeQuorum(Struct, frozen=True):
    """Ask for a `QuorumStatus`."""


class AddVoter(Struct, frozen=True):
    """Make a node a voter."""

    node_id: NodeId
    directory_id: UUID
    address: Address | None


class RemoveVoter(Struct, frozen=True):
    """Remove a voter."""

    node_id: NodeId
    directory_id: UUID


class ChangeVotersReply(Struct, frozen=True):
    """The change is committed, or the error."""

    kind: ErrorKind | None = None
    detail: str = ""


class RpcError(Struct, frozen=True):
    """What is wrong with a part of a request."""

    kind: ErrorKind
    detail: str = ""


class WriteMarkers(Struct, frozen=True):
    """Write these transaction markers into partitions that the receiver leads.

    A row is a `TransactionMarker`: producer id and epoch, coordinator epoch, whether it commits,
    transaction version, partitions. `order` is higher in each request of a node.
    """

    markers: tuple[tuple[int, int, int, bool, int, tuple[TopicPartition, ...]], ...]
    order: int = 0


class WriteMarkersReply(Struct, frozen=True):
    """One row per marker, one entry per partition: None where the marker is committed."""

    results: tuple[tuple[RpcError | None, ...], ...]


class AskPartitions(Struct, frozen=True):
    """A leader asks a transaction's coordinator: add these partitions, or say whether they are in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool


class AskPartitionsReply(Struct, frozen=True):
    """One entry per partition: None where it is part of the transaction."""

    results: tuple[RpcError | None, ...]


class SubmitBatch(Struct, frozen=True):
    """Commit these transactions: rows of transactional id, producer id and epoch."""

    sink: str
    batch: str
    members: tuple[tuple[str, int, int], ...]


class SubmitBatchReply(Struct, frozen=True):
    """The batch is committed, or the error."""

    is_repeat: bool = False
    error: RpcError | None = None


class SubmitQueueCommand(Struct, frozen=True):
    """Decide this command about a queue: its name, and its content in MessagePack.

    `transactional_id`: the command is part of that transaction.
    """

    name: str
    content: bytes
    transactional_id: str | None = None


class SubmitQueueCommandReply(Struct, frozen=True):
    """The reply, in the same form."""

    name: str
    content: bytes


class NotifyQueueLeader(Struct, frozen=True):
    """A queue's coordinator has records for the leader of its data partition: ready ones, or dead letters."""

    group_id: str
    topic_id: UUID
    partition: int
    are_ready: bool = False
    has_dead_letters: bool = False


class NotifyQueueLeaderReply(Struct, frozen=True):
    """The leader knows."""


class ReceiveRecords(Struct, frozen=True):
    """Lease records to a consumer, and return them. To the leader of the data partition."""

    group_id: str
    topic_id: UUID
    partition: int
    consumer: str
    records_max: int
    bytes_max: int
    wait_ms: int
    lease_ms: int | None = None
    # Empty: whichever are next.
    offsets: tuple[int, ...] = ()


class ReceiveRecordsReply(Struct, frozen=True):
    """Rows of attempt, base offset, base timestamp, append time, records as in their batch; or the error."""

    slices: tuple[tuple[int, int, int, int, bytes], ...] = ()
    token: int = 0
    lease_ms: int = 0
    is_paused: bool = False
    error: RpcError | None = None


class AwaitRecords(Struct, frozen=True):
    """Say when one of these queues of a group, topic id and partition each, may have records to lease.

    To the leader of their data partitions.
    """

    group_id: str
    queues: tuple[tuple[UUID, int], ...]
    wait_ms: int


class AwaitRecordsReply(Struct, frozen=True):
    """The queues that may have records: none if the time was up first. `is_news`: nobody else was told."""

    queues: tuple[tuple[UUID, int], ...] = ()
    is_news: bool = False


class ListQueues(Struct, frozen=True):
    """Describe the queues that the receiver coordinates, of these groups and topics; none means all."""

    group_ids: tuple[str, ...] = ()
    topic_ids: tuple[UUID, ...] = ()


class ListQueuesReply(Struct, frozen=True):
    """Descriptions as in `SubmitQueueCommandReply`, and the partitions it looked into; or the error."""

    queues: tuple[bytes, ...] = ()
    error: RpcError | None = None
    partitions: tuple[int, ...] = ()


class FindLogBounds(Struct, frozen=True):
    """Where the log of a partition that the receiver leads begins, and where what is committed ends."""

    topic_id: UUID
    partition: int


class FindLogBoundsReply(Struct, frozen=True):
    """The offsets, or the error."""

    start: int = 0
    end: int = 0
    error: RpcError | None = None


class PeekQueue(Struct, frozen=True):
    """Return records of a queue without leasing them. To the leader of the data partition."""

    group_id: str
    topic_id: UUID
    partition: int
    from_offset: int
    count: int
    bytes_max: int


class PeekQueueReply(Struct, frozen=True):
    """Rows of offset, timestamp, key, value, headers, state, attempts, consumer and reason; or the error."""

    records: tuple[
        tuple[
            int,
            int,
            bytes | None,
            bytes | None,
            tuple[tuple[str, bytes | None], ...],
            int,
            int,
            str | None,
            str | None,
        ],
        ...,
    ] = ()
    next_offset: int = -1
    error: RpcError | None = None


class SubmitTransaction(Struct, frozen=True):
    """Decide this command about a transaction of a node itself; as in `SubmitQueueCommand`."""

    name: str
    content: bytes


class SubmitTransactionReply(Struct, frozen=True):
    """The reply, in the same form."""

    name: str
    content: bytes


class AppendInTransaction(Struct, frozen=True):
    """Append a transactional batch to a partition that the receiver leads."""

    partition: TopicPartition
    transactional_id: str
    batch: bytes


class AppendInTransactionReply(Struct, frozen=True):
    """The batch is committed, or the error."""

    error: RpcError | None = None


class SubmitDelayCommand(Struct, frozen=True):
    """Decide this command about delayed records: its name, and its content in MessagePack."""

    name: str
    content: bytes


class SubmitDelayCommandReply(Struct, frozen=True):
    """The reply, in the same form."""

    name: str
    content: bytes


class AppendAudit(Struct, frozen=True):
    """Append a batch of audit entries to `__audit`, which the receiver leads."""

    batch: bytes


class AppendAuditReply(Struct, frozen=True):
    """The batch is on the leader's device, or why not."""

    problem: str | None = None


class AwaitMetadata(Struct, frozen=True):
    """Reply once the receiver's committed image has every fact below `end`."""

    end: Offset


class AwaitMetadataReply(Struct, frozen=True):
    """The receiver judges by that image from now on."""


class RotateMasterKey(Struct, frozen=True):
    """Have another master key; with `reseal`, write old segments again as well."""

    reseal: bool = False


class RotateMasterKeyReply(Struct, frozen=True):
    """The current key, and whether it was another one before; or the error."""

    current: str = ""
    is_new: bool = False
    error: RpcError | None = None


class DescribeMasterKeys(Struct, frozen=True):
    """Ask a node for its `MasterKeysReply`."""


class MasterKeysReply(Struct, frozen=True):
    """The master keys of a node, and what it does about them; without a `service` it does not encrypt.

    Rows of `keys`: name, how many things are under it, some of them. Times are in ms, -1 if not known.
    """

    service: str = ""
    current: str = ""
    created_ms: int = -1
    phase: str = ""
    rotated_ms: int = -1
    logs_total: int = 0
    logs_left: int = 0
    keys: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    resealed_bytes: int = 0
    reseal_logs_total: int = 0
    reseal_logs_left: int = 0
    left_out: tuple[str, ...] = ()
    resealed_ms: int = -1
    problem: str = ""


RpcRequest: TypeAlias = (
    Introduction
    | JoinQuorum
    | SubmitCommand
    | SendHeartbeat
    | RequestReadIndex
    | DescribeQuorum
    | AddVoter
    | RemoveVoter
    | WriteMarkers
    | AskPartitions
    | SubmitBatch
    | SubmitQueueCommand
    | NotifyQueueLeader
    | ReceiveRecords
    | SubmitTransaction
    | AppendInTransaction
    | AwaitRecords
    | ListQueues
    | FindLogBounds
    | PeekQueue
    | SubmitDelayCommand
    | AppendAudit
    | AwaitMetadata
    | RotateMasterKey
    | DescribeMasterKeys
)
RpcReply: TypeAlias = (
    IntroductionReply
    | JoinQuorumReply
    | NotController
    | SubmitCommandReply
    | SendHeartbeatReply
    | ReadIndexReply
    | QuorumStatus
    | ChangeVotersReply
    | WriteMarkersReply
    | AskPartitionsReply
    | SubmitBatchReply
    | SubmitQueueCommandReply
    | NotifyQueueLeaderReply
    | ReceiveRecordsReply
    | SubmitTransactionReply
    | AppendInTransactionReply
    | AwaitRecordsReply
    | ListQueuesReply
    | FindLogBoundsReply
    | PeekQueueReply
    | SubmitDelayCommandReply
    | AppendAuditReply
    | AwaitMetadataReply
    | RotateMasterKeyReply
    | MasterKeysReply
)
RpcMessage: TypeAlias = RpcRequest | RpcReply
# The place in this list is the number on the wire: append only.
MESSAGES: tuple[type[RpcMessage], ...] = (
    Introduction,
    IntroductionReply,
    JoinQuorum,
    JoinQuorumReply,
    NotController,
    SubmitCommand,
    SubmitCommandReply,
    SendHeartbeat,
    SendHeartbeatReply,
    RequestReadIndex,
    ReadIndexReply,
    DescribeQuorum,
    QuorumStatus,
    AddVoter,
    RemoveVoter,
    ChangeVotersReply,
    WriteMarkers,
    WriteMarkersReply,
    AskPartitions,
    AskPartitionsReply,
    SubmitBatch,
    SubmitBatchReply,
    SubmitQueueCommand,
    SubmitQueueCommandReply,
    NotifyQueueLeader,
    NotifyQueueLeaderReply,
    ReceiveRecords,
    ReceiveRecordsReply,
    SubmitTransaction,
    SubmitTransactionReply,
    AppendInTransaction,
    AppendInTransactionReply,
    AwaitRecords,
    AwaitRecordsReply,
    ListQueues,
    ListQueuesReply,
    FindLogBounds,
    FindLogBoundsReply,
    PeekQueue,
    PeekQueueReply,
    SubmitDelayCommand,
    SubmitDelayCommandReply,
    AppendAudit,
    AppendAuditReply,
    AwaitMetadata,
    AwaitMetadataReply,
    RotateMasterKey,
    RotateMasterKeyReply,
    DescribeMasterKeys,
    MasterKeysReply,
)
_NUMBERS = {kind: number for number, kind in enumerate(MESSAGES)}


class RpcFrame(NamedTuple):
    """A request or a reply, with the number of the request."""

    is_answer: bool
    number: int
    message: RpcMessage


def encode_frame(parcel: RpcFrame) -> bytes:
    kind = _NUMBERS[type(parcel.message)]
    return _HEAD.pack(VERSION, parcel.is_answer, kind, parcel.number) + _encode(parcel.message)


def decode_frame(frame: memoryview) -> RpcFrame:
    """Decode a frame, or raise ProtocolError."""
    if len(frame) < _HEAD.size:
        raise ProtocolError("a control frame is too short for its header")
    version, is_answer, kind, number = _HEAD.unpack_from(frame)
    if version != VERSION or kind >= len(MESSAGES):
        raise ProtocolError(f"a control frame of version {version}, kind {kind}")
    return RpcFrame(bool(is_answer), number, _decode(MESSAGES[kind], frame[_HEAD.size :]))


def encode_command(command: Command) -> tuple[str, bytes]:
    return type(command).__name__, _encode(command)


def decode_command(name: str, content: bytes) -> Command:
    """The command, or ProtocolError: a newer node may know commands that we do not."""
    command: Command = _decode(_named(_COMMANDS, name), content)
    return command


def encode_reply(reply: Reply) -> tuple[str, bytes]:
    return type(reply).__name__, _encode(reply)


def decode_reply(name: str, content: bytes) -> Reply:
    """The reply, or ProtocolError."""
    reply: Reply = _decode(_named(_REPLIES, name), content)
    return reply


def _named(kinds: dict[str, type[Any]], name: str) -> type[Any]:
    kind = kinds.get(name)
    if kind is None:
        raise ProtocolError(f"unknown command or reply: {name}")
    return kind


def _decode(kind: type[Any], content: bytes | memoryview) -> Any:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise ProtocolError(f"a damaged {kind.__name__}: {wrong}") from None


# None: lost on the way there, over there, or on the way back.
Answered: TypeAlias = Callable[[RpcReply | None], None]
Respond: TypeAlias = Callable[[RpcReply], None]
Q = TypeVar("Q", bound=RpcMessage)


class PendingRpc(NamedTuple):
    """A request that waits for its reply."""

    node: NodeId
    done: Answered
    timer: Timer


class PeerRpc(BasePeerWatcher):
    """Sends requests to other nodes, and passes theirs to handlers."""

    def __init__(self, runtime: Runtime, hub: PeerManager) -> None:
        self._runtime = runtime
        self._peers = hub
        self._handlers: dict[type[Any], Callable[[Peer, Any, Respond], None]] = {}
        self._pending: dict[int, PendingRpc] = {}
        # Request numbers of a node differ between its starts.
        self._number = int.from_bytes(runtime.entropy.bytes(5), "little") << 24
        self._heard: dict[NodeId, OrderedDict[int, None]] = {}
        hub.serve(Channel.CONTROL, self)
        hub.watch(self)

    def serve(self, kind: type[Q], clerk: Callable[[Peer, Q, Respond], None]) -> None:
        """Register the handler of this kind of request; it responds now or later, once or never."""
        assert kind not in self._handlers
        self._handlers[kind] = clerk

    def call(self, node: NodeId, question: RpcRequest, timeout_ms: int, done: Answered) -> bool:
        """Send a request. False: not sent, and `done` is not called; True: it is called exactly once."""
        self._number += 1
        number = self._number
        if not self._peers.send(Channel.CONTROL, node, encode_frame(RpcFrame(False, number, question))):
            return False
        deadline = Instant(self._runtime.clock.now() + timeout_ms * MILLISECOND)
        timer = self._runtime.timers.at(deadline, lambda: self._settle(number, None))
        self._pending[number] = PendingRpc(node, done, timer)
        return True

    def _settle(self, number: int, answer: RpcReply | None) -> None:
        asked = self._pending.pop(number, None)
        if asked is not None:
            asked.timer.cancel()
            asked.done(answer)

    def received(self, peer: Peer, frame: memoryview) -> None:
        try:
            parcel = decode_frame(frame)
        except ProtocolError as wrong:
            events.warning("rpc.bad_message", peer=peer.node_id, reason=str(wrong))
            return
        if not parcel.is_answer:
            self._answer(peer, parcel)
            return
        asked = self._pending.get(parcel.number)
        if asked is not None and asked.node == peer.node_id:
            self._settle(parcel.number, parcel.message)  # type: ignore[arg-type]  # its header says it is a reply

    def _answer(self, peer: Peer, parcel: RpcFrame) -> None:
        clerk = self._handlers.get(type(parcel.message))
        if clerk is None or not self._is_news(peer.node_id, parcel.number):
            return
        number = parcel.number

        def respond(answer: RpcReply) -> None:
            peer.send(encode_frame(RpcFrame(True, number, answer)))

        clerk(peer, parcel.message, respond)

    def _is_news(self, node: NodeId, number: int) -> bool:
        heard = self._heard.setdefault(node, OrderedDict())
        if number in heard:
            return False
        heard[number] = None
        if len(heard) > HEARD_MAX:
            heard.popitem(last=False)
        return True

    def lost(self, node: NodeId, _ending: CloseReason) -> None:
        """Fail the requests on the link that ended."""
        for number in [number for number, asked in self._pending.items() if asked.node == node]:
            self._settle(number, None)
