"""QueueReceive: leasing records of queues. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    Uuid,
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
class QueueReceiveResponseSlice(Part):
    """Neighbouring records of a batch, as they stand in it, not compressed.

    Their deltas count from the base offset and the base timestamp; an append time that is not -1 is the
    timestamp of all. `attempt` is 1 for their first delivery.
    """

    attempt: Int32
    base_offset: Int64
    base_timestamp: Int64
    append_time: Int64
    records: Bytes


@message(api_key=10_001, versions=range(1), flexible_from=0)
class QueueReceiveResponse(Message):
    """Sent when there is a record, or the time is up. Consumers count `lease_ms` from when they asked.

    The records are of one partition, the most urgent first. Topic id, partition, offset, attempt and token
    make the receipt of a record. `is_paused`: at least one of the queues is paused, and none had a record.
    """

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    lease_ms: Int32 = 0
    is_paused: Bool = False
    topic: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = -1
    token: Int64 = 0
    slices: Array[QueueReceiveResponseSlice] = ()
