"""Verification: looking for damage that a start does not see, off the loop.

A batch carries a CRC, but its offset and its leader epoch stand outside of it, and nothing says that
a batch is missing. So a segment is verified batch by batch: whole, CRC right, offsets that follow one
another within the segment, epochs as the log knows them.

    loop     Verification(segment, bytes) ─┐                  ┌─ finish: bytes are verified
    thread                                 └─ work: all good ─┤
                                              something bad ──┴─ finish: another Verification, that
                                                                 finds the exact ranges up to the end
                                                                 of the segment

Behind a batch that makes no sense, batches are looked for where its length says, and where the index has
a row: what lies between the last good batch and the next is the damaged range. A read that fails counts
as damage as well.

The log may change while a thread reads. What was found counts only if the segment is still there and
nothing was cut off meanwhile.

The files beside the segments carry a CRC and can be rebuilt: `FileCheck` finds those that must be.

Left out: reading past the page cache. What is cached is verified as it is in memory; pages that are never
evicted are damaged on the device without anybody noticing, until they are read from there.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fastcrc import crc32

from penstock.core.model import CorruptionError, Offset, StorageError, TopicId
from penstock.core.records.batch import (
    CRC_START,
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
)
from penstock.core.replica import LeaderEpochHistory, decode_snapshot
from penstock.storage.disk import DetachedReader, Disk, NoSuchFile
from penstock.storage.log.append import roll
from penstock.storage.log.checkpoint import checkpoint_now
from penstock.storage.log.file_names import (
    CHECKPOINT,
    EPOCHS,
    IDENTITY,
    KEYS,
    QUARANTINE,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    numbered,
)
from penstock.storage.log.files import (
    FileKind,
    decode_checkpoint,
    decode_epochs,
    decode_identity,
    encode_identity,
    read_file,
    replace_durably,
    unframe,
)
from penstock.storage.log.index import POSITION_BITS, POSITION_MASK, SHAPES, SealedIndex, parse_sealed
from penstock.storage.log.recovery import keep_snapshot
from penstock.storage.log.segment import BATCH_LENGTH_MIN, MAGIC, SCAN_BYTES, Segment, checked_batches
from penstock.storage.log.state import LogState
from penstock.storage.log.types import CorruptRange, FileRange, SuspectSegment

STEP_BYTES = 1 << 20
# How far behind a bad batch the next one is looked for byte by byte.
SEARCH_BYTES = 64 << 10
MAGIC_POSITION = 16
_OFFSET = struct.Struct(">q")
# Base offset, length, leader epoch, magic, CRC and last offset delta.
_CHECKED = struct.Struct(">qiibI2xi")
UNLIMITED = 2**63 - 1


class ScrubStep(NamedTuple):
    """One small piece of work that was done."""

    segment: Offset
    bytes_read: int
    damage: CorruptRange | None


class VerifiedBytes(NamedTuple):
    """What a verification found: how far it came, and the damage on the way.

    `stopped` says why it ended before its end, if a batch was bad and nobody has looked behind it.
    """

    position: int
    offset: int
    damage: tuple[CorruptRange, ...] = ()
    stopped: str | None = None


class VerificationOutcome(NamedTuple):
    """The damage that nobody knew of, and whether there was none at all, known or not.

    It says nothing unless it `is_current`: the segment was replaced or cut meanwhile.
    """

    damage: tuple[CorruptRange, ...]
    is_whole: bool
    is_current: bool = True


class Verification:
    """Verifies some bytes of one segment: `work` in a thread, the rest on the loop."""

    __slots__ = (
        "_end_offset",
        "_epochs",
        "_expected",
        "_gapless",
        "_limit_bytes",
        "_reader",
        "_rows",
        "_segment",
        "_state",
        "_table",
        "_truncations",
        "base_offset",
        "end",
        "position",
    )

    def __init__(  # noqa: PLR0913 - where, how far, and what is known
        self,
        state: LogState,
        segment: Segment,
        position: int,
        end: int,
        *,
        expected: int | None = None,
        limit_bytes: int = UNLIMITED,
        rows: "array[int] | None" = None,
    ) -> None:
        self._state = state
        self._segment = segment
        self.base_offset = segment.base_offset
        self.position = position
        self.end = end
        # The offset that must stand at `position`; None if any of the segment may.
        self._expected = expected
        self._limit_bytes = limit_bytes
        # The rows of the offset index, to look for batches behind a bad one; None: stop there.
        self._rows = rows
        self._gapless = segment.gapless
        # What opens seals; None if there are none.
        self._table = state.key_table
        self._end_offset: int = state.segments.reach_of(segment, state.end)
        self._epochs = LeaderEpochHistory(state.epochs.entries())
        self._truncations = state.stats.truncations
        self._reader: DetachedReader | None = None
        # A file that is missing is damaged as a whole.
        with suppress(NoSuchFile):
            if segment.writer is None:
                segment.file.remember_time()
            self._reader = DetachedReader(segment.file.opened())

    def work(self) -> VerifiedBytes:
        """Read and check. Touches nothing but the file."""
        reader = self._reader
        try:
            return self._walk()
        finally:
            if reader is not None:
                reader.close()

    def _walk(self) -> VerifiedBytes:
        position, expected = self.position, self._expected
        damage: list[CorruptRange] = []
        while position < self.end:
            try:
                if self._reader is None:
                    raise CorruptBatch("the file is missing")
                before = position
                position, expected = self._skip_good(self._reader, position, expected)
                if position == before:
                    # Large, or bad: then this raises, and says why.
                    batch = next(checked_batches(self._reader, position, self.end))
                    self._check_place(batch.header, expected)
                    if self._table is not None:
                        self._table.unseal_one(batch.content, batch.header)
                    position, expected = position + batch.header.size_bytes, batch.header.next_offset
                if position - self.position >= self._limit_bytes:
                    return VerifiedBytes(position, expected or 0, tuple(damage))
            except (CorruptBatch, StorageError) as bad:
                start = self.base_offset if expected is None else expected
                if self._rows is None:
                    return VerifiedBytes(position, start, tuple(damage), str(bad))
                stop, following = self._next_batch(position, start)
                damage.append(
                    CorruptRange(self.base_offset, Offset(start), Offset(following), str(bad), position, stop)
                )
                position, expected = stop, following
        return VerifiedBytes(position, self.base_offset if expected is None else expected, tuple(damage))

    def _skip_good(  # noqa: C901 - straight on purpose, since logs have many small batches
        self, reader: DetachedReader, position: int, expected: int | None
    ) -> tuple[int, int | None]:
        """Go on behind the batches of one chunk that are good."""
        wanted = min(SCAN_BYTES, self._limit_bytes, self.end - position)
        chunk = memoryview(reader.pread(position, wanted))
        size, at, unpack, crc32c = len(chunk), 0, _CHECKED.unpack_from, crc32.iscsi
        base_offset, end_offset, gapless = self.base_offset, self._end_offset, self._gapless
        # The epoch of the last batch, and up to where it reaches.
        epoch, epoch_end = -1, -1
        while at + HEADER_BYTES <= size:
            offset, length, leader_epoch, magic, crc, last_delta = unpack(chunk, at)
            stop = at + PREFIX_BYTES + length
            if magic != MAGIC or length < BATCH_LENGTH_MIN or last_delta < 0 or stop > size:
                break
            if expected is None:
                if offset < base_offset:
                    break
            elif offset != expected and (gapless or offset < expected):
                break
            if offset >= epoch_end:
                epoch, epoch_end = self._epoch_at(offset)
            if (leader_epoch != epoch and epoch >= 0) or offset + last_delta >= end_offset:
                break
            if crc32c(chunk[at + CRC_START : stop]) != crc:
                break
            if self._table is not None and not self._table.is_good(chunk[at:stop]):
                break
            expected, at = offset + last_delta + 1, stop
        return position + at, expected

    def _epoch_at(self, offset: int) -> tuple[int, int]:
        """The epoch that wrote `offset`, and the offset where the next one begins."""
        following = (entry.start for entry in self._epochs.entries() if entry.start > offset)
        return self._epochs.epoch_at(Offset(offset)), next(following, UNLIMITED)

    def _check_place(self, header: BatchHeader, expected: int | None) -> None:
        """Offset and leader epoch stand outside the CRC: compare them with what is known."""
        least = self.base_offset if expected is None else expected
        misplaced = self._gapless and expected is not None and header.base_offset != expected
        if header.base_offset < least or misplaced or header.next_offset > self._end_offset:
            raise CorruptBatch(f"offset {header.base_offset} stands where {least} should")
        epoch = self._epochs.epoch_at(Offset(header.base_offset))
        if epoch >= 0 and header.leader_epoch != epoch:
            raise CorruptBatch(f"leader epoch {header.leader_epoch} stands where {epoch} should")

    def _next_batch(self, position: int, expected: int) -> tuple[int, int]:
        """Position and offset of the first good batch behind a bad one, or of the segment's end."""
        reader = self._reader
        if reader is not None:
            for candidate in self._candidates(reader, position):
                with suppress(CorruptBatch, StorageError):
                    size = read_header(reader.pread(candidate, HEADER_BYTES)).size_bytes
                    header = check_batch(
                        reader.pread(candidate, min(size, self.end - candidate)), compacted=True
                    )
                    self._check_place(header, None)
                    if self._table is not None:
                        self._table.check(reader.pread(candidate, size))
                    if header.base_offset > expected:
                        return candidate, header.base_offset
        return self.end, self._end_offset

    def _candidates(self, reader: DetachedReader, position: int) -> Iterator[int]:
        """Where batches may begin behind a bad one: by their looks, by its length, and by the index."""
        assert self._rows is not None
        near = min(self.end, position + SEARCH_BYTES)
        row = bisect_right(self._rows, near - HEADER_BYTES, key=lambda word: word & POSITION_MASK)
        rows = [word & POSITION_MASK for word in self._rows[row:]]
        with suppress(StorageError):
            yield from self._by_looks(reader.pread(position, near - position), position)
        linked = self.end
        with suppress(CorruptBatch, StorageError):
            linked = position + read_header(reader.pread(position, HEADER_BYTES)).size_bytes
        yield from sorted({linked, *rows} if near - HEADER_BYTES < linked < self.end else rows)

    def _by_looks(self, content: bytes, position: int) -> Iterator[int]:
        """Whatever has the magic number and an offset of this segment."""
        for at in range(1, len(content) - HEADER_BYTES + 1):
            if content[at + MAGIC_POSITION] == MAGIC:
                (offset,) = _OFFSET.unpack_from(content, at)
                if self.base_offset <= offset < self._end_offset:
                    yield position + at

    def finish(self, found: VerifiedBytes) -> "Verification | VerificationOutcome":
        """Take over what was found; returns the outcome, or what has to be looked at next."""
        state, segment = self._state, self._segment
        if not self._is_valid():
            return VerificationOutcome((), is_whole=False, is_current=False)
        segment.file.verified(self.position, found.position)
        for damage in found.damage:
            segment.file.unverified.append((damage.position, damage.stop))
        segment.file.unverified.sort()
        if found.stopped is not None:
            return self._exact(found)
        news = tuple(damage for damage in found.damage if state.add_damage(segment, damage))
        if news and segment is state.segments.active:
            # A damaged segment must not grow: the log goes on in another one.
            roll(state, state.end)
        if news:
            # A start that comes before the repair must know: the files look whole from the outside.
            state.note_loss()
        return VerificationOutcome(news, is_whole=not found.damage)

    def _exact(self, found: VerifiedBytes) -> "Verification":
        """Look at the rest of the segment, from where a batch was bad, with the help of the index."""
        state, segment = self._state, self._segment
        rows = array("Q")
        with suppress(SuspectSegment):
            # Without an index everything is looked at from the beginning.
            rows = array("Q", segment.index.offsets)
        position, expected = found.position, found.offset
        if position == self.position and self._expected is None:
            # It is not known which offset should stand here: begin where that is known.
            row = bisect_right(rows, position, key=lambda word: word & POSITION_MASK) - 1
            position, expected = 0, int(self.base_offset)
            if row >= 0:
                position, expected = rows[row] & POSITION_MASK, expected + (rows[row] >> POSITION_BITS)
        return Verification(state, segment, position, segment.size_bytes, expected=expected, rows=rows)

    def _is_valid(self) -> bool:
        """Whether the segment is as it was when this began."""
        state, segment = self._state, self._segment
        return state.stats.truncations == self._truncations and any(
            present is segment for present in state.segments
        )


def verification_of(state: LogState, piece: FileRange) -> Verification | None:
    """The verification of a range that was read; None if its segment is gone, or the range is empty."""
    file: object = piece.file
    for segment in state.segments:
        if segment.file is file:
            return Verification(state, segment, piece.position, piece.position + piece.length)
    return None


def verification_at(
    state: LogState,
    base_offset: Offset,
    position: int = 0,
    expected: int | None = None,
    *,
    limit_bytes: int = UNLIMITED,
) -> Verification | None:
    """The verification of a segment from a batch on; None if there is no such segment, or no such batch."""
    if not len(state.segments):
        return None
    segment = state.segments[state.segments.index_of(base_offset)]
    if segment.base_offset != base_offset or position >= segment.size_bytes:
        return None
    return Verification(
        state,
        segment,
        position,
        segment.size_bytes,
        expected=segment.base_offset if expected is None else expected,
        limit_bytes=limit_bytes,
    )


class FileCheck:
    """Checks the files that a log could rebuild: those of one sealed segment, or those of the log itself."""

    __slots__ = ("_segment", "_state", "_topic_id", "_truncations")

    def __init__(self, state: LogState, topic_id: TopicId, segment: Segment | None) -> None:
        self._state = state
        self._topic_id = topic_id
        self._segment = segment
        self._truncations = state.stats.truncations

    @property
    def is_large(self) -> bool:
        """Whether what lies beside the segment has to be rebuilt by a thread."""
        return self._segment is not None and self._segment.size_bytes > self._state.options.rebuild_bytes_max

    def work(self, disk: Disk) -> list[str]:
        """The names of the files that are damaged, or missing; on a view of the disk of the thread's own."""
        found = []
        for name, check, needed in self._checks():
            content = read_file(disk, f"{self._state.directory}/{name}")
            try:
                if content is not None:
                    check(content)
                elif needed:
                    found.append(name)
            except CorruptionError:
                found.append(name)
        return found

    def _checks(self) -> Iterator[tuple[str, Callable[[bytes], object], bool]]:
        if self._segment is None:
            yield IDENTITY, decode_identity, True
            yield EPOCHS, decode_epochs, True
            yield CHECKPOINT, decode_checkpoint, True
            if self._state.keys is not None:
                yield KEYS, self._state.keys.check, True
            return
        base_offset = self._segment.base_offset
        for shape in SHAPES:
            yield numbered(base_offset, shape.suffix), partial(parse_sealed, shape), True
        yield numbered(base_offset, SNAPSHOT), _check_snapshot, False

    def finish(self, names: list[str]) -> list[str]:
        """Rebuild what is damaged, and needed still; returns its names. Blocks if there is any."""
        state, segment = self._state, self._segment
        if not names or not len(state.segments) or state.durability.stopped is not None:
            return []
        if segment is None:
            self._rebuild_files_of_log(names)
            return names
        is_there = any(present is segment for present in state.segments)
        if not is_there or self._truncations != state.stats.truncations or segment.damage:
            return []
        if not isinstance(segment.index, SealedIndex):
            return []
        # Read again when they are needed next; those of a large segment are rebuilt by a thread.
        segment.index.drop()
        if not self.is_large:
            segment.index.load()
            keep_snapshot(state, segment)
        return names

    def _rebuild_files_of_log(self, names: list[str]) -> None:
        state = self._state
        if IDENTITY in names:
            replace_durably(state.disk, state.directory, IDENTITY, encode_identity(self._topic_id))
        if EPOCHS in names:
            state.epochs_changed = True
        if KEYS in names and state.keys is not None:
            # What counts is in memory.
            state.keys.store()
        if state.stopped is None:
            checkpoint_now(state)


def _check_snapshot(content: bytes) -> None:
    decode_snapshot(unframe(FileKind.SNAPSHOT, content))


def file_check(state: LogState, topic_id: TopicId, base_offset: Offset | None) -> FileCheck | None:
    """The check of a sealed segment's files, or of those of the log; None if there is no such segment."""
    if base_offset is None:
        return FileCheck(state, topic_id, None)
    for segment in state.segments:
        if segment.base_offset == base_offset and segment.writer is None:
            return FileCheck(state, topic_id, segment)
    return None


def scrub(
    state: LogState, step_bytes: int = STEP_BYTES, *, around: Offset | None = None
) -> Iterator[ScrubStep]:
    """Check every batch that was there at the start of the scrub, a step at a time. Blocks.

    With an offset, only the segment that holds it. The log may change between two steps:
    segments that have gone are skipped.
    """
    segments = state.segments
    doubted = list(segments) if around is None else [segments[segments.index_of(around)]]
    for base_offset in [segment.base_offset for segment in doubted]:
        position, expected = 0, None
        while (
            step := verification_at(state, base_offset, position, expected, limit_bytes=step_bytes)
        ) is not None:
            found = step.work()
            outcome = step.finish(found)
            while isinstance(outcome, Verification):
                found = (step := outcome).work()
                outcome = step.finish(found)
            if outcome.damage:
                for damage in outcome.damage:
                    yield ScrubStep(base_offset, found.position - position, damage)
            else:
                yield ScrubStep(base_offset, found.position - position, None)
            position, expected = found.position, found.offset


def quarantine(state: LogState, base_offset: Offset) -> None:
    """Move a damaged segment's files out of the log, which then has a hole there.

    Offsets are never given out twice: if it was the last segment, the log goes on behind it.
    """
    index = state.segments.index_of(base_offset)
    segment = state.segments[index]
    if segment.base_offset != base_offset or not segment.damage:
        raise ValueError(f"segment {base_offset} is not a damaged segment of {state.directory}")
    if state.durability.stopped is not None:
        raise state.durability.stopped
    was_last = index == len(state.segments) - 1
    if state.keys is not None:
        state.keys.keep(base_offset, state.segments.reach_of(segment, state.end))
        state.keys.store()
    state.set_damage(segment, ())
    state.segments.forget(index)
    try:
        state.note_loss()
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
