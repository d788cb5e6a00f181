"""JoinGroup: entering a classic group."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    since,
)


@part
class JoinGroupRequestProtocol(Part):
    """An assignment strategy the member supports, with its metadata."""

    name: String
    metadata: Bytes


@message(api_key=11, versions=range(10), flexible_from=6)
class JoinGroupRequest(Message):
    """Sent by a consumer to become a member, or to take part in a rebalance."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String
    group_instance_id: NullableString = since(5, default=None)
    protocol_type: String
    protocols: Array[JoinGroupRequestProtocol]
    reason: NullableString = since(8, default=None, ignorable=True)


@part
class JoinGroupResponseMember(Part):
    """A member of the group."""

    member_id: String
    group_instance_id: NullableString = since(5, default=None, ignorable=True)
    metadata: Bytes


@message(api_key=11, versions=range(10), flexible_from=6)
class JoinGroupResponse(Message):
    """Sent by the coordinator once the members are known; the leader also gets everybody's metadata."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: NullableString = since(7, default=None, ignorable=True)
    protocol_name: NullableString = since(0, nullable_from=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: Array[JoinGroupResponseMember]
