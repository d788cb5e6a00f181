"""What goes in and out of a compaction. Orders and answers travel between processes."""

from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, StorageError, Timestamp
from penstock.core.replica import AbortedTransaction
from penstock.storage.log.names import CLEANED, numbered
from penstock.storage.log.options import DAY_MS, LogOptions

NEVER_MS = 2**63 - 1
# About 100 MB of digests and offsets.
KEYS_MAX = 500_000


class Uncleanable(CorruptionError):
    """A segment holds something that cannot be read, so nobody knows what would be lost."""


class CleaningFailed(StorageError):
    """The disk refused; the log is as it was, and compaction may be tried again."""


class CompactionRules(NamedTuple):
    """What a topic says about compaction."""

    min_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_lag_ms: int = 0
    max_lag_ms: int = NEVER_MS
    keys_max: int = KEYS_MAX


class Source(NamedTuple):
    """A segment to be rewritten: its offsets and its size."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    gapless: bool
    # Aborted transactions are listed per file, and the lists are not put together.
    is_mergeable: bool = True


class CompactionOrder(NamedTuple):
    """What is to be cleaned: every segment from the first, those from `dirty_from` on for the first time.

    `producer_ends` are the last offsets of batches that must not vanish. `token` keeps the files
    of this order apart from those that a forgotten worker may still be writing.
    """

    directory: str
    sources: tuple[Source, ...]
    dirty_from: int
    aborted: tuple[AbortedTransaction, ...]
    producer_ends: frozenset[int]
    now: Timestamp
    rules: CompactionRules
    options: LogOptions
    token: str

    def draft(self, base_offset: Offset, suffix: str) -> str:
        """Where the rewritten file goes at first."""
        return f"{self.directory}/{numbered(base_offset, suffix)}.{self.token}{CLEANED}"


class CleanedSegment(NamedTuple):
    """What became of a segment and of those behind it that it has absorbed.

    If nothing had to go, there is no new file. The first of the tombstones that are left may go
    at `tombstones_until`.
    """

    base_offset: Offset
    size_bytes: int
    gapless: bool
    is_rewritten: bool
    absorbed: tuple[Offset, ...] = ()
    tombstones_until: int | None = None


class Cleaned(NamedTuple):
    """The answer to an order: the first segments of it, as many as the map had room for."""

    segments: tuple[CleanedSegment, ...]
    records_before: int
    records_after: int


class Compacted(NamedTuple):
    """What a compaction has achieved."""

    end_offset: Offset
    segments: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
