"""OffsetFetch: how far groups have read; -1 where a group has committed nothing, known or not."""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.core.groups import FetchedOffset, FetchedOffsets, FetchOffsets, Reply, TopicToFetch
from penstock.core.model import PartitionIndex, Refused, TopicId, TopicName, TopicPartition
from penstock.core.protocol import ZERO_UUID, ErrorCode
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock.gateways.kafka.answers.groups import Rows, code_in, may
from penstock.gateways.kafka.answers.operations import topic_resource
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.refusals import code_of
from penstock.gateways.kafka.routes import routes
from penstock.security import AclOperation

GROUP_ERRORS_SINCE = 2
BATCHES_SINCE = 8
TOPIC_IDS_SINCE = 10


class Wanted(NamedTuple):
    """One topic of a request; `code` says why it is not asked for."""

    name: str
    topic_id: UUID
    partitions: Sequence[int]
    code: ErrorCode = ErrorCode.NONE


class Row(NamedTuple):
    """One partition of an answer."""

    fetched: FetchedOffset
    code: ErrorCode


class Found(NamedTuple):
    """What there is to say about one group; topics in the order of the request."""

    code: ErrorCode
    topics: Sequence[tuple[Wanted, Sequence[Row]]] = ()


@routes.handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, call: Call) -> None:
    stable = request.require_stable
    if call.version < BATCHES_SINCE:
        asked = request.topics
        topics = (
            None
            if asked is None
            else [_wanted(call, topic.name, ZERO_UUID, topic.partition_indexes) for topic in asked]
        )
        _fetch(call, request.group_id, topics, stable, lambda found: _answer_one(call, topics, found))
        return
    rows: Rows[OffsetFetchResponseGroup] = Rows(
        len(request.groups),
        lambda groups: call.reply(
            OffsetFetchResponse(throttle_time_ms=call.charge_time(), groups=groups),
        ),
    )
    for index, group in enumerate(request.groups):
        topics = (
            None
            if group.topics is None
            else [_wanted(call, t.name, t.topic_id, t.partition_indexes) for t in group.topics]
        )
        _fetch(call, group.group_id, topics, stable, _row_of(rows, index, group.group_id))
    rows.end()


def _wanted(call: Call, name: str, topic_id: UUID, partitions: Sequence[int]) -> Wanted:
    if call.version >= TOPIC_IDS_SINCE:
        known = call.backend.controller.image.topic_name(TopicId(topic_id))
        if known is None:
            return Wanted("", topic_id, partitions, ErrorCode.UNKNOWN_TOPIC_ID)
        name = known
    if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
        return Wanted(name, topic_id, partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return Wanted(name, topic_id, partitions)


def _fetch(
    call: Call, group_id: str, topics: list[Wanted] | None, stable: bool, finish: Callable[[Found], None]
) -> None:
    if not may(call, AclOperation.DESCRIBE, group_id):
        finish(Found(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    image = call.backend.controller.image

    def done(reply: Reply) -> None:
        if not isinstance(reply, FetchedOffsets):
            finish(Found(code_in(reply)))
        elif topics is None:
            finish(Found(ErrorCode.NONE, _everything(call, reply)))
        else:
            finish(Found(ErrorCode.NONE, _matched(topics, reply)))

    call.backend.groups.submit(
        FetchOffsets(
            on_reply=done,
            group_id=group_id,
            topics=None
            if topics is None
            else tuple(
                TopicToFetch(
                    TopicName(topic.name),
                    tuple(PartitionIndex(index) for index in topic.partitions),
                    image.topic_id(topic.name),
                )
                for topic in topics
                if topic.code is ErrorCode.NONE
            ),
            require_stable=stable,
        )
    )


def _everything(call: Call, reply: FetchedOffsets) -> list[tuple[Wanted, list[Row]]]:
    """Every position of the group, by topic; of topics the caller may not see, none."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for fetched in reply.offsets:
        by_topic.setdefault(fetched.partition.topic, []).append(fetched)
    found = []
    for name, offsets in by_topic.items():
        topic_id = call.backend.controller.image.topic_id(name)
        unnameable = call.version >= TOPIC_IDS_SINCE and topic_id is None
        if not unnameable and call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            found.append((Wanted(name, topic_id or ZERO_UUID, ()), [_row(fetched) for fetched in offsets]))
    return found


def _matched(topics: list[Wanted], reply: FetchedOffsets) -> list[tuple[Wanted, list[Row]]]:
    """The answers beside the questions; questions that were not passed on keep their error."""
    answers = iter(reply.offsets)
    return [
        (
            topic,
            [_row(next(answers)) for _ in topic.partitions]
            if topic.code is ErrorCode.NONE
            else _failed(topic, topic.code),
        )
        for topic in topics
    ]


def _row(fetched: FetchedOffset) -> Row:
    return Row(fetched, ErrorCode.NONE if fetched.why is None else code_of(Refused(fetched.why)))


def _failed(topic: Wanted, code: ErrorCode) -> list[Row]:
    name = TopicName(topic.name)
    return [Row(FetchedOffset(TopicPartition(name, PartitionIndex(i))), code) for i in topic.partitions]


def _row_of(rows: Rows[OffsetFetchResponseGroup], index: int, group_id: str) -> Callable[[Found], None]:
    def finish(found: Found) -> None:
        topics = tuple(
            OffsetFetchResponseGroupTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponseGroupPartition(
                        partition_index=fetched.partition.partition,
                        committed_offset=fetched.offset,
                        committed_leader_epoch=fetched.leader_epoch,
                        metadata=fetched.metadata,
                        error_code=code,
                    )
                    for fetched, code in positions
                ),
            )
            for topic, positions in found.topics
        )
        rows.put(index, OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=found.code))

    return finish


def _answer_one(call: Call, topics: list[Wanted] | None, found: Found) -> None:
    if call.version < GROUP_ERRORS_SINCE and found.code is not ErrorCode.NONE:
        # These versions have no place for an error of the group but its partitions.
        found = Found(found.code, [(topic, _failed(topic, found.code)) for topic in topics or ()])
    call.reply(
        OffsetFetchResponse(
            throttle_time_ms=call.charge_time(),
            topics=tuple(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetFetchResponsePartition(
                            partition_index=fetched.partition.partition,
                            committed_offset=fetched.offset,
                            committed_leader_epoch=fetched.leader_epoch,
                            metadata=fetched.metadata,
                            error_code=code,
                        )
                        for fetched, code in positions
                    ),
                )
                for topic, positions in found.topics
            ),
            error_code=found.code,
        )
    )
