"""Whether a share consumer may consume at all."""

from penstock.core.metadata import SHARE_VERSION
from penstock.core.protocol import ErrorCode
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import NAME_CHARS_MAX, may

NOT_ENABLED = f"share groups need level 1 of {SHARE_VERSION}"


def share_problem(call: Request, member: tuple[str, str]) -> tuple[ErrorCode, str | None] | None:
    """What is wrong with a request of this group and member, if anything."""
    group_id, member_id = member
    if not group_id or not member_id or max(len(group_id), len(member_id)) > NAME_CHARS_MAX:
        return ErrorCode.INVALID_REQUEST, f"a group and a member have 1 to {NAME_CHARS_MAX} characters"
    if not may(call, AclOperation.READ, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "the caller may not read as this group"
    if call.backend.controller.image.feature_level(SHARE_VERSION) < 1:
        return ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED
    return None
