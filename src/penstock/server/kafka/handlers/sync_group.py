"""SyncGroup: distributes a classic group's assignment; the response comes when the leader has sent it."""

from penstock.core.groups import MemberAssignment, Reply, SyncGroup, SyncGroupResult
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.security import AclOperation
from penstock.server.kafka.request import ParkedReply, Request
from penstock.server.kafka.response_rows import code_in, may
from penstock.server.kafka.router import routes

PROTOCOL_REQUIRED_SINCE = 5


@routes.handles(SyncGroupRequest)
def sync_group(request: SyncGroupRequest, call: Request) -> None:
    problem = _problem(request, call)
    if problem is not ErrorCode.NONE:
        call.reply(SyncGroupResponse(error_code=problem, assignment=b""))
        return
    call.charge_time()
    call.backend.groups.submit(
        SyncGroup(
            on_reply=ParkedReply(call, _reply),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments=tuple(
                [MemberAssignment(a.member_id, bytes(a.assignment)) for a in request.assignments]
            ),
        )
    )


def _problem(request: SyncGroupRequest, call: Request) -> ErrorCode:
    if not may(call, AclOperation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    nameless = request.protocol_type is None or request.protocol_name is None
    if call.version >= PROTOCOL_REQUIRED_SINCE and nameless:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _reply(call: Request, reply: Reply) -> None:
    if isinstance(reply, SyncGroupResult):
        response = SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol,
            assignment=reply.assignment,
        )
    else:
        response = SyncGroupResponse(error_code=code_in(reply), assignment=b"")
    call.reply(response)
