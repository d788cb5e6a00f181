"""What becomes true of delays: the facts of `__delayed`, replayed in order, rebuild its state.

    DelayStored ─► pending ─┬─ DelaysEnding ─► a transaction decides ─┬─ DelayTransactionEnded: published
                      ▲     └─ DelaysFinished ─► cancelled, or dropped │
                      └────────────────────────────────────────────────┴─ DelayTransactionEnded: aborted

A fact about a delay that is not pending changes nothing.
"""

import enum
from typing import NamedTuple, TypeAlias

from penstock.core.model import Offset, ProducerId, Timestamp
from penstock.core.queues import TransactionProducer
from penstock.core.records.record import Headers
from penstock.core.values import dataclass

ANY_PARTITION = -1
NO_OFFSET = Offset(-1)


class DelayedRecord(NamedTuple):
    """A record and where it is to be published; `partition` -1: where its key belongs."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        _, _, key, value, headers = self
        size = (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            size += len(name) + len(content or b"")
        return size


class DelayStored(NamedTuple):
    """A delay is pending. A rewrite stores it once more, with the transaction that decides on it if one does.

    `offset` is where its record is, which the log says.
    """

    id: int
    deliver_at: Timestamp
    record: DelayedRecord
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


DelayFact: TypeAlias = DelayStored | DelaysFinished | DelaysEnding | DelayTransactionEnded
