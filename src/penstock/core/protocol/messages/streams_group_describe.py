"""StreamsGroupDescribe: the state of streams groups (KIP-1071)."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
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


@message(api_key=89, versions=range(1), flexible_from=0)
class StreamsGroupDescribeRequest(Message):
    """Sent by a tool that wants to show streams groups."""

    group_ids: Array[String]
    include_authorized_operations: Bool


@part
class StreamsGroupDescribeResponsePair(Part):
    """A key and its value."""

    key: String
    value: String


@part
class StreamsGroupDescribeResponseInternalTopic(Part):
    """A topic the application needs for itself."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: Array[StreamsGroupDescribeResponsePair]


@part
class StreamsGroupDescribeResponseSubtopology(Part):
    """A connected piece of the topology."""

    subtopology_id: String
    source_topics: Array[String]
    repartition_sink_topics: Array[String]
    state_changelog_topics: Array[StreamsGroupDescribeResponseInternalTopic]
    repartition_source_topics: Array[StreamsGroupDescribeResponseInternalTopic]


@part
class StreamsGroupDescribeResponseTopology(Part):
    """The processing graph of the application."""

    epoch: Int32
    subtopologies: NullableArray[StreamsGroupDescribeResponseSubtopology]


@part
class StreamsGroupDescribeResponseEndpoint(Part):
    """Where another process reaches this one."""

    host: String
    port: UInt16


@part
class StreamsGroupDescribeResponseTaskOffset(Part):
    """How far a task has got."""

    subtopology_id: String
    partition: Int32
    offset: Int64


@part
class StreamsGroupDescribeResponseTasks(Part):
    """Tasks of one subtopology."""

    subtopology_id: String
    partitions: Array[Int32]


@part
class StreamsGroupDescribeResponseAssignment(Part):
    """What a member is given."""

    active_tasks: Array[StreamsGroupDescribeResponseTasks]
    standby_tasks: Array[StreamsGroupDescribeResponseTasks]
    warmup_tasks: Array[StreamsGroupDescribeResponseTasks]


@part
class StreamsGroupDescribeResponseMember(Part):
    """A member of the group."""

    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Nullable[StreamsGroupDescribeResponseEndpoint] = None
    client_tags: Array[StreamsGroupDescribeResponsePair]
    task_offsets: Array[StreamsGroupDescribeResponseTaskOffset]
    task_end_offsets: Array[StreamsGroupDescribeResponseTaskOffset]
    assignment: StreamsGroupDescribeResponseAssignment
    target_assignment: StreamsGroupDescribeResponseAssignment
    is_classic: Bool


@part
class StreamsGroupDescribeResponseGroup(Part):
    """A group of the answer."""

    error_code: Int16
    error_message: NullableString = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Nullable[StreamsGroupDescribeResponseTopology] = None
    members: Array[StreamsGroupDescribeResponseMember]
    authorized_operations: Int32 = -2147483648


@message(api_key=89, versions=range(1), flexible_from=0)
class StreamsGroupDescribeResponse(Message):
    """Sent by the coordinator: topology, members and tasks of each group."""

    throttle_time_ms: Int32
    groups: Array[StreamsGroupDescribeResponseGroup]
