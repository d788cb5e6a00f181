"""DeleteGroups: removing groups that have no members, with all their positions."""

from collections.abc import Callable, Iterator

from penstock.core.groups import DeleteGroup, Reply
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, code_in, may, unique
from penstock.server.kafka.router import routes

Row = DeleteGroupsResponseGroup


@routes.handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, call: Request) -> Iterator[None]:
    # A group that is named twice is deleted once, with one row in the response.
    group_ids = yield from unique(request.groups_names)
    rows: ResponseRows[Row] = ResponseRows(
        len(group_ids),
        lambda results: call.reply(
            DeleteGroupsResponse(throttle_time_ms=call.charge_time(), results=results)
        ),
    )
    for index, group_id in enumerate(group_ids):
        if may(call, AclOperation.DELETE, group_id):
            done = _done(rows, index, group_id)
            call.backend.groups.submit(DeleteGroup(on_reply=done, group_id=group_id))
        else:
            rows.put(index, Row(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    rows.end()


def _done(rows: ResponseRows[Row], index: int, group_id: str) -> Callable[[Reply], None]:
    return lambda reply: rows.put(index, Row(group_id=group_id, error_code=code_in(reply)))
