"""Facts as records of `__queue_state`, in schemas of our own.

    kind   fact                value, version 0            kind   fact                value, version 0
    0      QueueStored         QueueValue                  5      RecordsGivenUp      RecordsGivenUpValue
    0      QueueForgotten      none                        6      RecordsFinished     RecordsFinishedValue
    1      RecordsTaken        RecordsTakenValue           7      RecordsEnding       RecordsEndingValue
    2      RecordsLeased       RecordsLeasedValue          8      RecordsDropped      RecordsDroppedValue
    3      LeasesProlonged     LeasesProlongedValue        9      RecordsStored       RecordsStoredValue
    4      RecordsReleased     RecordsReleasedValue        10     RecordsReturned     RecordsReturnedValue

The topic must be neither compacted nor cut by retention: a fact changes what those before it left. For the
same reason a kind that is not known is an error, and not skipped. A `RecordsEnding` stands in a transactional
batch of its producer; a `QueueTransactionEnded` is no record but a marker.

This module is the `RecordCodec` of queues.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProtocolError,
    Timestamp,
    TopicId,
)
from penstock.core.protocol import Message
from penstock.core.protocol.queue_records import (
    QUEUE_KEYS,
    LeasesProlongedValue,
    OffsetRun,
    QueueKey,
    QueueRecordAttributes,
    QueueValue,
    RecordFailure,
    RecordLease,
    RecordProducer,
    RecordsDroppedValue,
    RecordsEndingValue,
    RecordsFinishedValue,
    RecordsGivenUpValue,
    RecordsLeasedValue,
    RecordsReleasedValue,
    RecordsReturnedValue,
    RecordsStoredValue,
    RecordsTakenValue,
    ReleasedRecordDelay,
    UnfinishedRecord,
)
from penstock.core.protocol.state_records import read_key, read_stored, write_stored
from penstock.core.queues import (
    Failure,
    FinishCause,
    Lease,
    LeasesProlonged,
    QueueCoordinator,
    QueueFact,
    QueueForgotten,
    QueueId,
    QueueRecord,
    QueueSettings,
    QueueStored,
    QueueTransactionEnded,
    RecordsDropped,
    RecordsEnding,
    RecordsFinished,
    RecordsGivenUp,
    RecordsLeased,
    RecordsReleased,
    RecordsReturned,
    RecordsStored,
    RecordsTaken,
    RecordState,
    ReleasedRecord,
    Run,
    StoredRecord,
    TransactionProducer,
)
from penstock.core.records import ControlRecord, ControlType

VERSION = 0
QUEUE, TAKEN, LEASED, PROLONGED, RELEASED, GIVEN_UP, FINISHED, ENDING, DROPPED, STORED, RETURNED = range(11)
# Far more than a queue holds: a run is walked offset by offset.
OFFSETS_MAX = 1_000_000


def encode(fact: QueueFact) -> tuple[bytes, bytes | None]:  # noqa: C901, PLR0912 - one case per fact
    """The key and value of the fact's record."""
    match fact:
        case QueueStored():
            return _record(fact.queue, QUEUE, _queue_value(fact))
        case QueueForgotten():
            return _key(fact.queue, QUEUE), None
        case RecordsTaken():
            records = tuple(map(_attributes, fact.records))
            value = RecordsTakenValue(end=fact.end, plain=_runs(fact.plain), records=records)
            return _record(fact.queue, TAKEN, value)
        case RecordsLeased():
            lease = RecordsLeasedValue(lease=_lease(fact.lease), runs=_runs(fact.runs))
            return _record(fact.queue, LEASED, lease)
        case LeasesProlonged():
            prolonged = LeasesProlongedValue(lease_ms=fact.lease_ms, runs=_runs(fact.runs))
            return _record(fact.queue, PROLONGED, prolonged)
        case RecordsReturned():
            return _record(fact.queue, RETURNED, RecordsReturnedValue(runs=_runs(fact.runs)))
        case RecordsReleased():
            return _record(fact.queue, RELEASED, _released_value(fact))
        case RecordsGivenUp():
            given_up = RecordsGivenUpValue(
                failed_at=fact.failed_at, reason=fact.reason, runs=_runs(fact.runs)
            )
            return _record(fact.queue, GIVEN_UP, given_up)
        case RecordsFinished():
            finished = RecordsFinishedValue(cause=fact.cause.value, runs=_runs(fact.runs))
            return _record(fact.queue, FINISHED, finished)
        case RecordsEnding():
            ending = RecordsEndingValue(producer=_producer(fact.producer), runs=_runs(fact.runs))
            return _record(fact.queue, ENDING, ending)
        case RecordsDropped():
            return _record(fact.queue, DROPPED, RecordsDroppedValue(start=fact.start, end=fact.end))
        case RecordsStored():
            stored = RecordsStoredValue(records=tuple(map(_unfinished, fact.records)))
            return _record(fact.queue, STORED, stored)
        case QueueTransactionEnded():
            raise AssertionError("a marker is not a record")
        case _:
            assert_never(fact)


def decode(key: bytes | None, value: bytes | None) -> QueueFact | None:
    """The fact in a record; None for one that is not of a queue.

    Raises ProtocolError for a value that cannot be decoded: without it, all that follows is wrong.
    """
    if key is None:
        return None
    try:
        decoded = read_key(QUEUE_KEYS, key)
    except ProtocolError:
        return None
    assert isinstance(decoded, QueueKey)
    queue = QueueId(decoded.group_id, TopicId(decoded.topic_id), PartitionIndex(decoded.partition))
    if value is None:
        if decoded.kind != QUEUE:
            raise ProtocolError(f"a record of kind {decoded.kind} of a queue has no value")
        return QueueForgotten(queue)
    read = _READERS.get(decoded.kind)
    if read is None:
        raise ProtocolError(f"there is no record of kind {decoded.kind} of a queue")
    return read(queue, value)


class QueueTransactions:
    """How records that transactions finish are stored: the `TransactionalFacts` of queues.

    Less is needed than for groups, where a copy of a record does not say that it was part of a transaction.
    """

    def producer_of(self, fact: QueueFact) -> tuple[int, int] | None:
        """The producer id and epoch of the batch that the fact's record belongs to, if any."""
        return (fact.producer.producer_id, fact.producer.epoch) if isinstance(fact, RecordsEnding) else None

    def in_transaction(self, fact: QueueFact, producer_id: int, producer_epoch: int) -> QueueFact:  # noqa: ARG002
        """The fact of a record that stands in a transactional batch: it names its producer itself."""
        return fact

    def ended(self, marker: ControlRecord) -> QueueTransactionEnded:
        """The fact of a marker."""
        return QueueTransactionEnded(
            ProducerId(marker.producer_id), marker.control_type is ControlType.COMMIT
        )

    def to_copy_before(
        self,
        machine: QueueCoordinator,  # noqa: ARG002
        marker: ControlRecord,  # noqa: ARG002
        *,
        is_rewriting: bool,  # noqa: ARG002
    ) -> Sequence[QueueFact]:
        """Nothing: a rewritten record says which transaction decides on it."""
        return ()


def _record(queue: QueueId, kind: int, value: Message) -> tuple[bytes, bytes]:
    return _key(queue, kind), write_stored(value, VERSION)


def _key(queue: QueueId, kind: int) -> bytes:
    group_id, topic_id, partition = queue
    return write_stored(
        QueueKey(kind=kind, group_id=group_id, topic_id=topic_id, partition=partition), VERSION
    )


def _queue_value(fact: QueueStored) -> QueueValue:
    settings = fact.settings
    return QueueValue(
        end=fact.end,
        leader_epoch=fact.leader_epoch,
        is_paused=fact.is_paused,
        is_key_ordered=settings.is_key_ordered,
        deliveries_max=settings.deliveries_max,
        has_dead_letters=settings.has_dead_letters,
        lease_ms=settings.lease_ms,
        backoff_ms=settings.backoff_ms,
        backoff_ms_max=settings.backoff_ms_max,
        window_max=settings.window_max,
    )


def _released_value(fact: RecordsReleased) -> RecordsReleasedValue:
    return RecordsReleasedValue(
        failed_at=fact.failed_at,
        reason=fact.reason,
        released=tuple(
            ReleasedRecordDelay(offset=offset, delay_ms=delay_ms) for offset, delay_ms in fact.released
        ),
    )


def _runs(runs: tuple[Run, ...]) -> tuple[OffsetRun, ...]:
    return tuple([OffsetRun(start=start, end=end) for start, end in runs])


def _attributes(record: QueueRecord) -> QueueRecordAttributes:
    return QueueRecordAttributes(
        offset=record.offset,
        has_key=record.key is not None,
        key=record.key or 0,
        priority=record.priority,
        deliver_at=record.deliver_at,
        expires_at=record.expires_at,
    )


def _lease(lease: Lease) -> RecordLease:
    return RecordLease(token=lease.token, consumer=lease.consumer, lease_ms=lease.lease_ms)


def _producer(producer: TransactionProducer) -> RecordProducer:
    return RecordProducer(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _unfinished(stored: StoredRecord) -> UnfinishedRecord:
    failure = stored.failure
    return UnfinishedRecord(
        record=_attributes(stored.record),
        state=stored.state.value,
        attempts=stored.attempts,
        delay_ms=stored.delay_ms,
        lease=None if stored.lease is None else _lease(stored.lease),
        failure=None
        if failure is None
        else RecordFailure(first_at=failure.first_at, last_at=failure.last_at, reason=failure.reason),
        producer=None if stored.producer is None else _producer(stored.producer),
    )


def _runs_of(stored: tuple[OffsetRun, ...]) -> tuple[Run, ...]:
    end, count = 0, 0
    for run in stored:
        if not end <= run.start < run.end:
            raise ProtocolError(f"offsets {run.start} to {run.end} are not a run behind {end}")
        end, count = run.end, count + run.end - run.start
    if count > OFFSETS_MAX:
        raise ProtocolError(f"a record of a queue is about {count} offsets")
    return tuple([Run(Offset(run.start), Offset(run.end)) for run in stored])


def _record_of(stored: QueueRecordAttributes) -> QueueRecord:
    return QueueRecord(
        Offset(stored.offset),
        stored.key if stored.has_key else None,
        stored.priority,
        Timestamp(stored.deliver_at),
        Timestamp(stored.expires_at),
    )


def _lease_of(stored: RecordLease) -> Lease:
    return Lease(stored.token, stored.consumer, stored.lease_ms)


def _producer_of(stored: RecordProducer) -> TransactionProducer:
    return TransactionProducer(ProducerId(stored.producer_id), ProducerEpoch(stored.producer_epoch))


def _unfinished_of(stored: UnfinishedRecord) -> StoredRecord:
    try:
        state = RecordState(stored.state)
    except ValueError:
        raise ProtocolError(f"there is no state {stored.state} of a record") from None
    failure = stored.failure
    if (state is RecordState.LEASED) != (stored.lease is not None):
        raise ProtocolError(f"record {stored.record.offset} is leased to nobody, or to somebody and is not")
    if state is RecordState.MOVING and failure is None:
        raise ProtocolError(f"record {stored.record.offset} was given up and has not failed")
    return StoredRecord(
        _record_of(stored.record),
        state,
        stored.attempts,
        stored.delay_ms,
        None if stored.lease is None else _lease_of(stored.lease),
        None
        if failure is None
        else Failure(Timestamp(failure.first_at), Timestamp(failure.last_at), failure.reason),
        None if stored.producer is None else _producer_of(stored.producer),
    )


def _read_queue(queue: QueueId, value: bytes) -> QueueStored:
    stored = read_stored(QueueValue, value)
    settings = QueueSettings(
        is_key_ordered=stored.is_key_ordered,
        deliveries_max=stored.deliveries_max,
        has_dead_letters=stored.has_dead_letters,
        lease_ms=stored.lease_ms,
        backoff_ms=stored.backoff_ms,
        backoff_ms_max=stored.backoff_ms_max,
        window_max=stored.window_max,
    )
    return QueueStored(
        queue, Offset(stored.end), LeaderEpoch(stored.leader_epoch), settings, stored.is_paused
    )


def _read_taken(queue: QueueId, value: bytes) -> RecordsTaken:
    stored = read_stored(RecordsTakenValue, value)
    records = tuple(map(_record_of, stored.records))
    return RecordsTaken(queue, Offset(stored.end), _runs_of(stored.plain), records)


def _read_leased(queue: QueueId, value: bytes) -> RecordsLeased:
    stored = read_stored(RecordsLeasedValue, value)
    return RecordsLeased(queue, _lease_of(stored.lease), _runs_of(stored.runs))


def _read_prolonged(queue: QueueId, value: bytes) -> LeasesProlonged:
    stored = read_stored(LeasesProlongedValue, value)
    return LeasesProlonged(queue, stored.lease_ms, _runs_of(stored.runs))


def _read_released(queue: QueueId, value: bytes) -> RecordsReleased:
    stored = read_stored(RecordsReleasedValue, value)
    released = tuple(ReleasedRecord(Offset(each.offset), each.delay_ms) for each in stored.released)
    return RecordsReleased(queue, released, Timestamp(stored.failed_at), stored.reason)


def _read_given_up(queue: QueueId, value: bytes) -> RecordsGivenUp:
    stored = read_stored(RecordsGivenUpValue, value)
    return RecordsGivenUp(queue, _runs_of(stored.runs), Timestamp(stored.failed_at), stored.reason)


def _read_finished(queue: QueueId, value: bytes) -> RecordsFinished:
    stored = read_stored(RecordsFinishedValue, value)
    try:
        cause = FinishCause(stored.cause)
    except ValueError:
        raise ProtocolError(f"there is no cause {stored.cause} for a record to be finished") from None
    return RecordsFinished(queue, _runs_of(stored.runs), cause)


def _read_ending(queue: QueueId, value: bytes) -> RecordsEnding:
    stored = read_stored(RecordsEndingValue, value)
    return RecordsEnding(queue, _producer_of(stored.producer), _runs_of(stored.runs))


def _read_dropped(queue: QueueId, value: bytes) -> RecordsDropped:
    stored = read_stored(RecordsDroppedValue, value)
    return RecordsDropped(queue, Offset(stored.start), Offset(stored.end))


def _read_stored(queue: QueueId, value: bytes) -> RecordsStored:
    stored = read_stored(RecordsStoredValue, value)
    return RecordsStored(queue, tuple(map(_unfinished_of, stored.records)))


def _read_returned(queue: QueueId, value: bytes) -> RecordsReturned:
    return RecordsReturned(queue, _runs_of(read_stored(RecordsReturnedValue, value).runs))


_READERS: dict[int, Callable[[QueueId, bytes], QueueFact]] = {
    QUEUE: _read_queue,
    TAKEN: _read_taken,
    LEASED: _read_leased,
    PROLONGED: _read_prolonged,
    RELEASED: _read_released,
    GIVEN_UP: _read_given_up,
    FINISHED: _read_finished,
    ENDING: _read_ending,
    DROPPED: _read_dropped,
    STORED: _read_stored,
    RETURNED: _read_returned,
}
