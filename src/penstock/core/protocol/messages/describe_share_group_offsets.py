"""DescribeShareGroupOffsets: how far share groups have got."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    Part,
    String,
    Uuid,
    since,
)


@part
class DescribeShareGroupOffsetsRequestTopic(Part):
    """A topic that the request is about."""

    topic_name: String
    partitions: Array[Int32]


@part
class DescribeShareGroupOffsetsRequestGroup(Part):
    """A group that the request is about."""

    group_id: String
    topics: NullableArray[DescribeShareGroupOffsetsRequestTopic]


@message(api_key=90, versions=range(2), flexible_from=0)
class DescribeShareGroupOffsetsRequest(Message):
    """Sent by a tool that shows share groups; null topics asks for all."""

    groups: Array[DescribeShareGroupOffsetsRequestGroup]


@part
class DescribeShareGroupOffsetsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, default=-1, ignorable=True)
    error_code: Int16
    error_message: NullableString = None


@part
class DescribeShareGroupOffsetsResponseTopic(Part):
    """A topic of the answer."""

    topic_name: String
    topic_id: Uuid
    partitions: Array[DescribeShareGroupOffsetsResponsePartition]


@part
class DescribeShareGroupOffsetsResponseGroup(Part):
    """A group of the answer."""

    group_id: String
    topics: Array[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: NullableString = None


@message(api_key=90, versions=range(2), flexible_from=0)
class DescribeShareGroupOffsetsResponse(Message):
    """Sent by the group coordinator: the start offset of each share partition."""

    throttle_time_ms: Int32
    groups: Array[DescribeShareGroupOffsetsResponseGroup]
