"""What the handlers of share groups' offsets share: the group, and who may change where it stands."""

from collections.abc import Callable

from penstock.core.groups import DescribedShareGroup, DescribeShareGroup, Reply
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may

# Of one request: each is asked for.
PARTITIONS_MAX = 10_000
TOO_MANY = ErrorCode.INVALID_REQUEST, f"one request is about {PARTITIONS_MAX:,} partitions at most"
ShareGroupError = tuple[ErrorCode, str | None]


def find_share_group(
    call: Request,
    group_id: str,
    operation: AclOperation,
    done: Callable[[DescribedShareGroup | ShareGroupError], None],
) -> None:
    """The group as its coordinator, this node, knows it; `done` is called once, perhaps at once."""
    if not may(call, operation, group_id):
        done((ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
        return

    def described(reply: Reply) -> None:
        if isinstance(reply, DescribedShareGroup):
            done(reply)
        else:
            assert isinstance(reply, ApiError), reply
            done((code_of(reply), message_of(reply)))

    call.backend.groups.submit(DescribeShareGroup(on_reply=described, group_id=group_id))


def find_empty_share_group(
    call: Request,
    group_id: str,
    operation: AclOperation,
    done: Callable[[DescribedShareGroup | ShareGroupError], None],
) -> None:
    """The same for a change, which would be in the way of members."""

    def found(group: DescribedShareGroup | ShareGroupError) -> None:
        if isinstance(group, DescribedShareGroup) and group.members:
            error = ApiError(ErrorKind.GROUP_NOT_EMPTY, f"group {group_id} has members")
            done((code_of(error), message_of(error)))
        else:
            done(group)

    find_share_group(call, group_id, operation, found)
