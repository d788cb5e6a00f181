"""OffsetFetch: how far a group has read."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    until,
)


@part
class OffsetFetchRequestGroupTopic(Part):
    """A topic whose positions are wanted for a group."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: String = until(9, default="", ignorable=True)
    partition_indexes: Array[Int32]


@part
class OffsetFetchRequestGroup(Part):
    """A group that the request is about."""

    group_id: String
    member_id: NullableString = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: NullableArray[OffsetFetchRequestGroupTopic]


@part
class OffsetFetchRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partition_indexes: Array[Int32]


@message(api_key=9, versions=range(11), flexible_from=6)
class OffsetFetchRequest(Message):
    """Sent by a consumer that starts, or a tool that computes lag, to read stored positions."""

    groups: Array[OffsetFetchRequestGroup] = since(8, default=())
    group_id: String = until(7, default="")
    topics: NullableArray[OffsetFetchRequestTopic] = until(7, default=(), nullable_from=2)
    require_stable: Bool = since(7, default=False)


@part
class OffsetFetchResponseGroupPartition(Part):
    """A stored position of a group."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: NullableString
    error_code: Int16


@part
class OffsetFetchResponseGroupTopic(Part):
    """A topic with positions of a group."""

    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: String = until(9, default="", ignorable=True)
    partitions: Array[OffsetFetchResponseGroupPartition]


@part
class OffsetFetchResponseGroup(Part):
    """A group of the answer."""

    group_id: String
    topics: Array[OffsetFetchResponseGroupTopic]
    error_code: Int16 = 0


@part
class OffsetFetchResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: NullableString
    error_code: Int16


@part
class OffsetFetchResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[OffsetFetchResponsePartition]


@message(api_key=9, versions=range(11), flexible_from=6)
class OffsetFetchResponse(Message):
    """Sent by the group coordinator: the stored positions, -1 where there is none."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8, default=())
    topics: Array[OffsetFetchResponseTopic] = until(7, default=())
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
