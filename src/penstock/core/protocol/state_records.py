"""Messages inside records: what coordinators keep in their topics, in Kafka's own formats.

Keys and values of `__consumer_offsets` and `__transaction_state` are messages like those on
the wire, each behind a two-byte version. In keys that version also tells the kinds apart:

    00 01 | 00 02 "g1" | 00 06 "orders" | 00 00 00 03     OffsetCommitKey, partition 3 of orders

Because the formats are Kafka's, its tools can read our topics and a migration can copy them.
The subscription and assignment that consumers of classic groups pass through the coordinator
have the same form and are here too.

Left out: the state of share partitions, which Penstock keeps elsewhere (`queue_records`), the records of
streams groups, and the metadata records of Kafka's controllers.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.core.model import ProtocolError
from penstock.core.protocol.codec import Message, decode_whole, decoder, message, part
from penstock.core.protocol.primitives import Buffer
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    NullableArray,
    NullableBytes,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    tagged,
)

M = TypeVar("M", bound=Message)
_VERSION_BYTES: Final = 2


@message(versions=range(2, 3))
class GroupMetadataKey(Message):
    """Keys the state of a classic group."""

    group: String


@part
class GroupMetadataValueMember(Part):
    """A member of the group, with its subscription and assignment."""

    member_id: String
    group_instance_id: NullableString = since(3, default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(versions=range(5), flexible_from=4)
class GroupMetadataValue(Message):
    """A classic group as it was when its last rebalance ended."""

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[GroupMetadataValueMember]


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
    """What the coordinator needs to serve a member that still speaks the classic protocol."""

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
    # A tag of our own, which Kafka skips: its members have no timeout of their own.
    session_timeout_ms: Int32 = tagged(10_000, since=0, default=-1)


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


@message(versions=range(10, 11))
class ShareGroupMemberMetadataKey(Message):
    """Keys a member of a share group."""

    group_id: String
    member_id: String


@message(versions=range(1), flexible_from=0)
class ShareGroupMemberMetadataValue(Message):
    """What a member said about itself when it joined or changed."""

    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    # A tag of our own, which Kafka skips: its members have no timeout of their own.
    session_timeout_ms: Int32 = tagged(10_000, since=0, default=-1)


@message(versions=range(11, 12))
class ShareGroupMetadataKey(Message):
    """Keys the epoch of a share group."""

    group_id: String


@message(versions=range(1), flexible_from=0)
class ShareGroupMetadataValue(Message):
    """The epoch of a share group, raised whenever its subscription or members change."""

    epoch: Int32
    metadata_hash: Int64


@message(versions=range(12, 13))
class ShareGroupTargetAssignmentMetadataKey(Message):
    """Keys the epoch of a share group's target assignment."""

    group_id: String


@message(versions=range(1), flexible_from=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The group epoch that the target assignment was computed for."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0, ignorable=True)


@message(versions=range(13, 14))
class ShareGroupTargetAssignmentMemberKey(Message):
    """Keys what one member shall consume."""

    group_id: String
    member_id: String


@part
class ShareGroupTargetAssignmentMemberValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(versions=range(1), flexible_from=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    """The partitions that a member shall consume."""

    topic_partitions: Array[ShareGroupTargetAssignmentMemberValueTopicPartitions]


@message(versions=range(14, 15))
class ShareGroupCurrentMemberAssignmentKey(Message):
    """Keys what one member consumes now."""

    group_id: String
    member_id: String


@part
class ShareGroupCurrentMemberAssignmentValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(versions=range(1), flexible_from=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The partitions that a member consumes."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[ShareGroupCurrentMemberAssignmentValueTopicPartitions]


@message(versions=range(15, 16))
class ShareGroupStatePartitionMetadataKey(Message):
    """Keys the topics that a share group has state of."""

    group_id: String


@part
class ShareGroupStatePartitionMetadataValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@part
class ShareGroupStatePartitionMetadataValueTopic(Part):
    """A topic."""

    topic_id: Uuid
    topic_name: String


@message(versions=range(1), flexible_from=0)
class ShareGroupStatePartitionMetadataValue(Message):
    """The topics that a share group has state of, or is about to have or lose."""

    initializing_topics: Array[ShareGroupStatePartitionMetadataValueTopicPartitions]
    initialized_topics: Array[ShareGroupStatePartitionMetadataValueTopicPartitions]
    deleting_topics: Array[ShareGroupStatePartitionMetadataValueTopic]


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


@message(versions=range(2))
class OffsetCommitKey(Message):
    """Keys the committed position of a group in one partition."""

    group: String
    topic: String
    partition: Int32


@message(versions=range(5), flexible_from=4)
class OffsetCommitValue(Message):
    """How far a group has read a partition, as the coordinator stored it."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)


@message(versions=range(1))
class TransactionLogKey(Message):
    """Keys the state of a transactional id."""

    transactional_id: String


@part
class TransactionLogValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partition_ids: Array[Int32]


@message(versions=range(2), flexible_from=1)
class TransactionLogValue(Message):
    """A transactional id: its producer, and how far its transaction has got."""

    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: NullableArray[TransactionLogValueTopicPartitions]
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, since=1, default=0)
    # A tag of our own, which Kafka skips: it forgets with its coordinator which epoch came before.
    last_producer_epoch: Int16 = tagged(10_000, since=1, default=-1)


@message(versions=range(10_000, 10_001), flexible_from=10_000)
class BatchCommitKey(Message):
    """Keys a batch of transactions that are committed together. Ours: Kafka skips what it does not know."""

    sink: String
    batch: String


@part
class BatchCommitValueTransaction(Part):
    """A transaction of the batch."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16


@message(versions=range(1), flexible_from=0)
class BatchCommitValue(Message):
    """The transactions of a batch, all of them committed; none once they are stored as such."""

    committed_at: Int64
    transactions: Array[BatchCommitValueTransaction]


def _by_version(*keys: type[Message]) -> dict[int, type[Message]]:
    return {version: key for key in keys for version in key.__schema__.versions}


OFFSETS_KEYS: Final = _by_version(
    OffsetCommitKey,
    GroupMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
TRANSACTION_KEYS: Final = _by_version(TransactionLogKey, BatchCommitKey)


def write_stored(message: Message, version: int) -> bytes:
    """Return the bytes of a key or value with its version in front."""
    return version.to_bytes(_VERSION_BYTES, "big") + message.encode(version)


def read_stored(message: type[M], buffer: Buffer) -> M:
    """Read a value; a version from the future is an error, because its meaning is unknown."""
    version = _version(buffer)
    if version not in message.__schema__.versions:
        raise ProtocolError(f"{message.__name__}: version {version} is unknown")
    return decode_whole(message, buffer, version, _VERSION_BYTES)


def read_embedded(message: type[M], buffer: Buffer) -> M:
    """Read what a client put into an opaque field.

    Clients newer than us add fields at the end, so a higher version is read as our highest and
    what follows is left alone: that is how the consumers of a mixed group understand each other.
    """
    versions = message.__schema__.versions
    version = _version(buffer)
    if version < 0:
        raise ProtocolError(f"{message.__name__}: version {version} is negative")
    return decoder(message, min(version, versions[-1]))(buffer, _VERSION_BYTES)[0]


def read_key(keys: Mapping[int, type[Message]], buffer: Buffer) -> Message:
    """Read a key of whichever kind its version says; `keys` is the table of the topic it is from."""
    version = _version(buffer)
    if version not in keys:
        raise ProtocolError(f"there is no key of version {version}")
    return decode_whole(keys[version], buffer, version, _VERSION_BYTES)


def _version(buffer: Buffer) -> int:
    if len(buffer) < _VERSION_BYTES:
        raise ProtocolError("a stored message ends before its version does")
    return int.from_bytes(buffer[:_VERSION_BYTES], "big", signed=True)
