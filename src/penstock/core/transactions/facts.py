"""What a transaction coordinator stores: one fact per record of `__transaction_state`, and their image.

    fact                  key (Kafka's schema)                    value
    TransactionStored     TransactionLogKey(transactional id)     TransactionLogValue
    TransactionForgotten  TransactionLogKey(transactional id)     none: a tombstone
    BatchCommitted        BatchCommitKey(sink, batch), ours       BatchCommitValue
    BatchForgotten        BatchCommitKey(sink, batch)             none: a tombstone

A fact holds the whole state of its transactional id, so that the last one of a key is enough.
`BatchCommitted` is the outcome of all transactions that it lists: one record, so that there is no part of it.
"""

import enum
from dataclasses import field, replace
from typing import NamedTuple, TypeAlias, assert_never

from penstock.core.model import ProducerEpoch, ProducerId, Timestamp, TopicPartition
from penstock.core.values import dataclass

NO_PRODUCER = ProducerId(-1)
NO_EPOCH = ProducerEpoch(-1)
NOT_STARTED = Timestamp(-1)
# The largest epoch ends transactions and fences producers; none ever writes with it.
EPOCH_MAX = 2**15 - 1
# Of an id or a batch in the image, without its names.
ENTRY_BYTES = 500


class TransactionState(enum.Enum):
    """Where a transactional id stands; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    # Kafka's, for ids that are being removed and producers that are being fenced. Both take no time
    # here; they are names that a listing may ask for, and that a record may carry.
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and the partitions have to learn it."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        return self is TransactionState.ONGOING or self.is_prepared


@dataclass(frozen=True, slots=True)
class TransactionStored:
    """A transactional id: its producer, and how far its transaction has got."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState
    updated_at: Timestamp
    # In the order in which they were added; empty unless the transaction is open.
    partitions: tuple[TopicPartition, ...] = ()
    started_at: Timestamp = NOT_STARTED
    # The epoch before, if its holder may not have heard of the present one; see `transitions`.
    last_epoch: ProducerEpoch = NO_EPOCH
    # Before and after a change of the producer id because its epochs were used up.
    previous_producer_id: ProducerId = NO_PRODUCER
    next_producer_id: ProducerId = NO_PRODUCER
    # What the client knows of: from 2 on, every transaction has an epoch of its own (KIP-890).
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """A transactional id was not used for so long that nothing is known of it any more."""

    transactional_id: str


class BatchMember(NamedTuple):
    """A transaction of a batch, and the producer that wrote in it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """All these transactions are committed, under the next epoch of each producer."""

    sink: str
    batch: str
    members: tuple[BatchMember, ...]
    committed_at: Timestamp


@dataclass(frozen=True, slots=True)
class BatchForgotten:
    """It is not known any more that the batch was committed."""

    sink: str
    batch: str


Fact: TypeAlias = TransactionStored | TransactionForgotten | BatchCommitted | BatchForgotten


def bytes_of(*names: str) -> int:
    """What an entry with these names takes in memory, about."""
    return ENTRY_BYTES + sum(map(len, names))


@dataclass(slots=True)
class TransactionImage:
    """The last record of every key, as a compacted log would hold them."""

    transactions: dict[str, TransactionStored] = field(default_factory=dict)
    # By sink, then by batch, in the order of the log. Without members: those are in `transactions`.
    batches: dict[str, dict[str, BatchCommitted]] = field(default_factory=dict)
    # How many of `transactions` have not ended.
    open_count: int = 0
    # Prepared ones that only the record of their batch says that of, with the batch's sink.
    unstored: dict[str, str] = field(default_factory=dict, compare=False)
    # Ids whose first producer has not begun a transaction yet; the longest known first.
    unused: dict[str, None] = field(default_factory=dict, compare=False)
    # What ids, and batches with their sinks, take in memory.
    id_bytes: int = field(default=0, compare=False)
    batch_bytes: int = field(default=0, compare=False)

    def apply(self, fact: Fact) -> None:
        """Total: any fact may follow any other, a tombstone of nothing included."""
        match fact:
            case TransactionStored():
                self._store(fact)
            case TransactionForgotten():
                self.unstored.pop(fact.transactional_id, None)
                self.unused.pop(fact.transactional_id, None)
                gone = self.transactions.pop(fact.transactional_id, None)
                self.open_count -= gone is not None and gone.state.is_open
                self.id_bytes -= 0 if gone is None else bytes_of(gone.transactional_id)
            case BatchCommitted():
                self._commit(fact)
            case BatchForgotten():
                batches = self.batches.get(fact.sink, {})
                if batches.pop(fact.batch, None) is not None:
                    self.batch_bytes -= bytes_of(fact.sink, fact.batch)
                if not batches:
                    self.batches.pop(fact.sink, None)
            case _:
                assert_never(fact)

    def _store(self, fact: TransactionStored) -> None:
        name = fact.transactional_id
        before = self.transactions.get(name)
        self.open_count += fact.state.is_open - (before is not None and before.state.is_open)
        self.id_bytes += bytes_of(name) if before is None else 0
        self.transactions[name] = fact
        self.unstored.pop(name, None)
        if fact.state is TransactionState.EMPTY and fact.producer_epoch == 0:
            self.unused[name] = None
        elif self.unused:
            self.unused.pop(name, None)

    def _commit(self, fact: BatchCommitted) -> None:
        batches = self.batches.setdefault(fact.sink, {})
        self.batch_bytes += 0 if fact.batch in batches else bytes_of(fact.sink, fact.batch)
        batches[fact.batch] = replace(fact, members=())
        for member in fact.members:
            known = self.transactions.get(member.transactional_id)
            # A record that is read again may meet later transactions of its members, of higher epochs.
            if known is not None and is_open_member(known, member):
                self.unstored[member.transactional_id] = fact.sink
                self.transactions[member.transactional_id] = replace(
                    known,
                    state=TransactionState.PREPARE_COMMIT,
                    producer_epoch=ProducerEpoch(member.producer_epoch + 1),
                    last_epoch=member.producer_epoch,
                    updated_at=fact.committed_at,
                )


def is_open_member(known: TransactionStored, member: BatchMember) -> bool:
    """Whether the transaction that the batch lists is the one that is open."""
    return (
        known.state is TransactionState.ONGOING
        and known.producer_id == member.producer_id
        and known.producer_epoch == member.producer_epoch
    )
