"""OffsetFetch: how far groups have read; -1 where a group has committed nothing, known or not."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.core.groups import FetchedOffset, FetchedOffsets, FetchOffsets, Reply, TopicToFetch
from penstock.core.model import ApiError, PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.core.protocol import ZERO_UUID, ErrorCode
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, code_in, may, topic_resource
from penstock.server.kafka.router import routes

GROUP_ERRORS_SINCE = 2
BATCHES_SINCE = 8
TOPIC_IDS_SINCE = 10


class RequestedTopic(NamedTuple):
    """One topic of a request; with an error `code` it is not passed to the coordinator."""

    name: str
    topic_id: UUID
    partitions: Sequence[int]
    code: ErrorCode = ErrorCode.NONE


class OffsetReader(NamedTuple):
    """Who asks: a tool, or (since version 9) a member of a consumer group."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1


class OffsetRow(NamedTuple):
    """One partition of a response."""

    fetched: FetchedOffset
    code: ErrorCode


class FetchedGroup(NamedTuple):
    """The result for one group; topics in the order of the request."""

    code: ErrorCode
    topics: Sequence[tuple[RequestedTopic, Sequence[OffsetRow]]] = ()


@routes.handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, call: Request) -> None:
    stable = request.require_stable
    if call.version < BATCHES_SINCE:
        asked = request.topics
        topics = (
            None
            if asked is None
            else _wanted(call, ((topic.name, ZERO_UUID, topic.partition_indexes) for topic in asked))
        )
        reader = OffsetReader(request.group_id)
        _fetch(call, reader, topics, stable, lambda found: _answer_one(call, topics, found))
        return
    # Each once, however often it is named: a short request must not have an endless response.
    groups: dict[str, list[OffsetFetchRequestGroup]] = {}
    for group in request.groups:
        groups.setdefault(group.group_id, []).append(group)
    rows: ResponseRows[OffsetFetchResponseGroup] = ResponseRows(
        len(groups),
        lambda found: call.reply(
            OffsetFetchResponse(throttle_time_ms=call.charge_time(), groups=found),
        ),
    )
    for index, (group_id, named) in enumerate(groups.items()):
        topics = (
            None
            if any(group.topics is None for group in named)
            else _wanted(
                call,
                ((t.name, t.topic_id, t.partition_indexes) for group in named for t in group.topics or ()),
            )
        )
        reader = OffsetReader(group_id, named[-1].member_id, named[-1].member_epoch)
        _fetch(call, reader, topics, stable, _row_of(rows, index, group_id))
    rows.end()


def _wanted(call: Request, named: Iterable[tuple[str, UUID, Sequence[int]]]) -> list[RequestedTopic]:
    """Each topic and each partition once, however often it is named."""
    wanted: dict[tuple[str, UUID], dict[int, None]] = {}
    for name, topic_id, partitions in named:
        wanted.setdefault((name, topic_id), {}).update(dict.fromkeys(partitions))
    return [_wanted_topic(call, *topic, tuple(indexes)) for topic, indexes in wanted.items()]


def _wanted_topic(call: Request, name: str, topic_id: UUID, partitions: Sequence[int]) -> RequestedTopic:
    if call.version >= TOPIC_IDS_SINCE:
        known = call.backend.controller.image.topic_name(TopicId(topic_id))
        if known is None:
            return RequestedTopic("", topic_id, partitions, ErrorCode.UNKNOWN_TOPIC_ID)
        name = known
    if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
        return RequestedTopic(name, topic_id, partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return RequestedTopic(name, topic_id, partitions)


def _fetch(
    call: Request,
    reader: OffsetReader,
    topics: list[RequestedTopic] | None,
    stable: bool,
    finish: Callable[[FetchedGroup], None],
) -> None:
    if not may(call, AclOperation.DESCRIBE, reader.group_id):
        finish(FetchedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    image = call.backend.controller.image

    def done(reply: Reply) -> None:
        if not isinstance(reply, FetchedOffsets):
            finish(FetchedGroup(code_in(reply)))
        elif topics is None:
            finish(FetchedGroup(ErrorCode.NONE, _everything(call, reply)))
        else:
            finish(FetchedGroup(ErrorCode.NONE, _matched(topics, reply)))

    call.backend.groups.submit(
        FetchOffsets(
            on_reply=done,
            group_id=reader.group_id,
            member_id=reader.member_id,
            member_epoch=reader.member_epoch,
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


def _everything(call: Request, reply: FetchedOffsets) -> list[tuple[RequestedTopic, list[OffsetRow]]]:
    """Every position of the group, by topic; of topics the caller may not see, none."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for fetched in reply.offsets:
        by_topic.setdefault(fetched.partition.topic, []).append(fetched)
    found = []
    for name, offsets in by_topic.items():
        topic_id = call.backend.controller.image.topic_id(name)
        unnameable = call.version >= TOPIC_IDS_SINCE and topic_id is None
        if not unnameable and call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            found.append(
                (RequestedTopic(name, topic_id or ZERO_UUID, ()), [_row(fetched) for fetched in offsets])
            )
    return found


def _matched(
    topics: list[RequestedTopic], reply: FetchedOffsets
) -> list[tuple[RequestedTopic, list[OffsetRow]]]:
    """The coordinator's rows in the order of the request; topics not passed on keep their error."""
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


def _row(fetched: FetchedOffset) -> OffsetRow:
    return OffsetRow(fetched, ErrorCode.NONE if fetched.kind is None else code_of(ApiError(fetched.kind)))


def _failed(topic: RequestedTopic, code: ErrorCode) -> list[OffsetRow]:
    name = TopicName(topic.name)
    return [OffsetRow(FetchedOffset(TopicPartition(name, PartitionIndex(i))), code) for i in topic.partitions]


def _row_of(
    rows: ResponseRows[OffsetFetchResponseGroup], index: int, group_id: str
) -> Callable[[FetchedGroup], None]:
    def finish(found: FetchedGroup) -> None:
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


def _answer_one(call: Request, topics: list[RequestedTopic] | None, found: FetchedGroup) -> None:
    if call.version < GROUP_ERRORS_SINCE and found.code is not ErrorCode.NONE:
        # These versions have no field for the group's error, only for its partitions'.
        found = FetchedGroup(found.code, [(topic, _failed(topic, found.code)) for topic in topics or ()])
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
