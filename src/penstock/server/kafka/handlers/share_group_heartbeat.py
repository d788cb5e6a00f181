"""ShareGroupHeartbeat: everything that a member of a share group says (KIP-932)."""

from collections.abc import Iterator
from functools import partial

from penstock.core.groups import ConsumerHeartbeatResult, Reply, ShareGroupHeartbeat, rows
from penstock.core.metadata import SHARE_VERSION
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatResponseAssignment,
    ShareGroupHeartbeatResponseTopicPartitions,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import NAME_CHARS_MAX, may, reader_of, topic_resource
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_rights import NOT_ENABLED

# A member is stored as one record, and what it has leased is released queue by queue.
SUBSCRIPTION_CHARS_MAX = 200_000
SUBSCRIPTION_NAMES_MAX = 10_000


@routes.handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(request: ShareGroupHeartbeatRequest, call: Request) -> Iterator[None]:
    problem = yield from _problem(request, call)
    if problem is not None:
        call.reply(_error(call, *problem))
        return
    client_id, client_host = reader_of(call)
    call.backend.groups.submit(
        ShareGroupHeartbeat(
            on_reply=partial(_reply, call),
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=client_id,
            client_host=client_host,
            topics=request.subscribed_topic_names,
            session_timeout_ms=request.session_timeout_ms,
        )
    )


def _problem(request: ShareGroupHeartbeatRequest, call: Request) -> Steps[tuple[ErrorCode, str] | None]:
    if not may(call, AclOperation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "the caller may not read as this group"
    if call.backend.controller.image.feature_level(SHARE_VERSION) < 1:
        return ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED
    names = request.subscribed_topic_names or ()
    if max(map(len, (request.member_id, request.rack_id or "", *names))) > NAME_CHARS_MAX:
        return ErrorCode.INVALID_REQUEST, f"a name has at most {NAME_CHARS_MAX} characters"
    if len(names) > SUBSCRIPTION_NAMES_MAX or sum(map(len, names)) > SUBSCRIPTION_CHARS_MAX:
        limit = f"{SUBSCRIPTION_NAMES_MAX} names and {SUBSCRIPTION_CHARS_MAX} characters"
        return ErrorCode.INVALID_REQUEST, f"a subscription has at most {limit}"
    if request.rack_id == "":
        return ErrorCode.INVALID_REQUEST, "a rack is empty"
    for name in names:
        if not call.authorize(AclOperation.DESCRIBE, topic_resource(name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the caller may not see topic {name}"
        yield
    return None


def _reply(call: Request, reply: Reply) -> None:
    if not isinstance(reply, ConsumerHeartbeatResult):
        assert isinstance(reply, ApiError)
        call.reply(_error(call, code_of(reply), message_of(reply)))
        return
    assignment = None
    if reply.assignment is not None:
        assignment = ShareGroupHeartbeatResponseAssignment(
            topic_partitions=tuple(
                [
                    ShareGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in rows(reply.assignment)
                ]
            )
        )
    call.reply(
        ShareGroupHeartbeatResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            member_id=reply.member_id,
            member_epoch=reply.epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=assignment,
        )
    )


def _error(call: Request, code: ErrorCode, message: str) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=call.charge_time(),
        error_code=code,
        error_message=message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
