"""Taking records out at the start of a log, by age, by size or on demand."""

from dataclasses import replace
from itertools import takewhile

from penstock.core.model import Offset, StorageError, Timestamp
from penstock.storage.disk import DiskFull
from penstock.storage.log.append import roll
from penstock.storage.log.checkpoint import checkpoint_now, write_checkpoint
from penstock.storage.log.recovery import keep_snapshot
from penstock.storage.log.segment import Segment
from penstock.storage.log.state import LogState
from penstock.storage.log.types import OffsetOutOfRange, SegmentSummary


def expire(state: LogState, now: Timestamp) -> list[SegmentSummary]:
    """Delete the oldest segments that are too old, too many, or below the log start."""
    state.check_writable()
    state.producers.expire(Timestamp(now - state.options.producer_expiry_ms))
    removed = _remove_oldest(state, _expired_count(state, now))
    active = state.segments.active
    if (
        len(state.segments) == 1
        and active.size_bytes
        and state.end <= state.high_watermark
        and _is_too_old(state, active, now)
    ):
        # A log without writes must not keep its last records for ever. The others go first: a new
        # segment needs room.
        roll(state, state.end)
        removed += _remove_oldest(state, 1)
    return removed


def delete_records(state: LogState, before: Offset) -> Offset:
    """Raise the log start; returns where it is now. Whole segments below it go at once."""
    state.check_writable()
    if before > state.end:
        raise OffsetOutOfRange(before, state.start, state.end)
    if before > state.start:
        below = 0
        while below + 1 < len(state.segments) and state.segments[below + 1].base_offset <= before:
            below += 1
        _persist_start(state, before, state.segments[below])
        if below:
            _remove_files(state, below)
    return state.start


def _remove_oldest(state: LogState, count: int) -> list[SegmentSummary]:
    """Delete the first `count` segments, never the last one."""
    if count == 0:
        return []
    first_kept = state.segments[count]
    _persist_start(state, max(state.start, first_kept.base_offset), first_kept)
    return _remove_files(state, count)


def _remove_files(state: LogState, count: int) -> list[SegmentSummary]:
    """Delete segments that the checkpoint on disk no longer needs."""
    segments = state.segments
    removed, doomed = [], list[str]()
    for _ in range(count):
        segment = segments.forget(0)
        end = segments[0].base_offset
        removed.append(SegmentSummary(segment.base_offset, end, segment.size_bytes))
        state.set_damage(segment, ())
        if state.discard is None:
            segments.remove_files(segment.base_offset)
        else:
            doomed += segments.mark_deleted(segment.base_offset)
    if state.discard is None:
        state.disk.sync_directory(state.directory)
    else:
        # Whatever comes back with a power cut is below the log start, or has the name of a deleted file.
        state.discard(doomed, state.options.file_delete_delay_ms)
    return removed


def _persist_start(state: LogState, start: Offset, first_kept: Segment) -> None:
    """Make a new log start durable, on a full disk too."""
    try:
        _write_start(state, start, first_kept)
    except DiskFull:
        # Nothing may go before a checkpoint says so, but what is about to go has indexes, which
        # could be rebuilt: they make room for it.
        if first_kept is state.segments[0]:
            raise
        for segment in takewhile(lambda segment: segment is not first_kept, state.segments):
            state.segments.remove_indexes(segment)
        _write_start(state, start, first_kept)


def _write_start(state: LogState, start: Offset, first_kept: Segment) -> None:
    """Replace the last checkpoint, as far as it is still good, by one with another start."""
    if first_kept is not state.segments[0]:
        keep_snapshot(state, first_kept)
    before, state.start = state.start, start
    last = state.checkpoint
    try:
        if first_kept.base_offset > last.segment or start > last.recovery_point:
            checkpoint_now(state)
        else:
            write_checkpoint(state, replace(last, log_start=start))
    except StorageError:
        # A start that is not durable must not be reported: it would come back after a crash.
        state.start = before
        raise
    state.epochs_changed = state.epochs.advance_to(start) or state.epochs_changed


def _expired_count(state: LogState, now: Timestamp) -> int:
    """How many of the oldest segments may go; records above the high watermark never do."""
    segments, options = state.segments, state.options
    total = segments.size_bytes()
    count = 0
    while count + 1 < len(segments):
        segment, end = segments[count], segments[count + 1].base_offset
        too_many = 0 <= options.retention_bytes <= total - segment.size_bytes
        if end > state.high_watermark:
            break
        if not (too_many or end <= state.start or _is_too_old(state, segment, now)):
            break
        total -= segment.size_bytes
        count += 1
    return count


def _is_too_old(state: LogState, segment: Segment, now: Timestamp) -> bool:
    retention_ms = state.options.retention_ms
    # Records without a timestamp have no age.
    return retention_ms >= 0 and 0 <= segment.index.max_timestamp < now - retention_ms
