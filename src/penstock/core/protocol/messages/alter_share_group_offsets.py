"""AlterShareGroupOffsets: moving the start of share partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String, Uuid


@part
class AlterShareGroupOffsetsRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    start_offset: Int64


@part
class AlterShareGroupOffsetsRequestTopic(Part):
    """A topic that the request is about."""

    topic_name: String
    partitions: Array[AlterShareGroupOffsetsRequestPartition]


@message(api_key=91, versions=range(1), flexible_from=0)
class AlterShareGroupOffsetsRequest(Message):
    """Sent by an administrator, for a group without members."""

    group_id: String
    topics: Array[AlterShareGroupOffsetsRequestTopic]


@part
class AlterShareGroupOffsetsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None


@part
class AlterShareGroupOffsetsResponseTopic(Part):
    """A topic of the answer."""

    topic_name: String
    topic_id: Uuid
    partitions: Array[AlterShareGroupOffsetsResponsePartition]


@message(api_key=91, versions=range(1), flexible_from=0)
class AlterShareGroupOffsetsResponse(Message):
    """Sent by the group coordinator: whether each partition was moved."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    responses: Array[AlterShareGroupOffsetsResponseTopic]
