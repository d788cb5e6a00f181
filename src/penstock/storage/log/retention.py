"""Taking records out at the start of a log, by age, by size or on demand."""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from penstock.core.model import CorruptionError, Offset, StorageError, Timestamp
from penstock.storage.disk import DiskFull
from penstock.storage.log.append import roll
from penstock.storage.log.checkpoint import checkpoint_now, write_checkpoint
from penstock.storage.log.durability import Done
from penstock.storage.log.recovery import keep_snapshot
from penstock.storage.log.segment import Segment
from penstock.storage.log.state import LogState
from penstock.storage.log.types import LogStopped, OffsetOutOfRange, SegmentSummary

# How many portions of segments go with one checkpoint, which has to be durable before.
PORTIONS_PER_START = 8


def expire(state: LogState, now: Timestamp, segments_max: int | None = None) -> list[SegmentSummary]:
    """Delete the oldest segments that are too old, too many, or below the log start.

    With `segments_max` no more than so many: the log starts behind some more, which the next calls delete.
    """
    state.check_writable()
    state.producers.expire(Timestamp(now - state.options.producer_expiry_ms))
    state.producers.forgotten.expire(now)
    removed = _remove_oldest(state, _expired_count(state, now, segments_max), segments_max)
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
        removed += _remove_oldest(state, 1, None)
    return removed


def delete_records(state: LogState, before: Offset) -> Offset:
    """Raise the log start; returns where it is now. Whole segments below it go at once."""
    state.check_writable()
    if before > state.end:
        raise OffsetOutOfRange(before, state.start, state.end)
    if before > state.start:
        below = _segments_below(state, before)
        _persist_start(state, before, state.segments[below])
        if below:
            _remove_files(state, below)
    return state.start


def _segments_below(state: LogState, start: Offset) -> int:
    """How many segments hold nothing from `start` on."""
    below = 0
    while below + 1 < len(state.segments) and state.segments[below + 1].base_offset <= start:
        below += 1
    return below


class StartAdvance:
    """Raises the start of a log while the log goes on, as far as was asked for last.

        next start ─ checkpoint, which says so ─ its name durable ─ start ─ files below it removed

    What is asked for meanwhile waits for the next checkpoint, so that many requests take two.
    """

    __slots__ = ("_checkpoint", "_is_running", "_state", "_waiting")

    def __init__(self, state: LogState, checkpoint: Callable[[Done], None]) -> None:
        self._state = state
        self._checkpoint = checkpoint
        self._is_running = False
        self._waiting: list[tuple[Offset, Done]] = []

    def raise_to(self, before: Offset, done: Done) -> None:
        """Call `done` when the log starts at `before` or later, durably. Raises as `delete_records` does."""
        state = self._state
        state.check_writable()
        if before > state.end:
            raise OffsetOutOfRange(before, state.start, state.end)
        if before <= state.start:
            done(None)
            return
        if before > state.next_start:
            first_kept = state.segments[_segments_below(state, before)]
            if first_kept is not state.segments[0]:
                keep_snapshot(state, first_kept)
            state.next_start = before
        self._waiting.append((before, done))
        if not self._is_running:
            self._is_running = True
            self._checkpoint(self._checkpointed)

    def _checkpointed(self, error: StorageError | None) -> None:
        state = self._state
        if isinstance(error, DiskFull):
            # The blocking form knows how to make room.
            try:
                delete_records(state, state.next_start)
            except (StorageError, CorruptionError):
                self._fail(error)
            else:
                self._release()
        elif self._has_failed(error):
            return
        elif state.next_start <= state.start:
            self._release()
        elif state.checkpoint.log_start < state.next_start:
            # It was captured before, or something else came in between.
            self._checkpoint(self._checkpointed)
        else:
            state.durability.request_names(self._durable)

    def _durable(self, error: StorageError | None) -> None:
        state = self._state
        if self._has_failed(error):
            return
        # The log may have been cut meanwhile.
        start = min(state.next_start, state.checkpoint.log_start)
        if start > state.start:
            # A segment was begun since: a start from this checkpoint needs the one that was growing. It goes
            # with the next expiry.
            covered = state.segments.index_of(state.checkpoint.segment)
            below = min(_segments_below(state, start), covered)
            state.start = start
            state.epochs_changed = state.epochs.advance_to(start) or state.epochs_changed
            if below:
                try:
                    _remove_files(state, below)
                except StorageError as failed:
                    self._fail(failed)
                    return
        self._release()

    def _release(self) -> None:
        state = self._state
        reached = [done for before, done in self._waiting if before <= state.start]
        self._waiting = [(before, done) for before, done in self._waiting if before > state.start]
        if self._waiting and state.next_start > state.start:
            self._checkpoint(self._checkpointed)
        elif self._waiting:
            self._fail(LogStopped(state.directory, StorageError("the log was cut")))
        else:
            self._is_running = False
        for done in reached:
            done(None)

    def _has_failed(self, error: StorageError | None) -> bool:
        state = self._state
        if error is None and len(state.segments) and state.stopped is None:
            return False
        self._fail(error or LogStopped(state.directory, state.stopped or StorageError("the log was closed")))
        return True

    def _fail(self, error: StorageError) -> None:
        self._is_running = False
        self._state.next_start = Offset(0)
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)


def _remove_oldest(state: LogState, count: int, at_once: int | None) -> list[SegmentSummary]:
    """Let the log start behind the first `count` segments, never the last one, and delete them, or some."""
    if count == 0:
        return []
    first_kept = state.segments[count]
    if state.start_persisted != state.start or state.start < first_kept.base_offset:
        # Otherwise a durable checkpoint says so already, and some of the segments are left.
        _persist_start(state, max(state.start, first_kept.base_offset), first_kept)
    return _remove_files(state, count if at_once is None else min(count, at_once))


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
    state.start_persisted = start
    state.epochs_changed = state.epochs.advance_to(start) or state.epochs_changed


def _expired_count(state: LogState, now: Timestamp, at_once: int | None) -> int:
    """How many of the oldest segments may go; records above the high watermark never do.

    With `at_once` those that are left below the log start, or if there are none, a few times as many: the log
    start is raised in one go for them.
    """
    segments, options = state.segments, state.options
    total = segments.size_bytes()
    count = 0
    limit = len(segments) if at_once is None else at_once * PORTIONS_PER_START
    are_left = at_once is not None and len(segments) > 1 and segments[1].base_offset <= state.start
    while count + 1 < len(segments) and count < limit:
        segment, end = segments[count], segments[count + 1].base_offset
        if are_left and end > state.start:
            break
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
