"""ConsumerGroupHeartbeat: everything a member of a new-style group (KIP-848) says."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int16,
    Int32,
    Nullable,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    tagged,
)


@part
class ConsumerGroupHeartbeatRequestTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(api_key=68, versions=range(2), flexible_from=0)
class ConsumerGroupHeartbeatRequest(Message):
    """Sent by a member to join, stay, change its subscription, confirm its partitions or leave.

    Fields that did not change are null.
    """

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: NullableArray[String] = None
    subscribed_topic_regex: NullableString = since(1, default=None)
    server_assignor: NullableString = None
    topic_partitions: NullableArray[ConsumerGroupHeartbeatRequestTopicPartitions]
    # A tag of our own, for members that a gateway speaks for: Kafka's have the timeout of the group.
    session_timeout_ms: Int32 = tagged(10_000, since=1, default=-1)


@part
class ConsumerGroupHeartbeatResponseTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@part
class ConsumerGroupHeartbeatResponseAssignment(Part):
    """What a member is given."""

    topic_partitions: Array[ConsumerGroupHeartbeatResponseTopicPartitions]


@message(api_key=68, versions=range(2), flexible_from=0)
class ConsumerGroupHeartbeatResponse(Message):
    """Sent by the group coordinator: the member's epoch, and its assignment when that changed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Nullable[ConsumerGroupHeartbeatResponseAssignment] = None
