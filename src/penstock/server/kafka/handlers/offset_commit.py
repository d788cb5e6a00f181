"""OffsetCommit: stores how far a group has read."""

from penstock.core.groups import CommitOffsets, CommitResults, OffsetToCommit, Reply
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
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, may, topic_resource
from penstock.server.kafka.router import routes

TOPIC_IDS_SINCE = 10
GROUP_NOT_FOUND_SINCE = 9
MEMBER_EPOCHS_SINCE = 9
# A hundred years: what is added to a timestamp must leave a timestamp.
RETENTION_MS_MAX = 100 * 365 * 24 * 60 * 60 * 1_000


@routes.handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, call: Request) -> None:
    commit = _Commit(request, call)
    if not may(call, AclOperation.READ, request.group_id):
        commit.answer_all(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    offsets = [offset for topic in request.topics for offset in commit.take(topic)]
    if not offsets:
        commit.answer({})
        return
    keeps = request.retention_time_ms
    call.backend.groups.submit(
        CommitOffsets(
            on_reply=commit.done,
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            has_member_epoch=call.version >= MEMBER_EPOCHS_SINCE,
            retention_ms=None if keeps < 0 else min(keeps, RETENTION_MS_MAX),
            offsets=tuple(offsets),
        )
    )


class _Commit:
    """One request in progress: which of its topics go to the coordinator, and its response."""

    __slots__ = ("_call", "_codes", "_names", "_request")

    def __init__(self, request: OffsetCommitRequest, call: Request) -> None:
        self._request = request
        self._call = call
        self._names: list[str] = []
        self._codes: list[ErrorCode] = []

    def take(self, topic: OffsetCommitRequestTopic) -> list[OffsetToCommit]:
        """The topic's positions; none if it has an error."""
        image = self._call.backend.controller.image
        name = topic.name
        if self._call.version >= TOPIC_IDS_SINCE:
            name = image.topic_name(TopicId(topic.topic_id)) or ""
        topic_id = image.topic_id(name)
        code = self._judge(name, topic_id)
        self._names.append(name)
        self._codes.append(code)
        if code is not ErrorCode.NONE:
            return []
        return [
            OffsetToCommit(
                TopicPartition(TopicName(name), PartitionIndex(part.partition_index)),
                Offset(part.committed_offset),
                LeaderEpoch(part.committed_leader_epoch),
                part.committed_metadata or "",
                topic_id,
            )
            for part in topic.partitions
        ]

    def _judge(self, name: str, topic_id: TopicId | None) -> ErrorCode:
        if not name:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._call.authorize(AclOperation.READ, topic_resource(name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.NONE

    def done(self, reply: Reply) -> None:
        if isinstance(reply, CommitResults):
            # Partitions that are not in the table succeeded.
            self.answer(
                {part: code_of(ApiError(kind)) for part, kind in reply.partitions if kind is not None}
            )
        elif isinstance(reply, ApiError) and reply.kind is ErrorKind.UNKNOWN_GROUP:
            known = self._call.version >= GROUP_NOT_FOUND_SINCE
            self._refuse(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
        else:
            self._refuse(code_in(reply))

    def _refuse(self, code: ErrorCode) -> None:
        """The same error for all that went to the coordinator."""
        self._codes = [code if own is ErrorCode.NONE else own for own in self._codes]
        self.answer({})

    def answer_all(self, code: ErrorCode) -> None:
        self._names = [topic.name for topic in self._request.topics]
        self._codes = [code] * len(self._names)
        self.answer({})

    def answer(self, refused: dict[TopicPartition, ErrorCode]) -> None:
        topics = zip(self._request.topics, self._names, self._codes, strict=True)
        self._call.reply(
            OffsetCommitResponse(
                throttle_time_ms=self._call.charge_time(),
                topics=tuple(
                    [
                        OffsetCommitResponseTopic(
                            topic_id=topic.topic_id,
                            name=topic.name,
                            partitions=tuple(
                                [
                                    OffsetCommitResponsePartition(
                                        partition_index=part.partition_index,
                                        error_code=refused.get(
                                            TopicPartition(
                                                TopicName(name), PartitionIndex(part.partition_index)
                                            ),
                                            code,
                                        ),
                                    )
                                    for part in topic.partitions
                                ]
                            ),
                        )
                        for topic, name, code in topics
                    ]
                ),
            )
        )
