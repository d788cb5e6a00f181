"""Transactions as a replicated machine: the coordinator of one partition of `__transaction_state`.

    facts         what is stored: one record per transactional id
    commands      what producers, partition leaders and tools ask, and the replies
    transitions   the states of a transaction, and who may change them
    coordinator   the machine: decides, times out, expires

A producer begins under a transactional id and gets an id and an epoch (`InitProducer`). Partitions
become part of its transaction before they are written to (`AddPartitions`), and the outcome is one
record (`EndTransaction`): once that is committed, it is the outcome, whoever coordinates. What is
left is to tell every partition by a marker, which the host of the machine does: `MarkersDue`
says that there is something to tell, `FindPrepared` what it is, and `CompleteTransaction` that all
have been told. A new coordinator begins with what is prepared.

A batch commits many open transactions by one record, under the key of a sink and a batch (`CommitBatch`):
all of them or, if one is not as it is listed, none. A key that was committed before is done, whatever is
listed.

Left out: two-phase commit with an outcome from elsewhere (KIP-939).
"""

from penstock.core.transactions.commands import (
    EPOCH_PER_TRANSACTION,
    PARTITIONS_MAX,
    SINK_SEPARATOR,
    AddPartitions,
    BatchDone,
    Command,
    CommitBatch,
    CompleteTransaction,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    FindPrepared,
    InitProducer,
    ListedTransactions,
    ListTransactions,
    OnReply,
    PartitionResult,
    PartitionResults,
    PreparedTransaction,
    ProducerGranted,
    ProducerIdentity,
    ProducerIdNeeded,
    Reply,
    TransactionOk,
    VerifyPartitions,
    sink_of,
)
from penstock.core.transactions.coordinator import (
    Event,
    MarkersDue,
    TransactionCompleted,
    TransactionCoordinator,
    TransactionOptions,
    TransactionOutcome,
    TransactionTimedOut,
)
from penstock.core.transactions.facts import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    NOT_STARTED,
    BatchCommitted,
    BatchForgotten,
    BatchMember,
    Fact,
    TransactionForgotten,
    TransactionImage,
    TransactionState,
    TransactionStored,
)

__all__ = [
    "EPOCH_MAX",
    "EPOCH_PER_TRANSACTION",
    "PARTITIONS_MAX",
    "NOT_STARTED",
    "NO_EPOCH",
    "NO_PRODUCER",
    "SINK_SEPARATOR",
    "AddPartitions",
    "BatchCommitted",
    "BatchDone",
    "BatchForgotten",
    "BatchMember",
    "Command",
    "CommitBatch",
    "CompleteTransaction",
    "DescribeTransaction",
    "DescribedTransaction",
    "EndTransaction",
    "Event",
    "Fact",
    "FindPrepared",
    "InitProducer",
    "ListTransactions",
    "ListedTransactions",
    "MarkersDue",
    "OnReply",
    "PartitionResult",
    "PartitionResults",
    "PreparedTransaction",
    "ProducerGranted",
    "ProducerIdNeeded",
    "ProducerIdentity",
    "Reply",
    "TransactionCompleted",
    "TransactionCoordinator",
    "TransactionForgotten",
    "TransactionImage",
    "TransactionOk",
    "TransactionOptions",
    "TransactionOutcome",
    "TransactionState",
    "TransactionStored",
    "TransactionTimedOut",
    "VerifyPartitions",
    "sink_of",
]
