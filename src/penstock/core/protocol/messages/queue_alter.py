"""QueueAlter: pausing, resuming, resetting and forgetting queues. An API of Penstock, not of Kafka."""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, Int64, NullableString, Part, String

PAUSE: Final = 0
RESUME: Final = 1
RESET: Final = 2
FORGET: Final = 3
# Offsets to reset to, as in ListOffsets.
TO_LATEST: Final = -1
TO_EARLIEST: Final = -2


@message(api_key=10_004, versions=range(1), flexible_from=0)
class QueueAlterRequest(Message):
    """Sent to any broker; no partitions means all of the topic. `offset` is where a reset begins."""

    group_id: String
    topic: String
    partitions: Array[Int32] = ()
    action: Int8
    offset: Int64 = TO_LATEST


@part
class QueueAlterResponsePartition(Part):
    """What became of one queue."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None


@message(api_key=10_004, versions=range(1), flexible_from=0)
class QueueAlterResponse(Message):
    """Sent when the changes are durable."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    partitions: Array[QueueAlterResponsePartition] = ()
