"""Rebuilds the indexes of a large segment in a thread, from its batches.

    loop     IndexRebuild(segment) ─┐              ┌─ finish: used at once, and written over the bad files
    thread                          └─ work: walk ─┘

A walk through a gigabyte takes seconds, so that of a large segment is not done where somebody reads: the
reader gets `SuspectSegment`, and whoever catches that has the segment verified and its indexes rebuilt.

Aborted transactions follow from the producer state at the segment's start: that of the nearest snapshot, and
what the batches behind it say.
"""

from array import array
from contextlib import suppress
from typing import NamedTuple

from penstock.core.model import Offset, StorageError
from penstock.core.replica import encode_snapshot
from penstock.storage.disk import DetachedReader
from penstock.storage.log.file_names import SNAPSHOT, numbered
from penstock.storage.log.files import FileKind, frame, replace_durably
from penstock.storage.log.index import ActiveIndex, SealedIndex
from penstock.storage.log.recovery import (
    fold_placed,
    is_sure,
    nearest_snapshot,
    note_missing,
    placed_between,
    store_index,
)
from penstock.storage.log.segment import SCAN_BYTES, Segment, headers
from penstock.storage.log.state import LogState


class _Part(NamedTuple):
    """What has to be read of a segment in front of the one that is rebuilt."""

    reader: DetachedReader
    ranges: tuple[tuple[int, int], ...]


class RebuiltIndex(NamedTuple):
    """The tables, and the producer state at the segment's start, as a snapshot holds it."""

    tables: ActiveIndex
    producers: bytes


class IndexRebuild:
    """The rebuild of one sealed segment's indexes: `work` in a thread, the rest on the loop."""

    __slots__ = (
        "_before",
        "_known",
        "_last_offset",
        "_producers",
        "_reader",
        "_segment",
        "_state",
        "_table",
        "_truncations",
    )

    def __init__(self, state: LogState, segment: Segment) -> None:
        self._state = state
        self._table = state.key_table
        self._segment = segment
        self._truncations = state.stats.truncations
        self._last_offset = state.segments.reach_of(segment, state.end) - 1
        self._known, self._producers = nearest_snapshot(state, segment.base_offset)
        note_missing(state, self._known, segment.base_offset)
        self._before: list[_Part] = []
        self._reader = DetachedReader(segment.file.opened())
        for one in state.segments:
            if (
                one.base_offset < segment.base_offset
                and state.segments.reach_of(one, state.end) > self._known
            ):
                self._before.append(_Part(DetachedReader(one.file.opened()), tuple(one.readable_ranges(0))))

    def work(self) -> RebuiltIndex:
        """Read the segment, and what lies between the nearest snapshot and it; raises CorruptBatch."""
        try:
            return self._walk()
        finally:
            self._reader.close()
            for part in self._before:
                part.reader.close()

    def _walk(self) -> RebuiltIndex:
        segment, producers = self._segment, self._producers
        not_before = self._state.replayed_at
        for reader, ranges in self._before:
            for first, stop in ranges:
                for placed in headers(reader, first, stop, SCAN_BYTES):
                    if placed.header.base_offset >= self._known:
                        fold_placed(producers, reader, placed, not_before, self._table)
        content = encode_snapshot(producers)
        index, aborted = ActiveIndex(segment.base_offset, self._state.options), array("q")
        for placed in placed_between(
            self._reader, segment.base_offset, segment.size_bytes, gapless=segment.gapless
        ):
            header = placed.header
            index.note(header.base_offset, header.last_offset, placed.position, header.max_timestamp)
            aborted.extend(fold_placed(producers, self._reader, placed, not_before, self._table))
        index.aborted = aborted
        index.close_times(self._last_offset)
        return RebuiltIndex(index, content)

    def finish(self, rebuilt: RebuiltIndex) -> bool:
        """Use the tables from now on, and write them; False if the segment has changed meanwhile."""
        state, segment = self._state, self._segment
        is_there = any(present is segment for present in state.segments)
        if not is_there or self._truncations != state.stats.truncations or segment.damage:
            return False
        if not isinstance(segment.index, SealedIndex) or state.durability.stopped is not None:
            return False
        state.stats.indexes_rebuilt += 1
        segment.index.adopt(rebuilt.tables)
        if not is_sure(state, segment):
            # Not for longer than until they are rebuilt together with the producers.
            return True
        store_index(state, segment, rebuilt.tables)
        name = numbered(segment.base_offset, SNAPSHOT)
        if state.disk.exists(f"{state.directory}/{name}"):
            with suppress(StorageError):
                replace_durably(
                    state.disk, state.directory, name, frame(FileKind.SNAPSHOT, rebuilt.producers)
                )
        return True


def index_rebuild(state: LogState, base_offset: Offset, *, check: bool) -> IndexRebuild | None:
    """The rebuild of a sealed segment's indexes; with `check`, only if any of them is damaged or missing."""
    for segment in state.segments:
        index = segment.index
        if segment.base_offset == base_offset and isinstance(index, SealedIndex) and not segment.damage:
            return None if check and index.is_whole() else IndexRebuild(state, segment)
    return None
