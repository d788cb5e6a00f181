"""The log of one partition: batches in offset order, and all that makes them findable and durable.

    logs/orders/0/
        00000000000000000000.log         batches back to back, exactly as they go over the wire
        00000000000000000000.index       offset → position         (sparse, mapped once sealed)
        00000000000000000000.timeindex   timestamp → offset        (likewise)
        00000000000000000000.txnindex    aborted transactions
        00000000000000004711.log …       the next segment, named by its first offset
        00000000000000004711.snapshot    the producers as they were at that offset
        checkpoint                       recovery point, and what a start needs to go on from there
        leader-epochs                    which epoch began where
        partition.metadata               whose log this is; written last, so its absence says "unfinished"

How it hangs together:

* **Appending** writes to the page cache and to arrays in memory, once per call. Nothing is done
  per record, and next to nothing per batch. Index rows reach their files later.
* **Durability** comes from the node's group commit. `synced` moves when a sync that began after
  the append has ended. A failed sync stops the log for good.
* **Reading** returns file ranges for sendfile. At the tail they are found in memory; elsewhere by
  a sparse index and a walk of at most one index interval.
* **Checkpoints** follow behind the data, never ahead of it. A start trusts what lies below the
  last one and reads what lies above: a torn tail is cut, while damage below is corruption, which
  is reported, never read and never cut. So nothing that was acknowledged is lost, and nothing
  torn is read.
* **Derived files** (indexes, snapshots, epochs) carry a CRC and are rebuilt when they are wrong.
* **Compaction** rewrites sealed segments beside the log, off the loop, and swaps them in by a
  checkpoint that names the new sizes before the files get their names. A start finishes a swap that
  a power cut interrupted, so a segment is the old one or the new one, and both are right.

The modules:

* `log` is the public API, `PartitionLog`; `types` what goes in and out of it;
* `state` is what the operations below work on, `segments` the segments in order;
* `append` and `read` are the hot paths; `durability` is what is synced, and how more gets there;
* `segment` is one file of batches, `index` the way into it;
* `files` are the small files, `file_names` what all files are called;
* `checkpoint` takes checkpoints, `recovery` opens a log from one, `scrub` looks for damage later,
  `refill` replaces what is damaged by another replica's, `index_rebuild` the indexes of large segments,
  `producer_rebuild` the producers and aborted transactions, if a start has missed records;
* `retention` removes records at the start, `truncate` at the end, `compaction` in between.

Some calls block on the disk and say so: creating, opening, closing, truncating, deleting. All
calls come from one thread.

Left out: encryption and tiering, which attach to `SegmentDescriptor`. What to do about corruption
(leave the ISR, refetch) is the replica's decision.
"""

from penstock.storage.log.compaction import (
    CleaningResult,
    Compaction,
    CompactionResult,
    CompactionRules,
    CompactionTask,
    Uncleanable,
    cleaner_for,
)
from penstock.storage.log.durability import Committer, ImmediateCommit
from penstock.storage.log.index_rebuild import IndexRebuild, RebuiltIndex
from penstock.storage.log.log import PartitionLog
from penstock.storage.log.producer_rebuild import ProducerRebuild
from penstock.storage.log.recovery import RecoveryReport, TailTruncation
from penstock.storage.log.refill import GoodBytes, MissingRange, OtherRecords, SegmentDraft
from penstock.storage.log.scrub import (
    FileCheck,
    ScrubStep,
    Verification,
    VerificationOutcome,
    VerifiedBytes,
)
from penstock.storage.log.segment import SegmentDescriptor, SegmentTier, first_at
from penstock.storage.log.truncate import TailCopy
from penstock.storage.log.types import (
    APPEND_BOUNDS_NS,
    AppendedRange,
    BatchTooLarge,
    BatchToSearch,
    CorruptFile,
    CorruptRange,
    DamagedRange,
    FileRange,
    IncompleteLog,
    KeptTail,
    LogOptions,
    LogStats,
    LogStopped,
    LostTail,
    OffsetOutOfRange,
    OffsetsNotIncreasing,
    OpenedBatches,
    ReadResult,
    SealedRange,
    SegmentSummary,
    SuspectSegment,
    TimestampOffset,
    WrongTopic,
)

__all__ = [
    "PartitionLog",
    "LogOptions",
    "AppendedRange",
    "ReadResult",
    "FileRange",
    "SealedRange",
    "OpenedBatches",
    "BatchToSearch",
    "first_at",
    "TimestampOffset",
    "SegmentSummary",
    "CorruptRange",
    "RecoveryReport",
    "TailTruncation",
    "ScrubStep",
    "SegmentDraft",
    "GoodBytes",
    "MissingRange",
    "OtherRecords",
    "FileCheck",
    "Verification",
    "VerificationOutcome",
    "VerifiedBytes",
    "SuspectSegment",
    "KeptTail",
    "TailCopy",
    "IndexRebuild",
    "ProducerRebuild",
    "RebuiltIndex",
    "Compaction",
    "CompactionTask",
    "CompactionRules",
    "CompactionResult",
    "CleaningResult",
    "Uncleanable",
    "cleaner_for",
    "LogStats",
    "APPEND_BOUNDS_NS",
    "SegmentDescriptor",
    "SegmentTier",
    "Committer",
    "ImmediateCommit",
    "OffsetOutOfRange",
    "OffsetsNotIncreasing",
    "BatchTooLarge",
    "LogStopped",
    "LostTail",
    "IncompleteLog",
    "WrongTopic",
    "CorruptFile",
    "DamagedRange",
]
