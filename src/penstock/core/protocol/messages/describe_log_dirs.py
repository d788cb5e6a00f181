"""DescribeLogDirs: how much space replicas take, and where."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int16, Int32, Int64, NullableArray, Part, String, since


@part
class DescribeLogDirsRequestTopic(Part):
    """A topic that the request is about."""

    topic: String
    partitions: Array[Int32]


@message(api_key=35, versions=range(6), flexible_from=2)
class DescribeLogDirsRequest(Message):
    """Sent by a tool to each broker it is curious about."""

    topics: NullableArray[DescribeLogDirsRequestTopic]


@part
class DescribeLogDirsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@part
class DescribeLogDirsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[DescribeLogDirsResponsePartition]


@part
class DescribeLogDirsResponseDirectory(Part):
    """A data directory of the broker."""

    error_code: Int16
    log_dir: String
    topics: Array[DescribeLogDirsResponseTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, default=False, ignorable=True)


@message(api_key=35, versions=range(6), flexible_from=2)
class DescribeLogDirsResponse(Message):
    """Sent by a broker: its data directories and the replicas in them."""

    throttle_time_ms: Int32
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[DescribeLogDirsResponseDirectory]
