"""Heartbeat: staying in a classic group. The most frequent request of all groups."""

from functools import partial

from penstock.core.groups import Heartbeat, Reply
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may
from penstock.server.kafka.router import routes


@routes.handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, call: Request) -> None:
    if not may(call, AclOperation.READ, request.group_id):
        call.reply(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    call.backend.groups.submit(
        Heartbeat(
            on_reply=partial(_reply, call),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
        )
    )


def _reply(call: Request, reply: Reply) -> None:
    code = code_of(reply) if isinstance(reply, ApiError) else ErrorCode.NONE
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Nobody knows yet whether this member is one: a newer generation may have been there without it.
        # Kafka's Java client ends on "loading" in this response, but looks for its coordinator on this code.
        # Every session starts over when the log is loaded, so a member that only asks again stays one.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    call.reply(HeartbeatResponse(throttle_time_ms=call.charge_time(), error_code=code))
