"""Messages inside the records of `__delayed`: ours alone, in the form of Kafka's (see `state_records`).

key      00 00 | kind | id          id -1 where the value names the delays
value    00 00 | the value

kind 0   DelayedRecordValue: a record that is to be published later
kind 1   DelaysFinishedValue: delays that are over without their records
kind 2   DelaysEndingValue: delays that are over if the producer's transaction is committed
"""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    NullableBytes,
    Part,
    String,
)


@message(versions=range(1), flexible_from=0)
class DelayKey(Message):
    """Says of which kind the value is, and which delay it is about."""

    kind: Int8
    id: Int64


@part
class DelayProducer(Part):
    """The producer whose transaction decides."""

    producer_id: Int64
    producer_epoch: Int16


@part
class DelayedRecordHeader(Part):
    """A header of a record; its name is text by contract only, and kept as it is."""

    name: NullableBytes
    value: NullableBytes


@message(versions=range(1), flexible_from=0)
class DelayedRecordValue(Message):
    """A record, where it is to be published, and when: in milliseconds since 1970."""

    deliver_at: Int64
    topic: String
    partition: Int32
    key: NullableBytes
    value: NullableBytes
    headers: Array[DelayedRecordHeader]
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
