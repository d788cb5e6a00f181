"""LeaveGroup: leaving a classic group at once instead of by timeout."""

from collections.abc import Iterator, Sequence

from penstock.core.groups import LeaveGroup, LeaveGroupResult, LeavingMember, LeftMember, OnReply, Reply
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.handlers.join_group import REASON_CHARS_MAX
from penstock.server.kafka.portions import Portions
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, collected, may
from penstock.server.kafka.router import routes

BATCHES_SINCE = 3


@routes.handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, call: Request) -> Iterator[None]:
    if not may(call, AclOperation.READ, request.group_id):
        call.reply(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    leave = _Leave(request, call)
    leaving = yield from collected(_leaving(request, call))
    Portions(call, leaving, leave.submit, leave.take, leave.done).start()


def _leaving(request: LeaveGroupRequest, call: Request) -> Iterator[LeavingMember]:
    if call.version < BATCHES_SINCE:
        yield LeavingMember(request.member_id)
        return
    for member in request.members:
        yield LeavingMember(
            member.member_id, member.group_instance_id, (member.reason or "")[:REASON_CHARS_MAX]
        )


class _Leave:
    """One request in progress: who has left so far."""

    __slots__ = ("_call", "_error", "_group_id", "_left")

    def __init__(self, request: LeaveGroupRequest, call: Request) -> None:
        self._call = call
        self._group_id = request.group_id
        self._left: list[LeftMember] = []
        # The error of the group, if it has one.
        self._error = ErrorCode.NONE

    def submit(self, members: Sequence[LeavingMember], on_reply: OnReply) -> None:
        self._call.backend.groups.submit(
            LeaveGroup(on_reply=on_reply, group_id=self._group_id, members=tuple(members))
        )

    def take(self, _members: Sequence[LeavingMember], reply: Reply) -> None:
        if isinstance(reply, LeaveGroupResult):
            self._left += reply.members
        else:
            self._error = code_in(reply)

    def done(self) -> None:
        self._call.run(self._answer())

    def _answer(self) -> Iterator[None]:
        call, throttle_ms = self._call, self._call.charge_time()
        if self._error is not ErrorCode.NONE:
            call.reply(LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=self._error))
            return
        members = yield from collected(
            LeaveGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                error_code=ErrorCode.NONE if member.kind is None else code_of(ApiError(member.kind)),
            )
            for member in self._left
        )
        if call.version < BATCHES_SINCE:
            call.reply(LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=members[0].error_code))
        else:
            call.reply(
                LeaveGroupResponse(throttle_time_ms=throttle_ms, error_code=ErrorCode.NONE, members=members)
            )
