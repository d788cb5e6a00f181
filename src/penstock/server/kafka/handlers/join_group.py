"""JoinGroup: entering a classic group; the response comes when the join phase ends."""

from functools import partial

from penstock.core.groups import JoinGroup, JoinGroupResult, MemberIdRequired, MemberProtocol, Reply
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import ParkedReply, Request
from penstock.server.kafka.response_rows import NAME_CHARS_MAX, may, reader_of
from penstock.server.kafka.router import routes

MEMBER_ID_REQUIRED_SINCE = 4
NO_PROTOCOL_IS_NULL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
# It goes into a log line. Clients cut it there.
REASON_CHARS_MAX = 255


@routes.handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, call: Request) -> None:
    if not may(call, AclOperation.READ, request.group_id):
        call.reply(_error(call, ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
        return
    protocols = tuple([MemberProtocol(p.name, bytes(p.metadata)) for p in request.protocols])
    names = [request.member_id, request.group_instance_id or "", request.protocol_type]
    names += [name for name, _ in protocols]
    if max(map(len, names)) > NAME_CHARS_MAX:
        call.reply(_error(call, ErrorCode.INVALID_REQUEST, request.member_id))
        return
    call.charge_time()
    groups, version = call.backend.groups, call.version
    client_id, client_host = reader_of(call)
    session_ms = request.session_timeout_ms
    groups.submit(
        JoinGroup(
            on_reply=ParkedReply(call, partial(_reply, request.member_id)),
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=session_ms,
            # The oldest version knows one timeout for both.
            rebalance_timeout_ms=session_ms if version == 0 else request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            random_id="" if request.member_id else groups.random_id(),
            member_id_required=version >= MEMBER_ID_REQUIRED_SINCE,
            can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
            reason=(request.reason or "")[:REASON_CHARS_MAX],
        )
    )


def _reply(member_id: str, call: Request, reply: Reply) -> None:
    match reply:
        case JoinGroupResult():
            members = [
                JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                for member_id, instance_id, metadata in reply.members
            ]
            response = JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=reply.generation,
                protocol_type=reply.protocol_type,
                protocol_name=reply.protocol or _no_protocol(call),
                leader=reply.leader or "",
                skip_assignment=reply.skip_assignment,
                member_id=reply.member_id,
                members=tuple(members),
            )
        case MemberIdRequired():
            response = _error(call, ErrorCode.MEMBER_ID_REQUIRED, reply.member_id)
        case ApiError():
            response = _error(call, code_of(reply), member_id)
        case _:
            raise AssertionError(f"no reply to JoinGroup: {reply}")
    call.reply(response)


def _error(call: Request, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, protocol_name=_no_protocol(call), leader="", member_id=member_id, members=()
    )


def _no_protocol(call: Request) -> str | None:
    return None if call.version >= NO_PROTOCOL_IS_NULL_SINCE else ""
