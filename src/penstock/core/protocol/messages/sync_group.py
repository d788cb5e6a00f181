"""SyncGroup: handing out a classic group's assignment."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bytes, Int16, Int32, NullableString, Part, String, since


@part
class SyncGroupRequestAssignment(Part):
    """What one member or partition is given."""

    member_id: String
    assignment: Bytes


@message(api_key=14, versions=range(6), flexible_from=4)
class SyncGroupRequest(Message):
    """Sent by every member after joining; the leader's carries the assignment of all."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment]


@message(api_key=14, versions=range(6), flexible_from=4)
class SyncGroupResponse(Message):
    """Sent by the coordinator: the assignment of the member that asked."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    protocol_type: NullableString = since(5, default=None, ignorable=True)
    protocol_name: NullableString = since(5, default=None, ignorable=True)
    assignment: Bytes
