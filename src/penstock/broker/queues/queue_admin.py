"""What operators ask about queues: which there are, what is in them, and that they begin somewhere else.

describe ── ListQueues ────► every node that coordinates queues
peek ────── PeekQueue ─────► the data partition's leader: states from the coordinator, values from its log
reset ───── FindLogBounds ─► the data partition's leader, then ResetQueue to the coordinator
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import (
    FindLogBounds,
    FindLogBoundsReply,
    ListQueues,
    ListQueuesReply,
    PeekQueue,
    PeekQueueReply,
    Respond,
    RpcError,
    RpcReply,
)
from penstock.broker.coordinator.queues import QueuesHere
from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.command_codec import decode_reply, encode_reply
from penstock.broker.queues.peers import COMMAND_TIMEOUT_MS, NO_LEADER_HERE, UNREACHABLE, QueuePeers
from penstock.broker.queues.record_reader import CommittedRecords, RecordReader
from penstock.core.metadata import NO_LEADER, QUEUES_TOPIC, MetadataImage
from penstock.core.model import ApiError, ErrorKind, NodeId, Offset, PartitionIndex, ProtocolError, TopicId
from penstock.core.queues import (
    REDRIVE_GROUP,
    PeekedRecord,
    PeekedState,
    PeekRecords,
    QueueDescription,
    QueueId,
    QueueOk,
    QueueReply,
    RecordsPeeked,
    ResetQueue,
)
from penstock.core.records import Record

COUNT_MAX = 1_000
# Where a reset begins, as in ListOffsets.
TO_LATEST = -1
TO_EARLIEST = -2


class LogBounds(NamedTuple):
    """Where a partition's log begins, and where what is committed ends."""

    start: Offset
    end: Offset


class PeekedMessage(NamedTuple):
    """A record of the log, and what its queue knows of it."""

    record: Record
    peeked: PeekedRecord


class PeekedMessages(NamedTuple):
    """In the order of the log; `next_offset` is where to go on, -1 if there is nothing more."""

    messages: tuple[PeekedMessage, ...] = ()
    next_offset: int = -1


class QueuesDescribed(NamedTuple):
    """By group, topic and partition; `error` if those of some coordinators are missing."""

    queues: tuple[QueueDescription, ...]
    error: ApiError | None = None


OnPeeked: TypeAlias = Callable[[PeekedMessages | ApiError], None]
OnBounds: TypeAlias = Callable[[LogBounds | ApiError], None]
OnDescribed: TypeAlias = Callable[[QueuesDescribed], None]
NO_COORDINATOR = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "some queues have no coordinator just now")


class DescribedQueues(Protocol):
    """The queues that this node coordinates."""

    def describe(
        self,
        group_ids: Sequence[str],
        topic_ids: Sequence[TopicId],
        done: Callable[[QueuesHere | ApiError], None],
    ) -> None: ...


class LedQueues(Protocol):
    """The data partitions that this node leads."""

    def partition_of(self, queue: QueueId) -> LeaderPartition | None: ...


class QueueAdmin:
    """Describes, peeks into and resets queues, wherever they are; and serves other nodes."""

    def __init__(
        self,
        rpc: PeerRpc,
        node_id: NodeId,
        peers: QueuePeers,
        queues: DescribedQueues,
        leaders: LedQueues,
        reader: RecordReader,
    ) -> None:
        self._rpc = rpc
        self._node_id = node_id
        self._peers = peers
        self._queues = queues
        self._leaders = leaders
        self._reader = reader
        self._image = MetadataImage()
        rpc.serve(ListQueues, self._on_list)
        rpc.serve(FindLogBounds, self._on_bounds)
        rpc.serve(PeekQueue, self._on_peek)

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    # Queues in numbers.

    def describe(self, group_ids: Sequence[str], topic_ids: Sequence[TopicId], done: OnDescribed) -> None:
        """The queues of these groups and topics, none means all; `done` is called once."""
        topic = self._image.topic(QUEUES_TOPIC)
        leaders = {each.index: each.leader for each in topic.partitions} if topic is not None else {}
        nodes = dict.fromkeys(leader for leader in leaders.values() if leader != NO_LEADER)
        found: list[QueueDescription] = []
        # Partitions that nobody has looked into: who has them may have changed, or their log is not ready.
        missing = dict.fromkeys(leaders)
        error: ApiError | None = None
        # One for this call, so that nothing is returned before everybody was asked.
        left = len(nodes) + 1

        def replied(reply: QueuesHere | ApiError) -> None:
            nonlocal left, error
            left -= 1
            if isinstance(reply, ApiError):
                error = reply
            else:
                found.extend(reply.queues)
                for index in reply.partitions:
                    missing.pop(PartitionIndex(index), None)
            if not left:
                by_id = {each.stored.queue: each for each in found}
                problem = error or (NO_COORDINATOR if missing else None)
                done(QueuesDescribed(tuple(by_id[each] for each in sorted(by_id)), problem))

        for node in nodes:
            self._describe_at(node, group_ids, topic_ids, replied)
        replied(QueuesHere((), ()))

    def _describe_at(
        self,
        node: NodeId,
        group_ids: Sequence[str],
        topic_ids: Sequence[TopicId],
        done: Callable[[QueuesHere | ApiError], None],
    ) -> None:
        if node == self._node_id:
            self._queues.describe(group_ids, topic_ids, done)
            return

        def answered(reply: RpcReply | None) -> None:
            if not isinstance(reply, ListQueuesReply):
                done(UNREACHABLE)
            elif reply.error is not None:
                done(ApiError(reply.error.kind, reply.error.detail))
            else:
                try:
                    found = [decode_reply(QueueDescription.__name__, each) for each in reply.queues]
                except ProtocolError as wrong:
                    done(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, str(wrong)))
                else:
                    done(QueuesHere(tuple(found), reply.partitions))

        question = ListQueues(tuple(group_ids), tuple(topic_ids))
        if not self._rpc.call(node, question, COMMAND_TIMEOUT_MS, answered):
            done(UNREACHABLE)

    def _on_list(self, _peer: Peer, question: ListQueues, respond: Respond) -> None:
        def done(reply: QueuesHere | ApiError) -> None:
            if isinstance(reply, ApiError):
                respond(ListQueuesReply(error=RpcError(reply.kind, reply.detail)))
            else:
                queues = tuple(encode_reply(each)[1] for each in reply.queues)
                respond(ListQueuesReply(queues, partitions=reply.partitions))

        self._queues.describe(question.group_ids, [TopicId(each) for each in question.topic_ids], done)

    # A queue begins again.

    def reset(self, queue: QueueId, offset: int, done: Callable[[QueueReply], None]) -> None:
        """Begin again at an offset, at the log's start or at its end; `done` is called once."""

        def found(bounds: LogBounds | ApiError) -> None:
            if isinstance(bounds, ApiError):
                done(bounds)
                return
            start, end = bounds
            target = {TO_EARLIEST: start, TO_LATEST: end}.get(offset, Offset(offset))
            if not start <= target <= end:
                detail = f"a queue begins at {start} to {end}"
                done(ApiError(ErrorKind.OFFSET_OUT_OF_RANGE, detail))
                return
            self._peers.submit(
                ResetQueue(on_reply=partial(self._reset, queue, done), queue=queue, offset=target)
            )

        self.find_bounds(queue, found)

    def _reset(self, queue: QueueId, done: Callable[[QueueReply], None], reply: QueueReply) -> None:
        if isinstance(reply, QueueOk):
            # Consumers that wait may have something to do.
            self._peers.records_ready(queue)
        done(reply)

    def find_bounds(self, queue: QueueId, done: OnBounds) -> None:
        """Where the log of the queue's partition begins and ends; `done` is called once."""
        leader = self._peers.leader_of(queue)
        if isinstance(leader, ApiError):
            done(leader)
            return
        if leader == self._node_id:
            done(self._bounds_here(queue))
            return

        def answered(reply: RpcReply | None) -> None:
            if not isinstance(reply, FindLogBoundsReply):
                done(NO_LEADER_HERE)
            elif reply.error is not None:
                done(ApiError(reply.error.kind, reply.error.detail))
            else:
                done(LogBounds(Offset(reply.start), Offset(reply.end)))

        question = FindLogBounds(queue.topic_id, queue.partition)
        if not self._rpc.call(leader, question, COMMAND_TIMEOUT_MS, answered):
            done(NO_LEADER_HERE)

    def _bounds_here(self, queue: QueueId) -> LogBounds | ApiError:
        partition = self._leaders.partition_of(queue)
        if partition is None:
            return NO_LEADER_HERE
        return LogBounds(partition.log.start, partition.log.last_stable_offset)

    def _on_bounds(self, _peer: Peer, question: FindLogBounds, respond: Respond) -> None:
        bounds = self._bounds_here(
            QueueId("", TopicId(question.topic_id), PartitionIndex(question.partition))
        )
        if isinstance(bounds, ApiError):
            respond(FindLogBoundsReply(error=RpcError(bounds.kind, bounds.detail)))
        else:
            respond(FindLogBoundsReply(*bounds))

    # Records that nobody leases.

    def peek(self, queue: QueueId, from_offset: int, count: int, bytes_max: int, done: OnPeeked) -> None:
        """Up to `count` records from an offset on that are not finished; `done` is called once."""
        leader = self._peers.leader_of(queue)
        if isinstance(leader, ApiError):
            done(leader)
            return
        if leader == self._node_id:
            self._peek_here(queue, from_offset, count, bytes_max, done)
            return

        def answered(reply: RpcReply | None) -> None:
            done(_peeked(reply) if isinstance(reply, PeekQueueReply) else NO_LEADER_HERE)

        question = PeekQueue(*queue, from_offset, count, bytes_max)
        if not self._rpc.call(leader, question, COMMAND_TIMEOUT_MS, answered):
            done(NO_LEADER_HERE)

    def _on_peek(self, _peer: Peer, question: PeekQueue, respond: Respond) -> None:
        def done(reply: PeekedMessages | ApiError) -> None:
            respond(_peek_reply(reply))

        queue = QueueId(question.group_id, TopicId(question.topic_id), PartitionIndex(question.partition))
        self._peek_here(queue, question.from_offset, question.count, question.bytes_max, done)

    def _peek_here(
        self, queue: QueueId, from_offset: int, count: int, bytes_max: int, done: OnPeeked
    ) -> None:
        partition = self._leaders.partition_of(queue)
        if partition is None:
            done(NO_LEADER_HERE)
            return
        count = min(count, COUNT_MAX)

        def replied(reply: QueueReply) -> None:
            if isinstance(reply, RecordsPeeked):
                self._read(partition, reply, from_offset, count, partial(finish, reply.end))
            elif queue.group_id == REDRIVE_GROUP and isinstance(reply, ApiError) and _has_no_queue(reply):
                # Nothing was redriven yet.
                untouched = RecordsPeeked((), partition.log.start)
                self._read(partition, untouched, from_offset, count, partial(finish, untouched.end))
            else:
                assert isinstance(reply, ApiError), reply
                done(reply)

        def finish(end: Offset, found: list[PeekedMessage] | ApiError) -> None:
            if isinstance(found, ApiError):
                done(found)
            else:
                # Fewer than were asked for is what one read found, not all there is.
                done(_cut(found, bytes_max, max(end, partition.log.last_stable_offset)))

        self._peers.submit(
            PeekRecords(on_reply=replied, queue=queue, from_offset=Offset(from_offset), count=count)
        )

    def _read(
        self,
        partition: LeaderPartition,
        peeked: RecordsPeeked,
        from_offset: int,
        count: int,
        done: Callable[[list[PeekedMessage] | ApiError], None],
    ) -> None:
        """The records that the queue has, and those behind its end that it has not taken yet."""

        def found(records: dict[Offset, Record] | ApiError) -> None:
            if isinstance(records, ApiError):
                done(records)
                return
            messages = [
                PeekedMessage(records[each.offset], each) for each in peeked.records if each.offset in records
            ]
            if len(peeked.records) >= count:
                done(messages)
            else:
                behind = Offset(max(from_offset, peeked.end, partition.log.start))
                self._reader.read(partition, behind, partial(read, messages))

        def read(messages: list[PeekedMessage], part: CommittedRecords | ApiError) -> None:
            if isinstance(part, ApiError):
                done(part)
                return
            for record in part.records[: count - len(messages)]:
                peek = PeekedRecord(Offset(record.offset), PeekedState.AVAILABLE)
                messages.append(PeekedMessage(record, peek))
            done(messages)

        self._reader.find(partition, [each.offset for each in peeked.records], found)


def _has_no_queue(error: ApiError) -> bool:
    return error.kind is ErrorKind.UNKNOWN_GROUP


def _cut(messages: list[PeekedMessage], bytes_max: int, end: Offset) -> PeekedMessages:
    """As many as fit, and at least one."""
    size = 0
    for number, (record, _) in enumerate(messages):
        size += len(record.key or b"") + len(record.value or b"")
        if number and size > bytes_max:
            return PeekedMessages(tuple(messages[:number]), record.offset)
    following = messages[-1].record.offset + 1 if messages else -1
    return PeekedMessages(tuple(messages), following if following < end else -1)


def _peek_reply(reply: PeekedMessages | ApiError) -> PeekQueueReply:
    if isinstance(reply, ApiError):
        return PeekQueueReply(error=RpcError(reply.kind, reply.detail))
    rows = tuple(
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
            int(peeked.state),
            peeked.attempts,
            peeked.consumer,
            peeked.reason,
        )
        for record, peeked in reply.messages
    )
    return PeekQueueReply(rows, reply.next_offset)


def _peeked(reply: PeekQueueReply) -> PeekedMessages | ApiError:
    if reply.error is not None:
        return ApiError(reply.error.kind, reply.error.detail)
    messages = tuple(
        PeekedMessage(
            Record(*row[:5]), PeekedRecord(Offset(row[0]), PeekedState(row[5]), row[6], row[7], row[8])
        )
        for row in reply.records
    )
    return PeekedMessages(messages, reply.next_offset)
