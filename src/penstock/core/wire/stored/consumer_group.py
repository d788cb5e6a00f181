"""New-style groups (KIP-848) in `__consumer_offsets`."""

from penstock.core.wire.message import Message, Part, message, part
from penstock.core.wire.schema import tagged
from penstock.core.wire.types import Array, Bytes, Int8, Int32, Int64, Nullable, NullableString, String, Uuid


@message(versions=range(3, 4))
class ConsumerGroupMetadataKey(Message):
    """Keys the epoch of a new-style group."""

    group_id: String


@message(versions=range(1), flexible_from=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of a new-style group, raised whenever its subscription or members change."""

    epoch: Int32
    metadata_hash: Int64 = tagged(0, since=0, default=0)


@message(versions=range(5, 6))
class ConsumerGroupMemberMetadataKey(Message):
    """Keys a member of a new-style group."""

    group_id: String
    member_id: String


@part
class ConsumerGroupMemberMetadataValueSupportedProtocol(Part):
    """An assignment strategy the member supports, with its metadata."""

    name: String
    metadata: Bytes


@part
class ConsumerGroupMemberMetadataValueClassicMember(Part):
    """What a member that still speaks the classic protocol needs to be served."""

    session_timeout_ms: Int32
    supported_protocols: Array[ConsumerGroupMemberMetadataValueSupportedProtocol]


@message(versions=range(1), flexible_from=0)
class ConsumerGroupMemberMetadataValue(Message):
    """What a member said about itself when it joined or changed."""

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString
    classic_member_metadata: Nullable[ConsumerGroupMemberMetadataValueClassicMember] = tagged(
        0, since=0, default=None
    )


@message(versions=range(4, 5))
class ConsumerGroupPartitionMetadataKey(Message):
    """Keys the partition counts a new-style group was last assigned by."""

    group_id: String


@part
class ConsumerGroupPartitionMetadataValuePartition(Part):
    """The racks that hold one partition."""

    partition: Int32
    racks: Array[String]


@part
class ConsumerGroupPartitionMetadataValueTopic(Part):
    """A topic that the group is subscribed to."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: Array[ConsumerGroupPartitionMetadataValuePartition]


@message(versions=range(1), flexible_from=0)
class ConsumerGroupPartitionMetadataValue(Message):
    """The topics of a group with their partition counts; newer Kafka keeps a hash instead."""

    topics: Array[ConsumerGroupPartitionMetadataValueTopic]


@message(versions=range(6, 7))
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Keys the epoch of a group's target assignment."""

    group_id: String


@message(versions=range(1), flexible_from=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment was computed for."""

    assignment_epoch: Int32


@message(versions=range(7, 8))
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Keys what one member shall have."""

    group_id: String
    member_id: String


@part
class ConsumerGroupTargetAssignmentMemberValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(versions=range(1), flexible_from=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions that a member shall have."""

    topic_partitions: Array[ConsumerGroupTargetAssignmentMemberValueTopicPartitions]


@message(versions=range(8, 9))
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Keys what one member has now."""

    group_id: String
    member_id: String


@part
class ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(versions=range(1), flexible_from=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions that a member has, and those it is asked to give up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]
    partitions_pending_revocation: Array[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]


@message(versions=range(16, 17))
class ConsumerGroupRegularExpressionKey(Message):
    """Keys a regular expression that a group subscribes to."""

    group_id: String
    regular_expression: String


@message(versions=range(1), flexible_from=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that an expression matched, and as of when."""

    topics: Array[String]
    version: Int64
    timestamp: Int64
