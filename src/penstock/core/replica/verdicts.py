"""What a leader may say about the next batch of an idempotent producer."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.model import Offset, Refused, Timestamp


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch follows what the producer wrote before."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already: answer as if it had just been appended."""

    first_offset: Offset
    last_offset: Offset
    timestamp: Timestamp


Verdict: TypeAlias = Accepted | Duplicate | Refused

ACCEPTED = Accepted()
