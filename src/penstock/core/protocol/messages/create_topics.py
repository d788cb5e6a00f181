"""CreateTopics: making topics."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    tagged,
)


@part
class CreateTopicsRequestAssignment(Part):
    """What one member or partition is given."""

    partition_index: Int32
    broker_ids: Array[Int32]


@part
class CreateTopicsRequestConfig(Part):
    """A setting to change, or to start with."""

    name: String
    value: NullableString


@part
class CreateTopicsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Array[CreateTopicsRequestAssignment]
    configs: Array[CreateTopicsRequestConfig]


@message(api_key=19, versions=range(8), flexible_from=5)
class CreateTopicsRequest(Message):
    """Sent by an administrator, or by a broker on behalf of a client that names an unknown topic."""

    topics: Array[CreateTopicsRequestTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = since(1, default=False)


@part
class CreateTopicsResponseConfig(Part):
    """A setting."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


@part
class CreateTopicsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: NullableString = since(1, default="", ignorable=True)
    topic_config_error_code: Int16 = tagged(0, since=5, default=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: NullableArray[CreateTopicsResponseConfig] = since(5, default=(), ignorable=True)


@message(api_key=19, versions=range(8), flexible_from=5)
class CreateTopicsResponse(Message):
    """Sent by the broker: the id and layout of each new topic, or why there is none."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[CreateTopicsResponseTopic]
