"""What the files of a partition are called."""

import re

LOG = "log"
OFFSET_INDEX = "index"
TIME_INDEX = "timeindex"
ABORTED_INDEX = "txnindex"
SNAPSHOT = "snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX, SNAPSHOT)
IDENTITY = "partition.metadata"
EPOCHS = "leader-epochs"
CHECKPOINT = "checkpoint"
LOSS = "loss"
# The key table of a log that is encrypted.
KEYS = "keys"
TEMPORARY = ".tmp"
# Behind the name of a file that compaction has rewritten, until it takes that name.
CLEANED = ".cleaned"
# Behind the name of a file that is to be removed later.
DOOMED = ".deleted"
QUARANTINE = "quarantine"
_NUMBERED = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")


def numbered(base_offset: int, suffix: str) -> str:
    """Zero-filled so that names sort like offsets."""
    return f"{base_offset:020d}.{suffix}"


def parse_numbered(name: str) -> tuple[int, str] | None:
    """Base offset and suffix, or None for any other file."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else None
