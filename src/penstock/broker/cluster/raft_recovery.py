"""What a member of the quorum finds on its disk at a start.

A directory is new, or holds a log that was bootstrapped once: the initial members are stored with
it, and voters that a later start names are ignored. A directory that has belonged to a cluster and
has no log any more is refused.

A log that has lost entries which were durable once is cut in front of the damage and is in doubt
from then on (see `core.raft`); so is a member whose hard state is missing or cannot be read. A full disk
is no loss: until there is room for what the journal has of the log, the node does not start.

A directory that is encrypted from now on has its snapshots encrypted first of all, and then every segment of
its log; new entries are from the start. In any other encrypted directory a snapshot in clear counts for
nothing, and a log without a key table is not opened.

Left out: repairing a log whose snapshots cannot be read, or which is gone: an empty directory is the
better member then.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from penstock.broker.cluster.quorum import MetadataLost, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_storage import (
    ACCEPT_LOSS,
    DIRECTORY,
    EntriesMissing,
    MetadataSnapshot,
    RaftStorage,
    SnapshotSeal,
    adopt_doubt_file,
    encode_snapshot,
    load_newest,
    read_entries,
    read_hard_state,
    seal_plain_snapshots,
    write_hard_state,
    write_snapshot,
)
from penstock.core.metadata import MetadataImage
from penstock.core.model import CorruptionError, Offset, PartitionIndex, StorageError, TopicId
from penstock.core.raft import (
    BLANK_BALLOT,
    Configuration,
    HardState,
    Index,
    RecoveredState,
    bootstrap_snapshot,
)
from penstock.observability import log as events
from penstock.storage.disk import Disk
from penstock.storage.journal import LogJournal
from penstock.storage.log import IncompleteLog, LogOptions, PartitionLog, RecoveryReport
from penstock.storage.log.file_names import IDENTITY, KEYS, QUARANTINE, numbered
from penstock.storage.log.file_names import LOG as SEGMENT
from penstock.storage.log.files import read_file, replace_durably
from penstock.storage.sealing import PLAIN_ID, LogVault

LOG = f"{DIRECTORY}/log"
# The id under which Kafka's tools know the metadata topic.
TOPIC_ID = TopicId(UUID(int=1))
# Facts of one command share a batch, so that a torn write takes all of them or none.
BATCH_BYTES_MAX = 1 << 30
# How many entries before the newest snapshot stay in memory, for members that lag a little.
LAG_MAX = 1_000
# In the names of drafts, which a start removes.
_SEALING = "sealing"


@dataclass(frozen=True, slots=True)
class RecoveredQuorum:
    """What was recovered from disk; `facts` is the size of the snapshot."""

    store: RaftStorage
    recovered: RecoveredState
    image: MetadataImage
    end: Offset
    facts: int


def is_blank(disk: Disk) -> bool:
    """Whether this directory has taken part in no quorum so far. Blocks."""
    return not disk.exists(f"{LOG}/{IDENTITY}") and not _has_voted(disk)


def _has_voted(disk: Disk) -> bool:
    return read_hard_state(disk) not in (None, BLANK_BALLOT)


def recover(
    place: QuorumStore,
    founders: Configuration,
    options: QuorumOptions,
    ticks: Callable[[], int],
    *,
    joined: bool,
) -> RecoveredQuorum:
    """Open what is on disk; a new directory starts with the founders as its members. Blocks."""
    disk = place.disk
    disk.make_directory(DIRECTORY)
    disk.sync_directory("meta")
    seal = None if place.vault is None else SnapshotSeal(place.vault, place.directory_id)
    if seal is not None and place.may_be_plain:
        count = seal_plain_snapshots(disk, seal)
        if count:
            events.info("metadata.snapshots_encrypted", count=count)
    elif seal is not None and disk.exists(f"{LOG}/{IDENTITY}") and not disk.exists(f"{LOG}/{KEYS}"):
        # In its place there may be a log that anybody has written.
        raise MetadataLost(f"{LOG}/{KEYS} is missing, and the metadata is encrypted: restore meta/raft")
    log, loss = _open(place, options, ticks)
    if log is None:
        _found(place, founders, seal, joined=joined)
        # The log comes last: a directory that has one has everything.
        log = PartitionLog.create(
            disk,
            LOG,
            TOPIC_ID,
            _log_options(place, options),
            commit=place.commit,
            ticks=ticks,
            journal=_journal(place),
            vault=_vault(place),
        )
    snapshot = load_newest(disk, seal)
    if snapshot is None:
        raise MetadataLost(
            "no metadata snapshot can be read: restore meta/raft, or rejoin with an empty directory"
        )
    is_noted = bool(loss) and _note_loss(disk, log.end, loss)
    _cut_damage(disk, log, snapshot.meta.index)
    _fit(disk, log, snapshot)
    if is_noted:
        log.accept_loss()
    store = _load(disk, log, snapshot)
    store.seal = seal
    if seal is not None:
        _seal_plain_entries(disk, log)
    assert log.synced == log.end, "a recovered log is durable"
    recovered = recover_state(disk, store)
    return RecoveredQuorum(store, recovered, snapshot.image, snapshot.end, snapshot.facts)


def _load(disk: Disk, log: PartitionLog, snapshot: MetadataSnapshot) -> RaftStorage:
    try:
        return RaftStorage(log, snapshot.meta, snapshot.end, LAG_MAX)
    except EntriesMissing as hole:
        _cut_hole(disk, log, hole)
    except CorruptionError:
        # Below the checkpoint damage shows only when it is read.
        for _ in log.scrub():
            pass
        if not log.corruption:
            raise
        _cut_damage(disk, log, snapshot.meta.index)
    _fit(disk, log, snapshot)
    return _load(disk, log, snapshot)


def _seal_plain_entries(disk: Disk, log: PartitionLog) -> None:
    """Write the segments that are in clear again, encrypted. Blocks.

    The log begins another segment when it is opened with keys for the first time.
    """
    plain = log.sealed_under({PLAIN_ID})
    for segment in plain:
        draft = log.begin_reseal(_SEALING, segment.base_offset)
        assert draft is not None, "it was there, and whole"
        while draft.next is not None:
            draft.copy(disk)
        draft.seal(disk)
        if not log.finish_refill(draft):
            raise CorruptionError(f"the raft log cannot be encrypted: {log.stopped}")
    if plain:
        size_bytes = sum(segment.size_bytes for segment in plain)
        events.info("metadata.log_encrypted", segments=len(plain), bytes=size_bytes)


def recover_state(disk: Disk, store: RaftStorage) -> RecoveredState:
    """Hard state, configurations and doubt of this member. Blocks."""
    return RecoveredState(_recover_hard_state(disk), store.configurations())


def _recover_hard_state(disk: Disk) -> HardState | None:
    """The hard state; None if it is lost: another vote in its place could be the second in a term."""
    try:
        hard_state, reason = read_hard_state(disk), f"{DIRECTORY}/ballot is missing"
    except CorruptionError as damage:
        hard_state, reason = None, str(damage)
    if hard_state is None:
        events.error("quorum.hard_state_lost", reason=reason)
        return None
    hard_state = adopt_doubt_file(disk, hard_state)
    if disk.exists(ACCEPT_LOSS):
        if hard_state.doubt is not None:
            events.warning("quorum.loss_accepted", term=hard_state.doubt)
            hard_state = hard_state._replace(doubt=None)
            write_hard_state(disk, hard_state)
        # Once only: the next loss is to be accepted for itself.
        disk.remove(ACCEPT_LOSS)
        disk.sync_directory(DIRECTORY)
    return hard_state


def _note_loss(disk: Disk, end: Offset, reason: str) -> bool:
    """The log ends at `end`, and was longer: say so; returns whether that is durable now. Blocks."""
    events.error("quorum.log_damaged", last_index=int(end), reason=reason)
    try:
        hard_state = read_hard_state(disk)
    except CorruptionError:
        hard_state = None
    if hard_state is not None:
        # Without one the doubt begins when a term is found; until then its absence says enough.
        write_hard_state(disk, hard_state._replace(doubt=hard_state.term))
    return hard_state is not None


def _cut_damage(disk: Disk, log: PartitionLog, covered: Index) -> None:
    """Make the log end in front of damage, unless a snapshot covers all of it; keep a copy. Blocks."""
    damaged = log.corruption
    # In the last segment nobody knows how much followed the damage.
    behind = [damage for damage in damaged if damage.end > covered or damage.segment == log.active_start]
    if behind:
        first = min(behind, key=lambda damage: damage.start)
        reason = f"what follows entry {first.start} cannot be read: {first.reason}"
        # First of all: a power cut after the cut would leave a log that looks whole.
        _note_loss(disk, first.start, reason)
        _keep_copies(disk, log, first.segment)
        log.truncate_to(first.start)
    if len(behind) < len(damaged) and covered <= log.end:
        events.warning("quorum.old_entries_dropped", up_to=int(covered), reason=damaged[0].reason)
        log.delete_records(Offset(covered))


def _cut_hole(disk: Disk, log: PartitionLog, hole: EntriesMissing) -> None:
    """Make the log end in front of an entry that is not the one that was written; keep a copy. Blocks."""
    _note_loss(disk, hole.offset, f"entries {hole.offset + 1} to {log.end} cannot be used: {hole}")
    _keep_copies(disk, log, Offset(0))
    log.truncate_to(hole.offset)


def _keep_copies(disk: Disk, log: PartitionLog, start: Offset) -> None:
    """Copy the segments from this one on to the quarantine, if they can be read and the disk has room."""
    aside = f"{LOG}/{QUARANTINE}"
    disk.make_directory(aside)
    for segment in log.segments():
        name = numbered(segment.base_offset, SEGMENT)
        with suppress(StorageError):
            content = read_file(disk, f"{LOG}/{name}") if segment.base_offset >= start else None
            if content is not None:
                replace_durably(disk, aside, name, content)


def _found(place: QuorumStore, founders: Configuration, seal: SnapshotSeal | None, *, joined: bool) -> None:
    """Write the initial snapshot, unless this directory has voted or applied something before."""
    former = load_newest(place.disk, seal)
    is_used = _has_voted(place.disk) or (former is not None and former.meta.index > 0)
    if joined or is_used:
        raise MetadataLost("the raft log is missing: restore meta/raft, or rejoin with an empty directory")
    if former is None or former.meta.configuration != founders:
        # A bootstrap that was interrupted before the log existed does not count.
        content = encode_snapshot(bootstrap_snapshot(founders), Offset(0), ())
        write_snapshot(place.disk, bootstrap_snapshot().index, content, seal)
    # From now on a hard state that is missing was lost.
    write_hard_state(place.disk, BLANK_BALLOT)


def _fit(disk: Disk, log: PartitionLog, snapshot: MetadataSnapshot) -> None:
    """Make log and snapshot fit: the log continues the snapshot, or is restarted behind it."""
    index, term = snapshot.meta.index, snapshot.meta.term
    if log.start > index:
        raise MetadataLost(f"the newest readable snapshot ends at {index}, the log starts at {log.start}")
    # Entry `index` is at the offset before it.
    is_covered = int(log.start) == index or (
        index <= log.end and int(log.epochs.epoch_at(Offset(index - 1))) == term
    )
    if not is_covered:
        # What cannot be read at all goes with the rest; an entry of another term is a loss to be noted.
        with suppress(CorruptionError):
            try:
                deque(read_entries(log), maxlen=0)
            except EntriesMissing as hole:
                _cut_hole(disk, log, hole)
        # A power cut came between storing a leader's snapshot and dropping the log it replaces.
        events.info("metadata.log_replaced", start=log.start, end=log.end, snapshot=index)
        log.truncate_fully(Offset(index))


def _open(
    place: QuorumStore, options: QuorumOptions, ticks: Callable[[], int]
) -> tuple[PartitionLog | None, str]:
    """The log, if there is one, and what its end has lost."""
    try:
        log, report = PartitionLog.open(
            place.disk,
            LOG,
            TOPIC_ID,
            _log_options(place, options),
            commit=place.commit,
            ticks=ticks,
            journal=_journal(place),
            vault=_vault(place),
        )
    except IncompleteLog:
        return None, ""
    if log.stopped is not None and not log.corruption:
        log.abandon()
        raise CorruptionError(f"the raft log cannot be used: {log.stopped}")
    return log, _loss_of(report, has_journal=place.journal is not None)


def _loss_of(report: RecoveryReport, *, has_journal: bool) -> str:
    """What the end of the log may have lost besides a write that was never finished.

    The journal knows how far the log was durable; without one, a cut that may be more than an
    unfinished write is a reason to doubt.
    """
    lost, cut = report.lost, report.cut
    if lost is not None:
        return f"entries {lost.start + 1} to {lost.end} were durable and are gone: {lost.reason}"
    if report.doubt:
        return report.doubt
    if cut is not None and cut.kept is not None and not has_journal:
        return f"{cut.lost_bytes} bytes behind it are no entries, kept in {cut.kept}: {cut.reason}"
    return ""


def _journal(place: QuorumStore) -> LogJournal | None:
    return None if place.journal is None else place.journal.of(TOPIC_ID, PartitionIndex(0))


def _vault(place: QuorumStore) -> LogVault | None:
    """What encrypts the log: that of another node does not open here."""
    if place.vault is None:
        return None
    return LogVault(place.vault, b"penstock metadata log of " + place.directory_id.bytes)


def _log_options(place: QuorumStore, options: QuorumOptions) -> LogOptions:
    return LogOptions(
        is_encrypted=place.vault is not None,
        segment_bytes=options.segment_bytes,
        retention_ms=-1,
        retention_bytes=-1,
        message_bytes_max=BATCH_BYTES_MAX,
        checkpoint_bytes=min(1 << 20, options.segment_bytes),
    )
