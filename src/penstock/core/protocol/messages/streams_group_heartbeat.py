"""StreamsGroupHeartbeat: everything a member of a streams group (KIP-1071) says."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    NullableArray,
    NullableString,
    Part,
    String,
    UInt16,
)


@part
class StreamsGroupHeartbeatRequestPair(Part):
    """A key and its value."""

    key: String
    value: String


@part
class StreamsGroupHeartbeatRequestInternalTopic(Part):
    """A topic the application needs for itself."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: Array[StreamsGroupHeartbeatRequestPair]


@part
class StreamsGroupHeartbeatRequestCopartitionGroup(Part):
    """Topics that must have the same number of partitions."""

    source_topics: Array[Int16]
    source_topic_regex: Array[Int16]
    repartition_source_topics: Array[Int16]


@part
class StreamsGroupHeartbeatRequestSubtopology(Part):
    """A connected piece of the topology."""

    subtopology_id: String
    source_topics: Array[String]
    source_topic_regex: Array[String]
    state_changelog_topics: Array[StreamsGroupHeartbeatRequestInternalTopic]
    repartition_sink_topics: Array[String]
    repartition_source_topics: Array[StreamsGroupHeartbeatRequestInternalTopic]
    copartition_groups: Array[StreamsGroupHeartbeatRequestCopartitionGroup]


@part
class StreamsGroupHeartbeatRequestTopology(Part):
    """The processing graph of the application."""

    epoch: Int32
    subtopologies: Array[StreamsGroupHeartbeatRequestSubtopology]


@part
class StreamsGroupHeartbeatRequestTasks(Part):
    """Tasks of one subtopology."""

    subtopology_id: String
    partitions: Array[Int32]


@part
class StreamsGroupHeartbeatRequestEndpoint(Part):
    """Where another process reaches this one."""

    host: String
    port: UInt16


@part
class StreamsGroupHeartbeatRequestTaskOffset(Part):
    """How far a task has got."""

    subtopology_id: String
    partition: Int32
    offset: Int64


@message(api_key=88, versions=range(1), flexible_from=0)
class StreamsGroupHeartbeatRequest(Message):
    """Sent by a Kafka Streams process to join, stay, report its tasks or leave."""

    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    topology: Nullable[StreamsGroupHeartbeatRequestTopology] = None
    active_tasks: NullableArray[StreamsGroupHeartbeatRequestTasks]
    standby_tasks: NullableArray[StreamsGroupHeartbeatRequestTasks]
    warmup_tasks: NullableArray[StreamsGroupHeartbeatRequestTasks]
    process_id: NullableString = None
    user_endpoint: Nullable[StreamsGroupHeartbeatRequestEndpoint] = None
    client_tags: NullableArray[StreamsGroupHeartbeatRequestPair]
    task_offsets: NullableArray[StreamsGroupHeartbeatRequestTaskOffset]
    task_end_offsets: NullableArray[StreamsGroupHeartbeatRequestTaskOffset]
    shutdown_application: Bool = False


@part
class StreamsGroupHeartbeatResponseStatus(Part):
    """Something the member should know about the group."""

    status_code: Int8
    status_detail: String


@part
class StreamsGroupHeartbeatResponseTasks(Part):
    """Tasks of one subtopology."""

    subtopology_id: String
    partitions: Array[Int32]


@part
class StreamsGroupHeartbeatResponseEndpoint(Part):
    """Where another process reaches this one."""

    host: String
    port: UInt16


@part
class StreamsGroupHeartbeatResponseTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partitions: Array[Int32]


@part
class StreamsGroupHeartbeatResponseEndpointPartitions(Part):
    """The partitions that the process at an endpoint holds."""

    user_endpoint: StreamsGroupHeartbeatResponseEndpoint
    active_partitions: Array[StreamsGroupHeartbeatResponseTopicPartitions]
    standby_partitions: Array[StreamsGroupHeartbeatResponseTopicPartitions]


@message(api_key=88, versions=range(1), flexible_from=0)
class StreamsGroupHeartbeatResponse(Message):
    """Sent by the group coordinator: the member's epoch and the tasks it shall run."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: NullableArray[StreamsGroupHeartbeatResponseStatus]
    active_tasks: NullableArray[StreamsGroupHeartbeatResponseTasks]
    standby_tasks: NullableArray[StreamsGroupHeartbeatResponseTasks]
    warmup_tasks: NullableArray[StreamsGroupHeartbeatResponseTasks]
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: NullableArray[StreamsGroupHeartbeatResponseEndpointPartitions]
