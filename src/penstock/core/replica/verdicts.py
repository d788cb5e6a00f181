"""What a leader may say about the next batch of an idempotent producer."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.model import Offset, Timestamp, Why


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
