"""ListGroups: the groups that this node coordinates."""

from collections.abc import Iterator

from penstock.core.groups import ListedGroups
from penstock.core.model import ApiError
from penstock.core.protocol.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, code_in, group_resource
from penstock.server.kafka.router import routes


@routes.handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, call: Request) -> None:
    call.backend.groups.list_groups(
        request.states_filter, request.types_filter, lambda found: call.run(_answer(call, found))
    )


def _answer(call: Request, found: ListedGroups | ApiError) -> Iterator[None]:
    groups = () if isinstance(found, ApiError) else found.groups
    sees_all = call.permits(AclOperation.DESCRIBE, CLUSTER)
    rows: list[ListGroupsResponseGroup] = []
    for group in groups:
        if sees_all or call.permits(AclOperation.DESCRIBE, group_resource(group.group_id)):
            rows.append(
                ListGroupsResponseGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=group.type.value,
                )
            )
        yield
    call.reply(
        ListGroupsResponse(throttle_time_ms=call.charge_time(), error_code=code_in(found), groups=tuple(rows))
    )
