"""The commands of a transaction coordinator, and their replies.

Those of producers and partition leaders name one transactional id and the producer that asks.
`on_reply` is the caller's callback, which the machine hands back with the reply and never calls.

The machine has no ids of its own to give: where one is needed, it replies `ProducerIdNeeded`, and
the caller sends the command again with `new_producer_id`.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, ProducerId, TopicPartition
from penstock.core.transactions.facts import BatchMember, TransactionState, TransactionStored
from penstock.core.values import dataclass

# The version of transactions in which each has an epoch of its own.
EPOCH_PER_TRANSACTION = 2
# Partitions of one transaction, and of one request about them: what takes about 20 ms.
PARTITIONS_MAX = 10_000
SINK_SEPARATOR = "#"


def sink_of(transactional_id: str) -> str:
    """What says where an id is coordinated: `<sink>` of `<sink>#<task>`, or the id itself."""
    sink, separator, _ = transactional_id.partition(SINK_SEPARATOR)
    return sink if separator and sink else transactional_id


class ProducerIdentity(NamedTuple):
    """A producer as it names itself."""

    producer_id: ProducerId
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """Send the command again with a new producer id."""


@dataclass(frozen=True, slots=True)
class ProducerGranted:
    """The id and epoch to go on with."""

    producer: ProducerIdentity


class PartitionResult(NamedTuple):
    """What became of one partition of a request: `kind` is None when it is part of the transaction."""

    partition: TopicPartition
    kind: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class PartitionResults:
    """One entry per partition of the request, in its order."""

    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose outcome is decided; None: there is none (any more) under this id."""

    transaction: TransactionStored | None


@dataclass(frozen=True, slots=True)
class TransactionOk:
    """Done; there is nothing else to return."""


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """The state of a transactional id."""

    transaction: TransactionStored


@dataclass(frozen=True, slots=True)
class ListedTransactions:
    """Transactional ids in the order in which they were first seen."""

    transactions: tuple[TransactionStored, ...]


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The batch is committed; `is_repeat`: it was before, and what the request lists is not part of it."""

    is_repeat: bool


Reply: TypeAlias = (
    ProducerIdNeeded
    | ProducerGranted
    | PartitionResults
    | PreparedTransaction
    | TransactionOk
    | DescribedTransaction
    | ListedTransactions
    | BatchDone
    | ApiError
)
OnReply: TypeAlias = Callable[[Reply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """Begin under a transactional id, and fence whoever used it before.

    `expected` is what a producer has that goes on after an error (KIP-360): only the last holder may.
    """

    on_reply: OnReply
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    new_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Make partitions part of the transaction, which begins with the first of them."""

    on_reply: OnReply
    transactional_id: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Ask whether partitions are part of the producer's open transaction."""

    on_reply: OnReply
    transactional_id: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Commit or abort."""

    on_reply: OnReply
    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    client_version: int = 0
    new_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBatch:
    """Commit all these transactions or none, once per sink and batch."""

    on_reply: OnReply
    sink: str
    batch: str
    members: tuple[BatchMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPrepared:
    """Ask for the prepared transaction of an id, to tell its partitions. From the node itself.

    The reply comes when the outcome is committed, as all replies do: then no other can follow it.
    """

    on_reply: OnReply
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteTransaction:
    """Every partition knows the outcome. From the node itself."""

    on_reply: OnReply
    transactional_id: str
    producer: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction:
    """Ask for the state of an id."""

    on_reply: OnReply
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Ask for the ids of this coordinator that pass every filter; an empty filter lets all pass.

    `duration_ms_min`: only those whose last transaction began longer ago than that.
    """

    on_reply: OnReply
    states: tuple[TransactionState, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms_min: int = -1


Command: TypeAlias = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | CommitBatch
    | FindPrepared
    | CompleteTransaction
    | DescribeTransaction
    | ListTransactions
)
