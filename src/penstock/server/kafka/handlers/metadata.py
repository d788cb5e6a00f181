"""Metadata: brokers, topics and partition leaders; creates missing topics if that is enabled."""

from collections.abc import Iterator
from functools import partial
from uuid import UUID

from penstock.core.metadata import is_internal, problem_with_name
from penstock.core.model import ApiError, ErrorKind, TopicId
from penstock.core.protocol import ErrorCode
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
    may_create,
    topic_resource,
)
from penstock.server.kafka.router import routes

TOPIC_IDS_SINCE = 12
# Other responses wait behind this one: after a while the client should ask again.
CREATION_MS = 5_000
TopicErrors = dict[str, ApiError]


@routes.handles(MetadataRequest)
def metadata(request: MetadataRequest, call: Request) -> None:
    """Reply from the committed image; topics that are to be created come first."""
    if not _is_valid(request, call.version):
        _refuse(request, call)
        return
    missing = [] if _asks_for_all(request, call.version) else list(_to_create(request, call))
    if not missing:
        _reply(request, call, {})
        return
    refusals: TopicErrors = {}
    waiting = dict.fromkeys(missing)

    def created(name: str, outcome: object) -> None:
        del waiting[name]
        if isinstance(outcome, ApiError):
            refusals[name] = outcome
        if not waiting and call.is_open:
            _reply(request, call, refusals)

    for name in missing:
        call.backend.topics.auto_create(name, partial(created, name), timeout_ms=CREATION_MS)


def _asks_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _is_valid(request: MetadataRequest, version: int) -> bool:
    """Versions 10 and 11 have a place for ids, but topics cannot be asked for by them."""
    return version >= TOPIC_IDS_SINCE or all(
        topic.name is not None and topic.topic_id == ZERO_UUID for topic in request.topics or ()
    )


def _refuse(request: MetadataRequest, call: Request) -> None:
    rows = tuple(
        _failed(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in request.topics or ()
    )
    call.reply(MetadataResponse(throttle_time_ms=call.charge_time(), brokers=(), topics=rows))


def _to_create(request: MetadataRequest, call: Request) -> Iterator[str]:
    """The missing topics that this caller may create, if the request allows it."""
    if not request.allow_auto_topic_creation:
        return
    image = call.backend.controller.image
    for name in dict.fromkeys(topic.name for topic in request.topics or () if topic.topic_id == ZERO_UUID):
        if name is None or image.topic_id(name) is not None or problem_with_name(name) is not None:
            continue
        if call.authorize(AclOperation.DESCRIBE, topic_resource(name)) and may_create(call, name):
            yield name


def _reply(request: MetadataRequest, call: Request, refusals: TopicErrors) -> None:
    image, reach = call.backend.controller.image, ListenerView(call)
    rows = TopicRows(call, reach, with_operations=request.include_topic_authorized_operations)
    if _asks_for_all(request, call.version):
        topics = tuple(rows.everything())
    else:
        topics = tuple(_asked_for(request, call, rows, refusals))
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
    request: MetadataRequest, call: Request, rows: TopicRows, refusals: TopicErrors
) -> Iterator[MetadataResponseTopic]:
    image = call.backend.controller.image
    unique = dict.fromkeys((topic.topic_id, topic.name) for topic in request.topics or ())
    for topic_id, name in unique:
        if topic_id != ZERO_UUID:
            yield _by_id(call, rows, TopicId(topic_id))
        elif name is None:
            yield _failed(ErrorCode.INVALID_REQUEST, None)
        elif not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            yield _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        elif (topic := image.topic(name)) is not None:
            yield rows.row(topic)
        else:
            yield _failed(_missing_code(request, call, name, refusals), name)


def _by_id(call: Request, rows: TopicRows, topic_id: TopicId) -> MetadataResponseTopic:
    topic = call.backend.controller.image.topic_by_id(topic_id)
    if topic is None:
        return _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not call.authorize(AclOperation.DESCRIBE, topic_resource(topic.name)):
        # The id reveals nothing, the name would.
        return _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return rows.row(topic)


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
