"""DescribeShareGroupOffsets: up to where share groups are done, and how much is left."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from penstock.broker.queues.queue_admin import QueuesDescribed
from penstock.core.groups import DescribedShareGroup
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.queues import QueueDescription
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, error_fields, topic_resource
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_offsets import PARTITIONS_MAX, TOO_MANY, ShareGroupError, find_share_group

Row = DescribeShareGroupOffsetsResponseGroup
NOWHERE = -1
GROUPS_MAX = 100


class WantedTopic(NamedTuple):
    """A topic of the response, and the partitions that are asked for."""

    name: str
    id: TopicId | None
    partitions: Sequence[int]


@routes.handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(request: DescribeShareGroupOffsetsRequest, call: Request) -> None:
    # Each once, however often it is named: a short request must not have an endless response.
    groups = {group.group_id: group for group in request.groups}
    rows: ResponseRows[Row] = ResponseRows(
        len(groups),
        lambda found: call.reply(
            DescribeShareGroupOffsetsResponse(throttle_time_ms=call.charge_time(), groups=found)
        ),
    )
    named = sum([len(topic.partitions) for group in groups.values() for topic in group.topics or ()])
    for number, group in enumerate(groups.values()):
        found = partial(_describe, group, call, rows, number)
        if named > PARTITIONS_MAX or len(groups) > GROUPS_MAX:
            found(TOO_MANY)
        else:
            find_share_group(call, group.group_id, AclOperation.DESCRIBE, found)
    rows.end()


def _describe(
    asked: DescribeShareGroupOffsetsRequestGroup,
    call: Request,
    rows: ResponseRows[Row],
    number: int,
    group: DescribedShareGroup | ShareGroupError,
) -> None:
    if not isinstance(group, DescribedShareGroup):
        code, message = group
        rows.put(number, Row(group_id=asked.group_id, topics=(), error_code=code, error_message=message))
    else:
        call.run(_describe_topics(asked, call, rows, number, group))


def _describe_topics(
    asked: DescribeShareGroupOffsetsRequestGroup,
    call: Request,
    rows: ResponseRows[Row],
    number: int,
    group: DescribedShareGroup,
) -> Iterator[None]:
    image = call.backend.controller.image
    topics: list[WantedTopic] = []
    if asked.topics is None:
        for id_, name, count in group.topics:
            topic = WantedTopic(name, id_, range(count))
            # Those that were deleted, and those that the caller may not know of, are not there.
            if image.topic_id(name) == id_ and _may_see(call, topic):
                topics.append(topic)
            yield
    else:
        for each in asked.topics:
            topics.append(WantedTopic(each.topic_name, image.topic_id(each.topic_name), each.partitions))
            yield
    ids = [each.id for each in topics if each.id is not None]

    def described(queues: QueuesDescribed) -> None:
        call.run(_put(call, rows, number, group.group_id, topics, queues))

    if ids:
        call.backend.queue_admin.describe([group.group_id], ids, described)
    else:
        described(QueuesDescribed(()))


def _may_see(call: Request, topic: WantedTopic) -> bool:
    return call.authorize(AclOperation.DESCRIBE, topic_resource(topic.name))


def _put(
    call: Request,
    rows: ResponseRows[Row],
    number: int,
    group_id: str,
    topics: list[WantedTopic],
    described: QueuesDescribed,
) -> Iterator[None]:
    code, message = error_fields(described.error)
    queues: dict[tuple[TopicId, int], QueueDescription] = {}
    for each in described.queues:
        queues[each.stored.queue.topic_id, int(each.stored.queue.partition)] = each
        yield
    found: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic in topics if not code else ():
        row = yield from _topic(call, topic, queues)
        found.append(row)
        yield
    rows.put(number, Row(group_id=group_id, topics=tuple(found), error_code=code, error_message=message))


def _topic(
    call: Request, topic: WantedTopic, queues: dict[tuple[TopicId, int], QueueDescription]
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    code = ErrorCode.NONE
    if not _may_see(call, topic):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic.id is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = []
    for index in topic.partitions:
        queue = None if code or topic.id is None else queues.get((topic.id, index))
        rows.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NOWHERE if queue is None else queue.finished_below,
                leader_epoch=0 if queue is None else queue.stored.leader_epoch,
                lag=NOWHERE if queue is None else _lag(call, topic.name, index, queue),
                error_code=code,
            )
        )
        yield
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.name,
        topic_id=ZERO_UUID if code or topic.id is None else topic.id,
        partitions=tuple(rows),
    )


def _lag(call: Request, name: str, index: int, queue: QueueDescription) -> int:
    """Records that are not finished; only the leader knows of those that the queue has not taken."""
    partition = call.backend.partitions.led_by_name.get((name, index))
    if partition is None:
        return NOWHERE
    unfinished = queue.ready + queue.blocked + queue.delayed + queue.leased + queue.moving
    return max(0, partition.high_watermark - queue.stored.end) + unfinished
