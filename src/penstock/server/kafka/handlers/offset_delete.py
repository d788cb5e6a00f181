"""OffsetDelete: forgetting a group's positions in topics it does not read any more."""

from collections.abc import Iterator, Sequence

from penstock.core.groups import DeleteOffsets, DeletionResults, OnReply, Reply
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
from penstock.server.kafka.portions import Portions
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, collected, may, topic_resource
from penstock.server.kafka.router import routes


@routes.handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, call: Request) -> Iterator[None]:
    if not may(call, AclOperation.DELETE, request.group_id):
        _refuse(call, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    deletion = _Deletion(request, call)
    doomed: list[TopicPartition] = []
    for topic in request.topics:
        if topic.name not in deletion.codes:
            deletion.codes[topic.name] = _judge(call, topic.name)
        if deletion.codes[topic.name] is ErrorCode.NONE:
            for part in topic.partitions:
                doomed.append(TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index)))
                yield
        yield
    Portions(call, doomed, deletion.submit, deletion.deleted, deletion.done).start()


def _judge(call: Request, topic: str) -> ErrorCode:
    if not call.authorize(AclOperation.READ, topic_resource(topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = call.backend.controller.image.topic_id(topic) is not None
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Deletion:
    """One request in progress: the errors of its topics, and of partitions that were kept."""

    __slots__ = ("_call", "_error", "_kept", "_request", "codes")

    def __init__(self, request: OffsetDeleteRequest, call: Request) -> None:
        self._request = request
        self._call = call
        self.codes: dict[str, ErrorCode] = {}
        self._kept: dict[TopicPartition, ErrorCode] = {}
        # The error of the group, if it has one.
        self._error = ErrorCode.NONE

    def submit(self, partitions: Sequence[TopicPartition], on_reply: OnReply) -> None:
        group_id = self._request.group_id
        self._call.backend.groups.submit(
            DeleteOffsets(on_reply=on_reply, group_id=group_id, partitions=tuple(partitions))
        )

    def deleted(self, _partitions: Sequence[TopicPartition], reply: Reply) -> None:
        if isinstance(reply, DeletionResults):
            for part, kind in reply.partitions:
                if kind is not None:
                    self._kept[part] = code_of(ApiError(kind))
        else:
            self._error = code_in(reply)

    def done(self) -> None:
        if self._error is ErrorCode.NONE:
            self._call.run(self._answer())
        else:
            _refuse(self._call, self._error)

    def _answer(self) -> Iterator[None]:
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in self._request.topics:
            name, code = TopicName(topic.name), self.codes[topic.name]
            rows = yield from collected(
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index,
                    error_code=self._kept.get(
                        TopicPartition(name, PartitionIndex(part.partition_index)), code
                    ),
                )
                for part in topic.partitions
            )
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
            yield
        self._call.reply(
            OffsetDeleteResponse(
                error_code=ErrorCode.NONE, throttle_time_ms=self._call.charge_time(), topics=tuple(topics)
            )
        )


def _refuse(call: Request, code: ErrorCode) -> None:
    call.reply(OffsetDeleteResponse(error_code=code, throttle_time_ms=call.charge_time(), topics=()))
