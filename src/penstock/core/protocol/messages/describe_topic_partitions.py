"""DescribeTopicPartitions: topic descriptions in pages."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Nullable,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
)


@part
class DescribeTopicPartitionsRequestTopic(Part):
    """A topic that the request is about."""

    name: String


@part
class DescribeTopicPartitionsRequestCursor(Part):
    """Where the next page starts."""

    topic_name: String
    partition_index: Int32


@message(api_key=75, versions=range(1), flexible_from=0)
class DescribeTopicPartitionsRequest(Message):
    """Sent by a tool that lists topics with many partitions; the cursor says where to go on."""

    topics: Array[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: Int32 = 2000
    cursor: Nullable[DescribeTopicPartitionsRequestCursor] = None


@part
class DescribeTopicPartitionsResponsePartition(Part):
    """The outcome for one partition."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    eligible_leader_replicas: NullableArray[Int32] = None
    last_known_elr: NullableArray[Int32] = None
    offline_replicas: Array[Int32]


@part
class DescribeTopicPartitionsResponseTopic(Part):
    """A topic of the answer."""

    error_code: Int16
    name: NullableString
    topic_id: Uuid
    is_internal: Bool = False
    partitions: Array[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -2147483648


@part
class DescribeTopicPartitionsResponseCursor(Part):
    """Where the next page starts."""

    topic_name: String
    partition_index: Int32


@message(api_key=75, versions=range(1), flexible_from=0)
class DescribeTopicPartitionsResponse(Message):
    """Sent by a broker: partitions with their replicas, and the cursor of the next page."""

    throttle_time_ms: Int32
    topics: Array[DescribeTopicPartitionsResponseTopic]
    next_cursor: Nullable[DescribeTopicPartitionsResponseCursor] = None
