"""TxnOffsetCommit: stores how far a group has read, as part of a transaction."""

from collections.abc import Iterator, Sequence

from penstock.broker.transactions.verification import TransactionalRequest
from penstock.core.groups import CommitResults, CommitTransactionOffsets, OffsetToCommit, OnReply, Reply
from penstock.core.model import (
    ApiError,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.security import AclOperation, Resource, ResourceType
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.portions import Portions
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, collected, may, topic_resource
from penstock.server.kafka.router import routes

# KIP-890: the client aborts by itself on TRANSACTION_ABORTABLE; a commit adds the partition of the offsets.
ABORTABLE_SINCE = 4
ADDS_PARTITIONS_SINCE = 5


@routes.handles(TxnOffsetCommitRequest)
def txn_offset_commit(request: TxnOffsetCommitRequest, call: Request) -> Iterator[None]:
    commit = _Commit(request, call)
    refused = _refused(request, call)
    if refused is not None:
        commit.codes = [refused] * len(request.topics)
        yield from commit.answer()
        return
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        code = _judge(call, topic.name)
        commit.codes.append(code)
        topic_id = call.backend.controller.image.topic_id(topic.name)
        for part in topic.partitions if code is ErrorCode.NONE else ():
            offsets.append(
                OffsetToCommit(
                    _place(topic, part.partition_index),
                    Offset(part.committed_offset),
                    LeaderEpoch(part.committed_leader_epoch),
                    part.committed_metadata or "",
                    topic_id,
                )
            )
            yield
        yield
    if not offsets:
        yield from commit.answer()
        return
    Portions(call, offsets, commit.submit, commit.committed, commit.done).start()


class _Commit:
    """One request in progress: the errors of its topics, and of its partitions."""

    __slots__ = ("_call", "_failed", "_request", "codes")

    def __init__(self, request: TxnOffsetCommitRequest, call: Request) -> None:
        self._request = request
        self._call = call
        self.codes: list[ErrorCode] = []
        self._failed: dict[TopicPartition, ErrorCode] = {}

    def submit(self, offsets: Sequence[OffsetToCommit], on_reply: OnReply) -> None:
        request, call = self._request, self._call
        call.backend.transactional_offsets.commit(
            CommitTransactionOffsets(
                on_reply=on_reply,
                group_id=request.group_id,
                producer_id=ProducerId(request.producer_id),
                producer_epoch=ProducerEpoch(request.producer_epoch),
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                offsets=tuple(offsets),
            ),
            TransactionalRequest(
                request.transactional_id,
                call.version >= ADDS_PARTITIONS_SINCE,
                call.version >= ABORTABLE_SINCE,
            ),
        )

    def committed(self, offsets: Sequence[OffsetToCommit], reply: Reply) -> None:
        if isinstance(reply, CommitResults):
            for part, kind in reply.partitions:
                if kind is not None:
                    self._failed[part] = code_of(ApiError(kind))
        else:
            code = code_in(reply)
            self._failed.update([(offset.partition, code) for offset in offsets])

    def done(self) -> None:
        self._call.run(self.answer())

    def answer(self) -> Iterator[None]:
        topics: list[TxnOffsetCommitResponseTopic] = []
        for topic, code in zip(self._request.topics, self.codes, strict=True):
            rows = yield from collected(
                TxnOffsetCommitResponsePartition(
                    partition_index=part.partition_index,
                    error_code=self._failed.get(_place(topic, part.partition_index), code),
                )
                for part in topic.partitions
            )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
            yield
        call = self._call
        call.reply(TxnOffsetCommitResponse(throttle_time_ms=call.charge_time(), topics=tuple(topics)))


def _refused(request: TxnOffsetCommitRequest, call: Request) -> ErrorCode | None:
    """The error of the whole request."""
    transactional_id = Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    if not call.authorize(AclOperation.WRITE, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not may(call, AclOperation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if request.producer_id < 0 or request.producer_epoch < 0:
        return ErrorCode.INVALID_REQUEST
    return None


def _judge(call: Request, topic: str) -> ErrorCode:
    if not call.authorize(AclOperation.READ, topic_resource(topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = call.backend.controller.image.topic_id(topic) is not None
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _place(topic: TxnOffsetCommitRequestTopic, index: int) -> TopicPartition:
    return TopicPartition(TopicName(topic.name), PartitionIndex(index))
