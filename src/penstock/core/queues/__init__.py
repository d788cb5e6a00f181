"""Queues as a replicated machine: the coordinator of one partition of `__queue_state`.

    facts            what is stored
    commands         what partition leaders, consumers and the node itself ask, and the replies
    receipts         what consumers show to prove their leases
    record_headers   what producers say about delivery, and what dead letters say about failures
    queue            the state of one queue
    delivery_order   which record is next, and what is due
    coordinator      the machine: decides, ends leases and delays
    timer_wheel      very many timers, for records that are published later; nothing uses it yet

A queue is what one group has to do of one partition. The leader of the partition offers it records
(`OfferRecords`: offsets and attributes, never values) and acquires leases for consumers (`AcquireRecords`);
a lease is committed before its record is delivered. Consumers finish a record, release it (nack), reject it,
or renew the lease; one that does nothing loses it. After the last failed delivery a record is given up, and
moves to the dead-letter topic: `DeadLettersDue` says that there is one, `FindDeadLetters` which, and
`FinishMoves` that it is there. An acknowledgement, and a move, can be part of a transaction.

Memory: at most `window_max` records that are ready, leased or moving, and `delayed_max` that are delayed. The
backlog is the log's. docs/adr/0016-queue-view.md says why a record has one lease at a time, whoever fails.

No server uses it yet: nobody can ask a broker for a queue.

Left out: the redrive of dead letters, which is a transaction of the host and a new record for the queue.
"""

from penstock.core.queues.commands import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimCommand,
    ClaimResults,
    DeadLetter,
    DeadLetters,
    Demand,
    DescribeQueue,
    FindDeadLetters,
    FinishMoves,
    ForgetQueue,
    LeasedRecord,
    OfferRecords,
    OnReply,
    OpenQueue,
    PauseQueue,
    QueueCommand,
    QueueDescription,
    QueueOk,
    QueueOpened,
    QueueReply,
    RecordsAccepted,
    RecordsAcquired,
    RejectRecords,
    ReleaseConsumer,
    ReleaseRecords,
    RenewLeases,
    ResetQueue,
)
from penstock.core.queues.coordinator import (
    CONSUMER_LOST,
    LEASE_ENDED,
    REJECTED,
    RELEASED,
    DeadLettersDue,
    LeasesExpired,
    QueueCoordinator,
    QueueEvent,
    QueueOptions,
    QueueOutcome,
    RecordsExpired,
    RecordsReady,
    backoff_ms,
)
from penstock.core.queues.facts import (
    NO_TIME,
    OFFSET_MAX,
    PRIORITY_MAX,
    Failure,
    FinishCause,
    Lease,
    LeasesProlonged,
    QueueFact,
    QueueForgotten,
    QueueId,
    QueueRecord,
    QueueSettings,
    QueueStored,
    RecordsDropped,
    RecordsEnding,
    RecordsFinished,
    RecordsGivenUp,
    RecordsLeased,
    RecordsReleased,
    RecordsStored,
    RecordsTaken,
    RecordState,
    ReleasedRecord,
    Run,
    StoredRecord,
    TransactionEnded,
    TransactionProducer,
    offsets_in,
    runs_of,
)
from penstock.core.queues.queue import Queue
from penstock.core.queues.receipts import (
    ATTEMPTS_MAX,
    INVALID_RECEIPT,
    TOKEN_MAX,
    Claim,
    Receipt,
    read_receipt,
    write_receipt,
)
from penstock.core.queues.record_headers import QueueOffer, dead_letter_headers, offer_of
from penstock.core.queues.timer_wheel import TimerWheel

__all__ = [
    "QueueCoordinator",
    "QueueOptions",
    "QueueOutcome",
    "QueueEvent",
    "DeadLettersDue",
    "RecordsReady",
    "LeasesExpired",
    "RecordsExpired",
    "Queue",
    "QueueId",
    "QueueSettings",
    "QueueCommand",
    "QueueReply",
    "OnReply",
    "OpenQueue",
    "QueueOpened",
    "OfferRecords",
    "RecordsAccepted",
    "Demand",
    "QueueRecord",
    "Run",
    "QueueOffer",
    "offer_of",
    "dead_letter_headers",
    "AcquireRecords",
    "RecordsAcquired",
    "LeasedRecord",
    "Claim",
    "ClaimCommand",
    "ClaimResults",
    "AcknowledgeRecords",
    "ReleaseRecords",
    "RejectRecords",
    "RenewLeases",
    "ReleaseConsumer",
    "FindDeadLetters",
    "DeadLetters",
    "DeadLetter",
    "FinishMoves",
    "PauseQueue",
    "ResetQueue",
    "ForgetQueue",
    "DescribeQueue",
    "QueueDescription",
    "QueueOk",
    "Receipt",
    "read_receipt",
    "write_receipt",
    "INVALID_RECEIPT",
    "TimerWheel",
    "QueueFact",
    "QueueStored",
    "QueueForgotten",
    "RecordsTaken",
    "RecordsLeased",
    "LeasesProlonged",
    "RecordsReleased",
    "ReleasedRecord",
    "RecordsGivenUp",
    "RecordsFinished",
    "FinishCause",
    "RecordsEnding",
    "TransactionEnded",
    "TransactionProducer",
    "RecordsDropped",
    "RecordsStored",
    "StoredRecord",
    "RecordState",
    "Lease",
    "Failure",
    "NO_TIME",
    "OFFSET_MAX",
    "PRIORITY_MAX",
    "ATTEMPTS_MAX",
    "TOKEN_MAX",
    "LEASE_ENDED",
    "CONSUMER_LOST",
    "REJECTED",
    "RELEASED",
    "backoff_ms",
    "offsets_in",
    "runs_of",
]
