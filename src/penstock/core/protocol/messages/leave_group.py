"""LeaveGroup: leaving a classic group at once instead of by timeout."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, NullableString, Part, String, since, until


@part
class LeaveGroupRequestMember(Part):
    """A member that the request is about."""

    member_id: String
    group_instance_id: NullableString = None
    reason: NullableString = since(5, default=None, ignorable=True)


@message(api_key=13, versions=range(6), flexible_from=4)
class LeaveGroupRequest(Message):
    """Sent by a member that shuts down, or by a tool that removes members."""

    group_id: String
    members: Array[LeaveGroupRequestMember] = since(3, default=())
    member_id: String = until(2, default="")


@part
class LeaveGroupResponseMember(Part):
    """A member of the group."""

    member_id: String
    group_instance_id: NullableString
    error_code: Int16


@message(api_key=13, versions=range(6), flexible_from=4)
class LeaveGroupResponse(Message):
    """Sent by the coordinator: whether each member was removed."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    members: Array[LeaveGroupResponseMember] = since(3, default=())
