"""What consumers of classic groups put into the opaque fields of JoinGroup and SyncGroup."""

from penstock.core.wire.message import Message, Part, message, part
from penstock.core.wire.schema import since
from penstock.core.wire.types import Array, Int32, NullableBytes, NullableString, String


@part
class ConsumerProtocolSubscriptionTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partitions: Array[Int32]


@message(versions=range(4))
class ConsumerProtocolSubscription(Message):
    """What a consumer tells the leader of its classic group, inside JoinGroup."""

    topics: Array[String]
    user_data: NullableBytes = None
    owned_partitions: Array[ConsumerProtocolSubscriptionTopicPartitions] = since(
        1, default=(), ignorable=True
    )
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, default=None, ignorable=True)


@part
class ConsumerProtocolAssignmentTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partitions: Array[Int32]


@message(versions=range(4))
class ConsumerProtocolAssignment(Message):
    """What the leader of a classic group gives a consumer, inside SyncGroup."""

    assigned_partitions: Array[ConsumerProtocolAssignmentTopicPartitions]
    user_data: NullableBytes = None
