"""What was written of a batch, and what became of it."""

from dataclasses import dataclass
from typing import Literal

from penstock.pipeline.lake.partitions import Values


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A finished file: its path below the table, and what the log will say of it."""

    path: str
    size: int
    modified_ms: int
    rows: int
    partition_values: Values
    statistics: str


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What became of a batch: taken now, taken before, or nothing to take.

    `version` is Delta's version or Iceberg's snapshot.
    """

    status: Literal["committed", "already", "empty"]
    version: int | None = None
    files: int = 0
    rows: int = 0
