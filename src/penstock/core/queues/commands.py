"""The commands of a queue coordinator, and their replies.

Each is about one queue. Those of the data partition's leader (`OpenQueue`, `OfferRecords`, `AcquireRecords`)
carry its leader epoch: one that was replaced is refused. Those about leases need none, because the lease
itself says who may.

`on_reply` is the caller's callback, which the machine hands back with the reply and never calls. Tokens and
jitter are random numbers that come in with the command.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, Offset
from penstock.core.queues.facts import (
    Failure,
    QueueId,
    QueueRecord,
    QueueSettings,
    QueueStored,
    Run,
    TransactionProducer,
)
from penstock.core.queues.receipts import LeaseClaim
from penstock.core.values import dataclass


class Demand(NamedTuple):
    """What a queue wants to be offered next: so many records, from this offset on."""

    next_offset: Offset
    records: int


@dataclass(frozen=True, slots=True)
class QueueOpened:
    """The queue is ready for offers."""

    demand: Demand


@dataclass(frozen=True, slots=True)
class RecordsAccepted:
    """The queue has taken what it has room for."""

    demand: Demand


class LeasedRecord(NamedTuple):
    """A record to deliver, and the how-manieth delivery that is."""

    offset: Offset
    attempt: int


class LeasedRun(NamedTuple):
    """Consecutive offsets to deliver, for each of which that is the same delivery."""

    start: Offset
    end: Offset
    attempt: int


@dataclass(frozen=True, slots=True)
class RecordsAcquired:
    """Leases to deliver, the most urgent first. Consumers count `lease_ms` from when they asked."""

    token: int
    lease_ms: int
    runs: tuple[LeasedRun, ...]
    demand: Demand
    is_paused: bool = False

    @property
    def records(self) -> tuple[LeasedRecord, ...]:
        """One by one."""
        return tuple(
            [
                LeasedRecord(Offset(offset), attempt)
                for start, end, attempt in self.runs
                for offset in range(start, end)
            ]
        )


@dataclass(frozen=True, slots=True)
class ClaimResults:
    """One entry per record that was claimed, in the order of the command: None where it was granted."""

    errors: tuple[ErrorKind | None, ...]


@dataclass(frozen=True, slots=True)
class LeasesFound:
    """The tokens of leases, each with one record or more."""

    tokens: tuple[int, ...]


class DeadLetter(NamedTuple):
    """A record that is to be moved to the dead-letter topic."""

    offset: Offset
    attempts: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class DeadLettersFound:
    """Records to move, oldest first."""

    records: tuple[DeadLetter, ...]


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue in numbers."""

    stored: QueueStored
    # All offsets below are finished.
    finished_below: Offset
    ready: int
    # Behind another record of their key, in key-ordered mode.
    blocked: int
    delayed: int
    leased: int
    moving: int


class PeekedState(enum.IntEnum):
    """What can be said of a record that is not finished."""

    AVAILABLE = 0
    DELAYED = 1
    LEASED = 2
    MOVING = 3


class PeekedRecord(NamedTuple):
    """A record that is not finished: how often it was delivered, who has it, why the last delivery failed."""

    offset: Offset
    state: PeekedState
    attempts: int = 0
    consumer: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RecordsPeeked:
    """Records in the order of the log; those from `end` on are all available."""

    records: tuple[PeekedRecord, ...]
    end: Offset


@dataclass(frozen=True, slots=True)
class QueueOk:
    """Done; there is nothing else to return."""


QueueReply: TypeAlias = (
    QueueOpened
    | RecordsAccepted
    | RecordsAcquired
    | ClaimResults
    | LeasesFound
    | DeadLettersFound
    | QueueDescription
    | RecordsPeeked
    | QueueOk
    | ApiError
)
OnReply: TypeAlias = Callable[[QueueReply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQueue:
    """Begin to serve the queue as the data partition's leader; it is created if it does not exist.

    To be sent by a new leader before anything else, and when the start of the log or a setting has changed.
    `log_end` is the end of the leader's log, not its high watermark, and `epochs` says where its leader
    epochs start: what a queue has beyond the end, or beyond the start of an epoch that is later than its
    own, was lost by an unclean election. `start` is where a new queue begins.
    """

    on_reply: OnReply
    queue: QueueId
    leader_epoch: LeaderEpoch
    settings: QueueSettings
    log_start: Offset
    log_end: Offset
    start: Offset
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRecords:
    """Committed records of the log from `start` to `end`, for the queue to take.

    Ascending; offsets that neither `plain` nor `records` has (control batches, aborted transactions,
    compacted records) are nothing to deliver.
    """

    on_reply: OnReply
    queue: QueueId
    leader_epoch: LeaderEpoch
    start: Offset
    end: Offset
    plain: tuple[Run, ...] = ()
    records: tuple[QueueRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRecords:
    """Lease up to `records_max` records to a consumer; `lease_ms` is the queue's unless it is given.

    With `offsets`, only those of them that are ready.
    """

    on_reply: OnReply
    queue: QueueId
    leader_epoch: LeaderEpoch
    consumer: str
    records_max: int
    token: int
    lease_ms: int | None = None
    offsets: tuple[Offset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeRecords:
    """The records are done: at once, or if the producer's transaction is committed."""

    on_reply: OnReply
    queue: QueueId
    claims: tuple[LeaseClaim, ...]
    consumer: str | None = None
    producer: TransactionProducer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecords:
    """The deliveries failed (nack): deliver the records again, after the queue's backoff or a delay."""

    on_reply: OnReply
    queue: QueueId
    claims: tuple[LeaseClaim, ...]
    consumer: str | None = None
    delay_ms: int | None = None
    jitter: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnRecords:
    """The leases did not reach their consumer, or it did nothing with them: as if there had been none."""

    on_reply: OnReply
    queue: QueueId
    claims: tuple[LeaseClaim, ...]
    consumer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectRecords:
    """The records cannot be processed: they are given up, however often they were delivered."""

    on_reply: OnReply
    queue: QueueId
    claims: tuple[LeaseClaim, ...]
    consumer: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLeases:
    """Count the leases in full from now on; `lease_ms` is as before unless it is given."""

    on_reply: OnReply
    queue: QueueId
    claims: tuple[LeaseClaim, ...]
    consumer: str | None = None
    lease_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindLeases:
    """Ask which leases a consumer has."""

    on_reply: OnReply
    queue: QueueId
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseConsumer:
    """A consumer is gone: what it holds with these leases can be delivered to others.

    Leases are named by their tokens: if the command comes late, those that the consumer has got since stay.
    """

    on_reply: OnReply
    queue: QueueId
    consumer: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDeadLetters:
    """Ask for records that are to be moved and that no transaction moves yet. From the node itself."""

    on_reply: OnReply
    queue: QueueId
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishMoves:
    """Dead letters are in their topic: at once, or if the producer's transaction is committed."""

    on_reply: OnReply
    queue: QueueId
    offsets: tuple[Offset, ...]
    producer: TransactionProducer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseQueue:
    """Deliver nothing until it is resumed. Leases go on."""

    on_reply: OnReply
    queue: QueueId
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetQueue:
    """Begin again at an offset, whatever was delivered: leases end."""

    on_reply: OnReply
    queue: QueueId
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetQueue:
    """The group or the topic was deleted."""

    on_reply: OnReply
    queue: QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQueue:
    """Ask for a queue in numbers."""

    on_reply: OnReply
    queue: QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekRecords:
    """Ask for the next records that are not finished, without leasing them."""

    on_reply: OnReply
    queue: QueueId
    from_offset: Offset
    count: int


ClaimCommand: TypeAlias = AcknowledgeRecords | ReleaseRecords | ReturnRecords | RejectRecords | RenewLeases
QueueCommand: TypeAlias = (
    OpenQueue
    | OfferRecords
    | AcquireRecords
    | ClaimCommand
    | FindLeases
    | ReleaseConsumer
    | FindDeadLetters
    | FinishMoves
    | PauseQueue
    | ResetQueue
    | ForgetQueue
    | DescribeQueue
    | PeekRecords
)
