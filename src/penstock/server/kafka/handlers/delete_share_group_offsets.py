"""DeleteShareGroupOffsets: a share group without members forgets where it stands in topics."""

from collections.abc import Iterator, Sequence
from functools import partial

from penstock.core.groups import DescribedShareGroup
from penstock.core.metadata import Topic
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.queues import ForgetQueue, QueueId, QueueReply
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, code_in, collected, topic_resource, unique
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_offsets import (
    PARTITIONS_MAX,
    TOO_MANY,
    ShareGroupError,
    find_empty_share_group,
)

Row = DeleteShareGroupOffsetsResponseTopic


@routes.handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(request: DeleteShareGroupOffsetsRequest, call: Request) -> None:
    find_empty_share_group(call, request.group_id, AclOperation.DELETE, partial(_delete, request, call))


def _delete(
    request: DeleteShareGroupOffsetsRequest, call: Request, group: DescribedShareGroup | ShareGroupError
) -> None:
    if not isinstance(group, DescribedShareGroup):
        _reply(call, (), *group)
        return
    call.run(_forget_all(request, call))


def _forget_all(request: DeleteShareGroupOffsetsRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named.
    names = yield from unique(topic.topic_name for topic in request.topics)
    topics = yield from collected(call.backend.controller.image.topic(name) for name in names)
    if sum([len(topic.partitions) for topic in topics if topic is not None]) > PARTITIONS_MAX:
        _reply(call, (), *TOO_MANY)
        return
    rows: ResponseRows[Row] = ResponseRows(len(names), lambda found: _reply(call, found))
    for number, (name, topic) in enumerate(zip(names, topics, strict=True)):
        yield
        if not call.authorize(AclOperation.READ, topic_resource(name)):
            rows.put(number, _row(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            rows.put(number, _row(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            queues = [QueueId(request.group_id, topic.id, each.index) for each in topic.partitions]
            yield from _forget(call, queues, partial(_put, rows, number, name, topic))
    rows.end()


def _forget(call: Request, queues: Sequence[QueueId], done: "partial[None]") -> Iterator[None]:
    replies: ResponseRows[ErrorCode] = ResponseRows(
        len(queues), lambda codes: done(next((code for code in codes if code), ErrorCode.NONE))
    )
    for number, queue in enumerate(queues):
        call.backend.queues.submit(ForgetQueue(on_reply=partial(_forgotten, replies, number), queue=queue))
        yield
    replies.end()


def _forgotten(replies: ResponseRows[ErrorCode], number: int, reply: QueueReply) -> None:
    # There may be no such queue: then there is nothing to forget.
    is_gone = isinstance(reply, ApiError) and reply.kind is ErrorKind.UNKNOWN_GROUP
    replies.put(number, ErrorCode.NONE if is_gone else code_in(reply))


def _put(rows: ResponseRows[Row], number: int, name: str, topic: Topic, code: ErrorCode) -> None:
    rows.put(number, _row(name, topic, code))


def _row(name: str, topic: Topic | None, code: ErrorCode) -> Row:
    return Row(topic_name=name, topic_id=ZERO_UUID if topic is None else topic.id, error_code=code)


def _reply(
    call: Request, rows: tuple[Row, ...], code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> None:
    call.reply(
        DeleteShareGroupOffsetsResponse(
            throttle_time_ms=call.charge_time(), error_code=code, error_message=message, responses=rows
        )
    )
