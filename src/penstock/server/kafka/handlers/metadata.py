"""Metadata: brokers, topics and partition leaders; creates missing topics if that is enabled."""

from collections.abc import Iterable, Iterator
from functools import partial
from uuid import UUID

from penstock.core.metadata import Topic, is_internal, problem_with_name
from penstock.core.model import ApiError, ErrorKind, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.node_addresses import ListenerView, controller_id
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    CLUSTER,
    NOT_ASKED,
    TopicRows,
    authorized_operations,
    collected,
    may_create,
    topic_resource,
    unique,
)
from penstock.server.kafka.router import routes

TOPIC_IDS_SINCE = 12
# Other responses wait behind this one: after a while the client should ask again.
CREATION_MS = 5_000
TopicErrors = dict[str, ApiError]
AskedTopics = Iterable[tuple[UUID, str | None]]


@routes.handles(MetadataRequest)
def metadata(request: MetadataRequest, call: Request) -> Iterator[None]:
    """Reply from the committed image; topics that are to be created come first."""
    if not _is_valid(request, call.version):
        yield from _refuse(request, call)
        return
    # Each once, however often it is named: a short request must not have an endless response.
    asked = yield from unique((topic.topic_id, topic.name) for topic in request.topics or ())
    missing = yield from _to_create(request, call, asked)
    if not missing:
        yield from _reply(request, call, asked, {})
        return
    refusals: TopicErrors = {}
    waiting = dict.fromkeys(missing)

    def created(name: str, outcome: object) -> None:
        del waiting[name]
        if isinstance(outcome, ApiError):
            refusals[name] = outcome
        if not waiting and call.is_open:
            call.run(_reply(request, call, asked, refusals))

    for name in missing:
        call.backend.topics.auto_create(
            name, partial(created, name), timeout_ms=CREATION_MS, client=call.session.host
        )
        yield


def _asks_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _is_valid(request: MetadataRequest, version: int) -> bool:
    """Versions 10 and 11 have a place for ids, but topics cannot be asked for by them."""
    return version >= TOPIC_IDS_SINCE or all(
        topic.name is not None and topic.topic_id == ZERO_UUID for topic in request.topics or ()
    )


def _refuse(request: MetadataRequest, call: Request) -> Iterator[None]:
    rows = yield from collected(
        _failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in request.topics or ()
    )
    call.reply(MetadataResponse(throttle_time_ms=call.charge_time(), brokers=(), topics=rows))


def _to_create(request: MetadataRequest, call: Request, asked: AskedTopics) -> Steps[list[str]]:
    """The missing topics that this caller may create, if the request allows it."""
    missing: list[str] = []
    if not request.allow_auto_topic_creation or _asks_for_all(request, call.version):
        return missing
    image = call.backend.controller.image
    for topic_id, name in asked:
        yield
        if name is None or topic_id != ZERO_UUID or image.topic_id(name) is not None:
            continue
        if problem_with_name(name) is None and _may_auto_create(call, name):
            missing.append(name)
    return missing


def _may_auto_create(call: Request, name: str) -> bool:
    return call.authorize(AclOperation.DESCRIBE, topic_resource(name)) and may_create(call, name)


def _reply(
    request: MetadataRequest, call: Request, asked: AskedTopics, refusals: TopicErrors
) -> Iterator[None]:
    image, reach = call.backend.controller.image, ListenerView(call)
    rows = TopicRows(call, reach, with_operations=request.include_topic_authorized_operations)
    if _asks_for_all(request, call.version):
        topics = yield from rows.everything()
    else:
        topics = yield from _asked_for(request, call, asked, rows, refusals)
    call.reply(
        MetadataResponse(
            throttle_time_ms=call.charge_time(),
            brokers=tuple(
                MetadataResponseBroker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in reach.brokers
            ),
            cluster_id=image.cluster_id,
            controller_id=controller_id(call),
            topics=topics,
            cluster_authorized_operations=authorized_operations(call, CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )
    )


def _asked_for(
    request: MetadataRequest, call: Request, asked: AskedTopics, rows: TopicRows, refusals: TopicErrors
) -> Steps[tuple[MetadataResponseTopic, ...]]:
    found: list[MetadataResponseTopic] = []
    for topic_id, name in asked:
        topic = _topic_or_error(request, call, topic_id, name, refusals)
        if isinstance(topic, Topic):
            topic = yield from rows.row(topic)
        found.append(topic)
        yield
    return tuple(found)


def _topic_or_error(
    request: MetadataRequest, call: Request, topic_id: UUID, name: str | None, refusals: TopicErrors
) -> Topic | MetadataResponseTopic:
    image = call.backend.controller.image
    if topic_id != ZERO_UUID:
        return _by_id(call, TopicId(topic_id))
    if name is None:
        return _failed(ErrorCode.INVALID_REQUEST, None)
    if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
        return _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    return image.topic(name) or _failed(_missing_code(request, call, name, refusals), name)


def _by_id(call: Request, topic_id: TopicId) -> Topic | MetadataResponseTopic:
    topic = call.backend.controller.image.topic_by_id(topic_id)
    if topic is None:
        return _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not call.authorize(AclOperation.DESCRIBE, topic_resource(topic.name)):
        # The id reveals nothing, the name would.
        return _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return topic


def _missing_code(request: MetadataRequest, call: Request, name: str, refusals: TopicErrors) -> ErrorCode:
    if problem_with_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    error = refusals.get(name)
    if error is not None:
        # Not decided in time: it may still be created, and the client asks again.
        return ErrorCode.LEADER_NOT_AVAILABLE if error.kind is ErrorKind.TIMED_OUT else code_of(error)
    if request.allow_auto_topic_creation and not may_create(call, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(code: ErrorCode, name: str | None, topic_id: UUID = ZERO_UUID) -> MetadataResponseTopic:
    internal = name is not None and is_internal(name)
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=internal, partitions=()
    )
