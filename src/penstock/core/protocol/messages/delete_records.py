"""DeleteRecords: cutting off the start of partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, Part, String


@part
class DeleteRecordsRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    offset: Int64


@part
class DeleteRecordsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[DeleteRecordsRequestPartition]


@message(api_key=21, versions=range(3), flexible_from=2)
class DeleteRecordsRequest(Message):
    """Sent by an administrator, or by Kafka Streams, to drop everything before an offset."""

    topics: Array[DeleteRecordsRequestTopic]
    timeout_ms: Int32


@part
class DeleteRecordsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@part
class DeleteRecordsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[DeleteRecordsResponsePartition]


@message(api_key=21, versions=range(3), flexible_from=2)
class DeleteRecordsResponse(Message):
    """Sent by a leader: where each partition starts now."""

    throttle_time_ms: Int32
    topics: Array[DeleteRecordsResponseTopic]
