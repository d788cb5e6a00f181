"""Facts as records of `__delayed`, in schemas of our own: the `RecordCodec` of delays.

    kind   fact              value, version 0
    0      DelaysStored      DelayedRecordsValue
    1      DelaysFinished    DelaysFinishedValue
    2      DelaysEnding      DelaysEndingValue, in a transactional batch of its producer

The topic must be neither compacted nor cut by retention, as `__queue_state`. A kind that is not known is an
error: without it, what follows is wrong.
"""

from collections.abc import Sequence
from typing import assert_never

from penstock.core.delays import (
    DelayCoordinator,
    DelayedRecords,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelaysStored,
    DelayTransactionEnded,
)
from penstock.core.model import Offset, ProducerEpoch, ProducerId, ProtocolError
from penstock.core.protocol.delayed_records import (
    DELAY_KEYS,
    DelayedRecordsValue,
    DelayKey,
    DelayProducer,
    DelaysEndingValue,
    DelaysFinishedValue,
)
from penstock.core.protocol.state_records import read_key, read_stored, write_stored
from penstock.core.queues import TransactionProducer
from penstock.core.records import ControlRecord, ControlType

VERSION = 0
STORED, FINISHED, ENDING = range(3)
_KEYS = tuple(write_stored(DelayKey(kind=kind), VERSION) for kind in (STORED, FINISHED, ENDING))


def encode(fact: DelayFact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    match fact:
        case DelaysStored():
            topic, ids, times, partitions, ends, content = fact.records
            stored = DelayedRecordsValue(
                topic=topic,
                ids=ids,
                times=times,
                partitions=partitions,
                ends=ends,
                content=content,
                producer=None if fact.producer is None else _producer(fact.producer),
            )
            return _KEYS[STORED], write_stored(stored, VERSION)
        case DelaysFinished():
            finished = DelaysFinishedValue(cause=fact.cause.value, ids=fact.ids)
            return _KEYS[FINISHED], write_stored(finished, VERSION)
        case DelaysEnding():
            ending = DelaysEndingValue(producer=_producer(fact.producer), ids=fact.ids)
            return _KEYS[ENDING], write_stored(ending, VERSION)
        case DelayTransactionEnded():
            raise AssertionError("a marker is not a record")
        case _:
            assert_never(fact)


def decode(key: bytes | None, value: bytes | None) -> DelayFact | None:
    """The fact in a record; None for one that is not of a delay. Raises ProtocolError if it is damaged."""
    kind = _kind_of(key)
    if kind is None:
        return None
    if value is None:
        raise ProtocolError(f"a record of kind {kind} of a delay has no value")
    match kind:
        case 0:
            return _read_records(value)
        case 1:
            return _read_finished(value)
        case 2:
            ending = read_stored(DelaysEndingValue, value)
            return DelaysEnding(_producer_of(ending.producer), ending.ids)
        case _:
            raise ProtocolError(f"there is no record of kind {kind} of a delay")


def _kind_of(key: bytes | None) -> int | None:
    if key in _KEYS:
        return _KEYS.index(key)
    try:
        decoded = None if key is None else read_key(DELAY_KEYS, key)
    except ProtocolError:
        return None
    return decoded.kind if isinstance(decoded, DelayKey) else None


def located(fact: DelayFact, offset: Offset) -> DelayFact:
    """The fact as the machine gets it: delayed records are read again when they are due."""
    return DelaysStored(fact.records, fact.producer, offset) if isinstance(fact, DelaysStored) else fact


class DelayTransactions:
    """How delays that transactions end are stored: the `TransactionalFacts` of delays."""

    def producer_of(self, fact: DelayFact) -> tuple[int, int] | None:
        """The producer id and epoch of the batch that the fact's record belongs to, if any."""
        return (fact.producer.producer_id, fact.producer.epoch) if isinstance(fact, DelaysEnding) else None

    def in_transaction(self, fact: DelayFact, producer_id: int, producer_epoch: int) -> DelayFact:  # noqa: ARG002
        """The fact of a record that stands in a transactional batch: it names its producer itself."""
        return fact

    def ended(self, marker: ControlRecord) -> DelayTransactionEnded:
        """The fact of a marker."""
        return DelayTransactionEnded(
            ProducerId(marker.producer_id), marker.control_type is ControlType.COMMIT
        )

    def to_copy_before(
        self,
        machine: DelayCoordinator,  # noqa: ARG002
        marker: ControlRecord,  # noqa: ARG002
        *,
        is_rewriting: bool,  # noqa: ARG002
    ) -> Sequence[DelayFact]:
        """Nothing: a rewritten record says which transaction decides on it."""
        return ()


def _producer(producer: TransactionProducer) -> DelayProducer:
    return DelayProducer(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _producer_of(stored: DelayProducer) -> TransactionProducer:
    return TransactionProducer(ProducerId(stored.producer_id), ProducerEpoch(stored.producer_epoch))


def _read_records(value: bytes) -> DelaysStored:
    stored = read_stored(DelayedRecordsValue, value)
    records = DelayedRecords(
        stored.topic, stored.ids, stored.times, stored.partitions, stored.ends, stored.content
    )
    if not records.is_whole or min(records.ids) < 0:
        raise ProtocolError("the columns of delayed records do not belong together")
    return DelaysStored(records, None if stored.producer is None else _producer_of(stored.producer))


def _read_finished(value: bytes) -> DelaysFinished:
    finished = read_stored(DelaysFinishedValue, value)
    try:
        cause = DelayFinish(finished.cause)
    except ValueError:
        raise ProtocolError(f"there is no cause {finished.cause} for a delay to be over") from None
    return DelaysFinished(finished.ids, cause)
