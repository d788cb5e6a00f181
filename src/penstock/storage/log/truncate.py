"""Truncation: a follower cuts off the end of its log where it differs from the leader's."""

import errno
from bisect import bisect_left
from contextlib import closing
from typing import NamedTuple

from penstock.core.model import Offset, StorageError
from penstock.core.records import HEADER_BYTES, CorruptBatch, read_header
from penstock.core.replica import LeaderEpochHistory, ProducerStateManager, encode_snapshot
from penstock.storage.disk import DetachedReader, Disk, DiskFull
from penstock.storage.log.append import roll
from penstock.storage.log.checkpoint import checkpoint_now, covered, write_checkpoint
from penstock.storage.log.files import Checkpoint
from penstock.storage.log.index import NO_TIMESTAMP, SealedIndex
from penstock.storage.log.recovery import (
    CUT,
    copy_to_quarantine,
    nearest_snapshot,
    note_missing,
    producers_at,
)
from penstock.storage.log.segment import Segment, headers
from penstock.storage.log.state import LogState
from penstock.storage.log.types import KeptTail, LogStopped, SuspectSegment

# A cut that fails half-way ends the log, so there must be room for what it writes: checkpoint, epochs, keys.
ROOM_BYTES = 4 << 20


def truncate_to(state: LogState, offset: Offset) -> Offset:
    """Cut off every batch that reaches `offset` or beyond; returns the new end.

    Raises SuspectSegment, and cuts nothing, if the place of the cut cannot be found among the batches; and
    DiskFull if there is little room.
    An epoch that begins at the end goes even if no batch does: it wrote nothing, and on the
    leader another epoch may have written there.
    """
    if offset >= state.end and not (state.damage and state.stopped is not None):
        # Damage in the last segment may begin where the readable part ends.
        state.epochs_changed = state.epochs.truncate_to(state.end) or state.epochs_changed
        return state.end
    if offset < state.start or offset < state.segments[0].base_offset:
        truncate_fully(state, offset)
        return state.end
    _refuse_if_failed(state)
    _require_room(state)
    index = state.segments.index_of(offset)
    segment = state.segments[index]
    position, end, latest = _find_cut(state, index, offset)
    if end < state.start:
        # The batch at the cut begins below the log start: nothing that may be read is left.
        truncate_fully(state, state.start)
        return state.end
    note_missing(state, nearest_snapshot(state, end)[0], end)
    producers = producers_at(state, end)
    _begin_cut(state, end)
    doomed = _forget_behind(state, index)
    try:
        state.segments.reopen_last(create=position == 0)
        segment.size_bytes = position
        damage = [known for known in segment.damage if known.start < end and known.end <= end]
        state.set_damage(segment, ())
        state.active_index.truncate(end, position, latest)
        _end_at(state, end, producers)
        checkpoint_now(state)
        for base_offset in doomed:
            state.segments.remove_files(base_offset)
        assert segment.writer is not None
        segment.writer.truncate(position)
        segment.writer.sync()
        state.disk.sync_directory(state.directory)
    except StorageError as failed:
        state.durability.stop(failed)
        raise
    state.stats.truncations += 1
    _end_cut(state, end)
    if damage:
        # A damaged segment must not grow.
        state.set_damage(segment, damage)
        roll(state, end)
    # What is written from here on is not what was damaged, but what is in front of the cut still is.
    state.note_loss()
    return end


def _begin_cut(state: LogState, end: Offset) -> None:
    """Nothing that is written behind the cut will be under a key that what was cut off is under."""
    if state.keys is not None:
        state.keys.begin_cut(state.segments, end, state.end)


def _end_cut(state: LogState, end: Offset) -> None:
    if state.keys is not None:
        state.keys.end_cut(end)


class _TailPart(NamedTuple):
    """The part of a segment that is copied, and what the copy is called."""

    reader: DetachedReader
    position: int
    end: int
    name: str


class TailCopy:
    """Copies the batches from `offset` on to the quarantine, the first `bytes_max` bytes of them.

    Made on the loop; `work` is for a thread. Until it has ended the log must not be cut.
    """

    __slots__ = ("_directory", "_parts", "size_bytes")

    def __init__(self, state: LogState, offset: Offset, bytes_max: int) -> None:
        self._directory = state.directory
        self._parts: list[_TailPart] = []
        self.size_bytes = 0
        first, left = state.segments.index_of(max(offset, state.start)), bytes_max
        for index in range(first, len(state.segments)):
            segment = state.segments[index]
            position = _find_cut(state, index, offset)[0] if index == first else 0
            self.size_bytes += segment.size_bytes - position
            end = min(segment.size_bytes, position + left)
            if end > position:
                left -= end - position
                name = f"{max(offset, segment.base_offset):020d}{CUT}"
                reader = DetachedReader(segment.file.opened())
                self._parts.append(_TailPart(reader, position, end, name))
        if self._parts and state.keys is not None:
            # The cut, which comes next, writes the table.
            state.keys.keep(offset, state.end)

    def work(self, disk: Disk) -> KeptTail:
        """Copy, on a view of the disk of the thread's own; a full disk keeps less."""
        path, kept = None, 0
        for reader, position, end, name in self._parts:
            with closing(reader):
                copied = copy_to_quarantine(disk, self._directory, reader, position, end, name)
            if copied is not None:
                path, kept = path or copied, kept + end - position
        return KeptTail(path, kept, self.size_bytes)


def truncate_fully(state: LogState, start: Offset) -> None:
    """Throw everything away and go on at `start`."""
    _refuse_if_failed(state)
    _require_room(state)
    if state.keys is not None:
        state.keys.begin_restart(start, state.end)
    doomed = _forget_behind(state, -1)
    state.start = state.high_watermark = start
    state.start_persisted = None
    state.epochs = LeaderEpochHistory()
    _end_at(state, start, ProducerStateManager())
    state.unsure_from = None
    empty = Checkpoint(
        recovery_point=start,
        segment=start,
        position=0,
        log_start=start,
        high_watermark=start,
        taken_at=state.last_append_at,
        producers=encode_snapshot(state.producers),
        journal=covered(state),
    )
    try:
        # The checkpoint names the new segment before it exists: a start that finds no file makes one.
        write_checkpoint(state, empty)
        for base_offset in doomed:
            state.segments.remove_files(base_offset)
        state.segments.add_active(start, fresh=True)
        state.note_loss()
        state.disk.sync_directory(state.directory)
        state.durability.synced = start
    except StorageError as failed:
        state.durability.stop(failed)
        raise
    state.stats.truncations += 1
    _end_cut(state, Offset(0))


def _require_room(state: LogState) -> None:
    space = state.disk.space()
    if space is not None and space.free_bytes < ROOM_BYTES:
        raise DiskFull("truncate", state.directory, errno.ENOSPC)


def _refuse_if_failed(state: LogState) -> None:
    """Raise if a sync has failed. Damage is fine: truncation is how a replica gets rid of it."""
    if state.durability.stopped is not None:
        raise LogStopped(state.directory, state.durability.stopped)


def _find_cut(state: LogState, index: int, offset: Offset) -> tuple[int, Offset, int]:
    """Position, offset and latest timestamp of what stays; raises SuspectSegment before anything is cut."""
    segment = state.segments[index]
    try:
        position, end = _place_of_cut(state, index, offset)
        if isinstance(segment.index, SealedIndex):
            segment.index.load()
        return position, end, _latest_timestamp(segment, end, position)
    except CorruptBatch as bad:
        raise SuspectSegment(segment.base_offset, str(bad)) from bad


def _place_of_cut(state: LogState, index: int, offset: Offset) -> tuple[int, Offset]:
    """Where in the segment to cut, and the offset that the log will end at."""
    segment = state.segments[index]
    # Damage at the end of the log has bytes, but no offsets.
    at_end = (known for known in segment.damage if known.start == offset)
    damage = segment.damage_at(offset) or next(at_end, None)
    if damage is not None:
        offset = damage.start
    if offset == segment.base_offset:
        return 0, offset
    if damage is not None:
        return damage.position, offset
    position = segment.locate(offset) if segment.size_bytes else None
    if position is None:
        return segment.size_bytes, offset
    header = read_header(segment.file.pread(position, HEADER_BYTES))
    return position, min(offset, Offset(header.base_offset))


def _latest_timestamp(segment: Segment, end: Offset, position: int) -> int:
    """The largest timestamp of what stays: the last index row that stays, and what follows it."""
    times = segment.index.times
    row = bisect_left(range(len(times) // 2), end, key=lambda row: Offset(times[2 * row + 1])) - 1
    latest, start = (times[2 * row], Offset(times[2 * row + 1])) if row >= 0 else (NO_TIMESTAMP, None)
    begin = segment.locate(start) if start is not None else 0
    if begin is None or begin >= position:
        return latest
    for first, stop in segment.readable_ranges(begin):
        for placed in headers(segment.file, first, min(stop, position)):
            latest = max(latest, placed.header.max_timestamp)
    return latest


def _forget_behind(state: LogState, index: int) -> list[Offset]:
    """Take the segments behind `index` out of the log; returns their base offsets, newest first."""
    doomed = []
    while len(state.segments) > index + 1:
        doomed.append(state.segments.forget(len(state.segments) - 1).base_offset)
    return doomed


def _end_at(state: LogState, end: Offset, producers: ProducerStateManager) -> None:
    """Forget everything about offsets at or behind the new end of the log."""
    state.end = end
    # Whoever cuts the log knows where it has to end.
    state.lost_end = Offset(0)
    if state.unsure_from is not None and end <= state.unsure_from:
        state.unsure_from = None
    state.high_watermark = min(state.high_watermark, end)
    if state.next_start > end:
        state.next_start = Offset(0)
    state.producers = producers
    state.epochs.truncate_to(end)
    state.epochs_changed = True
    state.damage = {start: damage for start, damage in state.damage.items() if damage.start < end}
    state.durability.forget_requests(min(state.durability.synced, end))
