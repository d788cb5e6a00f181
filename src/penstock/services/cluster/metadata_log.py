"""The metadata log: a partition log whose records are facts."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from penstock.core.metadata import Fact, decode_fact, encode_fact
from penstock.core.model import CorruptionError, LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import Record, check_batches, read_header, read_records, write_batch
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.log import IncompleteLog, LogOptions, PartitionLog

DIRECTORY = "meta/metadata"
# The id under which Kafka's tools know the metadata topic.
TOPIC_ID = TopicId(UUID(int=1))
READ_BYTES = 1 << 20
# Facts of one command share a batch, so that a torn write takes all of them or none.
BATCH_BYTES_MAX = 1 << 30

_OPTIONS = LogOptions(
    segment_bytes=16 << 20,
    retention_ms=-1,
    retention_bytes=-1,
    message_bytes_max=BATCH_BYTES_MAX,
    checkpoint_bytes=1 << 20,
)


def open_metadata_log(
    disk: Disk, commit: GroupCommit, ticks: Callable[[], int], segment_bytes: int | None = None
) -> PartitionLog | None:
    """The log as it was left; None if there has never been one. Blocks."""
    options = _options(segment_bytes)
    try:
        log, report = PartitionLog.open(disk, DIRECTORY, TOPIC_ID, options, commit=commit, ticks=ticks)
    except IncompleteLog:
        return None
    if report.corruption or log.stopped is not None:
        log.abandon()
        raise CorruptionError(f"the metadata log is damaged: {report.corruption or log.stopped}")
    return log


def create_metadata_log(
    disk: Disk, commit: GroupCommit, ticks: Callable[[], int], segment_bytes: int | None = None
) -> PartitionLog:
    """An empty log. Blocks."""
    return PartitionLog.create(disk, DIRECTORY, TOPIC_ID, _options(segment_bytes), commit=commit, ticks=ticks)


def _options(segment_bytes: int | None) -> LogOptions:
    if segment_bytes is None:
        return _OPTIONS
    return LogOptions(
        segment_bytes=segment_bytes,
        retention_ms=-1,
        message_bytes_max=BATCH_BYTES_MAX,
        checkpoint_bytes=segment_bytes,
    )


def append_facts(log: PartitionLog, facts: Sequence[Fact], epoch: LeaderEpoch, now: Timestamp) -> None:
    """Append facts as one batch."""
    batch = write_batch(Record(0, now, None, encode_fact(fact), ()) for fact in facts)
    log.append(batch, (read_header(batch),), epoch, now)


def read_facts(log: PartitionLog, start: Offset) -> Iterator[Fact]:
    """Every fact from `start` to the log end. Blocks on the disk."""
    while start < log.end:
        content = memoryview(log.read(start, READ_BYTES).to_bytes())
        position = 0
        for header in check_batches(content):
            end = position + header.size_bytes
            for record in read_records(content[position:end]):
                if record.offset >= start:
                    assert record.value is not None, "a fact is a record's value"
                    yield decode_fact(record.value)
            position, start = end, Offset(header.next_offset)
