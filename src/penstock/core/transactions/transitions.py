"""How a transaction goes from one state to the next, and who may ask for it.

               InitProducer ┌───────┐
          ┌────────────────►│ Empty │
          │                 └───┬───┘
          │        AddPartitions│            EndTransaction, timeout, InitProducer
    ┌─────┴──────┐         ┌────▼────┐           ┌───────────┐
    │ Complete…  │────────►│ Ongoing │──────────►│ Prepare…  │
    └─────▲──────┘         └─────────┘           └─────┬─────┘
          │            every partition has its marker  │
          └────────────────────────────────────────────┘

Epochs say which transaction a request belongs to:

* With an epoch for each transaction (KIP-890), `Prepare…` is stored with the next one, and markers
  carry it. A delayed EndTransaction or batch of the transaction before is then refused everywhere.
  Repeating an EndTransaction is harmless: its epoch is one behind.
* Older clients keep their epoch from one transaction to the next.
* A transaction that is aborted against its producer's will (it took too long, or another instance
  begins) is stored with the next epoch in either case, which fences the producer.

A producer writes with epochs up to 32,766. The last one, 32,767, is for markers; after it
comes a new producer id with epoch 0.

`last_epoch` makes a repeated InitProducer harmless whose first response was lost: the holder of
that epoch gets the present one again. When somebody else begins, it is forgotten.
"""

from dataclasses import replace

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, Timestamp
from penstock.core.transactions.commands import (
    EPOCH_PER_TRANSACTION,
    SINK_SEPARATOR,
    AddPartitions,
    CommitBatch,
    EndTransaction,
    InitProducer,
    ProducerGranted,
    ProducerIdentity,
    ProducerIdNeeded,
    VerifyPartitions,
)
from penstock.core.transactions.facts import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    NOT_STARTED,
    BatchMember,
    TransactionImage,
    TransactionState,
    TransactionStored,
)

_S = TransactionState
FENCED = ApiError(ErrorKind.PRODUCER_FENCED, "another producer uses this transactional id by now")
CONCURRENT = ApiError(ErrorKind.CONCURRENT_TRANSACTIONS)
UNKNOWN_PRODUCER = ApiError(ErrorKind.UNKNOWN_PRODUCER)
NEEDS_ID = ProducerIdNeeded()
# What a member of a batch takes in a record besides its transactional id.
MEMBER_BYTES = 16


def is_exhausted(epoch: int) -> bool:
    """Whether no producer can be given an epoch after this one."""
    return epoch >= EPOCH_MAX - 1


def next_producer(transaction: TransactionStored) -> ProducerIdentity:
    """What the producer goes on with: with a new id, if the outcome comes with one."""
    if transaction.next_producer_id != NO_PRODUCER:
        return ProducerIdentity(transaction.next_producer_id, ProducerEpoch(0))
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def initialized(
    known: TransactionStored | None, command: InitProducer, now: Timestamp
) -> TransactionStored | ApiError | ProducerIdNeeded:
    """The id with a producer that may begin; or the fenced transaction that must be ended first."""
    if known is None:
        if command.new_producer_id is None:
            return NEEDS_ID
        return TransactionStored(
            command.transactional_id,
            command.new_producer_id,
            ProducerEpoch(0),
            command.timeout_ms,
            _S.EMPTY,
            now,
        )
    expected = command.expected
    if expected is not None and not _is_last_holder(known, expected):
        return FENCED
    if known.state.is_prepared:
        return CONCURRENT
    if known.state is not _S.ONGOING:
        return _renewed(known, command, now)
    if expected is None:
        return fenced(known, now)
    if expected.epoch != known.producer_epoch:
        return FENCED
    # Its own transaction: it may ask again with the epoch that it has.
    return replace(fenced(known, now), last_epoch=expected.epoch)


def _renewed(
    known: TransactionStored, command: InitProducer, now: Timestamp
) -> TransactionStored | ApiError | ProducerIdNeeded:
    """An id without a transaction, with the epoch for a producer that begins or goes on."""
    expected = command.expected
    is_current = expected is None or expected.epoch == known.producer_epoch
    if not is_current and (expected is None or expected.epoch != known.last_epoch):
        return FENCED
    empty = replace(
        known,
        state=_S.EMPTY,
        timeout_ms=command.timeout_ms,
        updated_at=now,
        started_at=NOT_STARTED,
        last_epoch=NO_EPOCH if expected is None else expected.epoch,
    )
    if not is_current and known.producer_epoch < EPOCH_MAX:
        # The response to the same request was lost: the same again.
        return empty
    if not is_exhausted(known.producer_epoch):
        return replace(empty, producer_epoch=ProducerEpoch(known.producer_epoch + 1))
    if command.new_producer_id is None:
        return NEEDS_ID
    return replace(
        empty,
        producer_id=command.new_producer_id,
        previous_producer_id=known.producer_id,
        producer_epoch=ProducerEpoch(0),
    )


def _is_last_holder(known: TransactionStored, expected: ProducerIdentity) -> bool:
    """Whether the producer id is the present one, the one to come, or one whose epochs were used up."""
    if expected.producer_id in (known.producer_id, known.next_producer_id):
        return True
    # Of a new id nothing was used yet: later its epochs come near those of the one before.
    is_unused = known.producer_epoch == 0
    return is_unused and expected.producer_id == known.previous_producer_id and is_exhausted(expected.epoch)


def fenced(ongoing: TransactionStored, now: Timestamp) -> TransactionStored:
    """An open transaction, aborted under the next epoch: its producer can do nothing any more."""
    return replace(
        ongoing,
        state=_S.PREPARE_ABORT,
        producer_epoch=ProducerEpoch(ongoing.producer_epoch + 1),
        last_epoch=NO_EPOCH,
        updated_at=now,
    )


def problem_with(known: TransactionStored | None, producer: ProducerIdentity) -> ApiError | None:
    """Why the producer may not touch its transaction now."""
    if known is None:
        return UNKNOWN_PRODUCER
    if known.state.is_prepared and producer == next_producer(known):
        # It has the epoch of its next transaction, or a new id already.
        return CONCURRENT
    if producer.producer_id != known.producer_id:
        return UNKNOWN_PRODUCER
    if producer.epoch != known.producer_epoch or producer.epoch == EPOCH_MAX:
        return FENCED
    return CONCURRENT if known.state.is_prepared else None


def with_partitions(
    known: TransactionStored | None, command: AddPartitions, now: Timestamp
) -> TransactionStored | ApiError:
    """The transaction with more partitions; the same object when it has them already."""
    error = problem_with(known, command.producer)
    if error is not None or known is None:
        return error or UNKNOWN_PRODUCER
    is_ongoing = known.state is _S.ONGOING
    before = dict.fromkeys(known.partitions) if is_ongoing else {}
    after = before | dict.fromkeys(command.partitions)
    if is_ongoing and len(after) == len(before):
        return known
    return replace(
        known,
        state=_S.ONGOING,
        partitions=tuple(after),
        started_at=known.started_at if is_ongoing else now,
        updated_at=now,
        client_version=command.client_version,
    )


def verified(known: TransactionStored | None, command: VerifyPartitions) -> TransactionStored | ApiError:
    """The open transaction, if it is the producer's."""
    error = problem_with(known, command.producer)
    return error or known or UNKNOWN_PRODUCER


def ended(
    known: TransactionStored | None, command: EndTransaction, now: Timestamp
) -> TransactionStored | ProducerGranted | ApiError | ProducerIdNeeded:
    """The prepared transaction; or what the producer goes on with, if it has ended already."""
    if known is None:
        return UNKNOWN_PRODUCER
    if command.producer.epoch == EPOCH_MAX:
        return FENCED
    if command.client_version >= EPOCH_PER_TRANSACTION:
        return _ended_with_epoch(known, command, now)
    if command.producer.producer_id != known.producer_id:
        return UNKNOWN_PRODUCER
    if command.producer.epoch != known.producer_epoch:
        return FENCED
    if known.state is _S.ONGOING:
        return _prepared(known, command, now)
    return _repeated(known, command)


def _ended_with_epoch(
    known: TransactionStored, command: EndTransaction, now: Timestamp
) -> TransactionStored | ProducerGranted | ApiError | ProducerIdNeeded:
    producer, state = command.producer, known.state
    has_new_id = (
        producer.producer_id == known.previous_producer_id
        and producer.epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
        and not state.is_prepared
    )
    if producer.producer_id != known.producer_id and not has_new_id:
        is_next = state.is_prepared and producer == next_producer(known)
        return CONCURRENT if is_next else UNKNOWN_PRODUCER
    is_repeated = has_new_id or known.producer_epoch == producer.epoch + 1
    if is_repeated and (state.is_prepared or state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)):
        return _repeated(known, command)
    if producer.epoch != known.producer_epoch or has_new_id:
        return FENCED
    if state.is_prepared:
        # The client has the outcome of the transaction before, and ends the next one.
        return CONCURRENT
    if state is not _S.ONGOING and command.is_commit:
        return _invalid(known, command)
    if is_exhausted(known.producer_epoch) and command.new_producer_id is None:
        return NEEDS_ID
    # Without partitions, this transaction only ends the epoch: a batch under way may still add one.
    started = known if state is _S.ONGOING else replace(known, started_at=now, partitions=())
    bumped = replace(
        started,
        producer_epoch=ProducerEpoch(known.producer_epoch + 1),
        last_epoch=known.producer_epoch,
        next_producer_id=(command.new_producer_id or NO_PRODUCER)
        if is_exhausted(known.producer_epoch)
        else NO_PRODUCER,
    )
    return _prepared(bumped, command, now)


def _prepared(known: TransactionStored, command: EndTransaction, now: Timestamp) -> TransactionStored:
    state = _S.PREPARE_COMMIT if command.is_commit else _S.PREPARE_ABORT
    # Markers are checked as the epoch asks that they carry, whoever has added the partitions.
    return replace(known, state=state, updated_at=now, client_version=command.client_version)


def _repeated(known: TransactionStored, command: EndTransaction) -> ProducerGranted | ApiError:
    """Whether the outcome is the one that is asked for, and known everywhere."""
    committing = known.state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)
    if known.state is _S.EMPTY or committing != command.is_commit:
        return _invalid(known, command)
    if known.state.is_prepared:
        return CONCURRENT
    following = next_producer(known)
    # It was ended by somebody else, who had no new id to give: the producer has to begin anew.
    return FENCED if following.epoch == EPOCH_MAX else ProducerGranted(following)


def _invalid(known: TransactionStored, command: EndTransaction) -> ApiError:
    wanted = "committed" if command.is_commit else "aborted"
    return ApiError(ErrorKind.INVALID_TRANSACTION, f"a transaction in {known.state.value} cannot be {wanted}")


def completed(prepared: TransactionStored, now: Timestamp) -> TransactionStored:
    """The transaction after the last of its partitions has its marker."""
    is_commit = prepared.state is _S.PREPARE_COMMIT
    done = replace(
        prepared,
        state=_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT,
        partitions=(),
        updated_at=now,
    )
    if prepared.next_producer_id == NO_PRODUCER:
        return done
    return replace(
        done,
        producer_id=prepared.next_producer_id,
        producer_epoch=ProducerEpoch(0),
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER,
    )


def problem_with_batch(image: TransactionImage, command: CommitBatch, bytes_max: int) -> ApiError | None:
    """Why the batch cannot be committed; one transaction that is not as listed is enough."""
    ids = [member.transactional_id for member in command.members]
    if any(not each.startswith(command.sink + SINK_SEPARATOR) for each in ids):
        return ApiError(ErrorKind.INVALID_REQUEST, f"the ids of this sink begin with {command.sink}#")
    if sum(len(each.encode()) + MEMBER_BYTES for each in ids) > bytes_max:
        return ApiError(ErrorKind.INVALID_REQUEST, f"{len(ids)} transactions are too many for one batch")
    if len(dict.fromkeys(ids)) != len(ids):
        return ApiError(ErrorKind.INVALID_REQUEST, "the batch names a transactional id more than once")
    for member in command.members:
        error = _problem_with_member(image.transactions.get(member.transactional_id), member)
        if error is not None:
            return ApiError(error.kind, f"{member.transactional_id}: {error}; nothing was committed")
    return None


def _problem_with_member(known: TransactionStored | None, member: BatchMember) -> ApiError | None:
    error = problem_with(known, ProducerIdentity(member.producer_id, member.producer_epoch))
    if error is None and known is not None and known.state is not _S.ONGOING:
        return ApiError(ErrorKind.INVALID_TRANSACTION, f"it is {known.state.value}")
    return error
