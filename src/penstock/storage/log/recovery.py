"""Opening a log: from what is on disk after a stop or a crash to a log that can be used.

    ┌ sealed segments ────────────┬ checkpointed segment ┬ tail ──────────┐
    │ sizes compared, not read    │ ends at least here ──┤ every byte read │
    └─────────────────────────────┴──────────────────────┴─────────────────┘
                                            recovery point ↑

Below the recovery point everything was synced: what is missing or broken there is
corruption. It is reported and not read, and nothing is cut. Above it, a batch that is torn
or has a wrong CRC ends the log: it is cut there, and the report says where. Unless the rest
is plainly an unfinished write, it is copied to the quarantine, since good batches behind a
damaged one may be in it; if it cannot be copied, nothing is cut, and the log takes no writes.
After a clean stop the tail is empty and no batch is read at all.

With a journal it is known what was durable in the tail. A bad batch that was is written again from the
journal, where it stood. If the journal does not have it, its offsets are lost and named, and the log goes
on behind it (see `journaled_tail`). At the end of its files the log is continued from the journal; if it is
short even so, the report says which offsets are lost.

Producer state, epochs and indexes that are missing or damaged are rebuilt from the batches.

A start also finishes a compaction that the power cut interrupted:

    <base>.log.cleaned, .index.cleaned … → device, names too
    checkpoint: this segment is swapping, and has the new size → device
    <base>.log.cleaned → <base>.log …  → names to the device

Before the checkpoint, the new files are removed. After it, a start repeats the renames, of
which some may have happened. A compaction names no file so while a checkpoint on disk may say
`swapping` of an earlier one, so that no other file can be mistaken for one of these.

Left out: repair from another replica. That is the broker's work, after it has left the ISR.
"""

import errno as errnos
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from fastcrc import crc32

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, StorageError, Timestamp, TopicId
from penstock.core.records import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    BatchIncomplete,
    CorruptBatch,
    check_batch,
)
from penstock.core.records.batch import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CODEC_MAX,
    CONTROL,
    CRC_START,
    LAYOUT,
    MAGIC,
)
from penstock.core.replica import LeaderEpochHistory, ProducerStateManager, decode_snapshot, encode_snapshot
from penstock.storage.disk import Buffer, Disk, DiskFailed, DiskFull
from penstock.storage.disk.port import disk_error
from penstock.storage.journal import (
    NO_POSITION,
    JournalPosition,
    LogJournal,
)
from penstock.storage.log import file_names
from penstock.storage.log.append import append_as_follower
from penstock.storage.log.checkpoint import checkpoint_now, write_checkpoint
from penstock.storage.log.durability import Durability, ImmediateCommit
from penstock.storage.log.file_names import (
    ABORTED_INDEX,
    CLEANED,
    EPOCHS,
    IDENTITY,
    LOG,
    OFFSET_INDEX,
    QUARANTINE,
    SNAPSHOT,
    TIME_INDEX,
    numbered,
)
from penstock.storage.log.files import (
    NO_ROWS,
    Checkpoint,
    FileKind,
    decode_checkpoint,
    decode_epochs,
    decode_identity,
    encode_epochs,
    encode_identity,
    frame,
    parse_epoch_rows,
    read_file,
    read_if_good,
    replace_durably,
    unframe,
)
from penstock.storage.log.index import (
    ABORTED,
    OFFSETS,
    SHAPES,
    ActiveIndex,
    IndexRowFormat,
    Words,
    parse_rows,
    seal,
)
from penstock.storage.log.journaled_tail import FoundBatch, JournaledTail, find_behind
from penstock.storage.log.keys import check_never_keyed, check_never_sealed, new_keys, open_keys
from penstock.storage.log.loss import CHECKPOINT_LOST, NOTHING_LOST, OLD_COPY, NotedLoss, read_loss
from penstock.storage.log.segment import (
    OFFSET_DELTA_MAX,
    SCAN_BYTES,
    UNKNOWN_MS,
    BatchPosition,
    CheckedBatch,
    PositionalReader,
    Segment,
    checked_batches,
    headers,
)
from penstock.storage.log.segments import Segments
from penstock.storage.log.state import LogServices, LogState, fold_batch
from penstock.storage.log.types import (
    CorruptRange,
    IncompleteLog,
    LogOptions,
    LostTail,
    OffsetsNotIncreasing,
    RestoredTail,
    SuspectSegment,
    WrongTopic,
)
from penstock.storage.sealing import PLAIN_ID, KeyRow, KeyTable, KeyUnavailable

# Behind the offset that the bytes would have had, in the quarantine directory.
CUT = ".cut"
# How much is taken from the journal before the file is read again.
MEND_BYTES = 256 << 10
# A batch header without the fields that nobody asks for in a batch without a producer.
SKIMMED = struct.Struct(">qiibIhi8xqq6xi")
MISSING = "its bytes are missing"
NOT_KEPT = "there is no room to keep what follows, or it cannot be read, so that it was not cut"
_EEXIST = 17
# What a refill writes anew; compaction writes the aborted transactions, too.
SWAPPED_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, LOG)
CLEANED_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX, LOG)


def copy_to_quarantine(
    disk: Disk, directory: str, file: PositionalReader, position: int, end: int, name: str
) -> str | None:
    """Copy a file from `position` on, up to `end`, into a quarantine, durably; returns where it is.

    None if the disk has no room: a full disk must not keep the log from opening.
    """
    aside = f"{directory}/{QUARANTINE}"
    path = free_path(disk, f"{aside}/{name}")
    disk.make_directory(aside)
    copy = disk.open(path, create=True)
    try:
        for at in range(position, end, SCAN_BYTES):
            copy.append(file.pread(at, min(SCAN_BYTES, end - at)))
        copy.sync()
    except StorageError as failed:
        copy.close()
        with suppress(StorageError):
            disk.remove(path)
        if isinstance(failed, DiskFull):
            return None
        raise
    copy.close()
    disk.sync_directory(aside)
    disk.sync_directory(directory)
    return path


def free_path(disk: Disk, path: str) -> str:
    """`path`, or the first numbered variant of it that no earlier start has used."""
    number, free = 1, path
    while disk.exists(free):
        number += 1
        free = f"{path}.{number}"
    return free


def producers_at(state: LogState, offset: Offset) -> ProducerStateManager:
    """The producer state as it was when the log ended at `offset`: a snapshot and what followed."""
    known, producers = nearest_snapshot(state, offset)
    for segment, placed in _placed_between(state, known, offset):
        fold(state, producers, segment, placed)
    return producers


def note_missing(state: LogState, start: Offset, end: Offset) -> None:
    """What is derived from the batches of this range lacks those that are damaged."""
    missing = [damage.start for damage in state.damage.values() if damage.start < end and start < damage.end]
    if missing:
        state.note_unsure(min(missing))


def keep_snapshot(state: LogState, segment: Segment) -> None:
    """Write the producer snapshot at this segment's start, before the segments in front of it are removed."""
    if _read_snapshot(state, segment.base_offset) is None:
        content = frame(FileKind.SNAPSHOT, encode_snapshot(producers_at(state, segment.base_offset)))
        replace_durably(state.disk, state.directory, numbered(segment.base_offset, SNAPSHOT), content)


def fold(
    state: LogState, producers: ProducerStateManager, segment: Segment, placed: BatchPosition
) -> "array[int]":
    """Update the producer state for one batch of the log; returns the row of the transaction it aborted."""
    return fold_placed(producers, segment.file, placed, state.replayed_at, state.key_table)


def fold_placed(
    producers: ProducerStateManager,
    file: PositionalReader,
    placed: BatchPosition,
    not_before: Timestamp,
    table: KeyTable | None,
) -> "array[int]":
    """As `fold`, for any file; producers are seen `not_before` this, since records may carry any time.

    `table` opens what is sealed.
    """
    header = placed.header
    if header.producer_id < 0:
        return array("q")
    content: Buffer = file.pread(placed.position, header.size_bytes) if header.is_control else b""
    if table is not None and header.is_control:
        content = table.unseal_one(content, header)
    aborted = fold_batch(producers, header, content, max(Timestamp(header.max_timestamp), not_before))
    return array("q", aborted or ())


def seen_at(state: LogState, max_timestamp: int) -> Timestamp:
    """When a replayed producer counts as seen."""
    return max(Timestamp(max_timestamp), state.replayed_at)


def epochs_between(state: LogState, end: Offset) -> LeaderEpochHistory:
    """The leader epochs of every batch below `end`."""
    history = LeaderEpochHistory()
    first = state.segments[0].base_offset
    for _, placed in _placed_between(state, first, end):
        if placed.header.leader_epoch > history.latest:
            history.assign(LeaderEpoch(placed.header.leader_epoch), Offset(placed.header.base_offset))
    return history


def index_of(state: LogState, segment: Segment, size_bytes: int) -> tuple[ActiveIndex, bool]:
    """Offset and time tables from the headers; False if damage ended the walk early."""
    index = ActiveIndex(segment.base_offset, state.options)
    try:
        for position, header in placed_in(segment, size_bytes):
            index.note(header.base_offset, header.last_offset, position, header.max_timestamp)
    except CorruptBatch:
        return index, False
    return index, True


def placed_in(segment: Segment, size_bytes: int) -> Iterator[BatchPosition]:
    """Every header of a segment; raises CorruptBatch where an offset, outside of the CRC, is wrong."""
    return placed_between(segment.file, segment.base_offset, size_bytes, gapless=segment.gapless)


def placed_between(
    file: PositionalReader, base_offset: Offset, size_bytes: int, *, gapless: bool
) -> Iterator[BatchPosition]:
    """Every header of the file of a segment, as `placed_in`."""
    expected: int = base_offset
    for placed in headers(file, 0, size_bytes, SCAN_BYTES):
        header = placed.header
        if gapless and header.base_offset != expected:
            raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")
        if not 0 <= header.base_offset - base_offset <= OFFSET_DELTA_MAX:
            raise CorruptBatch(f"offset {header.base_offset} is not in segment {base_offset}")
        yield placed
        expected = header.next_offset


def aborted_of(state: LogState, segment: Segment, size_bytes: int) -> "array[int]":
    """The aborted transactions whose marker is in this segment."""
    note_missing(state, nearest_snapshot(state, segment.base_offset)[0], segment.base_offset)
    producers = producers_at(state, segment.base_offset)
    rows = array("q")
    for placed in headers(segment.file, 0, size_bytes, SCAN_BYTES):
        rows.extend(fold(state, producers, segment, placed))
    return rows


def rebuilder(state: LogState) -> Callable[[Segment, IndexRowFormat], Words]:
    """What a sealed index calls when one of its files is missing or damaged."""

    def rebuild(segment: Segment, shape: IndexRowFormat) -> Words:
        size_bytes, is_damaged = segment.readable_bytes, bool(segment.damage)
        if state.is_open and size_bytes > state.options.rebuild_bytes_max and not is_damaged:
            # Whoever meets this has it verified, and rebuilt by a thread (see `index_rebuild`).
            raise SuspectSegment(segment.base_offset, f"its {shape.suffix} is damaged or missing")
        state.stats.indexes_rebuilt += 1
        index, whole = index_of(state, segment, size_bytes)
        if whole:
            index.aborted = aborted_of(state, segment, size_bytes)
        elif shape is ABORTED:
            # An empty table would pass aborted records off as committed ones.
            raise SuspectSegment(segment.base_offset, "its aborted transactions cannot be found again")
        if whole and not is_damaged and is_sure(state, segment):
            following = state.segments.index_of(segment.base_offset)
            index.close_times(state.segments.end_of(following, state.end) - 1)
            store_index(state, segment, index)
        if shape is ABORTED:
            return index.aborted
        return index.offsets if shape is OFFSETS else index.times

    return rebuild


def is_sure(state: LogState, segment: Segment) -> bool:
    """Whether the segment's aborted transactions were derived with all records there."""
    return state.unsure_from is None or state.reach(segment) <= state.unsure_from


class WalkResult(NamedTuple):
    """How far the headers of a segment lead, and what ended the walk before the end of the file."""

    offset: Offset
    position: int
    reason: str | None


def walk_through(segment: Segment) -> WalkResult:
    """Follow the headers of a segment for as long as they make sense."""
    offset, position = segment.base_offset, 0
    try:
        for placed in placed_in(segment, segment.size_bytes):
            offset = Offset(placed.header.next_offset)
            position = placed.position + placed.header.size_bytes
    except CorruptionError as corrupt:
        return WalkResult(offset, position, str(corrupt))
    return WalkResult(offset, position, None)


def nearest_snapshot(
    state: LogState, offset: Offset, *, at_base: bool = False
) -> tuple[Offset, ProducerStateManager]:
    """The last producer state that is known before `offset`, and where; at the base of a segment if asked."""
    checkpoint = state.checkpoint
    segments = state.segments
    is_usable = checkpoint.unsure_from is None and not at_base
    for index in range(segments.index_of(offset), -1, -1):
        base = segments[index].base_offset
        if is_usable and base <= checkpoint.recovery_point <= offset:
            return checkpoint.recovery_point, decode_snapshot(checkpoint.producers)
        producers = _read_snapshot(state, base) if base <= offset else None
        if producers is not None:
            return base, producers
    return segments[0].base_offset, ProducerStateManager()


def _read_snapshot(state: LogState, base_offset: Offset) -> ProducerStateManager | None:
    """The producer state at the start of a segment, if it was kept and is not damaged."""
    content = read_file(state.disk, state.segments.path(base_offset, SNAPSHOT))
    try:
        return None if content is None else decode_snapshot(unframe(FileKind.SNAPSHOT, content))
    except CorruptionError:
        return None


def _placed_between(state: LogState, start: Offset, end: Offset) -> Iterator[tuple[Segment, BatchPosition]]:
    segments = state.segments
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        if segment.base_offset >= end:
            return
        try:
            position = segment.locate(start) if segment.base_offset < start else 0
            if position is None:
                continue
            for first, stop in segment.readable_ranges(position):
                for placed in headers(segment.file, first, stop, SCAN_BYTES):
                    if placed.header.base_offset >= end:
                        return
                    yield segment, placed
        except CorruptBatch as bad:
            raise SuspectSegment(segment.base_offset, str(bad)) from bad


def store_index(state: LogState, segment: Segment, index: ActiveIndex) -> None:
    """Write rebuilt tables over the bad files. If that fails, they are rebuilt again next time."""
    try:
        for file in seal(state.disk, state.directory, segment.base_offset, index):
            state.durability.request_file(file, close=True)
    except StorageError:
        return


def create_log(  # noqa: PLR0913 - as in `PartitionLog.create`
    disk: Disk,
    directory: str,
    topic_id: TopicId,
    options: LogOptions,
    services: LogServices,
    position: JournalPosition = NO_POSITION,
    *,
    is_synced_later: bool = False,
) -> LogState:
    """Make the files of an empty log; the topic id comes last and says that it is complete.

    With `is_synced_later`, the caller syncs the directories above: once for many logs.
    """
    if disk.exists(f"{directory}/{IDENTITY}"):
        raise disk_error("create log", directory, _EEXIST)
    disk.make_directory(directory)
    # A creation that was interrupted may have left anything here but data.
    for name in disk.listdir(directory):
        disk.remove_tree(f"{directory}/{name}")
    empty = _empty_checkpoint(position)
    state = build_state(disk, directory, options, empty, services)
    state.segments.add_active(empty.segment, fresh=True)
    if services.vault is not None:
        # Also if nothing is to be sealed: a log without a table may be somebody else's.
        rows, is_on = (KeyRow(empty.segment, PLAIN_ID),), options.is_encrypted
        state.keys = new_keys(disk, directory, services.vault, state.durability, rows, is_on=is_on)
        state.keys.settle(state.segments, state.end, is_new=True)
    replace_durably(disk, directory, EPOCHS, encode_epochs(LeaderEpochHistory()))
    write_checkpoint(state, empty)
    replace_durably(disk, directory, IDENTITY, encode_identity(topic_id))
    if not is_synced_later:
        for parent in parents_of(directory):
            disk.sync_directory(parent)
    return state


def _empty_checkpoint(position: JournalPosition) -> Checkpoint:
    zero = Offset(0)
    return Checkpoint(
        recovery_point=zero,
        segment=zero,
        position=0,
        log_start=zero,
        high_watermark=zero,
        producers=encode_snapshot(ProducerStateManager()),
        journal=position,
    )


def build_state(
    disk: Disk,
    directory: str,
    options: LogOptions,
    checkpoint: Checkpoint,
    services: LogServices,
) -> LogState:
    """A log without segments, at the checkpoint."""
    commit = services.commit or ImmediateCommit()
    durability = Durability(disk, directory, commit, checkpoint.recovery_point, services.journal)
    state = LogState(disk, directory, options, durability, checkpoint, services)
    state.segments = Segments(disk, directory, options, rebuilder(state), durability.retire)
    return state


def parents_of(directory: str) -> list[str]:
    """Every directory above, up to the disk's root."""
    parts = directory.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]


class TailTruncation(NamedTuple):
    """The end of a log from the first batch on that is not good.

    Most often it is a write that was never finished, nor acknowledged. What may be more than that
    was kept: `kept` is the file in the quarantine with the bytes (the first of them, if several).
    """

    segment: Offset
    offset: Offset
    position: int
    lost_bytes: int
    reason: str
    kept: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """Filled in while a log is opened."""

    recovery_point: Offset = Offset(0)  # noqa: RUF009 - a NewType is the value itself
    end: Offset = Offset(0)  # noqa: RUF009
    bytes_read: int = 0
    batches_read: int = 0
    indexes_rebuilt: int = 0
    epochs_rebuilt: bool = False
    checkpoint_lost: bool = False
    cut: TailTruncation | None = None
    corruption: tuple[CorruptRange, ...] = ()
    # What was durable and is gone.
    lost: LostTail | None = None
    # Why nobody can tell whether more of the log was durable; empty if the end is sure.
    doubt: str = ""
    # What was taken from the journal.
    restored: RestoredTail | None = None

    @property
    def was_clean(self) -> bool:
        """Whether the log was closed properly and nothing has happened to it since."""
        untouched = self.bytes_read == 0 and self.cut is None and not self.indexes_rebuilt
        return untouched and not (self.corruption or self.epochs_rebuilt or self.checkpoint_lost)


def redo_swaps(disk: Disk, directory: str, checkpoint: Checkpoint, *, is_synced_later: bool = False) -> None:
    """Give the rewritten files of swapping segments their names, durably; remove all others.

    With `is_synced_later` the caller syncs the directory before a checkpoint says that it is over.
    """
    left = [name for name in disk.listdir(directory) if name.endswith(CLEANED)]
    swapping = {
        numbered(row.base_offset, suffix) + CLEANED
        for row in checkpoint.sealed
        if row.swapping
        for suffix in CLEANED_SUFFIXES
    }
    for name in left:
        if name in swapping:
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(CLEANED)}")
        else:
            disk.remove(f"{directory}/{name}")
    if left and not is_synced_later:
        disk.sync_directory(directory)


def recover_tail(
    state: LogState, following: Sequence[Offset], report: RecoveryReport, tail: JournaledTail
) -> None:
    """Read the active segment from the checkpoint on, and every segment that was begun after it."""
    if state.stopped is None:
        scan_segment(state, state.checkpoint.position, report, tail, following[0] if following else None)
    for index, base_offset in enumerate(following):
        if report.checkpoint_lost and state.end < base_offset:
            # It is unknown what was durable: cut nothing.
            _add_hole(state, base_offset, MISSING)
        elif report.cut is None and base_offset < tail.durable and not report.checkpoint_lost:
            _reach(state, base_offset, tail, report)
        damage = state.segments.active.damage
        if report.cut is not None or (base_offset != state.end and not damage):
            # Segments begin where the log ends; this one belongs to an end that is gone.
            _drop(state, following[index:], report)
            return
        if base_offset != state.end:
            # What followed the recovery point in the damaged segment is gone as well.
            state.note_unsure(state.end)
            state.set_damage(state.segments.active, (*damage[:-1], damage[-1]._replace(end=base_offset)))
        has_gaps = report.checkpoint_lost and state.options.may_have_gaps
        _begin_segment(state, base_offset, gapless=not has_gaps)
        after = following[index + 1] if index + 1 < len(following) else None
        scan_segment(state, 0, report, tail, after)


def _begin_segment(state: LogState, base_offset: Offset, *, gapless: bool = True) -> None:
    """Go on in the segment that begins here, whether it is there already or not."""
    for file in state.segments.seal_active(state.end):
        file.sync()
        file.close()
    _close_writer(state)
    state.end = base_offset
    # Without a checkpoint it is unknown which segments were compacted and have gaps.
    state.segments.add_active(base_offset).gapless = gapless


def _reach(state: LogState, end: Offset, tail: JournaledTail, report: RecoveryReport) -> None:
    """Fill the log up to the next segment, which begins at `end`: everything before it was durable."""
    while state.end < end and report.cut is None:
        before = state.end
        start = tail.next_start(state.end)
        if start is not None and start < end:
            if start > state.end:
                _add_hole(state, start, MISSING)
            if state.segments.active.damage:
                # It has a hole at its end.
                _begin_segment(state, start)
            segment = state.segments.active
            position = segment.size_bytes
            if _mend(state, segment, position, tail, end, report):
                scan_segment(state, position, report, tail, end)
        if state.end == before:
            _add_hole(state, end, MISSING)


def _add_hole(state: LogState, end: Offset, reason: str) -> None:
    """What follows in the active segment, up to `end`, is lost."""
    segment, size = state.segments.active, state.segments.active.size_bytes
    state.note_unsure(state.end)
    if segment.damage and segment.damage[-1].stop == size and segment.damage[-1].end == state.end:
        hole = segment.damage[-1]._replace(end=end)
        state.set_damage(segment, (*segment.damage[:-1], hole))
    else:
        state.add_damage(segment, CorruptRange(segment.base_offset, state.end, end, reason, size, size))
    state.end = end


def restore_tail(state: LogState, tail: JournaledTail, report: RecoveryReport) -> None:
    """Continue the log with what the journal has behind its end.

    Raises DiskFull if there is no room for it: to go on without it would be to lose it.
    """
    # First: a gap between offsets takes a checkpoint, which does not cover what is still to be restored.
    state.lost_end = tail.durable
    _go_on_behind_damage(state, tail, report)
    if state.stopped is None:
        with suppress(CorruptionError, OffsetsNotIncreasing):
            _restore(state, tail, report)
    state.doubt = tail.doubt


def _go_on_behind_damage(state: LogState, tail: JournaledTail, report: RecoveryReport) -> None:
    """A damaged segment must not grow: begin another one, if it is known where the damage ends."""
    damage = state.segments.active.damage
    if not damage or not tail.is_known or report.checkpoint_lost:
        return
    if all(part.start < part.end <= state.end for part in damage):
        _begin_segment(state, state.end)


def _note_restored(state: LogState, report: RecoveryReport, start: Offset, end: Offset) -> None:
    if state.journal is not None:
        state.journal.restored(end - start)
    former = report.restored
    if former is not None:
        start, end = min(former.start, start), max(former.end, end)
    report.restored = RestoredTail(start, end)


def _restore(state: LogState, tail: JournaledTail, report: RecoveryReport) -> None:
    """Append what the journal has behind the end. What it does not have in between is lost, and named."""
    while (start := tail.next_start(state.end)) is not None:
        if start > state.end:
            _add_hole(state, start, MISSING)
            _begin_segment(state, start)
        before = state.end
        content, headers = bytearray(), list[BatchHeader]()
        # Several at a time, since a range may be a single small batch.
        for batch in tail.batches_from(state.end):
            content += batch.content
            headers.append(batch.header)
            if len(content) >= SCAN_BYTES:
                break
        if headers:
            latest = max(header.max_timestamp for header in headers)
            append_as_follower(state, bytes(content), headers, seen_at(state, latest), are_stored=True)
        if state.end == before:
            return
        _note_restored(state, report, before, state.end)


def scan_segment(
    state: LogState, position: int, report: RecoveryReport, tail: JournaledTail, limit: Offset | None
) -> None:
    """Check every batch from `position` on and update the state; the next segment begins at `limit`.

    A bad batch that was durable is taken from the journal, or left out if there is anything behind it. One
    that was not is an unfinished write, and the log ends there. Nothing is cut if that could be wrong:
    then the rest of the segment is damaged.
    """
    segment = state.segments.active
    start, mended = position, -1
    while position < segment.size_bytes:
        scan = TailScan(state, segment, position, report, tail)
        try:
            scan.run()
            position = scan.position
        except (CorruptBatch, DiskFailed) as bad:
            position = scan.position
            if isinstance(bad, DiskFailed) and bad.errno != errnos.EIO:
                raise
            if not report.checkpoint_lost:
                if position != mended and _mend(state, segment, position, tail, limit, report):
                    mended = position
                    continue
                behind = _leave_out(state, segment, position, tail, limit, str(bad))
                if behind is not None:
                    position = behind
                    continue
            if report.checkpoint_lost or isinstance(bad, DiskFailed):
                # Without a recovery point it is unknown what was durable, and what the device cannot read may
                # be anything: cut nothing. It must not keep the node from starting.
                state.note_damage(len(state.segments) - 1, state.end, position, str(bad))
            else:
                _cut(state, segment, position, bad, report)
            break
    state.active_index.forget_recent(state.end)
    _write_again(segment, start, position)


def _mend(
    state: LogState,
    segment: Segment,
    position: int,
    tail: JournaledTail,
    limit: Offset | None,
    report: RecoveryReport,
) -> bool:
    """Write what the journal has from the end of the log on where it stood; returns whether it has anything.

    What stood behind the end of the file is appended later, unless it is known to belong to this segment.
    """
    assert segment.writer is not None
    content, end = bytearray(), state.end
    for batch in tail.batches_from(state.end):
        stop = position + len(content) + len(batch.content)
        if (stop > segment.size_bytes) if limit is None else (batch.header.next_offset > limit):
            break
        content += batch.content
        end = Offset(batch.header.next_offset)
        if len(content) >= MEND_BYTES:
            break
    if not content:
        return False
    segment.writer.pwrite(position, bytes(content))
    segment.size_bytes = max(segment.size_bytes, position + len(content))
    _note_restored(state, report, state.end, end)
    return True


def _leave_out(
    state: LogState,
    segment: Segment,
    position: int,
    tail: JournaledTail,
    limit: Offset | None,
    reason: str,
) -> int | None:
    """Note a bad batch as lost and go on behind it; returns where, or None if there is nothing behind it."""
    if tail.durable <= state.end:
        return None

    def is_possible(header: BatchHeader) -> bool:
        return header.leader_epoch >= state.epochs.latest and tail.is_epoch_of(header)

    offsets = range(state.end + 1, tail.durable if limit is None else limit)
    found = find_behind(segment.file, position, segment.size_bytes, offsets, is_possible)
    if found is not None:
        stop, end = _mend_before(state, segment, position, found, tail)
    else:
        start = tail.next_start(state.end)
        is_here = start is not None and start > state.end and (limit is None or start < limit)
        behind = start if is_here else limit
        if behind is None:
            return None
        stop, end = segment.size_bytes, behind
    state.add_damage(segment, CorruptRange(segment.base_offset, state.end, end, reason, position, stop))
    state.note_unsure(state.end)
    state.end = end
    return stop


def _mend_before(
    state: LogState, segment: Segment, position: int, found: FoundBatch, tail: JournaledTail
) -> tuple[int, Offset]:
    """Where what is good begins, with what the journal has right before a good batch.

    Batches stand back to back: what came before it in the log stood before it in the file.
    """
    stop, end = found.position, Offset(found.header.base_offset)
    for run in tail.runs(state.end, end):
        content = b"".join(batch.content for batch in run)
        if run[-1].header.next_offset == end and stop - len(content) > position:
            assert segment.writer is not None
            segment.writer.pwrite(stop - len(content), content)
            return stop - len(content), Offset(run[0].header.base_offset)
    return stop, end


class TailScan:
    """Checks the batches of a segment one by one, up to `position` so far.

    Nearly all of them are plain: the next offset, the same epoch, data. Those are skimmed in one
    loop without an object for each, since a start may find hundreds of thousands. Whatever looks
    different in any way gets the full check, which says what is wrong with it.
    """

    def __init__(
        self,
        state: LogState,
        segment: Segment,
        position: int,
        report: RecoveryReport,
        tail: JournaledTail,
    ) -> None:
        self.position = position
        self._state = state
        self.segment = segment
        self._report = report
        self._tail = tail
        self._chunk = b""
        self._chunk_start = position

    def run(self) -> None:
        """Check up to the end of the segment; raises CorruptBatch or DiskFailed."""
        while self.position < self.segment.size_bytes:
            self._read()
            self._skim()
            while (at := self.position - self._chunk_start) < len(self._chunk):
                try:
                    header = check_batch(self._chunk, at, compacted=True)
                except BatchIncomplete:
                    if at:
                        # The rest of it is in the next chunk, or nowhere.
                        break
                    # It is larger than a chunk, or the file ends in it.
                    batch = next(checked_batches(self.segment.file, self.position, self.segment.size_bytes))
                else:
                    content = memoryview(self._chunk)[at : at + header.size_bytes]
                    batch = CheckedBatch(self.position, header, content, self.position + len(content))
                self.take(batch)
                self._skim()

    def _read(self) -> None:
        length = min(SCAN_BYTES, self.segment.size_bytes - self.position)
        # By its writer, which is open: a node would have to open a reader for each of its logs.
        assert self.segment.writer is not None
        self._chunk = self.segment.writer.pread(self.position, length)
        self._chunk_start = self.position
        if not self._chunk:
            raise BatchIncomplete(HEADER_BYTES, 0)

    def take(self, batch: CheckedBatch) -> None:
        """Count a batch that was found good, if it follows what came before."""
        _check_place(self._state, self.segment, batch)
        self._tail.check_epoch(batch.header)
        _count(self._state, batch)
        self._passed(batch.position + batch.header.size_bytes, 1)

    def _passed(self, position: int, batches: int) -> None:
        self._report.bytes_read += position - self.position
        self._report.batches_read += batches
        self.position = position

    def _skim(self) -> None:
        """Take the plain batches from here on, for as far as they lie within the chunk."""
        state, segment, chunk = self._state, self.segment, self._chunk
        if not segment.gapless:
            return
        index, epoch = state.active_index, state.epochs.latest
        end: int = state.end
        until = self._tail.same_epoch_until(end, epoch)
        at, first, stop = self.position - self._chunk_start, self._chunk_start, len(chunk)
        last_header, count, newest = stop - HEADER_BYTES, 0, index.max_timestamp
        unpack, crc32c = SKIMMED.unpack_from, crc32.iscsi
        row_at, time_row_at, row_ms = index.next_rows()
        # Where the next batch stands in the chunk that may get a row.
        next_row = min(row_at, time_row_at) - first
        while at <= last_header and end < until:
            base, length, batch_epoch, magic, crc, flags, delta, latest, producer, records = unpack(chunk, at)
            next_at = at + PREFIX_BYTES + length
            if (
                base != end
                or batch_epoch != epoch
                or magic != MAGIC
                or length < BATCH_LENGTH_MIN
                or next_at > stop
                or flags & (CONTROL | CODEC_MASK) > CODEC_MAX
                or not 0 <= records <= delta + 1
                or delta < 0
                or crc32c(chunk[at + CRC_START : next_at]) != crc
            ):
                break
            if producer >= 0:
                header = BatchHeader(*LAYOUT.unpack_from(chunk, at))
                state.producers.update(header, Offset(base), seen_at(state, latest))
            if latest > newest:
                newest = latest
            if at >= next_row and (first + at >= row_at or newest >= row_ms):
                index.note(base, base + delta, first + at, newest)
                row_at, time_row_at, row_ms = index.next_rows()
                next_row = min(row_at, time_row_at) - first
            count += 1
            end = base + delta + 1
            at = next_at
        index.max_timestamp = newest
        state.end = Offset(end)
        self._passed(first + at, count)


def _write_again(segment: Segment, start: int, end: int) -> None:
    """Make the kernel write what is about to be called durable, even if it believes that it has.

    If the last process ended because a sync failed, these bytes may be in memory only, on pages
    that are marked clean: the next sync would succeed without writing them.
    """
    assert segment.writer is not None
    for first, stop in segment.readable_ranges(start):
        for position in range(first, min(stop, end), SCAN_BYTES):
            size = min(SCAN_BYTES, stop - position, end - position)
            segment.writer.pwrite(position, segment.writer.pread(position, size))


def _check_place(state: LogState, segment: Segment, batch: CheckedBatch) -> None:
    """The fields outside of the CRC: offset and epoch must follow what came before."""
    header = batch.header
    if header.base_offset < state.end or (segment.gapless and header.base_offset != state.end):
        raise CorruptBatch(f"offset {header.base_offset} stands where {state.end} should")
    if header.leader_epoch < state.epochs.latest:
        raise CorruptBatch(f"leader epoch {header.leader_epoch} follows {state.epochs.latest}")


def _count(state: LogState, batch: CheckedBatch) -> None:
    header = batch.header
    if header.producer_id >= 0:
        now = seen_at(state, header.max_timestamp)
        content: Buffer = batch.content
        if header.is_control and state.keys is not None:
            content = state.keys.table.unseal_one(content, header)
        aborted = fold_batch(state.producers, header, content, now)
        if aborted is not None:
            state.active_index.note_aborted(aborted)
    state.active_index.note(header.base_offset, header.last_offset, batch.position, header.max_timestamp)
    if header.leader_epoch > state.epochs.latest:
        state.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        state.epochs_changed = True
    state.end = Offset(header.next_offset)


def _keep(state: LogState, file: PositionalReader, position: int, end: int, name: str) -> str | None:
    """As `copy_to_quarantine`; None also if the device cannot read it, since the log has to open."""
    try:
        return copy_to_quarantine(state.disk, state.directory, file, position, end, name)
    except DiskFailed as failed:
        if failed.errno != errnos.EIO:
            raise
        return None


def _cut(
    state: LogState, segment: Segment, position: int, corrupt: CorruptBatch, report: RecoveryReport
) -> None:
    assert segment.writer is not None
    lost = segment.size_bytes - position
    kept = None
    if not isinstance(corrupt, BatchIncomplete):
        # An unfinished write ends the file. Anything else may be what a power cut left of several
        # writes, or good records behind a damaged one. We cannot tell which, so it is kept.
        end, name = segment.file.size(), f"{state.end:020d}{CUT}"
        kept = _keep(state, segment.file, position, end, name)
        if kept is None:
            state.note_damage(len(state.segments) - 1, state.end, position, f"{corrupt}; {NOT_KEPT}")
            return
    segment.writer.truncate(position)
    segment.size_bytes = position
    report.bytes_read += lost
    report.cut = TailTruncation(segment.base_offset, state.end, position, lost, str(corrupt), kept)


def _drop(state: LogState, bases: Sequence[Offset], report: RecoveryReport) -> None:
    lost, kept = 0, None
    for base_offset in reversed(bases):
        path = state.segments.path(base_offset, "log")
        size = state.disk.size(path)
        lost += size
        if size:
            with closing(state.disk.open(path, readonly=True)) as file:
                name = f"{base_offset:020d}{CUT}"
                kept = _keep(state, file, 0, size, name)
            if kept is None:
                segment = state.segments.active
                reason = f"segment {base_offset} does not follow it; {NOT_KEPT}"
                state.note_damage(len(state.segments) - 1, state.end, segment.size_bytes, reason)
                return
        state.segments.remove_files(base_offset)
    if report.cut is None:
        report.cut = TailTruncation(bases[0], state.end, 0, lost, "the segment before it ends early", kept)
    else:
        report.cut = report.cut._replace(
            lost_bytes=report.cut.lost_bytes + lost, kept=report.cut.kept or kept
        )


def _close_writer(state: LogState) -> None:
    """A full segment of the tail: make it durable, since nothing else will."""
    segment = state.segments.active
    if segment.writer is not None:
        segment.writer.sync()
        segment.writer.close()
        segment.writer = None


class DecodedCheckpoint(NamedTuple):
    """A checkpoint, and what two of its fields say. One whose fields cannot be read is none."""

    checkpoint: Checkpoint
    producers: ProducerStateManager
    epochs: LeaderEpochHistory
    # This process has made the log and knows what is in its files.
    is_new: bool = False


def open_log(
    disk: Disk,
    directory: str,
    topic_id: TopicId,
    options: LogOptions,
    services: LogServices,
    *,
    is_synced_later: bool = False,
) -> tuple[LogState, RecoveryReport]:
    """Recover the log in `directory`; with `is_synced_later`, it may end behind what is durable."""
    _check_topic(disk, directory, topic_id)
    report = RecoveryReport()
    names = disk.listdir(directory)
    bases = _tidy(disk, directory, names)
    noted = read_loss(disk, directory) if file_names.LOSS in names else NOTHING_LOST
    found = _read_checkpoint(disk, directory)
    if found is None:
        report.checkpoint_lost = True
        found = _decoded(_without_checkpoint(disk, directory, bases, options))
    checkpoint = found.checkpoint
    if any(name.endswith(CLEANED) for name in names):
        redo_swaps(disk, directory, checkpoint)
    state = build_state(disk, directory, options, checkpoint, services)
    try:
        if file_names.KEYS in names:
            state.keys = open_keys(
                disk, directory, services.vault, state.durability, is_on=options.is_encrypted
            )
        else:
            check_never_keyed(services.vault, directory)
        _recover(state, bases, report, noted, found, is_synced_later=is_synced_later)
    except BaseException as failed:
        # It may be tried again and again.
        state.segments.abandon(state.durability.retire)
        if services.journal is not None and isinstance(failed, DiskFailed | KeyUnavailable):
            # A key may come back as long as this node lives, and longer.
            is_full = isinstance(failed, DiskFull | KeyUnavailable)
            services.journal.not_opened(is_full=is_full)
        raise
    return state, report


def open_created_log(
    disk: Disk, directory: str, options: LogOptions, services: LogServices, position: JournalPosition
) -> tuple[LogState, RecoveryReport]:
    """Open a log that `create_log` has made for this process, with the same `position`, and nobody has used.

    Only its segment is opened: a topic may have thousands of partitions, and clients of others wait.
    """
    report = RecoveryReport()
    found = _decoded(_empty_checkpoint(position))._replace(is_new=True)
    state = build_state(disk, directory, options, found.checkpoint, services)
    try:
        if services.vault is not None:
            state.keys = open_keys(
                disk, directory, services.vault, state.durability, is_on=options.is_encrypted
            )
        _recover(state, [found.checkpoint.segment], report, NOTHING_LOST, found, is_synced_later=False)
    except BaseException:
        state.segments.abandon(state.durability.retire)
        raise
    return state, report


def _recover(
    state: LogState,
    bases: Sequence[Offset],
    report: RecoveryReport,
    noted: NotedLoss,
    found: DecodedCheckpoint,
    *,
    is_synced_later: bool,
) -> None:
    """From the checkpoint to a log that can be used."""
    checkpoint, journal = state.checkpoint, state.journal
    tail = JournaledTail(None)
    if journal is not None:
        tail = JournaledTail(journal, journal.recover(checkpoint.journal, state.directory))
        # What is appended from the journal need not go there again.
        journal.is_on = False
    report.recovery_point = checkpoint.recovery_point
    _add_sealed(state, bases)
    _add_checkpointed(state, bases, report)
    state.producers = found.producers
    if not found.is_new:
        _restore_epochs(state, report, found.epochs)
    following = [base for base in bases if base > checkpoint.segment]
    recover_tail(state, following, report, tail)
    if journal is not None:
        restore_tail(state, tail, report)
    _settle_keys(state)
    state.doubt = _doubt_about(state, report) or state.doubt
    _restore_loss(state, report, noted)
    _note_found(state, report)
    is_only_longer = journal is not None and _is_only_longer(state, following, report)
    if not (is_only_longer and report.doubt):
        # Before the checkpoint, which is behind what the journal says of it.
        state.note_loss()
    if journal is not None and is_only_longer:
        _keep_in_journal(state, journal, tail, is_synced_later=is_synced_later)
        return
    is_checkpointed = _settle(state, following, report)
    if journal is not None:
        journal.opened(state.end, state.lost_end, is_checkpointed=is_checkpointed)


def _settle_keys(state: LogState) -> None:
    """Have the key table say what the files do, and have what is appended sealed if it is to be."""
    if state.keys is None:
        if state.vault is None:
            return
        check_never_sealed(state.segments, state.directory)
        rows, is_on = (KeyRow(state.segments[0].base_offset, PLAIN_ID),), state.options.is_encrypted
        state.keys = new_keys(state.disk, state.directory, state.vault, state.durability, rows, is_on=is_on)
    is_new = not state.keys.master_key
    aside = f"{state.directory}/{QUARANTINE}"
    has_copies = state.disk.is_directory(aside) and bool(state.disk.listdir(aside))
    is_other = state.keys.settle(state.segments, state.end, is_new=is_new, has_copies=has_copies)
    # A power cut may have come between the table and the segment that was to begin.
    is_other = is_other or state.keys.is_mixed(state.segments.active.base_offset)
    if is_other and state.stopped is None and state.segments.active.size_bytes:
        # Plain batches and sealed ones do not stand in one file.
        _begin_segment(state, state.end)
        checkpoint_now(state)
    if state.key_table is None:
        return
    for segment in state.segments:
        # Seals are checked when somebody reads them, off the loop.
        if segment.writer is not None and segment.size_bytes:
            segment.file.unverified = [(0, segment.size_bytes)]
        elif segment.size_bytes:
            segment.file.distrust()


def _doubt_about(state: LogState, report: RecoveryReport) -> str:
    """Why the checkpoint does not tell how far the log was durable; empty if it does."""
    if report.checkpoint_lost:
        return CHECKPOINT_LOST
    position, journal = state.checkpoint.journal, state.journal
    if journal is None:
        return ""
    if position == NO_POSITION:
        return OLD_COPY if journal.is_old_copy(position) else ""
    now = journal.position
    if _names_other_journal(state):
        return "its checkpoint names another journal: its files were copied, or the journal was"
    if position.sequence > now.sequence:
        return "its checkpoint is newer than the journal, which is an old copy"
    return OLD_COPY if journal.is_old_copy(position) else ""


def _names_other_journal(state: LogState) -> bool:
    position, journal = state.checkpoint.journal, state.journal
    return (
        journal is not None and position != NO_POSITION and position.journal_id != journal.position.journal_id
    )


def _was_cut(state: LogState) -> bool:
    """Whether another journal has what was cut off before the checkpoint.

    Only the start that lost the state of that journal can tell it from what is newer.
    """
    checkpoint, journal = state.checkpoint, state.journal
    return journal is not None and journal.has_outdated(checkpoint.journal, checkpoint.recovery_point)


def _restore_loss(state: LogState, report: RecoveryReport, noted: NotedLoss) -> None:
    """Add what a former start or scrub has noted to what was found, unless that is good again."""
    state.noted = noted
    if report.checkpoint_lost and state.segments[0].base_offset > 0:
        state.doubt = state.doubt or "the checkpoint is lost, and with it where the log began"
    state.doubt = report.doubt = state.doubt or noted.doubt
    state.lost_end = max(state.lost_end, noted.lost_end)
    if state.end < state.lost_end:
        reason = report.cut.reason if report.cut is not None else "its files end early"
        report.lost = LostTail(state.end, state.lost_end, reason)
    else:
        state.lost_end = Offset(0)
    listed = {segment.base_offset: segment for segment in state.segments.items[:-1]}
    for damage in noted.damage:
        segment = listed.get(damage.segment)
        if segment is None or damage.end <= state.start:
            continue
        # What is behind its end was cut off, and the node ended before that was noted.
        is_there = damage.start < state.segments.reach_of(segment, state.end)
        if is_there and not _is_good_again(state, segment, damage):
            state.add_damage(segment, damage)
    _find_holes(state, noted)


def _find_holes(state: LogState, noted: NotedLoss) -> None:
    """Look for holes in sealed segments if the note that would name them cannot be read, or may be gone.

    The checkpoint has the size that a segment was left with, which says nothing. A log that is unsure has had
    a hole, which was filled or deleted, or else is in the note.
    """
    first = state.segments[0].base_offset
    if not noted.is_unreadable:
        if state.unsure_from is None or noted.damage or state.unsure_from < first:
            return
        first = state.unsure_from
    for index, segment in enumerate(state.segments.items[:-1]):
        end = state.segments.end_of(index, state.end)
        # Where compaction, or another replica's, has left gaps there is no telling.
        if segment.damage or not segment.gapless or end <= first:
            continue
        try:
            reached = walk_through(segment)
        except DiskFailed:
            # The log has to open. Whoever reads it, or scrubs it, meets the same.
            continue
        if reached.offset < end:
            state.note_damage(index, reached.offset, reached.position, reached.reason or MISSING)


def _is_good_again(state: LogState, segment: Segment, damage: CorruptRange) -> bool:
    """Whether a range can be read after all: the device has changed its mind, or somebody put it back."""
    offset: int = damage.start
    try:
        for batch in checked_batches(segment.file, damage.position, segment.size_bytes):
            if offset >= damage.end:
                break
            header = batch.header
            if header.base_offset < offset or (segment.gapless and header.base_offset != offset):
                return False
            if header.leader_epoch != state.epochs.epoch_at(Offset(header.base_offset)):
                return False
            if state.keys is not None:
                state.keys.table.unseal_one(batch.content, header)
            offset = header.next_offset
    except (CorruptionError, StorageError):
        return False
    return offset == damage.end


def _is_only_longer(state: LogState, following: Sequence[Offset], report: RecoveryReport) -> bool:
    """Whether the log is as a process left it that was killed: good batches behind its checkpoint.

    A doubt need not be settled now if its checkpoint names another journal: until the next checkpoint,
    which notes it, every start finds it again, and everything that this journal says is newer. That the
    node has lost its journal puts all of its logs in doubt at once.
    """
    as_it_was = not (following or report.indexes_rebuilt or report.epochs_rebuilt or report.checkpoint_lost)
    is_doubt_lasting = not report.doubt or (_names_other_journal(state) and not _was_cut(state))
    whole = is_doubt_lasting and not (report.cut or report.restored or report.lost or state.damage)
    return as_it_was and whole and state.stopped is None and state.end > state.checkpoint.recovery_point


def _keep_in_journal(
    state: LogState, journal: LogJournal, tail: JournaledTail, *, is_synced_later: bool
) -> None:
    """Take the log as it is, without a checkpoint: a node may have thousands, and clients wait.

    What the journal holds is durable there. A checkpoint follows in the background; until then the
    journal keeps what it has about the log. What was still to be synced when the process ended is
    synced now, or put into the frame of the first round, one for all logs.
    """
    durable = max(tail.durable, state.checkpoint.recovery_point)
    segment = state.segments.active
    if state.end > durable and not is_synced_later:
        assert segment.writer is not None
        segment.writer.sync()
        durable = state.end
    state.durability.synced = durable
    journal.opened(durable, state.lost_end, is_checkpointed=False)
    position = segment.locate(durable) if state.end > durable else None
    if position is not None and segment.size_bytes - position <= journal.room:
        content = segment.file.pread(position, segment.size_bytes - position)
        journal.resume(durable, state.end, content)


def _check_topic(disk: Disk, directory: str, topic_id: TopicId) -> None:
    content = read_file(disk, f"{directory}/{file_names.IDENTITY}")
    if content is None:
        raise IncompleteLog(f"{directory} has no {file_names.IDENTITY}: its creation was not finished")
    found = decode_identity(content)
    if found != topic_id:
        raise WrongTopic(directory, topic_id, found)


def _tidy(disk: Disk, directory: str, names: Sequence[str]) -> list[Offset]:
    """Remove what unfinished writes left behind; returns the base offsets of the segments."""
    parsed = [(name, file_names.parse_numbered(name)) for name in names]
    bases = [Offset(number[0]) for _, number in parsed if number is not None and number[1] == file_names.LOG]
    known = set(bases)
    for name, number in parsed:
        if name.endswith((file_names.TEMPORARY, file_names.DOOMED)) or (
            number is not None and number[0] not in known
        ):
            disk.remove(f"{directory}/{name}")
    return bases


def _read_checkpoint(disk: Disk, directory: str) -> DecodedCheckpoint | None:
    try:
        content = read_if_good(disk, f"{directory}/{file_names.CHECKPOINT}")
        return None if content is None else _decoded(decode_checkpoint(content))
    except CorruptionError:
        return None


def _decoded(checkpoint: Checkpoint) -> DecodedCheckpoint:
    return DecodedCheckpoint(
        checkpoint, decode_snapshot(checkpoint.producers), parse_epoch_rows(checkpoint.epochs)
    )


def _without_checkpoint(
    disk: Disk, directory: str, bases: Sequence[Offset], options: LogOptions
) -> Checkpoint:
    """Start at the very beginning; only what the first segment's snapshot knows is kept."""
    first = bases[0] if bases else Offset(0)
    producers = encode_snapshot(ProducerStateManager())
    content = read_file(disk, f"{directory}/{file_names.numbered(first, file_names.SNAPSHOT)}")
    if content is not None:
        try:
            producers = bytes(unframe(FileKind.SNAPSHOT, content))
            decode_snapshot(producers)
        except CorruptionError:
            producers = encode_snapshot(ProducerStateManager())
    return Checkpoint(
        recovery_point=first,
        segment=first,
        position=0,
        log_start=first,
        high_watermark=first,
        # An offset is outside of its batch's CRC: only what follows it without a gap is sure.
        gapless=not options.may_have_gaps,
        producers=producers,
    )


def _add_sealed(state: LogState, bases: Sequence[Offset]) -> None:
    """The full segments: whatever the checkpoint does not list was removed on purpose."""
    checkpoint = state.checkpoint
    present = set(bases)
    rows = checkpoint.sealed
    ends = [*(row.base_offset for row in rows), checkpoint.segment][1:]
    for row, end in zip(rows, ends, strict=True):
        if end <= checkpoint.log_start:
            # Deleted, as the log start says; the files may have come back with a power cut.
            state.segments.remove_files(row.base_offset)
            continue
        size = (
            state.disk.size(state.segments.path(row.base_offset, file_names.LOG))
            if row.base_offset in present
            else 0
        )
        segment = state.segments.add_sealed(row.base_offset, min(size, row.size_bytes))
        segment.file.distrust()
        segment.gapless, segment.cleaned = row.gapless, row.cleaned
        segment.tombstones_until = UNKNOWN_MS if row.cleaned else None
        if size < row.size_bytes:
            _note_short(state, segment, row.size_bytes, end)
    listed = {row.base_offset for row in rows}
    for base in bases:
        if base < checkpoint.segment and base not in listed:
            state.segments.remove_files(base)


def _note_short(state: LogState, segment: Segment, expected_bytes: int, end: Offset) -> None:
    """A segment has lost its end, or all of it."""
    reached = walk_through(segment)
    reason = f"{segment.size_bytes} of {expected_bytes} bytes are there"
    before, state.end = state.end, end
    state.note_damage(len(state.segments) - 1, reached.offset, reached.position, reason)
    state.end = before


def _add_checkpointed(state: LogState, bases: Sequence[Offset], report: RecoveryReport) -> None:
    """The segment that was growing when the checkpoint was taken."""
    checkpoint = state.checkpoint
    missing = checkpoint.segment not in bases
    segment = state.segments.add_active(checkpoint.segment)
    if missing:
        # Nothing else may need a sync of the directory before this file holds something durable.
        state.disk.sync_directory(state.directory)
    segment.gapless = checkpoint.gapless
    # What follows the recovery point is read now; the rest when somebody asks for it.
    segment.file.unverified = [(0, checkpoint.position)] if checkpoint.position else []
    segment.first_append_at = checkpoint.first_append_at
    if segment.size_bytes < checkpoint.position:
        if missing:
            # Made only so that the log has a segment; a file of no bytes is no evidence.
            segment.size_bytes = 0
        segment.index = index = index_of(state, segment, segment.size_bytes)[0]
        try:
            # The producers are those of the checkpoint, and these rows, too, were there before the damage.
            index.aborted = _checkpointed_rows(state, segment, ABORTED)
        except CorruptionError:
            state.note_unsure(segment.base_offset)
        _note_short(state, segment, checkpoint.position, checkpoint.recovery_point)
        return
    rebuilt = report.indexes_rebuilt
    tables = _load_tables(state, segment, report)
    segment.index = index = ActiveIndex.restore(
        segment.base_offset,
        state.options,
        tables,
        (checkpoint.recovery_point, checkpoint.position),
        checkpoint.max_timestamp,
    )
    if report.indexes_rebuilt > rebuilt:
        # What the files have is unknown, or not there: the next checkpoint writes them anew.
        index.flushed_rows = [0, 0, 0]


def _load_tables(
    state: LogState, segment: Segment, report: RecoveryReport
) -> "tuple[array[int], array[int], array[int]]":
    checkpoint = state.checkpoint
    try:
        tables = [_checkpointed_rows(state, segment, shape) for shape in SHAPES]
    except CorruptionError:
        report.indexes_rebuilt += 1
        report.bytes_read += checkpoint.position
        index, whole = index_of(state, segment, checkpoint.position)
        if whole:
            index.aborted = aborted_of(state, segment, checkpoint.position)
        else:
            # The damage is found by whoever reads it.
            try:
                index.aborted = _checkpointed_rows(state, segment, ABORTED)
            except CorruptionError:
                state.note_unsure(segment.base_offset)
        return index.offsets, index.times, index.aborted
    return tables[0], tables[1], tables[2]


def _checkpointed_rows(state: LogState, segment: Segment, shape: IndexRowFormat) -> "array[int]":
    """The rows of a growing index that the checkpoint knows, or CorruptFile."""
    mark, content = state.checkpoint.marks[SHAPES.index(shape)], b""
    if mark == NO_ROWS:
        return array(shape.code)
    if mark.rows:
        content = read_if_good(state.disk, state.segments.path(segment.base_offset, shape.suffix)) or b""
    return parse_rows(shape, content, *mark)


def _restore_epochs(state: LogState, report: RecoveryReport, epochs: LeaderEpochHistory) -> None:
    """From the checkpoint, which changes together with the rest; the file of their own is a copy."""
    copy = epochs
    try:
        content = read_if_good(state.disk, f"{state.directory}/{file_names.EPOCHS}")
        if report.checkpoint_lost or unframe(FileKind.EPOCHS, content or b"") != state.checkpoint.epochs:
            copy = decode_epochs(content or b"")
    except CorruptionError:
        report.epochs_rebuilt = True
        state.epochs_changed = True
        copy = LeaderEpochHistory()
        if report.checkpoint_lost and state.stopped is None:
            copy = epochs_between(state, state.checkpoint.recovery_point)
    state.epochs = copy if report.checkpoint_lost else epochs
    if copy is not state.epochs and list(copy.entries()) != list(epochs.entries()):
        state.epochs_changed = True
    state.epochs.advance_to(state.start)
    # Entries behind the recovery point are found again in the tail, if their data is there.
    state.epochs.truncate_to(state.checkpoint.recovery_point)


def _note_found(state: LogState, report: RecoveryReport) -> None:
    state.start = max(state.start, state.segments[0].base_offset)
    state.high_watermark = min(state.high_watermark, state.end)
    state.stats.indexes_rebuilt += report.indexes_rebuilt
    state.stats.lost_ranges += report.lost is not None
    report.end = state.end
    report.corruption = tuple(state.damage.values())


def _settle(state: LogState, following: Sequence[Offset], report: RecoveryReport) -> bool:
    """Make what was recovered durable; returns whether the checkpoint on disk covers it."""
    changed = state.end != state.checkpoint.recovery_point or report.cut is not None
    changed = changed or bool(following) or report.indexes_rebuilt > 0
    changed = changed or report.epochs_rebuilt or report.checkpoint_lost or report.restored is not None
    # One that names the journal of this node as it is now, so that the doubt is not found again.
    changed = changed or bool(report.doubt) or state.unsure_from != state.checkpoint.unsure_from
    if not changed:
        return True
    if state.stopped is None:
        # On a full disk the log has to open all the same, so that room can be made.
        with suppress(DiskFull):
            checkpoint_now(state)
            return True
    if state.durability.stopped is None:
        # The next start reads the tail once more, and finds it.
        assert state.segments.active.writer is not None
        state.durability.sync_now(state.segments.active.writer, state.end)
    return False
