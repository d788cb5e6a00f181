"""The commands of a delay coordinator, and their replies.

Clients schedule, cancel and list, through any node. The rest is for the node that coordinates the partition:
it takes what is due, publishes it in a transaction, and says so by `EndDelays` in the same transaction.

`partition` is that of `__delayed`. `on_reply` is the caller's callback, which the machine hands back with the
reply and never calls.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.core.delays.facts import DelayedRecord
from penstock.core.delays.pending_delays import PendingDelay
from penstock.core.model import ApiError, Timestamp
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass


class NewDelay(NamedTuple):
    """A record to publish later; the id is random, and the same when it is sent again."""

    id: int
    deliver_at: Timestamp
    record: DelayedRecord


@dataclass(frozen=True, slots=True)
class DelayResults:
    """One entry per delay, in the order of the command: None where it was done."""

    errors: tuple[ApiError | None, ...]


@dataclass(frozen=True, slots=True)
class DelayList:
    """Some pending delays; there may be more behind `last`, None if there are not."""

    delays: tuple[PendingDelay, ...]
    last: int | None


@dataclass(frozen=True, slots=True)
class DueDelays:
    """Delays whose time has come, the earliest first."""

    delays: tuple[PendingDelay, ...]


DelayReply: TypeAlias = DelayResults | DelayList | DueDelays | ApiError
OnDelayReply: TypeAlias = Callable[[DelayReply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecords:
    """Publish these records at their times."""

    on_reply: OnDelayReply
    partition: int
    delays: tuple[NewDelay, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDelays:
    """Do not publish these records."""

    on_reply: OnDelayReply
    partition: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDelays:
    """Ask for pending delays in the order of their ids, behind `after`."""

    on_reply: OnDelayReply
    partition: int
    count: int
    after: int = -1
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDueDelays:
    """Ask for delays that are due. They are not returned again until they are released.

    A lane takes once at a time: what it still holds is released first, since it may not know of it.
    """

    on_reply: OnDelayReply
    partition: int
    lane: int
    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDelays:
    """The records are published if the producer's transaction is committed."""

    on_reply: OnDelayReply
    partition: int
    ids: tuple[int, ...]
    producer: TransactionProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDelays:
    """The records were not published; `blocked` are topics that could not be written to, which wait."""

    on_reply: OnDelayReply
    partition: int
    ids: tuple[int, ...]
    blocked: tuple[str, ...] = ()


# What may come from other nodes.
ClientDelayCommand: TypeAlias = ScheduleRecords | CancelDelays | ListDelays
DelayCommand: TypeAlias = (
    ScheduleRecords | CancelDelays | ListDelays | TakeDueDelays | EndDelays | ReleaseDelays
)
