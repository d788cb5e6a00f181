"""ConsumerGroupHeartbeat: everything that a member of a consumer group says (KIP-848)."""

from collections.abc import Iterator
from functools import partial

from penstock.core.groups import (
    NO_PARTITIONS,
    ConsumerGroupHeartbeat,
    ConsumerHeartbeatResult,
    PartitionSet,
    Reply,
    TopicRights,
    partition_set,
    rows,
)
from penstock.core.metadata import GROUP_VERSION
from penstock.core.model import ApiError, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import NAME_CHARS_MAX, may, reader_of, topic_resource
from penstock.server.kafka.router import routes

# Since this version members make their own ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1
JOIN_EPOCH = 0
# A member is stored as one record, which must not be larger than a batch, whatever the characters.
SUBSCRIPTION_CHARS_MAX = 200_000
# The loop looks at every name. Who reads more topics has a pattern for them.
SUBSCRIPTION_NAMES_MAX = 10_000
NOT_ENABLED = f"consumer groups need level 1 of {GROUP_VERSION}"


@routes.handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, call: Request) -> Iterator[None]:
    problem = yield from _problem(request, call)
    if problem is not None:
        call.reply(_error(call, *problem))
        return
    groups, member_id = call.backend.groups, request.member_id
    if not member_id and call.version < OWN_MEMBER_ID_SINCE and request.member_epoch == JOIN_EPOCH:
        member_id = groups.random_id()
    client_id, client_host = reader_of(call)
    groups.submit(
        ConsumerGroupHeartbeat(
            on_reply=partial(_reply, call),
            group_id=request.group_id,
            member_id=member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=request.subscribed_topic_names,
            pattern=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=_owned(request),
            session_timeout_ms=request.session_timeout_ms,
            rights=_rights(call),
        )
    )


def _problem(request: ConsumerGroupHeartbeatRequest, call: Request) -> Steps[tuple[ErrorCode, str] | None]:
    if not may(call, AclOperation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "the caller may not read as this group"
    if call.backend.controller.image.feature_level(GROUP_VERSION) < 1:
        return ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED
    names = request.subscribed_topic_names or ()
    given = (
        *(request.member_id, request.instance_id or "", request.rack_id or ""),
        *(request.server_assignor or "", request.subscribed_topic_regex or "", *names),
    )
    if max(map(len, given)) > NAME_CHARS_MAX:
        return ErrorCode.INVALID_REQUEST, f"a name has at most {NAME_CHARS_MAX} characters"
    if len(names) > SUBSCRIPTION_NAMES_MAX or sum(map(len, names)) > SUBSCRIPTION_CHARS_MAX:
        limit = f"{SUBSCRIPTION_NAMES_MAX} names and {SUBSCRIPTION_CHARS_MAX} characters"
        return ErrorCode.INVALID_REQUEST, f"a subscription has at most {limit}"
    if request.instance_id == "" or request.rack_id == "":
        return ErrorCode.INVALID_REQUEST, "an instance id or a rack is empty"
    for name in names:
        if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the caller may not see topic {name}"
        yield
    return None


def _rights(call: Request) -> TopicRights | None:
    """What decides which topics of a pattern the member gets; it outlives the request."""
    gate, session = call.authorizer, call.session
    key = None if gate is None else gate.rights_key(session)
    if gate is None or key is None:
        return None

    def may_see(topic: str) -> bool:
        return gate.authorize(session, AclOperation.DESCRIBE, topic_resource(topic))

    return TopicRights(key, may_see)


def _owned(request: ConsumerGroupHeartbeatRequest) -> PartitionSet | None:
    if request.topic_partitions is None:
        return None if request.member_epoch != JOIN_EPOCH else NO_PARTITIONS
    return partition_set((TopicId(each.topic_id), each.partitions) for each in request.topic_partitions)


def _reply(call: Request, reply: Reply) -> None:
    if not isinstance(reply, ConsumerHeartbeatResult):
        assert isinstance(reply, ApiError)
        call.reply(_error(call, code_of(reply), message_of(reply)))
        return
    assignment = None
    if reply.assignment is not None:
        assignment = ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=tuple(
                [
                    ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in rows(reply.assignment)
                ]
            )
        )
    call.reply(
        ConsumerGroupHeartbeatResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            member_id=reply.member_id,
            member_epoch=reply.epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=assignment,
        )
    )


def _error(call: Request, code: ErrorCode, message: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=call.charge_time(),
        error_code=code,
        error_message=message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
