"""DescribeQuorum: the state of the metadata quorum."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    UInt16,
    Uuid,
    since,
)


@part
class DescribeQuorumRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32


@part
class DescribeQuorumRequestTopic(Part):
    """A topic that the request is about."""

    topic_name: String
    partitions: Array[DescribeQuorumRequestPartition]


@message(api_key=55, versions=range(3), flexible_from=0)
class DescribeQuorumRequest(Message):
    """Sent by a tool that watches the controllers."""

    topics: Array[DescribeQuorumRequestTopic]


@part
class DescribeQuorumResponseReplica(Part):
    """How far one voter or observer has got."""

    replica_id: Int32
    replica_directory_id: Uuid = since(2, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


@part
class DescribeQuorumResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = since(2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Array[DescribeQuorumResponseReplica]
    observers: Array[DescribeQuorumResponseReplica]


@part
class DescribeQuorumResponseTopic(Part):
    """A topic of the answer."""

    topic_name: String
    partitions: Array[DescribeQuorumResponsePartition]


@part
class DescribeQuorumResponseListener(Part):
    """An address of a controller."""

    name: String
    host: String
    port: UInt16


@part
class DescribeQuorumResponseNode(Part):
    """Where a node is reached."""

    node_id: Int32
    listeners: Array[DescribeQuorumResponseListener]


@message(api_key=55, versions=range(3), flexible_from=0)
class DescribeQuorumResponse(Message):
    """Sent by the quorum's leader: voters and observers, and how far each has got."""

    error_code: Int16
    error_message: NullableString = since(2, default="", ignorable=True)
    topics: Array[DescribeQuorumResponseTopic]
    nodes: Array[DescribeQuorumResponseNode] = since(2, default=())
