"""QueuePeek: records of a queue, without leasing them. An API of Penstock, not of Kafka."""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableBytes,
    NullableString,
    Part,
    String,
)

AVAILABLE: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
MOVING: Final = 3


@message(api_key=10_005, versions=range(1), flexible_from=0)
class QueuePeekRequest(Message):
    """Sent to any broker: up to `count` records from `from_offset` on that are not finished."""

    group_id: String
    topic: String
    partition: Int32
    from_offset: Int64 = 0
    count: Int32 = 10
    bytes_max: Int32 = 1 << 20


@part
class QueuePeekResponseHeader(Part):
    """A header of a record."""

    key: String
    value: NullableBytes


@part
class QueuePeekResponseRecord(Part):
    """A record that is not finished, and how often it was delivered."""

    offset: Int64
    timestamp: Int64
    key: NullableBytes
    value: NullableBytes
    headers: Array[QueuePeekResponseHeader]
    state: Int8
    attempts: Int32
    consumer: NullableString = None
    reason: NullableString = None


@message(api_key=10_005, versions=range(1), flexible_from=0)
class QueuePeekResponse(Message):
    """In the order of the log. `next_offset` is where to go on: -1 if the queue has nothing more."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    records: Array[QueuePeekResponseRecord] = ()
    next_offset: Int64 = -1
