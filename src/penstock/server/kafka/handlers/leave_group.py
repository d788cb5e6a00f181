"""LeaveGroup: leaving a classic group at once instead of by timeout."""

from collections.abc import Iterator

from penstock.core.groups import LeaveGroup, LeaveGroupResult, LeavingMember, Reply
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, collected, may
from penstock.server.kafka.router import routes

BATCHES_SINCE = 3


@routes.handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, call: Request) -> None:
    if not may(call, AclOperation.READ, request.group_id):
        call.reply(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    call.backend.groups.submit(
        LeaveGroup(
            on_reply=lambda reply: call.run(_answer(call, reply)),
            group_id=request.group_id,
            members=_leaving(request, call),
        )
    )


def _leaving(request: LeaveGroupRequest, call: Request) -> tuple[LeavingMember, ...]:
    if call.version < BATCHES_SINCE:
        return (LeavingMember(request.member_id),)
    return tuple(LeavingMember(m.member_id, m.group_instance_id, m.reason or "") for m in request.members)


def _answer(call: Request, reply: Reply) -> Iterator[None]:
    throttle_ms = call.charge_time()
    if not isinstance(reply, LeaveGroupResult):
        call.reply(LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=code_in(reply)))
        return
    members = yield from collected(
        LeaveGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            error_code=ErrorCode.NONE if member.kind is None else code_of(ApiError(member.kind)),
        )
        for member in reply.members
    )
    if call.version < BATCHES_SINCE:
        call.reply(LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=members[0].error_code))
    else:
        call.reply(
            LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=ErrorCode.NONE, members=members)
        )
