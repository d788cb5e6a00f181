"""JoinGroup: entering a classic group; answered when the join phase ends."""

from penstock.core.groups import Join, Joined, MemberIdRequired, MemberProtocol, Reply
from penstock.core.model import Refused
from penstock.core.wire import ErrorCode
from penstock.core.wire.kafka.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from penstock.gateways.kafka.answers.groups import NAME_CHARS_MAX, may, reader_of
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.refusals import code_of
from penstock.gateways.kafka.routes import routes
from penstock.security import Operation

MEMBER_ID_REQUIRED_SINCE = 4
NO_PROTOCOL_IS_NULL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


@routes.handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, call: Call) -> None:
    problem = _problem(request, call)
    if problem is not ErrorCode.NONE:
        call.reply(_refused(call, problem, request.member_id))
        return
    call.charge_time()
    groups, reader = call.backend.groups, reader_of(call)
    session_ms = request.session_timeout_ms
    groups.submit(
        Join(
            on_reply=lambda reply: call.reply(_response(call, request, reply)),
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=reader.client_id,
            client_host=reader.client_host,
            session_timeout_ms=session_ms,
            # The oldest version knows one timeout for both.
            rebalance_timeout_ms=session_ms if call.version == 0 else request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(MemberProtocol(p.name, bytes(p.metadata)) for p in request.protocols),
            random_id="" if request.member_id else groups.random_id(),
            member_id_required=call.version >= MEMBER_ID_REQUIRED_SINCE,
            can_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
            reason=request.reason or "",
        )
    )


def _problem(request: JoinGroupRequest, call: Call) -> ErrorCode:
    if not may(call, Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = (request.group_instance_id or "", request.protocol_type, *(p.name for p in request.protocols))
    too_long = any(len(name) > NAME_CHARS_MAX for name in names)
    return ErrorCode.INVALID_REQUEST if too_long else ErrorCode.NONE


def _response(call: Call, request: JoinGroupRequest, reply: Reply) -> JoinGroupResponse:
    match reply:
        case Joined():
            return _joined(call, reply)
        case MemberIdRequired():
            return _refused(call, ErrorCode.MEMBER_ID_REQUIRED, reply.member_id)
        case Refused():
            return _refused(call, code_of(reply), request.member_id)
        case _:
            raise AssertionError(f"no answer to JoinGroup: {reply}")


def _joined(call: Call, joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol or _no_protocol(call),
        leader=joined.leader or "",
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ),
    )


def _refused(call: Call, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, protocol_name=_no_protocol(call), leader="", member_id=member_id, members=()
    )


def _no_protocol(call: Call) -> str | None:
    return None if call.version >= NO_PROTOCOL_IS_NULL_SINCE else ""
