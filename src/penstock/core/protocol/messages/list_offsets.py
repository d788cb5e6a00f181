"""ListOffsets: finding the offset of a time, or the ends of a log."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, Int64, Part, String, since, until


@part
class ListOffsetsRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = until(0, default=1)


@part
class ListOffsetsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[ListOffsetsRequestPartition]


@message(api_key=2, versions=range(12), flexible_from=6)
class ListOffsetsRequest(Message):
    """Sent by a client that wants the first or last offset, or the first one at or after a timestamp."""

    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsRequestTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@part
class ListOffsetsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1)
    old_style_offsets: Array[Int64] = until(0, default=())


@part
class ListOffsetsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[ListOffsetsResponsePartition]


@message(api_key=2, versions=range(12), flexible_from=6)
class ListOffsetsResponse(Message):
    """Sent by a leader: the offset it found for each partition asked about."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsResponseTopic]
