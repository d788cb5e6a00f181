"""Metadata: who leads what, and where the brokers are."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
    since,
)


@part
class MetadataRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: NullableString = since(0, nullable_from=10)


@message(api_key=3, versions=range(14), flexible_from=9)
class MetadataRequest(Message):
    """Sent by every client before anything else, and again whenever a leader seems to have moved."""

    topics: NullableArray[MetadataRequestTopic] = since(0, nullable_from=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)


@part
class MetadataResponseBroker(Part):
    """A broker, and where it is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = since(1, default=None, ignorable=True)


@part
class MetadataResponsePartition(Part):
    """The outcome for one partition."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Array[Int32] = since(5, default=(), ignorable=True)


@part
class MetadataResponseTopic(Part):
    """A topic of the answer."""

    error_code: Int16
    name: NullableString = since(0, nullable_from=12)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = since(1, default=False, ignorable=True)
    partitions: Array[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=-2147483648)


@message(api_key=3, versions=range(14), flexible_from=9)
class MetadataResponse(Message):
    """Sent by any broker: the brokers, and the topics asked for with their leaders and replicas."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[MetadataResponseBroker]
    cluster_id: NullableString = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic]
    error_code: Int16 = since(13, default=0, ignorable=True)
    cluster_authorized_operations: Int32 = since(8, until=10, default=-2147483648)
