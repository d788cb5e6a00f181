"""QueueRedrive: dead letters back to where they came from. An API of Penstock, not of Kafka."""

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
    tagged,
)


@part
class QueueRedriveRequestPartition(Part):
    """A partition of the dead-letter topic; without offsets the oldest dead letters are meant.

    In a dry run these are the oldest from `from_offset` on.
    """

    partition: Int32
    offsets: Array[Int64] = ()
    from_offset: Int64 = tagged(0, since=0, default=0)


@message(api_key=10_006, versions=range(1), flexible_from=0)
class QueueRedriveRequest(Message):
    """Sent to any broker: move dead letters, each partition in transactions of its own.

    Without partitions all of the topic are meant. Without `to_topic` each dead letter goes to the topic that
    it came from. A broker moves some at a time, and no more than `records_max`: to move all, ask until
    nothing is moved. A dry run moves nothing.
    """

    topic: String
    partitions: Array[QueueRedriveRequestPartition] = ()
    to_topic: NullableString = None
    is_dry_run: Bool = False
    records_max: Int32 = 200


@part
class QueueRedriveResponseRecord(Part):
    """A dead letter, and where it went or would go; or why it can go nowhere."""

    offset: Int64
    error_code: Int16 = 0
    error_message: NullableString = None
    to_topic: String = ""
    to_partition: Int32 = -1


@part
class QueueRedriveResponsePartition(Part):
    """What became of dead letters of one partition. After an error, none of `records` was moved.

    `next_offset` is where a dry run goes on, -1 if there is nothing more.
    """

    partition: Int32
    error_code: Int16
    error_message: NullableString = None
    records: Array[QueueRedriveResponseRecord] = ()
    next_offset: Int64 = tagged(0, since=0, default=-1)


@message(api_key=10_006, versions=range(1), flexible_from=0)
class QueueRedriveResponse(Message):
    """Sent when what was moved is committed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    partitions: Array[QueueRedriveResponsePartition] = ()
