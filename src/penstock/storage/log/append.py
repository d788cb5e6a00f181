"""Appending batches and starting new segments."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from penstock.core.model import LeaderEpoch, Offset, StorageError, Timestamp
from penstock.core.records import (
    PREFIX_BYTES,
    BatchHeader,
    ControlRecord,
    pack_place,
    read_control,
)
from penstock.core.records.batch import SEALED
from penstock.core.replica import encode_snapshot
from penstock.storage.log.checkpoint import checkpoint_now
from penstock.storage.log.file_names import SNAPSHOT, numbered
from penstock.storage.log.files import FileKind, frame
from penstock.storage.log.index import ActiveIndex
from penstock.storage.log.segment import OFFSET_DELTA_MAX, Segment
from penstock.storage.log.state import LogState
from penstock.storage.log.types import AppendedRange, BatchTooLarge, OffsetsNotIncreasing
from penstock.storage.sealing import SEAL_BYTES

CONTROL = 0x20  # the bit of a batch's attributes; the header's property costs a call per batch


class OffsetAssignment(NamedTuple):
    """Which offsets an append takes: from `first` to just before `end`."""

    first: Offset
    end: Offset
    contiguous: bool


def append_as_leader(
    state: LogState,
    batches: bytearray | memoryview,
    headers: Sequence[BatchHeader],
    leader_epoch: LeaderEpoch,
    now: Timestamp,
) -> AppendedRange:
    """Give the batches the next offsets, in place, and write them."""
    first = offset = state.end
    limit = state.options.message_bytes_max
    position = 0
    for header in headers:
        size = PREFIX_BYTES + header[1]
        if size > limit:
            raise BatchTooLarge(size, limit)
        pack_place(batches, position, offset, header[1], leader_epoch)
        position += size
        offset = Offset(offset + header[6] + 1)
    if position != len(batches) or not position:
        raise ValueError(f"{len(headers)} headers describe {position} of {len(batches)} bytes")
    appended = _write(state, batches, headers, first, offset, now)
    if leader_epoch > state.epochs.latest and state.epochs.assign(leader_epoch, first):
        state.epochs_changed = True
    return appended


def append_as_follower(
    state: LogState,
    batches: memoryview | bytearray | bytes,
    headers: Sequence[BatchHeader],
    now: Timestamp,
    *,
    are_stored: bool = False,
) -> AppendedRange:
    """Write batches with the offsets that the leader gave them, and note the epochs they begin.

    Those that `are_stored`, as the journal has them, are as they have to be on disk.
    """
    first, end, contiguous = _place_as_follower(state, batches, headers)
    appended = _write(state, batches, headers, first, end, now, contiguous=contiguous, are_stored=are_stored)
    for header in headers:
        if header.leader_epoch > state.epochs.latest:
            state.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            state.epochs_changed = True
    return appended


def _place_as_follower(
    state: LogState, batches: memoryview | bytearray | bytes, headers: Sequence[BatchHeader]
) -> OffsetAssignment:
    """Take the offsets as the leader gave them; gaps are fine, steps back are not."""
    offset = state.end
    position, contiguous, epoch = 0, True, state.epochs.latest
    for header in headers:
        if header.base_offset < offset:
            raise OffsetsNotIncreasing(f"offset {header.base_offset} cannot follow {offset - 1}")
        if header.leader_epoch < epoch:
            raise OffsetsNotIncreasing(f"leader epoch {header.leader_epoch} cannot follow {epoch}")
        contiguous = contiguous and header.base_offset == offset
        offset, epoch = Offset(header.next_offset), LeaderEpoch(header.leader_epoch)
        position += header.size_bytes
    if position != len(batches) or not position:
        raise ValueError(f"{len(headers)} headers describe {position} of {len(batches)} bytes")
    return OffsetAssignment(Offset(headers[0].base_offset), offset, contiguous)


def _write(  # noqa: C901, PLR0912, PLR0913, PLR0915 - the hot path, straight on purpose
    state: LogState,
    batches: memoryview | bytearray | bytes,
    headers: Sequence[BatchHeader],
    first: Offset,
    end: Offset,
    now: Timestamp,
    *,
    contiguous: bool = True,
    are_stored: bool = False,
) -> AppendedRange:
    """Write batches that have their offsets, and update the state. When this raises, the log is unchanged.

    This is the hot path of Produce: straight on purpose, since in Python a call costs as much
    as the work it wraps.
    """
    size, options, segment = len(batches), state.options, state.segments.active
    markers: Sequence[ControlRecord] = ()
    for header in headers:
        if header[5] & CONTROL:
            # Read before anything is written: what cannot be read must not be in the log.
            markers = _read_markers(state, batches, headers)
            break
    keys = state.keys
    if keys is not None and not are_stored and keys.table.current is not None:
        size += SEAL_BYTES * len(headers)
    position, index = segment.size_bytes, segment.index
    assert isinstance(index, ActiveIndex)
    segment_ms = options.segment_ms
    if options.segment_jitter_ms:
        segment_ms -= _jitter_ms(state, segment)
    fits = end - 1 - segment.base_offset <= OFFSET_DELTA_MAX and (
        not position
        or (
            position + size <= options.segment_bytes
            and not 0 <= segment.first_append_at < now - segment_ms
            and index.size_bytes < options.index_bytes_max
        )
    )
    if not fits:
        # New segments begin where the log ends, so that recovery can see that none is missing.
        base_offset = state.end if end - 1 - state.end <= OFFSET_DELTA_MAX else first
        segment = roll(state, base_offset, is_rekeyed=not are_stored)
        position, index = segment.size_bytes, state.active_index
    if not contiguous and segment.gapless:
        # Recovery takes a hole between offsets for damage, unless the segment is marked as having gaps.
        segment.gapless = False
        checkpoint_now(state)
    writer = segment.writer
    assert writer is not None
    if keys is not None and not are_stored:
        # Behind everything that patches headers, and under the key of the segment they are in.
        batches, headers = keys.sealed(batches, headers)
        size = len(batches)
    try:
        segment.size_bytes = writer.append(batches)
    except StorageError as failed:
        _cut_back(state, segment, position, failed)
        raise
    if segment.first_append_at < 0:
        segment.first_append_at = now
    producers, ends = state.producers, iter(markers)
    offset: int = first
    for header in headers:
        if not contiguous:
            offset = header[0]
        last_offset = offset + header[6]
        index.note(offset, last_offset, position, header[8])
        if header[5] & CONTROL:
            # In its place: a follower appends the end of one transaction together with the next one.
            aborted = producers.update_marker(next(ends), now)
            if aborted is not None:
                index.note_aborted(aborted)
        elif header[9] >= 0:
            producers.update(header, Offset(offset), now)
        position += PREFIX_BYTES + header[1]
        offset = last_offset + 1
    journal = state.journal
    if journal is not None and journal.is_on:
        if size <= journal.room:
            if not journal.batches:
                journal.start = state.end
            journal.batches.append(bytes(batches))
            journal.room -= size
            journal.end = end
        else:
            # Too much to write twice: the next round syncs the file itself.
            journal.drop()
    state.end = end
    state.last_append_at = now
    stats = state.stats
    stats.appends += 1
    stats.appended_bytes += size
    # Not by its constructor, which is a Python call.
    return tuple.__new__(AppendedRange, (first, Offset(end - 1), size, not fits, state.start))


def roll(state: LogState, base_offset: Offset, *, is_rekeyed: bool = True) -> Segment:
    """Seal the active segment and start the next one, under another key if there is one."""
    segments, durability = state.segments, state.durability
    old, index = segments.active, state.active_index
    index_files = segments.seal_active(state.end)
    try:
        new = segments.add_active(base_offset, fresh=True)
    except StorageError:
        for file in index_files:
            file.close()
        segments.unseal(index)
        raise
    if state.keys is not None and is_rekeyed:
        state.keys.take_spare(segments, base_offset)
    # In this order: a later sync of the new file implies that these are durable.
    if old.writer is not None:
        old.file.sealed_ns = old.writer.modified_ns()
        durability.retire(old.writer)
        old.writer = None
    durability.request_names()
    for file in index_files:
        durability.request_file(file, close=True)
    # A snapshot saves a replay when the log is cut; without it the replay is longer. One that lacks
    # something would never be found out.
    if state.unsure_from is None:
        with suppress(StorageError):
            content = frame(FileKind.SNAPSHOT, encode_snapshot(state.producers))
            durability.put(numbered(base_offset, SNAPSHOT), content, lasting=True)
    state.stats.rolls += 1
    if base_offset > state.end:
        # The leader's log has a hole here that is wider than a segment. Recovery removes a
        # segment that does not begin where the log ends, unless the checkpoint lists it.
        state.end = base_offset
        checkpoint_now(state)
    return new


def rekey(state: LogState) -> None:
    """What is appended from now on is under the spare key, in a segment of its own."""
    assert state.keys is not None
    if state.segments.active.size_bytes:
        roll(state, state.end)
    else:
        state.keys.take_spare(state.segments, state.end)


def _jitter_ms(state: LogState, segment: Segment) -> int:
    """How much earlier a segment is closed: fixed for a segment, different between segments."""
    limit = min(state.options.segment_jitter_ms, state.options.segment_ms)
    return crc32(f"{state.directory}/{segment.base_offset}".encode()) % limit


def _read_markers(
    state: LogState, batches: memoryview | bytearray | bytes, headers: Sequence[BatchHeader]
) -> list[ControlRecord]:
    """The transaction markers among the batches, read before anything is written."""
    markers: list[ControlRecord] = []
    position = 0
    for header in headers:
        size = PREFIX_BYTES + header[1]
        if header[5] & CONTROL:
            batch: memoryview | bytearray | bytes = memoryview(batches)[position : position + size]
            if header[5] & SEALED and state.keys is not None:
                batch = state.keys.table.unseal_one(batch, header)
            markers.append(read_control(batch))
        position += size
    return markers


def _cut_back(state: LogState, segment: Segment, size_bytes: int, failed: StorageError) -> None:
    """Undo what a failed append may have left; a log that cannot be cut back stops."""
    segment.size_bytes = size_bytes
    assert segment.writer is not None
    try:
        if segment.writer.size() != size_bytes or getattr(failed, "torn", False):
            segment.writer.truncate(size_bytes)
    except StorageError:
        state.durability.stop(failed)
