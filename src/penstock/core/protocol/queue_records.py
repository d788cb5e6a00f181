"""Messages inside the records of `__queue_state`: ours alone, in the form of Kafka's (see `state_records`).

One key for all, which says whose queue it is and of which kind the value is; one message per kind:

    00 00 | kind | group | topic id | partition      00 00 | the value

A queue that is forgotten has no value. Offsets are stored as runs, the end of each exclusive.
"""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    Part,
    String,
    Uuid,
    tagged,
)


@message(versions=range(1), flexible_from=0)
class QueueKey(Message):
    """Says which queue a record is about, and what it says."""

    kind: Int8
    group_id: String
    topic_id: Uuid
    partition: Int32


@part
class OffsetRun(Part):
    """Consecutive offsets."""

    start: Int64
    end: Int64


@part
class QueueRecordAttributes(Part):
    """What matters to a queue about a record of the log."""

    offset: Int64
    has_key: Bool
    key: Int64
    priority: Int8
    deliver_at: Int64
    expires_at: Int64


@part
class RecordLease(Part):
    """Who has a record, and for how long."""

    token: Int64
    consumer: String
    lease_ms: Int32


@part
class RecordFailure(Part):
    """When deliveries of a record failed."""

    first_at: Int64
    last_at: Int64
    reason: String


@part
class RecordProducer(Part):
    """Whose transaction decides on a record."""

    producer_id: Int64
    producer_epoch: Int16


@part
class ReleasedRecordDelay(Part):
    """A record, and how long it is not delivered."""

    offset: Int64
    delay_ms: Int32


@part
class UnfinishedRecord(Part):
    """All that is known of a record."""

    record: QueueRecordAttributes
    state: Int8
    attempts: Int32
    delay_ms: Int32
    lease: Nullable[RecordLease] = None
    failure: Nullable[RecordFailure] = None
    producer: Nullable[RecordProducer] = None


@message(versions=range(1), flexible_from=0)
class QueueValue(Message):
    """A queue without its records."""

    end: Int64
    leader_epoch: Int32
    is_paused: Bool
    is_key_ordered: Bool
    deliveries_max: Int32
    has_dead_letters: Bool
    lease_ms: Int32
    backoff_ms: Int32
    backoff_ms_max: Int32
    window_max: Int32 = tagged(0, since=0, default=10_000)


@message(versions=range(1), flexible_from=0)
class RecordsTakenValue(Message):
    """Records of the log up to `end` that the queue has to deliver."""

    end: Int64
    plain: Array[OffsetRun]
    records: Array[QueueRecordAttributes]


@message(versions=range(1), flexible_from=0)
class RecordsLeasedValue(Message):
    """One acquisition."""

    lease: RecordLease
    runs: Array[OffsetRun]


@message(versions=range(1), flexible_from=0)
class LeasesProlongedValue(Message):
    """Leases with another duration."""

    lease_ms: Int32
    runs: Array[OffsetRun]


@message(versions=range(1), flexible_from=0)
class RecordsReleasedValue(Message):
    """Failed deliveries that are to be repeated."""

    failed_at: Int64
    reason: String
    released: Array[ReleasedRecordDelay]


@message(versions=range(1), flexible_from=0)
class RecordsGivenUpValue(Message):
    """Failed deliveries that are not."""

    failed_at: Int64
    reason: String
    runs: Array[OffsetRun]


@message(versions=range(1), flexible_from=0)
class RecordsFinishedValue(Message):
    """Records that nothing is left to do for."""

    cause: Int8
    runs: Array[OffsetRun]


@message(versions=range(1), flexible_from=0)
class RecordsEndingValue(Message):
    """Records that a transaction finishes."""

    producer: RecordProducer
    runs: Array[OffsetRun]


@message(versions=range(1), flexible_from=0)
class RecordsDroppedValue(Message):
    """Offsets that the log does not have."""

    start: Int64
    end: Int64


@message(versions=range(1), flexible_from=0)
class RecordsStoredValue(Message):
    """Records as they are."""

    records: Array[UnfinishedRecord]


@message(versions=range(1), flexible_from=0)
class RecordsReturnedValue(Message):
    """Leases that did not reach their consumer."""

    runs: Array[OffsetRun]


QUEUE_KEYS: Final[dict[int, type[Message]]] = {0: QueueKey}
