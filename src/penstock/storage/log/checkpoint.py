"""Checkpoints: the state of the log now, written once that much of it is durable.

    capture ─ index rows and epochs to the page cache ─ sync ─ checkpoint.tmp ─ sync ─ rename

The state is captured first and written last. In between, the log goes on: what is
appended after the capture is not part of it, and the checkpoint is never ahead of the
data. Operations that remove something take a blocking one before they do.
"""

from dataclasses import dataclass, field
from zlib import crc32

from penstock.core.model import MILLISECOND, Instant, StorageError, Timestamp
from penstock.core.replica import encode_snapshot
from penstock.storage.disk import DiskFull, File
from penstock.storage.journal import NO_POSITION, JournalPosition
from penstock.storage.log.durability import Done
from penstock.storage.log.file_names import CHECKPOINT, EPOCHS
from penstock.storage.log.files import (
    Checkpoint,
    SealedSegment,
    encode_checkpoint,
    encode_epochs,
    epoch_rows,
    parse_epoch_rows,
    replace_durably,
)
from penstock.storage.log.index import flush
from penstock.storage.log.state import LogState


@dataclass(slots=True)
class CheckpointTimer:
    """When the next checkpoint is due: so many bytes, or so long after the first new one."""

    appended_bytes: int = 0
    dirty_since: Instant | None = None
    running: bool = False
    waiting: list[Done] = field(default_factory=list)
    # What was there when the last checkpoint was found to say all of it.
    covered: tuple[object, ...] = ()

    def is_due(self, state: LogState, now: Instant) -> bool:
        if self.running:
            return False
        # A node asks thousands of quiet logs every second.
        present = _outline(state)
        if present == self.covered or is_current(state):
            self.covered = present
            self.dirty_since = None
            return False
        if self.dirty_since is None:
            self.dirty_since = now
        new_bytes = state.stats.appended_bytes - self.appended_bytes
        interval_ms = state.options.checkpoint_ms
        # Up to a quarter earlier, different between logs: those that are written together drift apart.
        early_ms = crc32(state.directory.encode()) % (interval_ms // 4 + 1)
        return (
            new_bytes >= state.options.checkpoint_bytes
            or now - self.dirty_since >= (interval_ms - early_ms) * MILLISECOND
        )

    def taken(self, state: LogState) -> None:
        self.appended_bytes = state.stats.appended_bytes
        self.dirty_since = None


def _outline(state: LogState) -> tuple[object, ...]:
    """What differs whenever `is_current` may; an epoch that starts elsewhere is another one."""
    return (
        state.end,
        state.segments.active.base_offset,
        state.start,
        state.high_watermark,
        state.unsure_from,
        state.epochs.latest,
        state.checkpoint,
    )


def is_current(state: LogState) -> bool:
    """Whether the last checkpoint says all there is to say."""
    last = state.checkpoint
    return (
        state.end == last.recovery_point
        and state.segments.active.base_offset == last.segment
        and state.start == last.log_start
        and min(state.high_watermark, state.end) == last.high_watermark
        and state.unsure_from == last.unsure_from
        and not (state.epochs_changed and _epochs_differ(state))
        and not any(row.swapping for row in last.sealed)
    )


def _epochs_differ(state: LogState) -> bool:
    """Whether the checkpoint lacks an epoch that wrote something.

    An epoch that begins at the log end has written nothing, and recovery forgets it: a restart
    of a node with thousands of quiet logs must not write to all of them.
    """
    kept = parse_epoch_rows(state.checkpoint.epochs)
    kept.truncate_to(state.end)
    return kept.entries() != tuple(entry for entry in state.epochs.entries() if entry.start < state.end)


def capture(state: LogState) -> Checkpoint:
    """The checkpoint that is right once everything appended so far is durable."""
    active = state.segments.active
    return Checkpoint(
        recovery_point=state.end,
        segment=active.base_offset,
        position=active.size_bytes,
        log_start=max(state.start, state.next_start),
        high_watermark=min(state.high_watermark, state.end),
        taken_at=state.last_append_at,
        first_append_at=active.first_append_at,
        max_timestamp=Timestamp(active.index.max_timestamp),
        gapless=active.gapless,
        marks=state.active_index.marks(),
        sealed=sealed_segments(state),
        epochs=epoch_rows(state.epochs),
        producers=encode_snapshot(state.producers),
        journal=covered(state),
        unsure_from=state.unsure_from,
    )


def covered(state: LogState) -> JournalPosition:
    """The last frame of the journal that a checkpoint taken now covers.

    A log that has lost something does not cover what says so.
    """
    if state.journal is None:
        return NO_POSITION
    if state.end < state.lost_end:
        return state.checkpoint.journal
    return state.journal.position


def sealed_segments(state: LogState) -> tuple[SealedSegment, ...]:
    """Every segment but the last."""
    return tuple(
        SealedSegment(segment.base_offset, segment.size_bytes, segment.gapless, segment.cleaned)
        for segment in state.segments
        if segment is not state.segments.active
    )


def checkpoint_now(state: LogState) -> None:
    """Make everything durable, checkpoint included, and wait for it."""
    state.check_writable()
    captured = capture(state)
    files = flush_index(state)
    try:
        for file in files:
            file.sync()
        assert state.segments.active.writer is not None
        state.durability.sync_now(state.segments.active.writer, state.end)
    except StorageError as failed:
        state.durability.stop(failed)
        raise
    finally:
        for file in files:
            file.close()
    write_checkpoint(state, captured)


def write_checkpoint(state: LogState, captured: Checkpoint) -> None:
    """Replace epochs and checkpoint durably; a background checkpoint under way is cancelled."""
    state.durability.cancel_puts()
    state.note_doubt()
    try:
        if state.epochs_changed:
            replace_durably(state.disk, state.directory, EPOCHS, encode_epochs(state.epochs))
            state.epochs_changed = False
        replace_durably(state.disk, state.directory, CHECKPOINT, encode_checkpoint(captured))
    except DiskFull:
        # Nothing was replaced, and no caller relies on it yet: it may be tried again.
        raise
    except StorageError as failed:
        state.durability.stop(failed)
        raise
    _adopt(state, captured)


def rename_checkpoint(state: LogState, captured: Checkpoint, temporary: str) -> None:
    """Like `write_checkpoint`, if the bytes are on the device already, in this file. Blocks for one sync.

    It must say the same as the last one of epochs, which are not written.
    """
    state.durability.cancel_puts()
    state.note_doubt()
    state.disk.rename(temporary, f"{state.directory}/{CHECKPOINT}")
    try:
        state.disk.sync_directory(state.directory)
    except StorageError as failed:
        state.durability.stop(failed)
        raise
    _adopt(state, captured)


def _adopt(state: LogState, captured: Checkpoint) -> None:
    """A checkpoint has taken the place of the last one for good."""
    state.checkpoint = captured
    state.stats.checkpoints += 1
    if state.journal is not None:
        state.journal.checkpointed(captured.journal)


def flush_index(state: LogState) -> list[File]:
    """Bring the files of the active index up to date."""
    return flush(state.disk, state.directory, state.segments.active.base_offset, state.active_index)


class BackgroundCheckpoint:
    """One checkpoint that is taken while the log goes on.

    Each step begins when the one before it is durable. A blocking checkpoint or a truncation
    in between cancels it: then it ends without having written anything.
    """

    __slots__ = ("_captured", "_done", "_epochs", "_puts", "_state")

    def __init__(self, state: LogState, done: Done) -> None:
        self._state = state
        self._done = done
        self._captured = capture(state)
        self._puts = state.durability.puts
        self._epochs = b""

    def start(self) -> None:
        state = self._state
        try:
            index_files = flush_index(state)
        except StorageError as failed:
            self._is_over(failed)
            return
        for file in index_files:
            state.durability.request_file(file, close=True)
        writer = state.segments.active.writer
        assert writer is not None
        state.durability.request(writer, state.end, self._log_durable)

    def _log_durable(self, error: StorageError | None) -> None:
        state = self._state
        if self._is_over(error):
            return
        if not state.epochs_changed:
            self._put_checkpoint(None)
            return
        self._epochs = encode_epochs(state.epochs)
        self._put(EPOCHS, self._epochs, self._epochs_renamed)

    def _epochs_renamed(self, error: StorageError | None) -> None:
        state = self._state
        if not self._is_over(error):
            # Not earlier: a blocking checkpoint that cancels this one has to write them itself.
            state.epochs_changed = encode_epochs(state.epochs) != self._epochs
            # If the checkpoint is lost, recovery uses these epochs, so their name must be durable.
            state.durability.request_names(self._put_checkpoint)

    def _put_checkpoint(self, error: StorageError | None) -> None:
        if not self._is_over(error):
            self._state.note_doubt()
            self._put(CHECKPOINT, encode_checkpoint(self._captured), self._in_place)

    def _in_place(self, error: StorageError | None) -> None:
        state = self._state
        if not self._is_over(error):
            state.checkpoint = self._captured
            state.stats.checkpoints += 1
            if state.journal is not None:
                # The journal may forget what the checkpoint covers once its name is durable.
                state.durability.request_names(self._names_durable)
            self._done(None)

    def _names_durable(self, error: StorageError | None) -> None:
        journal = self._state.journal
        assert journal is not None
        if error is None:
            journal.checkpointed(self._captured.journal)
        else:
            journal.checkpoint_failed()

    def _put(self, name: str, content: bytes, done: Done) -> None:
        try:
            self._state.durability.put(name, content, done)
        except StorageError as failed:
            done(failed)

    def _is_over(self, error: StorageError | None) -> bool:
        overtaken = self._puts != self._state.durability.puts
        if error is None and not overtaken:
            return False
        if self._state.journal is not None:
            self._state.journal.checkpoint_failed()
        self._done(error)
        return True
