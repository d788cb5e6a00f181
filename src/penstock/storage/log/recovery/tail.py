"""Reading what follows the recovery point."""

from collections.abc import Sequence
from contextlib import closing

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.records import BatchIncomplete, CorruptBatch
from penstock.storage.log.recovery.aside import CUT, keep_aside
from penstock.storage.log.recovery.replay import seen_at
from penstock.storage.log.recovery.report import Cut, RecoveryReport
from penstock.storage.log.segment import Checked, Segment, checked_batches
from penstock.storage.log.segment.walk import SCAN_BYTES
from penstock.storage.log.state import LogState, fold_batch


def recover_tail(state: LogState, following: Sequence[Offset], report: RecoveryReport) -> None:
    """Read the active segment from the checkpoint on, and every segment that was begun after it."""
    damaged = state.stopped is not None
    if not damaged:
        scan_segment(state, state.checkpoint.position, report)
    for index, base_offset in enumerate(following):
        if report.cut is not None or (base_offset != state.end and not damaged):
            # Segments begin where the log ends; this one belongs to an end that is gone.
            _drop(state, following[index:], report)
            return
        if damaged:
            # What followed the recovery point in the damaged segment is gone as well.
            hurt = state.segments.active.base_offset
            state.damage[hurt] = state.damage[hurt]._replace(end=base_offset)
        damaged = False
        for file in state.segments.seal_active(state.end):
            file.sync()
            file.close()
        _close_writer(state)
        state.end = base_offset
        segment = state.segments.add_active(base_offset)
        # Without a checkpoint nobody knows which segments compaction has thinned out.
        segment.gapless = not report.checkpoint_lost
        scan_segment(state, 0, report)


def scan_segment(state: LogState, position: int, report: RecoveryReport) -> None:
    """Check every batch from `position` on and let it count; cut at the first that is not good."""
    segment = state.segments.active
    start = position
    try:
        for batch in checked_batches(segment.file, position, segment.size_bytes):
            _check_place(state, segment, batch)
            _count(state, batch)
            position = batch.position + batch.header.size_bytes
            report.bytes_read += batch.header.size_bytes
            report.batches_read += 1
    except CorruptBatch as corrupt:
        if report.checkpoint_lost:
            # Without a recovery point nobody knows what was durable: cut nothing.
            state.note_damage(len(state.segments) - 1, state.end, position, str(corrupt))
        else:
            _cut(state, segment, position, corrupt, report)
    _write_again(segment, start, position)


def _write_again(segment: Segment, start: int, end: int) -> None:
    """Make the kernel write what is about to be called durable, even if it believes that it has.

    If the last life ended because a sync failed, these bytes may be in memory only, on pages
    that are marked clean: the next sync would succeed without writing them.
    """
    assert segment.writer is not None
    for position in range(start, end, SCAN_BYTES):
        segment.writer.pwrite(position, segment.file.pread(position, min(SCAN_BYTES, end - position)))


def _check_place(state: LogState, segment: Segment, batch: Checked) -> None:
    """The fields outside of the CRC: offset and epoch must follow what came before."""
    header = batch.header
    if header.base_offset < state.end or (segment.gapless and header.base_offset != state.end):
        raise CorruptBatch(f"offset {header.base_offset} stands where {state.end} should")
    if header.leader_epoch < state.epochs.latest:
        raise CorruptBatch(f"leader epoch {header.leader_epoch} follows {state.epochs.latest}")


def _count(state: LogState, batch: Checked) -> None:
    header = batch.header
    if header.producer_id >= 0:
        now = seen_at(state, header.max_timestamp)
        aborted = fold_batch(state.producers, header, batch.content, now)
        if aborted is not None:
            state.active_index.note_aborted(aborted)
    state.active_index.note(header.base_offset, header.last_offset, batch.position, header.max_timestamp)
    if header.leader_epoch > state.epochs.latest:
        state.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        state.epochs_changed = True
    state.end = Offset(header.next_offset)


def _cut(
    state: LogState, segment: Segment, position: int, corrupt: CorruptBatch, report: RecoveryReport
) -> None:
    assert segment.writer is not None
    lost = segment.size_bytes - position
    kept = None
    if not isinstance(corrupt, BatchIncomplete):
        # An unfinished write ends the file. Anything else may be what a power cut left of several
        # writes, or good records behind a damaged one: nobody can tell, so it is not thrown away.
        kept = keep_aside(state, segment.file, position, f"{state.end:020d}{CUT}")
    segment.writer.truncate(position)
    segment.size_bytes = position
    report.bytes_read += lost
    report.cut = Cut(segment.base_offset, state.end, position, lost, str(corrupt), kept)


def _drop(state: LogState, bases: Sequence[Offset], report: RecoveryReport) -> None:
    lost, kept = 0, None
    for base_offset in reversed(bases):
        path = state.segments.path(base_offset, "log")
        size = state.disk.size(path)
        lost += size
        if size:
            with closing(state.disk.open(path, readonly=True)) as file:
                kept = keep_aside(state, file, 0, f"{base_offset:020d}{CUT}") or kept
        state.segments.remove_files(base_offset)
    if report.cut is None:
        report.cut = Cut(bases[0], state.end, 0, lost, "the segment before it ends early", kept)
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
