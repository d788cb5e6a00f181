"""OffsetDelete: forgetting a group's positions in topics it does not read any more."""

from penstock.core.groups import DeleteOffsets, DeletionResults, Reply
from penstock.core.model import ApiError, PartitionIndex, TopicName, TopicPartition
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, may, topic_resource
from penstock.server.kafka.router import routes


@routes.handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, call: Request) -> None:
    if not may(call, AclOperation.DELETE, request.group_id):
        _refuse(call, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    codes = {topic.name: _judge(call, topic.name) for topic in request.topics}
    doomed = tuple(
        TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index))
        for topic in request.topics
        if codes[topic.name] is ErrorCode.NONE
        for part in topic.partitions
    )
    call.backend.groups.submit(
        DeleteOffsets(
            on_reply=lambda reply: _answer(request, call, codes, reply),
            group_id=request.group_id,
            partitions=doomed,
        )
    )


def _judge(call: Request, topic: str) -> ErrorCode:
    if not call.authorize(AclOperation.READ, topic_resource(topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = call.backend.controller.image.topic_id(topic) is not None
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(request: OffsetDeleteRequest, call: Request, codes: dict[str, ErrorCode], reply: Reply) -> None:
    if not isinstance(reply, DeletionResults):
        _refuse(call, code_in(reply))
        return
    kept = {part: code_of(ApiError(kind)) for part, kind in reply.partitions if kind is not None}
    call.reply(
        OffsetDeleteResponse(
            error_code=ErrorCode.NONE,
            throttle_time_ms=call.charge_time(),
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=part.partition_index,
                            error_code=kept.get(
                                TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index)),
                                codes[topic.name],
                            ),
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
    )


def _refuse(call: Request, code: ErrorCode) -> None:
    call.reply(OffsetDeleteResponse(error_code=code, throttle_time_ms=call.charge_time(), topics=()))
