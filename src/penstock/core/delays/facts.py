"""What becomes true of delays: the facts of `__delayed`, replayed in order, rebuild its state.

    DelaysStored ─► pending ─┬─ DelaysEnding ─► a transaction decides ─┬─ DelayTransactionEnded: published
                       ▲     └─ DelaysFinished ─► cancelled, or dropped │
                       └────────────────────────────────────────────────┴─ DelayTransactionEnded: aborted

A fact about a delay that is not pending changes nothing.
"""

import enum
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import sub
from typing import NamedTuple, TypeAlias

from penstock.core.model import Offset, ProducerId
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass

ANY_PARTITION = -1
NO_OFFSET = Offset(-1)


class DelayedRecords(NamedTuple):
    """Records for one topic that are published later, column by column; at least one.

    A loop over records of Python costs more than everything else that is done for them: what is stored,
    sent to other nodes and read again are columns.

        ids          what their delays are known by
        times        when to publish each, in milliseconds since 1970
        partitions   of the topic; -1: where the key belongs
        ends         where the body of each ends in `content` (see `core.records.builder`)
    """

    topic: str
    ids: tuple[int, ...]
    times: tuple[int, ...]
    partitions: tuple[int, ...]
    ends: tuple[int, ...]
    content: bytes

    @property
    def is_whole(self) -> bool:
        """Whether the columns belong together."""
        count, ends = len(self.ids), self.ends
        return (
            0 < count == len(self.times) == len(self.partitions) == len(ends)
            and ends[0] > 0
            and ends[-1] == len(self.content)
            and list(ends) == sorted(set(ends))
        )

    @property
    def sizes(self) -> list[int]:
        """How long each body is."""
        return list(map(sub, self.ends, (0, *self.ends)))

    def body(self, at: int) -> bytes:
        return self.content[self.ends[at - 1] if at else 0 : self.ends[at]]

    def only(self, places: Sequence[int]) -> "DelayedRecords":
        """Those at these places; there is at least one."""
        if len(places) == len(self.ids):
            return self
        bodies = [self.body(at) for at in places]
        return DelayedRecords(
            self.topic,
            tuple([self.ids[at] for at in places]),
            tuple([self.times[at] for at in places]),
            tuple([self.partitions[at] for at in places]),
            tuple(accumulate(map(len, bodies))),
            b"".join(bodies),
        )

    def portions(self, bytes_max: int) -> Iterator["DelayedRecords"]:
        """The same records, so many bytes at a time, or one record."""
        start, ends = 0, self.ends
        while start < len(ends):
            begin = ends[start - 1] if start else 0
            end = max(start + 1, bisect_right(ends, begin + bytes_max, start))
            yield self.only(range(start, end))
            start = end


def join_records(parts: Sequence[DelayedRecords]) -> DelayedRecords:
    """The records of several parts, all of one topic; there is at least one part."""
    if len(parts) == 1:
        return parts[0]
    return DelayedRecords(
        parts[0].topic,
        tuple([each for part in parts for each in part.ids]),
        tuple([each for part in parts for each in part.times]),
        tuple([each for part in parts for each in part.partitions]),
        tuple(accumulate([size for part in parts for size in part.sizes])),
        b"".join([part.content for part in parts]),
    )


class DelaysStored(NamedTuple):
    """Delays are pending. A rewrite stores them once more, with the transaction that decides on them if any.

    `offset` is where their records are, which the log says.
    """

    records: DelayedRecords
    producer: TransactionProducer | None = None
    offset: Offset = NO_OFFSET


class DelayFinish(enum.Enum):
    """Why a delay has ended without its record."""

    CANCELLED = 0
    # Its record could not be published for too long.
    DROPPED = 1


@dataclass(frozen=True, slots=True)
class DelaysFinished:
    """The delays are over, and their records are not published."""

    ids: tuple[int, ...]
    cause: DelayFinish


@dataclass(frozen=True, slots=True)
class DelaysEnding:
    """The records are published if the producer's transaction is committed."""

    producer: TransactionProducer
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelayTransactionEnded:
    """A marker. What the producer's transaction was to publish is published, or pending as before."""

    producer_id: ProducerId
    is_commit: bool


DelayFact: TypeAlias = DelaysStored | DelaysFinished | DelaysEnding | DelayTransactionEnded
