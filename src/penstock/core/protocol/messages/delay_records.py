"""DelayRecords: publishing records later. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    NullableBytes,
    NullableString,
    Part,
    String,
)


@part
class DelayRecordsRequestHeader(Part):
    """A header of a record."""

    key: String
    value: NullableBytes


@part
class DelayRecordsRequestRecord(Part):
    """A record, and when to publish it.

    `partition` -1: by the key's hash when it is due, over the partitions that the topic has then. `id` -1:
    the broker chooses one. A client that chooses it (63 random bits) may send the record again: while the
    delay is pending, it is the same delay.
    """

    topic: String
    partition: Int32 = -1
    key: NullableBytes = None
    value: NullableBytes = None
    headers: Array[DelayRecordsRequestHeader] = ()
    deliver_at_ms: Int64
    id: Int64 = -1


@message(api_key=10_010, versions=range(1), flexible_from=0)
class DelayRecordsRequest(Message):
    """Sent to any broker: publish these records at their times, in milliseconds since 1970."""

    records: Array[DelayRecordsRequestRecord]


@part
class DelayRecordsResponseResult(Part):
    """The outcome for one record: the id to cancel its delay with, or the error."""

    error_code: Int16 = 0
    error_message: NullableString = None
    delay_id: NullableString = None


@message(api_key=10_010, versions=range(1), flexible_from=0)
class DelayRecordsResponse(Message):
    """Sent once the records are stored by all replicas in sync; one result each, in their order.

    `error_code` is that of the request as a whole: then there are no results.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    results: Array[DelayRecordsResponseResult] = ()
