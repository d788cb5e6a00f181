"""QueueDescribe: queues in numbers. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
)


@message(api_key=10_003, versions=range(1), flexible_from=0)
class QueueDescribeRequest(Message):
    """Sent to any broker; no groups means all groups, no topics all topics."""

    groups: Array[String] = ()
    topics: Array[String] = ()


@part
class QueueDescribeResponseQueue(Part):
    """What one group has to do of one partition, and the settings that its records are delivered with.

    All offsets below `finished_below` are finished; those from `end` on were not looked at yet.
    """

    group_id: String
    topic: String
    partition: Int32
    end: Int64 = -1
    finished_below: Int64 = -1
    ready: Int32 = 0
    blocked: Int32 = 0
    delayed: Int32 = 0
    leased: Int32 = 0
    moving: Int32 = 0
    is_paused: Bool = False
    lease_ms: Int32 = 0
    deliveries_max: Int32 = 0
    has_dead_letters: Bool = False
    backoff_ms: Int32 = 0
    backoff_max_ms: Int32 = 0
    is_key_ordered: Bool = False
    error_code: Int16 = 0
    error_message: NullableString = None


@message(api_key=10_003, versions=range(1), flexible_from=0)
class QueueDescribeResponse(Message):
    """The queues there are, also those that nobody consumes; ordered by group, topic and partition."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    queues: Array[QueueDescribeResponseQueue] = ()
