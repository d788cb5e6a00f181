"""DeleteGroups: removing groups that have no members, with all their positions."""

from collections.abc import Callable

from penstock.core.groups import DeleteGroup, Reply
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
)
from penstock.gateways.kafka.answers.groups import Rows, code_in, may
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.routes import routes
from penstock.security import AclOperation

Row = DeleteGroupsResponseGroup


@routes.handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, call: Call) -> None:
    # A group that is named twice is deleted once, and answered once.
    group_ids = list(dict.fromkeys(request.groups_names))
    rows: Rows[Row] = Rows(
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
    rows.end()


def _done(rows: Rows[Row], index: int, group_id: str) -> Callable[[Reply], None]:
    return lambda reply: rows.put(index, Row(group_id=group_id, error_code=code_in(reply)))
