"""DescribeGroups: the state and members of classic groups."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from penstock.core.groups import DescribedGroup, DescribeGroup, GroupState, Reply
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    NOT_ASKED,
    ResponseRows,
    authorized_operations,
    code_in,
    collected,
    group_resource,
    may,
    unique,
)
from penstock.server.kafka.router import routes

NOT_FOUND_SINCE = 6
Row = DescribeGroupsResponseGroup
# A group that was found, and what the caller may do to it; or the row that says why it was not.
Found: TypeAlias = tuple[DescribedGroup, int] | Row


@routes.handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: a short request must not have an endless response.
    group_ids = yield from unique(request.groups)
    rows: ResponseRows[Found] = ResponseRows(len(group_ids), lambda found: call.run(_answer(call, found)))
    for index, group_id in enumerate(group_ids):
        if may(call, AclOperation.DESCRIBE, group_id):
            _describe(request, call, rows, index, group_id)
        else:
            rows.put(index, _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    rows.end()


def _describe(
    request: DescribeGroupsRequest, call: Request, rows: ResponseRows[Found], index: int, group_id: str
) -> None:
    def done(reply: Reply) -> None:
        if isinstance(reply, DescribedGroup):
            asked = request.include_authorized_operations
            operations = authorized_operations(call, group_resource(group_id)) if asked else NOT_ASKED
            rows.put(index, (reply, operations))
        else:
            rows.put(index, _failed(group_id, code_in(reply)))

    call.backend.groups.submit(DescribeGroup(on_reply=done, group_id=group_id))


def _answer(call: Request, found: Sequence[Found]) -> Iterator[None]:
    groups: list[Row] = []
    for each in found:
        row = each if isinstance(each, Row) else (yield from _row(call, *each))
        groups.append(row)
        yield
    call.reply(DescribeGroupsResponse(throttle_time_ms=call.charge_time(), groups=tuple(groups)))


def _row(call: Request, group: DescribedGroup, operations: int) -> Steps[Row]:
    members = yield from collected(
        DescribeGroupsResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in group.members
    )
    missing = group.state is GroupState.DEAD and call.version >= NOT_FOUND_SINCE
    return Row(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
        error_message=message_of(ApiError(ErrorKind.UNKNOWN_GROUP)) if missing else None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=members,
        authorized_operations=operations,
    )


def _failed(group_id: str, code: ErrorCode) -> Row:
    return Row(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
    )
