"""QueueReceive: leasing records of queues. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableBytes,
    NullableString,
    Part,
    String,
)


@part
class QueueReceiveRequestTopic(Part):
    """A topic to receive from; no partitions means all of them."""

    topic: String
    partitions: Array[Int32] = ()


@message(api_key=10_001, versions=range(1), flexible_from=0)
class QueueReceiveRequest(Message):
    """Sent by a consumer to any broker; `lease_ms` -1 is the setting of the group."""

    group_id: String
    consumer: String
    topics: Array[QueueReceiveRequestTopic]
    records_max: Int32 = 500
    bytes_max: Int32 = 1 << 20
    wait_ms: Int32 = 0
    lease_ms: Int32 = -1


@part
class QueueReceiveResponseHeader(Part):
    """A header of a record."""

    key: String
    value: NullableBytes


@part
class QueueReceiveResponseRecord(Part):
    """A record that is leased to the consumer; `attempt` is 1 for its first delivery."""

    topic: String
    partition: Int32
    offset: Int64
    timestamp: Int64
    key: NullableBytes
    value: NullableBytes
    headers: Array[QueueReceiveResponseHeader]
    attempt: Int32
    receipt: String


@message(api_key=10_001, versions=range(1), flexible_from=0)
class QueueReceiveResponse(Message):
    """Sent when there is a record, or the time is up. Consumers count `lease_ms` from when they asked.

    `is_paused`: at least one of the queues is paused, and none had a record.
    """

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    lease_ms: Int32 = 0
    is_paused: Bool = False
    records: Array[QueueReceiveResponseRecord] = ()
