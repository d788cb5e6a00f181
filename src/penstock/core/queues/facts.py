"""What a queue coordinator stores: one fact per record of `__queue_state`.

    QueueStored             a queue as a whole: its end, its settings, whether it is paused
    RecordsTaken            records of the log that the queue has to deliver from now on
    RecordsLeased           delivered, once more
    LeasesProlonged         their leases last for another duration than before
    RecordsReturned         leased, but not delivered: as if they had not been
    RecordsReleased         the delivery failed: to be delivered again, now or after a delay
    RecordsGivenUp          the last delivery failed: to be moved to the dead-letter topic
    RecordsFinished         nothing is left to do
    RecordsEnding           finished if a transaction is committed
    QueueTransactionEnded   a marker: it was, or was not
    RecordsDropped          offsets that the log does not have (any more)
    RecordsStored           records as they are, for the rewrite of the log
    QueueForgotten          the queue is gone

The log is a journal, not a table: a fact changes what those before it left, so that one of them can speak of
many records. It is shortened by a rewrite alone (`QueueStored`, then `RecordsStored`), never by compaction.
A rewritten queue may be changed between its parts, and a rewrite may stop half-way, because a fact about
records that are not known changes nothing, and those of a rewrite say what is true where they stand.

Durations are stored as such: a new leader counts them in full from when it took over.
"""

import enum
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, cast

from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicId,
)
from penstock.core.values import dataclass

NO_TIME = Timestamp(-1)
OFFSET_MAX = Offset(2**63 - 1)
PRIORITY_MAX = 9
# In its queues on dead-letter topics is what was not redriven.
REDRIVE_GROUP = "penstock.redrive"


class QueueId(NamedTuple):
    """What a group has to do of one partition. By the topic's id: a topic of the same name is another one."""

    group_id: str
    topic_id: TopicId
    partition: PartitionIndex


class Run(NamedTuple):
    """Consecutive offsets."""

    start: Offset
    end: Offset


def runs_of(offsets: Iterable[Offset]) -> tuple[Run, ...]:
    """Ascending offsets as runs."""
    runs: list[Run] = []
    start = end = -1
    for offset in offsets:
        if offset != end:
            if start >= 0:
                runs.append(Run(Offset(start), Offset(end)))
            start = offset
        end = offset + 1
    if start >= 0:
        runs.append(Run(Offset(start), Offset(end)))
    return tuple(runs)


def runs_in(offsets: Sequence[int]) -> tuple[Run, ...]:
    """Some offsets as runs, at once where none is missing."""
    if not offsets:
        return ()
    start, end = offsets[0], offsets[-1] + 1
    if end - start == len(offsets):
        return (Run(Offset(start), Offset(end)),)
    return runs_of(map(Offset, offsets))


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Ascending runs, those that meet as one."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].end == run.start:
            found[-1] = Run(found[-1].start, run.end)
        else:
            found.append(run)
    return tuple(found)


def offsets_in(runs: Iterable[Run]) -> Iterable[Offset]:
    """The offsets of runs, once."""
    return cast("Iterable[Offset]", chain.from_iterable([range(start, end) for start, end in runs]))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How a queue delivers."""

    # No two records of a key are leased at the same time, and those of a key are delivered in their order.
    is_key_ordered: bool = False
    # A record whose delivery failed this often is given up.
    deliveries_max: int = 4
    has_dead_letters: bool = True
    lease_ms: int = 30_000
    # The delay after the first failure, doubled with every further one.
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000
    # Records of the partition that are ready, leased or moving; delayed ones do not count.
    window_max: int = 10_000


class RecordState(enum.Enum):
    """What becomes of a record next. One that is finished has no state: it is forgotten."""

    AVAILABLE = 0  # it is delivered, when its delay is over
    LEASED = 1  # its consumer finishes or releases it, or the lease ends
    MOVING = 2  # it goes to the dead-letter topic


class FinishCause(enum.Enum):
    """Why a record is finished."""

    ACKNOWLEDGED = 0
    EXPIRED = 1  # its time to live was over
    MOVED = 2  # it is in the dead-letter topic
    DISCARDED = 3  # it was given up, and the queue has no dead letters


class QueueRecord(NamedTuple):
    """A record with something that matters to a queue; most have nothing of the kind."""

    offset: Offset
    # A hash: two keys with the same one wait for each other, which does no harm.
    key: int | None = None
    priority: int = 0
    # Wall-clock times: not to be delivered before, and not after.
    deliver_at: Timestamp = NO_TIME
    expires_at: Timestamp = NO_TIME


class Lease(NamedTuple):
    """One acquisition: all its records have the same holder, and the same number to prove it."""

    token: int
    consumer: str
    lease_ms: int


class Failure(NamedTuple):
    """When deliveries of a record failed, and what was said about the last time."""

    first_at: Timestamp
    last_at: Timestamp
    reason: str


class TransactionProducer(NamedTuple):
    """The producer whose transaction decides whether a record is finished."""

    producer_id: ProducerId
    epoch: ProducerEpoch


class StoredRecord(NamedTuple):
    """All that is known of a record that is not finished."""

    record: QueueRecord
    state: RecordState = RecordState.AVAILABLE
    attempts: int = 0
    delay_ms: int = 0
    lease: Lease | None = None
    failure: Failure | None = None
    producer: TransactionProducer | None = None


class ReleasedRecord(NamedTuple):
    """A record, and how long it is not delivered."""

    offset: Offset
    delay_ms: int


@dataclass(frozen=True, slots=True)
class QueueStored:
    """A queue without its records. Offsets below `end` are finished unless a record says otherwise."""

    queue: QueueId
    end: Offset
    # Of the data partition: what a leader before it says is refused.
    leader_epoch: LeaderEpoch
    settings: QueueSettings
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class QueueForgotten:
    """The group or the topic is gone, and the queue with it."""

    queue: QueueId


@dataclass(frozen=True, slots=True)
class RecordsTaken:
    """The queue has the log up to `end`: to be delivered are `plain` offsets, and records with attributes."""

    queue: QueueId
    end: Offset
    plain: tuple[Run, ...] = ()
    records: tuple[QueueRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordsLeased:
    """One more delivery of each."""

    queue: QueueId
    lease: Lease
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class LeasesProlonged:
    """The leases of these records have another duration; who holds them does not change."""

    queue: QueueId
    lease_ms: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class RecordsReturned:
    """The leases did not reach their consumer: the last delivery of each does not count."""

    queue: QueueId
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class RecordsReleased:
    """A delivery of each has failed, and was not the last one."""

    queue: QueueId
    released: tuple[ReleasedRecord, ...]
    failed_at: Timestamp
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsGivenUp:
    """The last delivery of each has failed, or its consumer rejected it."""

    queue: QueueId
    runs: tuple[Run, ...]
    failed_at: Timestamp
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsFinished:
    """Nothing is left to do for these."""

    queue: QueueId
    runs: tuple[Run, ...]
    cause: FinishCause


@dataclass(frozen=True, slots=True)
class RecordsEnding:
    """These are finished if the producer's transaction is committed; until it ends nobody else gets them."""

    queue: QueueId
    producer: TransactionProducer
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class QueueTransactionEnded:
    """A marker. All that the producer's transaction was to finish is finished, or as it was before."""

    producer_id: ProducerId
    is_commit: bool


@dataclass(frozen=True, slots=True)
class RecordsDropped:
    """The log does not have these offsets: deleted at its start, or lost at its end."""

    queue: QueueId
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class RecordsStored:
    """Records as they are, whatever was said of them before."""

    queue: QueueId
    records: tuple[StoredRecord, ...]


QueueFact: TypeAlias = (
    QueueStored
    | QueueForgotten
    | RecordsTaken
    | RecordsLeased
    | LeasesProlonged
    | RecordsReturned
    | RecordsReleased
    | RecordsGivenUp
    | RecordsFinished
    | RecordsEnding
    | QueueTransactionEnded
    | RecordsDropped
    | RecordsStored
)
