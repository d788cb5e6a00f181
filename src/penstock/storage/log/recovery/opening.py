"""Putting a log together from its directory."""

from array import array
from collections.abc import Callable, Sequence

from penstock.core.model import CorruptionError, Offset, TopicId
from penstock.core.replica import LeaderEpochHistory, decode_snapshot, encode_snapshot
from penstock.core.replica.producer_state import ProducerStateManager
from penstock.storage.disk import Disk, DiskFull
from penstock.storage.log import names
from penstock.storage.log.checkpointing import checkpoint_now
from penstock.storage.log.durability import Commit
from penstock.storage.log.errors import IncompleteLog, WrongTopic
from penstock.storage.log.files.checkpoint import Checkpoint, decode_checkpoint
from penstock.storage.log.files.epochs import decode_epochs, parse_epoch_rows
from penstock.storage.log.files.frame import Kind, read_file, unframe
from penstock.storage.log.files.identity import decode_identity
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.rows import SHAPES, parse_rows
from penstock.storage.log.options import LogOptions
from penstock.storage.log.recovery.creating import build_state
from penstock.storage.log.recovery.replay import aborted_of, epochs_between, index_of, walk_through
from penstock.storage.log.recovery.report import RecoveryReport
from penstock.storage.log.recovery.swaps import redo_swaps
from penstock.storage.log.recovery.tail import recover_tail
from penstock.storage.log.segment import UNKNOWN_MS, Segment
from penstock.storage.log.state import LogState


def open_log(
    disk: Disk,
    directory: str,
    topic_id: TopicId,
    options: LogOptions,
    commit: Commit | None,
    ticks: Callable[[], int] | None,
) -> tuple[LogState, RecoveryReport]:
    """Recover the log in `directory`."""
    _check_topic(disk, directory, topic_id)
    report = RecoveryReport()
    bases = _tidy(disk, directory)
    checkpoint = _read_checkpoint(disk, directory)
    if checkpoint is None:
        report.checkpoint_lost = True
        checkpoint = _without_checkpoint(disk, directory, bases)
    redo_swaps(disk, directory, checkpoint)
    state = build_state(disk, directory, options, checkpoint, commit, ticks)
    report.recovery_point = checkpoint.recovery_point
    _add_sealed(state, bases)
    _add_checkpointed(state, bases, report)
    state.producers = decode_snapshot(checkpoint.producers)
    _restore_epochs(state, report)
    following = [base for base in bases if base > checkpoint.segment]
    recover_tail(state, following, report)
    _settle(state, following, report)
    return state, report


def _check_topic(disk: Disk, directory: str, topic_id: TopicId) -> None:
    content = read_file(disk, f"{directory}/{names.IDENTITY}")
    if content is None:
        raise IncompleteLog(f"{directory} has no {names.IDENTITY}: its creation was not finished")
    found = decode_identity(content)
    if found != topic_id:
        raise WrongTopic(directory, topic_id, found)


def _tidy(disk: Disk, directory: str) -> list[Offset]:
    """Remove what unfinished writes left behind; answers the base offsets of the segments."""
    found = disk.listdir(directory)
    parsed = [(name, names.parse_numbered(name)) for name in found]
    bases = [Offset(number[0]) for _, number in parsed if number is not None and number[1] == names.LOG]
    known = set(bases)
    for name, number in parsed:
        if name.endswith((names.TEMPORARY, names.DOOMED)) or (number is not None and number[0] not in known):
            disk.remove(f"{directory}/{name}")
    return bases


def _read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    content = read_file(disk, f"{directory}/{names.CHECKPOINT}")
    if content is None:
        return None
    try:
        checkpoint = decode_checkpoint(content)
        decode_snapshot(checkpoint.producers)
        parse_epoch_rows(checkpoint.epochs)
    except CorruptionError:
        return None
    return checkpoint


def _without_checkpoint(disk: Disk, directory: str, bases: Sequence[Offset]) -> Checkpoint:
    """Start at the very beginning; only what the first segment's snapshot knows is kept."""
    first = bases[0] if bases else Offset(0)
    producers = encode_snapshot(ProducerStateManager())
    content = read_file(disk, f"{directory}/{names.numbered(first, names.SNAPSHOT)}")
    if content is not None:
        try:
            producers = bytes(unframe(Kind.SNAPSHOT, content))
            decode_snapshot(producers)
        except CorruptionError:
            producers = encode_snapshot(ProducerStateManager())
    return Checkpoint(
        recovery_point=first,
        segment=first,
        position=0,
        log_start=first,
        high_watermark=first,
        gapless=False,
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
            state.disk.size(state.segments.path(row.base_offset, names.LOG))
            if row.base_offset in present
            else 0
        )
        segment = state.segments.add_sealed(row.base_offset, min(size, row.size_bytes))
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
    segment.first_append_at = checkpoint.first_append_at
    if segment.size_bytes < checkpoint.position:
        if missing:
            # Made only so that the log has a segment; a file of no bytes is no evidence.
            segment.size_bytes = 0
        segment.index = index_of(state, segment, segment.size_bytes)[0]
        _note_short(state, segment, checkpoint.position, checkpoint.recovery_point)
        return
    tables = _load_tables(state, segment, report)
    segment.index = ActiveIndex.restore(
        segment.base_offset,
        state.options,
        tables,
        (checkpoint.recovery_point, checkpoint.position),
        checkpoint.max_timestamp,
    )


def _load_tables(
    state: LogState, segment: Segment, report: RecoveryReport
) -> "tuple[array[int], array[int], array[int]]":
    checkpoint = state.checkpoint
    try:
        tables = [
            parse_rows(
                shape,
                read_file(state.disk, state.segments.path(segment.base_offset, shape.suffix)) or b"",
                *mark,
            )
            for shape, mark in zip(SHAPES, checkpoint.marks, strict=True)
        ]
    except CorruptionError:
        report.indexes_rebuilt += 1
        report.bytes_read += checkpoint.position
        index, _ = index_of(state, segment, checkpoint.position)
        return index.offsets, index.times, aborted_of(state, segment, checkpoint.position)
    return tables[0], tables[1], tables[2]


def _restore_epochs(state: LogState, report: RecoveryReport) -> None:
    """From the checkpoint, which changes together with the rest; the file of their own is a copy."""
    content = read_file(state.disk, f"{state.directory}/{names.EPOCHS}")
    try:
        copy = decode_epochs(content or b"")
    except CorruptionError:
        report.epochs_rebuilt = True
        state.epochs_changed = True
        copy = LeaderEpochHistory()
        if report.checkpoint_lost and state.stopped is None:
            copy = epochs_between(state, state.checkpoint.recovery_point)
    state.epochs = copy if report.checkpoint_lost else parse_epoch_rows(state.checkpoint.epochs)
    state.epochs_changed = state.epochs_changed or list(copy.entries()) != list(state.epochs.entries())
    state.epochs.advance_to(state.start)
    # Entries behind the recovery point are found again in the tail, if their data is there.
    state.epochs.truncate_to(state.checkpoint.recovery_point)


def _settle(state: LogState, following: Sequence[Offset], report: RecoveryReport) -> None:
    """Make what was recovered durable, so that it is not recovered again."""
    state.start = max(state.start, state.segments[0].base_offset)
    state.high_watermark = min(state.high_watermark, state.end)
    state.stats.indexes_rebuilt += report.indexes_rebuilt
    report.end = state.end
    report.corruption = tuple(state.damage.values())
    changed = state.end != state.checkpoint.recovery_point or report.cut is not None
    changed = changed or bool(following) or report.indexes_rebuilt > 0
    changed = changed or report.epochs_rebuilt or report.checkpoint_lost
    if changed and state.stopped is None:
        try:
            checkpoint_now(state)
        except DiskFull:
            # Whoever wants to make room has to be able to open the log. The next start reads
            # the tail once more.
            if state.stopped is None:
                assert state.segments.active.writer is not None
                state.durability.sync_now(state.segments.active.writer, state.end)
