"""The commands of a delay coordinator, and their replies.

Clients schedule, find, cancel and list, through any node. The rest is for the node that coordinates the
partition: it takes what is due, publishes it in a transaction, and says so by `EndDelays` in the same
transaction.

`partition` is that of `__delayed`. `on_reply` is the caller's callback, which the machine hands back with the
reply and never calls.
"""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.delays.facts import DelayedRecords
from penstock.core.delays.pending_delays import PendingDelay
from penstock.core.model import ApiError, Offset, Timestamp
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass


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
    """Delays whose time has come, or nearly; the earliest first, and where their records are in the log.

    The reply does not wait for the log, which may not have these records on its disk yet.
    """

    ids: tuple[int, ...]
    offsets: tuple[Offset, ...]

    def by_offset(self) -> dict[Offset, list[int]]:
        """The ids by where their records are: some have one place in the log."""
        found: dict[Offset, list[int]] = {}
        for delay_id, offset in zip(self.ids, self.offsets, strict=True):
            found.setdefault(offset, []).append(delay_id)
        return found


@dataclass(frozen=True, slots=True)
class DelayTopics:
    """The topic of each delay, in the order of the command; None where none is pending."""

    topics: tuple[str | None, ...]


DelayReply: TypeAlias = DelayResults | DelayList | DelayTopics | DueDelays | ApiError
OnDelayReply: TypeAlias = Callable[[DelayReply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecords:
    """Publish these records at their times. Ids are random, and the same when a record is sent again.

    The results are those of all records, in their order.
    """

    on_reply: OnDelayReply
    partition: int
    records: tuple[DelayedRecords, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDelays:
    """Do not publish these records.

    `topics`: the one that each must be for, or it counts as not pending; empty if any will do.
    """

    on_reply: OnDelayReply
    partition: int
    ids: tuple[int, ...]
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDelays:
    """Ask which topics these delays are for."""

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
    """Ask for delays that are due at a time, which may be a little ahead: nobody may see them before.

    They are not returned again until they are released. A lane takes once at a time: what it still holds is
    released first, since it may not know of it.
    """

    on_reply: OnDelayReply
    partition: int
    lane: int
    until: Timestamp
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
ClientDelayCommand: TypeAlias = ScheduleRecords | CancelDelays | FindDelays | ListDelays
DelayCommand: TypeAlias = (
    ScheduleRecords | CancelDelays | FindDelays | ListDelays | TakeDueDelays | EndDelays | ReleaseDelays
)
