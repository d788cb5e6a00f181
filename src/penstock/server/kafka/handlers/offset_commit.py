"""OffsetCommit: stores how far a group has read."""

from collections.abc import Iterator, Sequence

from penstock.core.groups import CommitOffsets, CommitResults, OffsetToCommit, OnReply, Reply
from penstock.core.model import (
    ApiError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.portions import Portions
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, may, topic_resource
from penstock.server.kafka.router import routes

TOPIC_IDS_SINCE = 10
GROUP_NOT_FOUND_SINCE = 9
MEMBER_EPOCHS_SINCE = 9
# A hundred years: what is added to a timestamp must leave a timestamp.
RETENTION_MS_MAX = 100 * 365 * 24 * 60 * 60 * 1_000


@routes.handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, call: Request) -> Iterator[None]:
    commit = _Commit(request, call)
    if not may(call, AclOperation.READ, request.group_id):
        yield from commit.answer_all(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        yield from commit.take(topic, offsets)
    if not offsets:
        yield from commit.answer()
        return
    Portions(call, offsets, commit.submit, commit.committed, commit.done).start()


class _Commit:
    """One request in progress: which of its topics go to the coordinator, and its response."""

    __slots__ = ("_call", "_codes", "_names", "_refused", "_request")

    def __init__(self, request: OffsetCommitRequest, call: Request) -> None:
        self._request = request
        self._call = call
        self._names: list[str] = []
        self._codes: list[ErrorCode] = []
        # Partitions that are not in the table succeeded.
        self._refused: dict[TopicPartition, ErrorCode] = {}

    def take(self, topic: OffsetCommitRequestTopic, offsets: list[OffsetToCommit]) -> Iterator[None]:
        """Add the topic's positions; none if it has an error."""
        image = self._call.backend.controller.image
        name = topic.name
        if self._call.version >= TOPIC_IDS_SINCE:
            name = image.topic_name(TopicId(topic.topic_id)) or ""
        topic_id = image.topic_id(name)
        code = self._judge(name, topic_id)
        self._names.append(name)
        self._codes.append(code)
        if code is not ErrorCode.NONE:
            yield
            return
        for part in topic.partitions:
            offsets.append(
                OffsetToCommit(
                    TopicPartition(TopicName(name), PartitionIndex(part.partition_index)),
                    Offset(part.committed_offset),
                    LeaderEpoch(part.committed_leader_epoch),
                    part.committed_metadata or "",
                    topic_id,
                )
            )
            yield

    def _judge(self, name: str, topic_id: TopicId | None) -> ErrorCode:
        if not name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._call.authorize(AclOperation.READ, topic_resource(name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.NONE

    def submit(self, offsets: Sequence[OffsetToCommit], on_reply: OnReply) -> None:
        request, call = self._request, self._call
        keeps = request.retention_time_ms
        call.backend.groups.submit(
            CommitOffsets(
                on_reply=on_reply,
                group_id=request.group_id,
                generation=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                has_member_epoch=call.version >= MEMBER_EPOCHS_SINCE,
                retention_ms=None if keeps < 0 else min(keeps, RETENTION_MS_MAX),
                offsets=tuple(offsets),
            )
        )

    def committed(self, offsets: Sequence[OffsetToCommit], reply: Reply) -> None:
        if isinstance(reply, CommitResults):
            for part, kind in reply.partitions:
                if kind is not None:
                    self._refused[part] = code_of(ApiError(kind))
            return
        code = code_in(reply)
        if isinstance(reply, ApiError) and reply.kind is ErrorKind.UNKNOWN_GROUP:
            known = self._call.version >= GROUP_NOT_FOUND_SINCE
            code = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        # The same error for all that went to the coordinator.
        self._refused.update([(offset.partition, code) for offset in offsets])

    def done(self) -> None:
        self._call.run(self.answer())

    def answer_all(self, code: ErrorCode) -> Iterator[None]:
        self._names = [topic.name for topic in self._request.topics]
        self._codes = [code] * len(self._names)
        yield from self.answer()

    def answer(self) -> Iterator[None]:
        refused = self._refused
        topics: list[OffsetCommitResponseTopic] = []
        for topic, name, code in zip(self._request.topics, self._names, self._codes, strict=True):
            rows: list[OffsetCommitResponsePartition] = []
            for part in topic.partitions:
                index = part.partition_index
                error = code
                if refused:
                    error = refused.get(TopicPartition(TopicName(name), PartitionIndex(index)), code)
                rows.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
                yield
            topics.append(
                OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=tuple(rows))
            )
            yield
        self._call.reply(
            OffsetCommitResponse(throttle_time_ms=self._call.charge_time(), topics=tuple(topics))
        )
