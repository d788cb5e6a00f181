"""Rebuilding from batch headers what is normally kept: producers, epochs, index tables."""

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, StorageError, Timestamp
from penstock.core.records import CorruptBatch
from penstock.core.replica import LeaderEpochHistory, ProducerStateManager, decode_snapshot, encode_snapshot
from penstock.storage.log.files.frame import Kind, frame, read_file, replace_durably, unframe
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.flush import seal
from penstock.storage.log.index.rows import ABORTED, OFFSETS, Shape, Words
from penstock.storage.log.names import SNAPSHOT, numbered
from penstock.storage.log.segment import OFFSET_DELTA_MAX, Placed, Segment, headers
from penstock.storage.log.segment.walk import SCAN_BYTES
from penstock.storage.log.state import LogState, fold_batch


def producers_at(state: LogState, offset: Offset) -> ProducerStateManager:
    """The producer state as it was when the log ended at `offset`: a snapshot and what followed."""
    known, producers = _nearest_snapshot(state, offset)
    for segment, placed in _placed_between(state, known, offset):
        fold(state, producers, segment, placed)
    return producers


def keep_snapshot(state: LogState, segment: Segment) -> None:
    """Before the segments in front of this one go: what only they know must be in a snapshot."""
    if _read_snapshot(state, segment.base_offset) is None:
        content = frame(Kind.SNAPSHOT, encode_snapshot(producers_at(state, segment.base_offset)))
        replace_durably(state.disk, state.directory, numbered(segment.base_offset, SNAPSHOT), content)


def fold(state: LogState, producers: ProducerStateManager, segment: Segment, placed: Placed) -> "array[int]":
    """Let one batch that is in the log count; answers the row of the transaction it aborted."""
    header = placed.header
    if header.producer_id < 0:
        return array("q")
    content = segment.file.pread(placed.position, header.size_bytes) if header.is_control else b""
    aborted = fold_batch(producers, header, content, seen_at(state, header.max_timestamp))
    return array("q", aborted or ())


def seen_at(state: LogState, max_timestamp: int) -> Timestamp:
    """When a replayed producer wrote: records may carry any time, so not before the checkpoint."""
    return max(Timestamp(max_timestamp), state.checkpoint.taken_at)


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


def placed_in(segment: Segment, size_bytes: int) -> Iterator[Placed]:
    """Every header of a segment; raises CorruptBatch where an offset, outside of the CRC, is wrong."""
    expected: int = segment.base_offset
    for placed in headers(segment.file, 0, size_bytes, SCAN_BYTES):
        header = placed.header
        if segment.gapless and header.base_offset != expected:
            raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")
        if not 0 <= header.base_offset - segment.base_offset <= OFFSET_DELTA_MAX:
            raise CorruptBatch(f"offset {header.base_offset} is not in segment {segment.base_offset}")
        yield placed
        expected = header.next_offset


def aborted_of(state: LogState, segment: Segment, size_bytes: int) -> "array[int]":
    """The aborted transactions whose marker is in this segment."""
    producers = producers_at(state, segment.base_offset)
    rows = array("q")
    for placed in headers(segment.file, 0, size_bytes, SCAN_BYTES):
        rows.extend(fold(state, producers, segment, placed))
    return rows


def rebuilder(state: LogState) -> Callable[[Segment, Shape], Words]:
    """What a sealed index calls when one of its files is missing or damaged."""

    def rebuild(segment: Segment, shape: Shape) -> Words:
        state.stats.indexes_rebuilt += 1
        index, whole = index_of(state, segment, segment.size_bytes)
        if whole:
            index.aborted = aborted_of(state, segment, segment.size_bytes)
            following = state.segments.index_of(segment.base_offset)
            index.close_times(state.segments.end_of(following, state.end) - 1)
            _store(state, segment, index)
        if shape is ABORTED:
            return index.aborted
        return index.offsets if shape is OFFSETS else index.times

    return rebuild


class WalkEnd(NamedTuple):
    """How far the headers of a segment lead, and what ended the walk before the end of the file."""

    offset: Offset
    position: int
    reason: str | None


def walk_through(segment: Segment) -> WalkEnd:
    """Follow the headers of a segment for as long as they make sense."""
    offset, position = segment.base_offset, 0
    try:
        for placed in placed_in(segment, segment.size_bytes):
            offset = Offset(placed.header.next_offset)
            position = placed.position + placed.header.size_bytes
    except CorruptionError as corrupt:
        return WalkEnd(offset, position, str(corrupt))
    return WalkEnd(offset, position, None)


def _nearest_snapshot(state: LogState, offset: Offset) -> tuple[Offset, ProducerStateManager]:
    checkpoint = state.checkpoint
    segments = state.segments
    for index in range(segments.index_of(offset), -1, -1):
        base = segments[index].base_offset
        if base <= checkpoint.recovery_point <= offset:
            return checkpoint.recovery_point, decode_snapshot(checkpoint.producers)
        producers = _read_snapshot(state, base) if base <= offset else None
        if producers is not None:
            return base, producers
    return segments[0].base_offset, ProducerStateManager()


def _read_snapshot(state: LogState, base_offset: Offset) -> ProducerStateManager | None:
    """The producer state at the start of a segment, if it was kept and is not damaged."""
    content = read_file(state.disk, state.segments.path(base_offset, SNAPSHOT))
    try:
        return None if content is None else decode_snapshot(unframe(Kind.SNAPSHOT, content))
    except CorruptionError:
        return None


def _placed_between(state: LogState, start: Offset, end: Offset) -> Iterator[tuple[Segment, Placed]]:
    segments = state.segments
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        if segment.base_offset >= end:
            return
        position = segment.locate(start) if segment.base_offset < start else 0
        if position is None:
            continue
        for placed in headers(segment.file, position, segment.readable_bytes, SCAN_BYTES):
            if placed.header.base_offset >= end:
                return
            yield segment, placed


def _store(state: LogState, segment: Segment, index: ActiveIndex) -> None:
    """Write rebuilt tables over the bad files. If that fails, they are rebuilt again next time."""
    try:
        for file in seal(state.disk, state.directory, segment.base_offset, index):
            state.durability.request_file(file, close=True)
    except StorageError:
        return
