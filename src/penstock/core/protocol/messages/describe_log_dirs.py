"""DescribeLogDirs: how much space replicas take, and where.

Tags from 10,000 on are Penstock's own: other clients skip them, and other brokers never send them.
"""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableArray,
    Part,
    String,
    since,
    tagged,
)


@part
class DescribeLogDirsRequestTopic(Part):
    """A topic that the request is about."""

    topic: String
    partitions: Array[Int32]


@message(api_key=35, versions=range(6), flexible_from=2)
class DescribeLogDirsRequest(Message):
    """Sent by a tool to each broker it is curious about."""

    topics: NullableArray[DescribeLogDirsRequestTopic]
    with_scrub: Bool = tagged(10_000, since=2, default=False, ignorable=True)


@part
class DescribeLogDirsResponseRange(Part):
    """Offsets that cannot be read."""

    start: Int64 = 0
    end: Int64 = 0


@part
class DescribeLogDirsResponseDamage(Part):
    """What the broker knows of damage in one log; counts since it was opened."""

    verified_at_ms: Int64 = -1
    damaged: Array[DescribeLogDirsResponseRange] = ()
    found: Int32 = 0
    repaired: Int32 = 0
    lost: Int32 = 0
    quarantine_files: Int32 = 0
    quarantine_bytes: Int64 = 0


@part
class DescribeLogDirsResponseScrub(Part):
    """Where the scrub of a broker is; `topic` is empty between two passes."""

    started_ms: Int64 = -1
    is_done: Bool = False
    topic: String = ""
    partition: Int32 = -1
    segment: Int64 = -1


@part
class DescribeLogDirsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool
    damage: DescribeLogDirsResponseDamage = tagged(
        10_000, since=2, default=DescribeLogDirsResponseDamage(), ignorable=True
    )


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
    scrub: DescribeLogDirsResponseScrub = tagged(
        10_000, since=2, default=DescribeLogDirsResponseScrub(), ignorable=True
    )


@message(api_key=35, versions=range(6), flexible_from=2)
class DescribeLogDirsResponse(Message):
    """Sent by a broker: its data directories and the replicas in them."""

    throttle_time_ms: Int32
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[DescribeLogDirsResponseDirectory]
