"""What became of a batch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What became of a batch: taken now, taken before, or nothing to take.

    `version` is Delta's version or Iceberg's snapshot.
    """

    status: Literal["committed", "already", "empty"]
    version: int | None = None
    files: int = 0
    rows: int = 0
