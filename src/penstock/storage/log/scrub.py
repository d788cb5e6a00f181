"""Scrubbing: looking for damage that a start does not see, and moving damaged segments to the quarantine."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.model import Offset, StorageError
from penstock.core.records import CorruptBatch
from penstock.storage.disk import NoSuchFile
from penstock.storage.log.checkpoint import checkpoint_now
from penstock.storage.log.file_names import QUARANTINE, SEGMENT_SUFFIXES, numbered
from penstock.storage.log.segment import CheckedBatch, Segment, checked_batches
from penstock.storage.log.state import LogState
from penstock.storage.log.types import CorruptRange

STEP_BYTES = 1 << 20


class ScrubStep(NamedTuple):
    """One small piece of work that was done."""

    segment: Offset
    bytes_read: int
    damage: CorruptRange | None


def scrub(
    state: LogState, step_bytes: int = STEP_BYTES, *, around: Offset | None = None
) -> Iterator[ScrubStep]:
    """Check every batch that was there at the start of the scrub, a step at a time.

    With an offset, only the segment that holds it. The log may change between two steps:
    segments that have gone are skipped.
    """
    segments = state.segments
    doubted = list(segments) if around is None else [segments[segments.index_of(around)]]
    for segment, size_bytes in [(segment, segment.size_bytes) for segment in doubted]:
        yield from _scrub_segment(state, segment, size_bytes, step_bytes)


def _scrub_segment(
    state: LogState, segment: Segment, size_bytes: int, step_bytes: int
) -> Iterator[ScrubStep]:
    expected: int = segment.base_offset
    since = position = 0
    if not _is_there(state, segment, size_bytes):
        return
    try:
        for batch in checked_batches(segment.file, 0, size_bytes):
            _check_place(state, segment, batch, expected)
            expected = batch.header.next_offset
            position += batch.header.size_bytes
            since += batch.header.size_bytes
            if since >= step_bytes:
                yield ScrubStep(segment.base_offset, since, None)
                since = 0
                if not _is_there(state, segment, size_bytes):
                    return
    except (CorruptBatch, NoSuchFile) as bad:
        index = state.segments.index_of(segment.base_offset)
        state.note_damage(index, Offset(expected), position, str(bad))
    yield ScrubStep(segment.base_offset, since, state.damage.get(segment.base_offset))


def _is_there(state: LogState, segment: Segment, size_bytes: int) -> bool:
    """Whether a segment is still part of the log, and was not cut."""
    return segment.size_bytes >= size_bytes and any(present is segment for present in state.segments)


def _check_place(state: LogState, segment: Segment, batch: CheckedBatch, expected: int) -> None:
    """Offset and leader epoch stand outside the CRC: compare them with what is known."""
    header = batch.header
    if header.base_offset < expected or (segment.gapless and header.base_offset != expected):
        raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")
    epoch = state.epochs.epoch_at(Offset(header.base_offset))
    if epoch >= 0 and header.leader_epoch != epoch:
        raise CorruptBatch(f"leader epoch {header.leader_epoch} stands where {epoch} should")


def quarantine(state: LogState, base_offset: Offset) -> None:
    """Move a damaged segment's files out of the log, which then has a hole there.

    Offsets are never given out twice: if it was the last segment, the log goes on behind it.
    """
    index = state.segments.index_of(base_offset)
    if state.segments[index].base_offset != base_offset or base_offset not in state.damage:
        raise ValueError(f"segment {base_offset} is not a damaged segment of {state.directory}")
    if state.durability.stopped is not None:
        raise state.durability.stopped
    was_last = index == len(state.segments) - 1
    state.segments.forget(index)
    del state.damage[base_offset]
    try:
        _move_aside(state, base_offset)
        if was_last:
            state.segments.add_active(max(state.end, Offset(base_offset + 1)), fresh=True)
            state.end = state.segments.active.base_offset
        state.start = max(state.start, state.segments[0].base_offset)
        checkpoint_now(state)
    except StorageError as failed:
        state.durability.stop(failed)
        raise


def _move_aside(state: LogState, base_offset: Offset) -> None:
    aside = f"{state.directory}/{QUARANTINE}"
    state.disk.make_directory(aside)
    for suffix in SEGMENT_SUFFIXES:
        name = numbered(base_offset, suffix)
        try:
            state.disk.rename(f"{state.directory}/{name}", f"{aside}/{name}")
        except NoSuchFile:
            continue
    state.disk.sync_directory(aside)
    state.disk.sync_directory(state.directory)
