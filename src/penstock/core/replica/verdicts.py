"""What a leader may say about the next batch of an idempotent producer."""

import enum
from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.model import Offset, Timestamp


class Why(enum.Enum):
    """The reason a batch may not be appended."""

    OUT_OF_ORDER_SEQUENCE = "the sequence does not follow the producer's last batch"
    FENCED_EPOCH = "a newer instance of this producer has written already"
    STALE_COORDINATOR = "a newer transaction coordinator has written already"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch follows what the producer wrote before."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already: answer as if it had just been appended."""

    first_offset: Offset
    last_offset: Offset
    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class Rejected:
    """The batch must not be appended."""

    why: Why


Verdict: TypeAlias = Accepted | Duplicate | Rejected

ACCEPTED = Accepted()
