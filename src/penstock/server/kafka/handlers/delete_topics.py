"""DeleteTopics: removing topics, by name or by id."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.core.metadata import DeletedTopic
from penstock.core.model import ApiError, ErrorKind, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected, topic_resource
from penstock.server.kafka.router import routes

TOPIC_IDS_SINCE = 6
# Older clients do not know the code for a deletion that is switched off.
DISABLED_SINCE = 3


class TopicToDelete(NamedTuple):
    """A topic as the request names it."""

    name: str | None
    topic_id: UUID


class _Row(NamedTuple):
    doomed: TopicToDelete
    error: ApiError | None = None


@routes.handles(DeleteTopicsRequest)
def delete_topics(request: DeleteTopicsRequest, call: Request) -> Iterator[None]:
    rows = yield from _judged(call, _doomed(request, call.version))
    wanted: list[TopicId | str] = []
    for (name, topic_id), refused in rows:
        if refused is None:
            wanted.append(TopicId(topic_id) if name is None else name)
            yield

    def done(replies: list[DeletedTopic | ApiError]) -> None:
        call.run(_reply(call, rows, replies))

    call.backend.topics.delete(wanted, done, timeout_ms=request.timeout_ms, account=call.connection.account)


def _reply(call: Request, rows: list[_Row], replies: list[DeletedTopic | ApiError]) -> Iterator[None]:
    outcomes = iter(replies)
    answer = yield from collected(
        _answer(call, row.doomed, next(outcomes) if row.error is None else row.error) for row in rows
    )
    throttle_ms = call.charge(QuotaType.MUTATIONS, len(replies))
    call.reply(DeleteTopicsResponse(throttle_time_ms=throttle_ms, responses=answer))


def _doomed(request: DeleteTopicsRequest, version: int) -> Iterator[TopicToDelete]:
    if version >= TOPIC_IDS_SINCE:
        return (TopicToDelete(topic.name, topic.topic_id) for topic in request.topics)
    return (TopicToDelete(name, ZERO_UUID) for name in request.topic_names)


def _judged(call: Request, everything: Iterator[TopicToDelete]) -> Steps[list[_Row]]:
    """One row per topic, with the error that is known before the controller is asked."""
    counts: dict[TopicToDelete, int] = {}
    for doomed in everything:
        counts[doomed] = counts.get(doomed, 0) + 1
        yield
    rows: list[_Row] = []
    for doomed, count in counts.items():
        rows.append(_Row(doomed, _problem(call, doomed, count)))
        yield
    return rows


def _problem(call: Request, doomed: TopicToDelete, count: int) -> ApiError | None:
    name, topic_id = doomed
    if name is None and topic_id == ZERO_UUID:
        return ApiError(ErrorKind.INVALID_REQUEST, "a topic needs a name or an id")
    if name is not None and topic_id != ZERO_UUID:
        return ApiError(ErrorKind.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    if count > 1:
        return ApiError(ErrorKind.INVALID_REQUEST, "the request names this topic more than once")
    if name is None:
        name = call.backend.controller.image.topic_name(TopicId(topic_id))
        if name is None:
            return ApiError(ErrorKind.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    resource = topic_resource(name)
    if call.authorize(AclOperation.DESCRIBE, resource) and call.authorize(AclOperation.DELETE, resource):
        return None
    return ApiError(ErrorKind.NOT_AUTHORIZED, "the caller may not delete this topic")


def _answer(
    call: Request, doomed: TopicToDelete, outcome: DeletedTopic | ApiError
) -> DeleteTopicsResponseTopic:
    if isinstance(outcome, DeletedTopic):
        return DeleteTopicsResponseTopic(name=outcome.name, topic_id=outcome.id, error_code=ErrorCode.NONE)
    code = code_of(outcome)
    if code is ErrorCode.TOPIC_DELETION_DISABLED and call.version < DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponseTopic(
        name=doomed.name, topic_id=doomed.topic_id, error_code=code, error_message=message_of(outcome)
    )
