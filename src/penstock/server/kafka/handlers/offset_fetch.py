"""OffsetFetch: how far groups have read; -1 where a group has committed nothing, known or not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.core.groups import (
    CommittedPartitions,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    OnReply,
    Reply,
    TopicToFetch,
)
from penstock.core.model import ApiError, PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.core.protocol import ZERO_UUID, ErrorCode, Steps
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
from penstock.server.kafka.portions import Portions
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, code_in, collected, may, topic_resource
from penstock.server.kafka.router import routes

GROUP_ERRORS_SINCE = 2
BATCHES_SINCE = 8
TOPIC_IDS_SINCE = 10
# A topic with more partitions is passed on in parts.
PARTITIONS_PER_ROW = 16
ROWS_PER_PORTION = 50


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


class FetchedGroup(NamedTuple):
    """The result for one group: what the coordinator returned for these topics, or for all that it has."""

    group_id: str
    code: ErrorCode
    topics: Sequence[RequestedTopic] | None = ()
    offsets: Sequence[FetchedOffset] = ()


OffsetRow: TypeAlias = tuple[FetchedOffset, ErrorCode]
TopicRows: TypeAlias = tuple[RequestedTopic, Iterator[OffsetRow]]


@routes.handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, call: Request) -> Iterator[None]:
    stable = request.require_stable
    if call.version < BATCHES_SINCE:
        asked = request.topics
        topics: list[RequestedTopic] | None = None
        if asked is not None:
            named = ((topic.name, ZERO_UUID, topic.partition_indexes) for topic in asked)
            topics = yield from _wanted(call, named)
        reader = OffsetReader(request.group_id)
        yield from _fetch(
            call, reader, topics, stable, lambda found: call.run(_answer_one(call, topics, found))
        )
        return
    # Each once, however often it is named: a short request must not have an endless response.
    groups: dict[str, list[OffsetFetchRequestGroup]] = {}
    for group in request.groups:
        groups.setdefault(group.group_id, []).append(group)
        yield
    rows: ResponseRows[FetchedGroup] = ResponseRows(
        len(groups), lambda found: call.run(_answer_groups(call, found))
    )
    for index, (group_id, parts) in enumerate(groups.items()):
        topics = None
        if not any(group.topics is None for group in parts):
            topics = yield from _wanted(
                call,
                ((t.name, t.topic_id, t.partition_indexes) for group in parts for t in group.topics or ()),
            )
        reader = OffsetReader(group_id, parts[-1].member_id, parts[-1].member_epoch)
        yield from _fetch(call, reader, topics, stable, partial(rows.put, index))
        yield
    rows.end()


def _wanted(call: Request, named: Iterable[tuple[str, UUID, Sequence[int]]]) -> Steps[list[RequestedTopic]]:
    """Each topic and each partition once, however often it is named."""
    wanted: dict[tuple[str, UUID], dict[int, None]] = {}
    for name, topic_id, partitions in named:
        wanted.setdefault((name, topic_id), {}).update(dict.fromkeys(partitions))
        yield
    found = yield from collected(
        _wanted_topic(call, *topic, tuple(indexes)) for topic, indexes in wanted.items()
    )
    return list(found)


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
) -> Iterator[None]:
    if not may(call, AclOperation.DESCRIBE, reader.group_id):
        finish(FetchedGroup(reader.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    fetch = _GroupFetch(call, reader, topics, stable, finish)
    if topics is None:
        fetch.submit(None, fetch.everything)
        return
    image = call.backend.controller.image
    wanted: list[TopicToFetch] = []
    for topic in topics:
        if topic.code is not ErrorCode.NONE:
            continue
        name, topic_id = TopicName(topic.name), image.topic_id(topic.name)
        for start in range(0, len(topic.partitions), PARTITIONS_PER_ROW):
            indexes = topic.partitions[start : start + PARTITIONS_PER_ROW]
            wanted.append(TopicToFetch(name, tuple(map(PartitionIndex, indexes)), topic_id))
            yield
    Portions(call, wanted, fetch.submit, fetch.take, fetch.done, ROWS_PER_PORTION).start()


class _GroupFetch:
    """The offsets of one group, as far as its coordinator has returned them."""

    __slots__ = ("_call", "_code", "_finish", "_offsets", "_reader", "_stable", "_topics")

    def __init__(
        self,
        call: Request,
        reader: OffsetReader,
        topics: list[RequestedTopic] | None,
        stable: bool,
        finish: Callable[[FetchedGroup], None],
    ) -> None:
        self._call = call
        self._reader = reader
        self._topics = topics
        self._stable = stable
        self._finish = finish
        self._code = ErrorCode.NONE
        self._offsets: list[FetchedOffset] = []

    def submit(self, wanted: Sequence[TopicToFetch] | None, on_reply: OnReply) -> None:
        group_id, member_id, member_epoch = self._reader
        self._call.backend.groups.submit(
            FetchOffsets(
                on_reply=on_reply,
                group_id=group_id,
                member_id=member_id,
                member_epoch=member_epoch,
                topics=None if wanted is None else tuple(wanted),
                require_stable=self._stable,
            )
        )

    def take(self, _wanted: Sequence[TopicToFetch] | None, reply: Reply) -> None:
        if isinstance(reply, FetchedOffsets):
            self._offsets += reply.offsets
        else:
            self._code = code_in(reply)

    def everything(self, reply: Reply) -> None:
        if isinstance(reply, CommittedPartitions):
            Portions(self._call, reply.topics, self.submit, self.take, self.done, ROWS_PER_PORTION).start()
        else:
            self.take(None, reply)
            self.done()

    def done(self) -> None:
        group_id, code = self._reader.group_id, self._code
        if code is ErrorCode.NONE:
            self._finish(FetchedGroup(group_id, code, self._topics, self._offsets))
        else:
            self._finish(FetchedGroup(group_id, code))


def _topics(call: Request, found: FetchedGroup) -> Iterator[TopicRows]:
    """The rows of each topic, in the order of the request; topics not passed on keep their error."""
    if found.topics is None:
        yield from _everything(call, found.offsets)
        return
    answers = iter(found.offsets)
    for topic in found.topics:
        if topic.code is ErrorCode.NONE:
            yield topic, map(_row, islice(answers, len(topic.partitions)))
        else:
            yield topic, _failed(topic, topic.code)


def _everything(call: Request, offsets: Iterable[FetchedOffset]) -> Iterator[TopicRows]:
    """Every position of the group, by topic; of topics the caller may not see, none.

    The coordinator returns them in the order of topics.
    """
    for name, of_topic in groupby(offsets, key=lambda fetched: fetched.partition.topic):
        topic_id = call.backend.controller.image.topic_id(name)
        unnameable = call.version >= TOPIC_IDS_SINCE and topic_id is None
        if not unnameable and call.permits(AclOperation.DESCRIBE, topic_resource(name)):
            yield RequestedTopic(name, topic_id or ZERO_UUID, ()), map(_row, of_topic)


def _row(fetched: FetchedOffset) -> OffsetRow:
    return fetched, ErrorCode.NONE if fetched.kind is None else code_of(ApiError(fetched.kind))


def _failed(topic: RequestedTopic, code: ErrorCode) -> Iterator[OffsetRow]:
    name = TopicName(topic.name)
    return ((FetchedOffset(TopicPartition(name, PartitionIndex(i))), code) for i in topic.partitions)


def _answer_groups(call: Request, found: Sequence[FetchedGroup]) -> Iterator[None]:
    groups: list[OffsetFetchResponseGroup] = []
    for group in found:
        topics: list[OffsetFetchResponseGroupTopic] = []
        for topic, positions in _topics(call, group):
            rows = yield from collected(
                OffsetFetchResponseGroupPartition(
                    partition_index=fetched.partition.partition,
                    committed_offset=fetched.offset,
                    committed_leader_epoch=fetched.leader_epoch,
                    metadata=fetched.metadata,
                    error_code=code,
                )
                for fetched, code in positions
            )
            topics.append(
                OffsetFetchResponseGroupTopic(topic_id=topic.topic_id, name=topic.name, partitions=rows)
            )
            yield
        groups.append(
            OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics), error_code=group.code)
        )
        yield
    call.reply(OffsetFetchResponse(throttle_time_ms=call.charge_time(), groups=tuple(groups)))


def _answer_one(call: Request, asked: Sequence[RequestedTopic] | None, found: FetchedGroup) -> Iterator[None]:
    positions_by_topic = _topics(call, found)
    if call.version < GROUP_ERRORS_SINCE and found.code is not ErrorCode.NONE:
        # These versions have no field for the group's error, only for its partitions'.
        positions_by_topic = ((topic, _failed(topic, found.code)) for topic in asked or ())
    topics: list[OffsetFetchResponseTopic] = []
    for topic, positions in positions_by_topic:
        rows = yield from collected(
            OffsetFetchResponsePartition(
                partition_index=fetched.partition.partition,
                committed_offset=fetched.offset,
                committed_leader_epoch=fetched.leader_epoch,
                metadata=fetched.metadata,
                error_code=code,
            )
            for fetched, code in positions
        )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=rows))
        yield
    call.reply(
        OffsetFetchResponse(throttle_time_ms=call.charge_time(), topics=tuple(topics), error_code=found.code)
    )
