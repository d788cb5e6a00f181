"""Messages inside the records of `__delayed`: ours alone, in the form of Kafka's (see `state_records`).

key      00 00 | kind
value    00 00 | the value

kind 0   DelayedRecordsValue: records that are to be published later
kind 1   DelaysFinishedValue: delays that are over without their records
kind 2   DelaysEndingValue: delays that are over if the producer's transaction is committed
"""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bytes, Int8, Int16, Int32, Int64, Nullable, Part, String


@message(versions=range(1), flexible_from=0)
class DelayKey(Message):
    """Says of which kind the value is."""

    kind: Int8


@part
class DelayProducer(Part):
    """The producer whose transaction decides."""

    producer_id: Int64
    producer_epoch: Int16


@message(versions=range(1), flexible_from=0)
class DelayedRecordsValue(Message):
    """Records for one topic, column by column: when to publish each (in milliseconds since 1970), and where.

    `ends` says where the body of each ends in `content`: key, value and headers as in a record batch.
    """

    topic: String
    ids: Array[Int64]
    times: Array[Int64]
    partitions: Array[Int32]
    ends: Array[Int32]
    content: Bytes
    producer: Nullable[DelayProducer]


@message(versions=range(1), flexible_from=0)
class DelaysFinishedValue(Message):
    """Delays whose records are not published: 0 cancelled, 1 dropped."""

    cause: Int8
    ids: Array[Int64]


@message(versions=range(1), flexible_from=0)
class DelaysEndingValue(Message):
    """Delays whose records are published if the producer's transaction is committed."""

    producer: DelayProducer
    ids: Array[Int64]


DELAY_KEYS: Final[dict[int, type[Message]]] = {0: DelayKey}
