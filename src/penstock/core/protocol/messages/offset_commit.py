"""OffsetCommit: remembering how far a group has read."""

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
    Uuid,
    since,
    until,
)


@part
class OffsetCommitRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: Int64 = since(1, until=1, default=-1)
    committed_metadata: NullableString


@part
class OffsetCommitRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: String = until(9, default="", ignorable=True)
    partitions: Array[OffsetCommitRequestPartition]


@message(api_key=8, versions=range(11), flexible_from=8)
class OffsetCommitRequest(Message):
    """Sent by a group member (or a standalone consumer) to store its positions."""

    group_id: String
    generation_id_or_member_epoch: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = since(1, default="", ignorable=True)
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic]


@part
class OffsetCommitResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


@part
class OffsetCommitResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: String = until(9, default="", ignorable=True)
    partitions: Array[OffsetCommitResponsePartition]


@message(api_key=8, versions=range(11), flexible_from=8)
class OffsetCommitResponse(Message):
    """Sent by the group coordinator: whether each position was stored."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic]
