"""How a node finds its raft log and snapshot again, or makes them."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.core.metadata import MetadataImage
from penstock.core.model import CorruptionError, Offset, TopicId
from penstock.core.raft import BLANK_BALLOT, Configuration, RecoveredState, bootstrap_snapshot
from penstock.observability import log as events
from penstock.services.cluster.quorum import MetadataLost, QuorumOptions, QuorumStore
from penstock.services.cluster.raft.images import (
    DIRECTORY,
    Snapshot,
    encode_snapshot,
    load_newest,
    write_snapshot,
)
from penstock.services.cluster.raft.promises import read_ballot
from penstock.services.cluster.raft.store import RaftStore
from penstock.storage.disk import Disk
from penstock.storage.log import IncompleteLog, LogOptions, PartitionLog
from penstock.storage.log.file_names import IDENTITY

LOG = f"{DIRECTORY}/log"
# The id under which Kafka's tools know the metadata topic.
TOPIC_ID = TopicId(UUID(int=1))
# Facts of one command share a batch, so that a torn write takes all of them or none.
BATCH_BYTES_MAX = 1 << 30
# How many entries before the newest snapshot stay in memory, for members that lag a little.
LAG_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a former life; `facts` is the size of the snapshot."""

    store: RaftStore
    recovered: RecoveredState
    image: MetadataImage
    end: Offset
    facts: int


def is_blank(disk: Disk) -> bool:
    """Whether nothing that counts was ever written here. Blocks."""
    return not disk.exists(f"{LOG}/{IDENTITY}") and read_ballot(disk) is None


def recover(
    place: QuorumStore,
    founders: Configuration,
    options: QuorumOptions,
    ticks: Callable[[], int],
    *,
    joined: bool,
) -> Found:
    """Open what is there; a directory that is new begins with the founders as its members. Blocks."""
    disk = place.disk
    disk.make_directory(DIRECTORY)
    disk.sync_directory("meta")
    log = _open(place, options, ticks)
    if log is None:
        _found(place, founders, joined=joined)
        # The log comes last: a directory that has one has everything.
        log = PartitionLog.create(
            disk, LOG, TOPIC_ID, _log_options(options), commit=place.commit, ticks=ticks
        )
    snapshot, ballot = load_newest(disk), read_ballot(disk)
    if snapshot is None:
        raise MetadataLost("no snapshot of this data directory can be read")
    _fit(log, snapshot)
    store = RaftStore(log, snapshot.meta, snapshot.end, LAG_MAX)
    recovered = RecoveredState(ballot or BLANK_BALLOT, store.configurations())
    return Found(store, recovered, snapshot.image, snapshot.end, snapshot.facts)


def _found(place: QuorumStore, founders: Configuration, *, joined: bool) -> None:
    """Write the founding down, unless this directory has promised or applied something before."""
    former = load_newest(place.disk)
    is_used = read_ballot(place.disk) is not None or (former is not None and former.meta.index > 0)
    if joined or is_used:
        raise MetadataLost("the raft log of this data directory is gone")
    if former is None or former.meta.configuration != founders:
        # One that was interrupted before there was a log has not happened.
        content = encode_snapshot(bootstrap_snapshot(founders), Offset(0), ())
        write_snapshot(place.disk, bootstrap_snapshot().index, content)


def _fit(log: PartitionLog, snapshot: Snapshot) -> None:
    """Let the log go on behind the snapshot, or be the log that the snapshot is of."""
    index, term = snapshot.meta.index, snapshot.meta.term
    if log.start > index:
        raise MetadataLost(f"the newest readable snapshot ends at {index}, the log begins behind {log.start}")
    # Entry `index` is at the offset before it.
    is_covered = int(log.start) == index or (
        index <= log.end and int(log.epochs.epoch_at(Offset(index - 1))) == term
    )
    if not is_covered:
        # The power went between a leader's snapshot and the end of the log it replaces.
        events.info("metadata.log_replaced", start=log.start, end=log.end, snapshot=index)
        log.truncate_fully(Offset(index))


def _open(place: QuorumStore, options: QuorumOptions, ticks: Callable[[], int]) -> PartitionLog | None:
    try:
        log, report = PartitionLog.open(
            place.disk, LOG, TOPIC_ID, _log_options(options), commit=place.commit, ticks=ticks
        )
    except IncompleteLog:
        return None
    if report.corruption or log.stopped is not None:
        log.abandon()
        raise CorruptionError(f"the raft log is damaged: {report.corruption or log.stopped}")
    assert log.synced == log.end, "an opened log is durable"
    return log


def _log_options(options: QuorumOptions) -> LogOptions:
    return LogOptions(
        segment_bytes=options.segment_bytes,
        retention_ms=-1,
        retention_bytes=-1,
        message_bytes_max=BATCH_BYTES_MAX,
        checkpoint_bytes=min(1 << 20, options.segment_bytes),
    )
