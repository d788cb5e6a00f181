"""The log of one partition: segments, indexes, checkpoints, recovery, retention."""

from penstock.storage.log.durability import Commit, ImmediateCommit
from penstock.storage.log.errors import (
    BatchTooLarge,
    CorruptFile,
    DamagedRange,
    IncompleteLog,
    LogStopped,
    OffsetOutOfRange,
    OffsetsNotIncreasing,
    WrongTopic,
)
from penstock.storage.log.options import LogOptions
from penstock.storage.log.partition import PartitionLog
from penstock.storage.log.recovery import Cut, RecoveryReport
from penstock.storage.log.values import Appended, Damage, FileRange, Read, SegmentSummary, TimestampOffset

__all__ = [
    "PartitionLog",
    "LogOptions",
    "Appended",
    "Read",
    "FileRange",
    "TimestampOffset",
    "SegmentSummary",
    "Damage",
    "RecoveryReport",
    "Cut",
    "Commit",
    "ImmediateCommit",
    "OffsetOutOfRange",
    "OffsetsNotIncreasing",
    "BatchTooLarge",
    "LogStopped",
    "IncompleteLog",
    "WrongTopic",
    "CorruptFile",
    "DamagedRange",
]
