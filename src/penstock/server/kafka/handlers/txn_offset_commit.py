"""TxnOffsetCommit: stores how far a group has read, as part of a transaction."""

from penstock.broker.transactions.verification import TransactionalRequest
from penstock.core.groups import CommitResults, CommitTransactionOffsets, OffsetToCommit, Reply
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
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, may, topic_resource
from penstock.server.kafka.router import routes

# KIP-890: the client aborts by itself on TRANSACTION_ABORTABLE; a commit adds the partition of the offsets.
ABORTABLE_SINCE = 4
ADDS_PARTITIONS_SINCE = 5


@routes.handles(TxnOffsetCommitRequest)
def txn_offset_commit(request: TxnOffsetCommitRequest, call: Request) -> None:
    refused = _refused(request, call)
    if refused is not None:
        _reply(call, request, [refused] * len(request.topics), {})
        return
    codes = [_judge(call, topic.name) for topic in request.topics]
    offsets = [
        offset
        for topic, code in zip(request.topics, codes, strict=True)
        if code is ErrorCode.NONE
        for offset in _offsets(call, topic)
    ]

    def done(reply: Reply) -> None:
        if isinstance(reply, CommitResults):
            failed = {part: code_of(ApiError(kind)) for part, kind in reply.partitions if kind is not None}
            _reply(call, request, codes, failed)
        else:
            error = code_in(reply)
            _reply(call, request, [error if own is ErrorCode.NONE else own for own in codes], {})

    if not offsets:
        _reply(call, request, codes, {})
        return
    call.backend.transactional_offsets.commit(
        CommitTransactionOffsets(
            on_reply=done,
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


def _offsets(call: Request, topic: TxnOffsetCommitRequestTopic) -> list[OffsetToCommit]:
    topic_id = call.backend.controller.image.topic_id(topic.name)
    return [
        OffsetToCommit(
            _place(topic, part.partition_index),
            Offset(part.committed_offset),
            LeaderEpoch(part.committed_leader_epoch),
            part.committed_metadata or "",
            topic_id,
        )
        for part in topic.partitions
    ]


def _place(topic: TxnOffsetCommitRequestTopic, index: int) -> TopicPartition:
    return TopicPartition(TopicName(topic.name), PartitionIndex(index))


def _reply(
    call: Request,
    request: TxnOffsetCommitRequest,
    codes: list[ErrorCode],
    failed: dict[TopicPartition, ErrorCode],
) -> None:
    call.reply(
        TxnOffsetCommitResponse(
            throttle_time_ms=call.charge_time(),
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=failed.get(_place(topic, part.partition_index), code),
                        )
                        for part in topic.partitions
                    ),
                )
                for topic, code in zip(request.topics, codes, strict=True)
            ),
        )
    )
