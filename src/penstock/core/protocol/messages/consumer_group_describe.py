"""ConsumerGroupDescribe: the state of new-style groups (KIP-848)."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    Uuid,
    since,
)


@message(api_key=69, versions=range(2), flexible_from=0)
class ConsumerGroupDescribeRequest(Message):
    """Sent by a tool that wants to show groups and their members."""

    group_ids: Array[String]
    include_authorized_operations: Bool


@part
class ConsumerGroupDescribeResponseTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@part
class ConsumerGroupDescribeResponseAssignment(Part):
    """What a member is given."""

    topic_partitions: Array[ConsumerGroupDescribeResponseTopicPartitions]


@part
class ConsumerGroupDescribeResponseMember(Part):
    """A member of the group."""

    member_id: String
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString = None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: Int8 = since(1, default=-1, ignorable=True)


@part
class ConsumerGroupDescribeResponseGroup(Part):
    """A group of the answer."""

    error_code: Int16
    error_message: NullableString = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: Array[ConsumerGroupDescribeResponseMember]
    authorized_operations: Int32 = -2147483648


@message(api_key=69, versions=range(2), flexible_from=0)
class ConsumerGroupDescribeResponse(Message):
    """Sent by the coordinator: epochs, members, and what each has and shall have."""

    throttle_time_ms: Int32
    groups: Array[ConsumerGroupDescribeResponseGroup]
