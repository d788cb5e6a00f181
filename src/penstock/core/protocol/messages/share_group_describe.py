"""ShareGroupDescribe: the state of share groups (KIP-932)."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int16, Int32, NullableString, Part, String, Uuid


@message(api_key=77, versions=range(1, 2), flexible_from=0)
class ShareGroupDescribeRequest(Message):
    """Sent by a tool that wants to show share groups and their members."""

    group_ids: Array[String]
    include_authorized_operations: Bool


@part
class ShareGroupDescribeResponseTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@part
class ShareGroupDescribeResponseAssignment(Part):
    """What a member is given."""

    topic_partitions: Array[ShareGroupDescribeResponseTopicPartitions]


@part
class ShareGroupDescribeResponseMember(Part):
    """A member of the group."""

    member_id: String
    rack_id: NullableString = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    assignment: ShareGroupDescribeResponseAssignment


@part
class ShareGroupDescribeResponseGroup(Part):
    """A group of the answer."""

    error_code: Int16
    error_message: NullableString = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: Array[ShareGroupDescribeResponseMember]
    authorized_operations: Int32 = -2147483648


@message(api_key=77, versions=range(1, 2), flexible_from=0)
class ShareGroupDescribeResponse(Message):
    """Sent by the coordinator: epochs, members and their assignment."""

    throttle_time_ms: Int32
    groups: Array[ShareGroupDescribeResponseGroup]
