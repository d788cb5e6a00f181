"""ShareGroupHeartbeat: everything a member of a share group (KIP-932) says."""

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
    tagged,
)


@message(api_key=76, versions=range(1, 2), flexible_from=0)
class ShareGroupHeartbeatRequest(Message):
    """Sent by a member to join, stay, change its subscription or leave."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: NullableString = None
    subscribed_topic_names: NullableArray[String] = None
    # A tag of our own, which Kafka skips: members may have a session timeout of their own.
    session_timeout_ms: Int32 = tagged(10_000, since=1, default=-1)


@part
class ShareGroupHeartbeatResponseTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@part
class ShareGroupHeartbeatResponseAssignment(Part):
    """What a member is given."""

    topic_partitions: Array[ShareGroupHeartbeatResponseTopicPartitions]


@message(api_key=76, versions=range(1, 2), flexible_from=0)
class ShareGroupHeartbeatResponse(Message):
    """Sent by the group coordinator: the member's epoch, and its assignment when that changed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Nullable[ShareGroupHeartbeatResponseAssignment] = None
