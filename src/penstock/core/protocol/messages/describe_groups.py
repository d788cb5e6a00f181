"""DescribeGroups: the state of classic groups."""

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


@message(api_key=15, versions=range(7), flexible_from=5)
class DescribeGroupsRequest(Message):
    """Sent by a tool that wants to show groups and their members."""

    groups: Array[String]
    include_authorized_operations: Bool = since(3, default=False)


@part
class DescribeGroupsResponseMember(Part):
    """A member of the group."""

    member_id: String
    group_instance_id: NullableString = since(4, default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@part
class DescribeGroupsResponseGroup(Part):
    """A group of the answer."""

    error_code: Int16
    error_message: NullableString = since(6, default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Array[DescribeGroupsResponseMember]
    authorized_operations: Int32 = since(3, default=-2147483648)


@message(api_key=15, versions=range(7), flexible_from=5)
class DescribeGroupsResponse(Message):
    """Sent by the coordinator: state, protocol and members of each group."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribeGroupsResponseGroup]
