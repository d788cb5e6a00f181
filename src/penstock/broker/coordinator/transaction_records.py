"""Facts as records of `__transaction_state`, in Kafka's own schemas, and one of ours.

    fact                  key                         value, version written
    TransactionStored     TransactionLogKey     0     TransactionLogValue   1
    TransactionForgotten  TransactionLogKey     0     none
    BatchCommitted        BatchCommitKey   10,000     BatchCommitValue      0
    BatchForgotten        BatchCommitKey   10,000     none

Both versions of the value are read. A record of Kafka's in `PrepareEpochFence` or `Dead` is read as the
abort or the end that it stands for. This module is the `RecordCodec` of transactions.
"""

from typing import assert_never

from penstock.core.model import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProtocolError,
    Timestamp,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol.state_records import (
    TRANSACTION_KEYS,
    BatchCommitKey,
    BatchCommitValue,
    BatchCommitValueTransaction,
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValueTopicPartitions,
    read_key,
    read_stored,
    write_stored,
)
from penstock.core.transactions import (
    BatchCommitted,
    BatchForgotten,
    BatchMember,
    Fact,
    TransactionForgotten,
    TransactionState,
    TransactionStored,
)

KEY, VALUE = 0, 1
BATCH_KEY, BATCH_VALUE = 10_000, 0
# The place in this list is the number in records.
STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
)
_NUMBERS = {state: number for number, state in enumerate(STATES)}


def encode(fact: Fact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    match fact:
        case TransactionStored():
            return _key(fact.transactional_id), write_stored(_value(fact), VALUE)
        case TransactionForgotten():
            return _key(fact.transactional_id), None
        case BatchCommitted():
            return _batch_key(fact), write_stored(_batch_value(fact), BATCH_VALUE)
        case BatchForgotten():
            return _batch_key(fact), None
        case _:
            assert_never(fact)


def decode(key: bytes | None, value: bytes | None) -> Fact | None:
    """The fact in a record; None for kinds of state that are not supported yet.

    Raises ProtocolError for a value that cannot be decoded: skipping it would restore the key's
    previous value.
    """
    if key is None:
        return None
    try:
        decoded = read_key(TRANSACTION_KEYS, key)
    except ProtocolError:
        return None
    match decoded:
        case TransactionLogKey():
            transactional_id = decoded.transactional_id
            if value is None:
                return TransactionForgotten(transactional_id)
            return _transaction_of(transactional_id, value)
        case BatchCommitKey():
            return BatchForgotten(decoded.sink, decoded.batch) if value is None else _batch_of(decoded, value)
        case _:
            return None


def _key(transactional_id: str) -> bytes:
    return write_stored(TransactionLogKey(transactional_id=transactional_id), KEY)


def _batch_key(fact: BatchCommitted | BatchForgotten) -> bytes:
    return write_stored(BatchCommitKey(sink=fact.sink, batch=fact.batch), BATCH_KEY)


def _batch_value(fact: BatchCommitted) -> BatchCommitValue:
    return BatchCommitValue(
        committed_at=fact.committed_at,
        transactions=tuple(
            BatchCommitValueTransaction(
                transactional_id=member.transactional_id,
                producer_id=member.producer_id,
                producer_epoch=member.producer_epoch,
            )
            for member in fact.members
        ),
    )


def _batch_of(key: BatchCommitKey, value: bytes) -> BatchCommitted:
    stored = read_stored(BatchCommitValue, value)
    return BatchCommitted(
        key.sink,
        key.batch,
        tuple(
            BatchMember(
                each.transactional_id, ProducerId(each.producer_id), ProducerEpoch(each.producer_epoch)
            )
            for each in stored.transactions
        ),
        Timestamp(stored.committed_at),
    )


def _value(fact: TransactionStored) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in fact.partitions:
        topics.setdefault(topic, []).append(partition)
    return TransactionLogValue(
        producer_id=fact.producer_id,
        previous_producer_id=fact.previous_producer_id,
        next_producer_id=fact.next_producer_id,
        producer_epoch=fact.producer_epoch,
        transaction_timeout_ms=fact.timeout_ms,
        transaction_status=_NUMBERS[fact.state],
        transaction_partitions=tuple(
            TransactionLogValueTopicPartitions(topic=topic, partition_ids=tuple(partitions))
            for topic, partitions in topics.items()
        ),
        transaction_last_update_timestamp_ms=fact.updated_at,
        transaction_start_timestamp_ms=fact.started_at,
        client_transaction_version=fact.client_version,
        last_producer_epoch=fact.last_epoch,
    )


def _transaction_of(transactional_id: str, value: bytes) -> TransactionStored | TransactionForgotten:
    stored = read_stored(TransactionLogValue, value)
    if not 0 <= stored.transaction_status < len(STATES):
        raise ProtocolError(f"there is no state {stored.transaction_status} of a transaction")
    state = STATES[stored.transaction_status]
    if state is TransactionState.DEAD:
        return TransactionForgotten(transactional_id)
    if state is TransactionState.PREPARE_EPOCH_FENCE:
        state = TransactionState.PREPARE_ABORT
    return TransactionStored(
        transactional_id,
        ProducerId(stored.producer_id),
        ProducerEpoch(stored.producer_epoch),
        stored.transaction_timeout_ms,
        state,
        Timestamp(stored.transaction_last_update_timestamp_ms),
        tuple(
            TopicPartition(TopicName(each.topic), PartitionIndex(index))
            for each in stored.transaction_partitions or ()
            for index in each.partition_ids
        ),
        Timestamp(stored.transaction_start_timestamp_ms),
        ProducerEpoch(stored.last_producer_epoch),
        ProducerId(stored.previous_producer_id),
        ProducerId(stored.next_producer_id),
        stored.client_transaction_version,
    )
