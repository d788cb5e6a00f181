"""OffsetForLeaderEpoch: where a leader epoch ended."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, Part, String, since


@part
class OffsetForLeaderEpochRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32


@part
class OffsetForLeaderEpochRequestTopic(Part):
    """A topic that the request is about."""

    topic: String
    partitions: Array[OffsetForLeaderEpochRequestPartition]


@message(api_key=23, versions=range(5), flexible_from=4)
class OffsetForLeaderEpochRequest(Message):
    """Sent by a follower or consumer that must find out where its history and the leader's part."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderEpochRequestTopic]


@part
class OffsetForLeaderEpochResponsePartition(Part):
    """The outcome for one partition."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = -1


@part
class OffsetForLeaderEpochResponseTopic(Part):
    """A topic of the answer."""

    topic: String
    partitions: Array[OffsetForLeaderEpochResponsePartition]


@message(api_key=23, versions=range(5), flexible_from=4)
class OffsetForLeaderEpochResponse(Message):
    """Sent by a leader: the end of the largest epoch not after the one asked for."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[OffsetForLeaderEpochResponseTopic]
