"""AlterShareGroupOffsets: the queues of a share group without members begin somewhere else."""

from collections.abc import Iterator
from functools import partial
from uuid import UUID

from penstock.core.groups import DescribedShareGroup
from penstock.core.model import PartitionIndex
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.queues import QueueId, QueueReply
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    ResponseRows,
    by_topic_in_steps,
    collected,
    error_fields,
    topic_resource,
)
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_offsets import (
    PARTITIONS_MAX,
    TOO_MANY,
    ShareGroupError,
    find_empty_share_group,
)

Row = AlterShareGroupOffsetsResponsePartition
TopicRow = tuple[str, Row]


@routes.handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(request: AlterShareGroupOffsetsRequest, call: Request) -> None:
    found = partial(_alter, request, call)
    if sum([len(topic.partitions) for topic in request.topics]) > PARTITIONS_MAX:
        found(TOO_MANY)
    else:
        find_empty_share_group(call, request.group_id, AclOperation.READ, found)


def _alter(
    request: AlterShareGroupOffsetsRequest, call: Request, group: DescribedShareGroup | ShareGroupError
) -> None:
    if not isinstance(group, DescribedShareGroup):
        call.run(_reply(call, (), *group))
    else:
        call.run(_reset_all(request, call))


def _reset_all(request: AlterShareGroupOffsetsRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: what is said last counts.
    wanted = {
        (topic.topic_name, each.partition_index): each.start_offset
        for topic in request.topics
        for each in topic.partitions
    }
    rows: ResponseRows[TopicRow] = ResponseRows(len(wanted), lambda found: call.run(_reply(call, found)))
    for number, ((name, index), offset) in enumerate(wanted.items()):
        yield
        topic = call.backend.controller.image.topic(name)
        code = ErrorCode.NONE
        if not call.authorize(AclOperation.READ, topic_resource(name)):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or topic.partition(PartitionIndex(index)) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif offset < 0:
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE or topic is None:
            rows.put(number, (name, Row(partition_index=index, error_code=code)))
            continue
        queue = QueueId(request.group_id, topic.id, PartitionIndex(index))
        call.backend.queue_admin.reset(queue, offset, partial(_put, rows, number, name, index))
    rows.end()


def _put(rows: ResponseRows[TopicRow], number: int, name: str, index: int, reply: QueueReply) -> None:
    code, message = error_fields(reply)
    rows.put(number, (name, Row(partition_index=index, error_code=code, error_message=message)))


def _reply(
    call: Request, rows: tuple[TopicRow, ...], code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> Iterator[None]:
    found = yield from by_topic_in_steps(rows)
    responses = yield from collected(
        AlterShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=_id_of(call, name), partitions=partitions
        )
        for name, partitions in found
    )
    call.reply(
        AlterShareGroupOffsetsResponse(
            throttle_time_ms=call.charge_time(), error_code=code, error_message=message, responses=responses
        )
    )


def _id_of(call: Request, topic: str) -> UUID:
    """The topic's id, for those who may know that it is there."""
    if not call.permits(AclOperation.READ, topic_resource(topic)):
        return ZERO_UUID
    return call.backend.controller.image.topic_id(topic) or ZERO_UUID
