"""A damaged segment is written anew: what is good is copied, what is damaged comes from another replica.

    old   │ good ────────────┊ damaged ┊ good ──────────────────┊ damaged ┊ good ─│
    new   │ copied, verified │ fetched │ copied, verified       │ fetched │ copied│

Everything is checked as it is written: CRC, offsets, and leader epochs. Two logs that agree on the epoch of
an offset agree on its record, so it does not matter which replica it comes from.

The new files are written beside the old ones by threads and take their names as those of a compaction do: the
checkpoint says so first (see `recovery`). The damaged bytes are kept in the quarantine.

The other replica may have compacted more than this one, and have dropped a marker whose transaction still has
records here. The aborted index knows where an abort was, and it is written again: without it, consumers would
skip what the producer wrote later, and a log that is rebuilt would show what was aborted.

Left out: the same for commits, which no index knows, and where the index is lost as well. Records of such a
commit are outdated, or its marker would be there; if the log is rebuilt without snapshots, the next marker of
the producer decides on them, too.
"""

from array import array
from contextlib import closing, suppress
from dataclasses import replace
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, StorageError
from penstock.core.records import (
    BatchHeader,
    ControlRecord,
    ControlType,
    CorruptBatch,
    check_batches,
    read_header,
    write_control_batch,
)
from penstock.core.records.batch import SEALED
from penstock.core.replica import AbortedTransaction, LeaderEpochHistory
from penstock.storage.disk import Buffer, DetachedReader, Disk, DiskFull, File, NoSuchFile
from penstock.storage.log.checkpoint import checkpoint_now, write_checkpoint
from penstock.storage.log.file_names import ABORTED_INDEX, CLEANED, LOG, QUARANTINE, TEMPORARY, numbered
from penstock.storage.log.index import OFFSETS, TIMES, ActiveIndex, encode_words, footer
from penstock.storage.log.keys import KeyOfRewrite, LogKeys
from penstock.storage.log.read import aborted_rows
from penstock.storage.log.recovery import CUT, SWAPPED_SUFFIXES, free_path
from penstock.storage.log.segment import SCAN_BYTES, Segment, checked_batches
from penstock.storage.log.state import LogState

COPY_BYTES = 8 << 20
NO_TIMESTAMP = -1


class GoodBytes(NamedTuple):
    """A part of the old file to be copied."""

    position: int
    stop: int


class MissingRange(NamedTuple):
    """Offsets to be fetched from another replica."""

    start: Offset
    end: Offset


class OtherRecords(CorruptBatch):
    """These batches are whole, but they are not those that this log has had here."""


class SegmentDraft:
    """The new form of one damaged segment. Threads write it, one at a time; the loop asks what comes next."""

    __slots__ = (
        "_base_offset",
        "_damage",
        "_directory",
        "_end_offset",
        "_epochs",
        "_expected",
        "_file",
        "_index",
        "_is_gapless",
        "_lost_aborts",
        "_may_have_gaps",
        "_parts",
        "_reader",
        "_rewrite",
        "_segment",
        "_size_bytes",
        "_state",
        "_table",
        "_token",
        "_truncations",
    )

    def __init__(
        self,
        state: LogState,
        segment: Segment,
        token: str,
        *,
        may_have_gaps: bool,
        rewrite: KeyOfRewrite | None = None,
    ) -> None:
        assert segment.damage or rewrite is not None
        self._state = state
        # What opens the old file, and under which key the new one is; None: as the table says.
        self._table = state.key_table
        self._rewrite = rewrite
        self._segment = segment
        self._damage = segment.damage
        self._token = token
        if segment.damage and state.keys is not None:
            _keep_keys(state.keys, segment)
        self._directory = state.directory
        self._base_offset = segment.base_offset
        self._end_offset = state.segments.reach_of(segment, state.end)
        self._epochs = LeaderEpochHistory(state.epochs.entries())
        self._truncations = state.stats.truncations
        self._may_have_gaps = may_have_gaps or not segment.gapless
        self._is_gapless = True
        self._expected: int = segment.base_offset
        self._index = ActiveIndex(segment.base_offset, state.options)
        # Markers of aborted transactions that are damaged, until they have come; the next one last.
        self._lost_aborts = _lost_aborts(state, segment)
        self._size_bytes = 0
        self._file: File | None = None
        self._reader: DetachedReader | None = None
        with suppress(NoSuchFile):
            self._reader = DetachedReader(segment.file.opened())
        # Good and missing parts in turns, the next one last.
        self._parts: list[GoodBytes | MissingRange] = []
        position = 0
        for damage in segment.damage:
            if position < damage.position:
                self._parts.append(GoodBytes(position, damage.position))
            self._parts.append(MissingRange(damage.start, damage.end))
            position = damage.stop
        if position < segment.size_bytes:
            self._parts.append(GoodBytes(position, segment.size_bytes))
        self._parts.reverse()

    @property
    def base_offset(self) -> Offset:
        return self._base_offset

    @property
    def size_bytes(self) -> int:
        """How much is written."""
        return self._size_bytes

    @property
    def next(self) -> GoodBytes | MissingRange | None:
        """What has to be written next; None if everything is."""
        if not self._parts:
            return None
        part = self._parts[-1]
        if isinstance(part, MissingRange):
            return MissingRange(max(part.start, Offset(self._expected)), part.end)
        return part

    def copy(self, disk: Disk, bytes_max: int = COPY_BYTES) -> None:
        """Copy some of the next good part. For a thread; raises CorruptBatch if it is not good after all."""
        part = self._parts[-1]
        assert isinstance(part, GoodBytes)
        if self._reader is None:
            raise CorruptBatch("the file is missing")
        position = part.position
        for batch in checked_batches(self._reader, part.position, part.stop):
            if self._table is None:
                self._write(disk, batch.content, [batch.header])
            else:
                plain = self._table.unseal_one(batch.content, batch.header)
                self._write(disk, plain, [read_header(plain)])
            position += batch.header.size_bytes
            if position - part.position >= bytes_max and position < part.stop:
                self._parts[-1] = GoodBytes(position, part.stop)
                return
        self._parts.pop()

    def add(self, disk: Disk, batches: Buffer) -> None:
        """Write what came for the next missing range. For a thread; raises CorruptBatch if it is not that."""
        part = self._parts[-1]
        assert isinstance(part, MissingRange)
        headers = check_batches(batches, compacted=True)
        if not headers or headers[-1].next_offset > part.end:
            raise OtherRecords(f"these are not the records of {part.start}..{part.end}")
        if any(header.attributes & SEALED for header in headers):
            raise OtherRecords("these batches are sealed: they are another replica's files")
        self._write(disk, batches, headers)
        if self._expected >= part.end:
            self._parts.pop()

    def nothing_more(self, committed: Offset) -> bool:
        """The other replica has no more of the missing range; returns whether that can be.

        It can if logs are compacted. What was `committed` is the same everywhere, so it was compacted there.
        """
        part = self._parts[-1]
        assert isinstance(part, MissingRange)
        if not self._may_have_gaps and part.end > committed:
            return False
        self._parts.pop()
        self._is_gapless = False
        return True

    def deleted_before(self, start: Offset) -> None:
        """The other replica has deleted everything before `start`."""
        part = self._parts[-1]
        assert isinstance(part, MissingRange)
        self._expected = max(self._expected, min(start, part.end))
        self._is_gapless = False
        if self._expected >= part.end:
            self._parts.pop()

    def _write(self, disk: Disk, batches: Buffer, headers: list[BatchHeader]) -> None:
        if self._lost_aborts:
            batches, headers = self._with_lost_aborts(batches, headers)
        # Nothing changes before all is known to be right: another replica may be asked for the same.
        expected, is_gapless = self._expected, self._is_gapless
        for header in headers:
            is_gapless = self._check(header, expected) and is_gapless
            expected = header.next_offset
        batches, headers = self._sealed(batches, headers)
        position = self._size_bytes
        for header in headers:
            self._index.note(header.base_offset, header.last_offset, position, header.max_timestamp)
            position += header.size_bytes
        self._expected, self._is_gapless = expected, is_gapless
        while self._lost_aborts and self._lost_aborts[-1].offset < expected:
            self._lost_aborts.pop()
        if self._file is None:
            self._file = disk.open(self._draft(LOG), create=True, exclusive=True)
        self._size_bytes = self._file.append(batches)

    def _sealed(self, batches: Buffer, headers: list[BatchHeader]) -> tuple[Buffer, list[BatchHeader]]:
        """Plain batches as they are to be on disk."""
        table, keys = self._table, self._state.keys
        if table is None or keys is None:
            return batches, headers
        view, parts, position = memoryview(batches), list[Buffer](), 0
        for header in headers:
            end = position + header.size_bytes
            rewrite = self._rewrite
            key = table.keys.get(table.id_at(header.base_offset)) if rewrite is None else rewrite.key
            parts.append(keys.vault.seal(view[position:end], key))
            position = end
        return b"".join(parts), [read_header(part) for part in parts]

    def _with_lost_aborts(
        self, batches: Buffer, headers: list[BatchHeader]
    ) -> tuple[Buffer, list[BatchHeader]]:
        """The batches, and between them the markers that should have stood there."""
        content, found, position = bytearray(), list[BatchHeader](), 0
        lost = [marker for marker in reversed(self._lost_aborts) if marker.offset >= self._expected]
        for header in headers:
            while lost and lost[0].offset < header.next_offset:
                marker = lost.pop(0)
                if marker.offset < header.base_offset:
                    written = self._batch_of(marker, header.base_timestamp)
                    content += written
                    found.append(read_header(written))
            content += batches[position : position + header.size_bytes]
            position += header.size_bytes
            found.append(header)
        return content, found

    def _batch_of(self, marker: ControlRecord, timestamp: int) -> bytearray:
        leader_epoch = self._epochs.epoch_at(Offset(marker.offset))
        return write_control_batch(marker._replace(timestamp=timestamp), leader_epoch=leader_epoch)

    def _check(self, header: BatchHeader, expected: int) -> bool:
        """Raise CorruptBatch if a batch does not belong here; returns whether it follows without a gap."""
        if header.base_offset != expected:
            gap_is_fine = self._may_have_gaps or not self._is_gapless
            if header.base_offset < expected or not gap_is_fine:
                raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")
        if header.next_offset > self._end_offset:
            raise CorruptBatch(f"offset {header.last_offset} is not in segment {self._base_offset}")
        epoch = self._epochs.epoch_at(Offset(header.base_offset))
        if epoch >= 0 and header.leader_epoch != epoch:
            raise OtherRecords(f"leader epoch {header.leader_epoch} stands where {epoch} should")
        return header.base_offset == expected

    def seal(self, disk: Disk) -> None:
        """Bring the new files to the device, and the damaged bytes to the quarantine. For a thread."""
        if self._reader is not None:
            self._keep_damaged(disk, self._reader)
        for marker in list(reversed(self._lost_aborts)):
            # Behind them there is nothing any more.
            if marker.offset >= self._expected:
                written = self._batch_of(marker, NO_TIMESTAMP)
                self._write(disk, written, [read_header(written)])
        file = self._file or disk.open(self._draft(LOG), create=True, exclusive=True)
        file.sync()
        file.close()
        self._index.close_times(self._end_offset - 1)
        for shape, words in ((OFFSETS, self._index.offsets), (TIMES, self._index.times)):
            rows = encode_words(words)
            index_file = disk.open(self._draft(shape.suffix), create=True, exclusive=True)
            try:
                index_file.append(rows + footer(shape, rows))
                index_file.sync()
            finally:
                index_file.close()

    def _keep_damaged(self, disk: Disk, reader: DetachedReader) -> None:
        aside = f"{self._directory}/{QUARANTINE}"
        disk.make_directory(aside)
        for damage in self._damage:
            path = free_path(disk, f"{aside}/{damage.start:020d}{CUT}")
            try:
                with closing(disk.open(path, create=True)) as kept:
                    for position in range(damage.position, damage.stop, SCAN_BYTES):
                        kept.append(reader.pread(position, min(SCAN_BYTES, damage.stop - position)))
                    kept.sync()
            except StorageError:
                # It cannot be read, or there is no room: what could be copied of it is there.
                continue
        disk.sync_directory(aside)

    def abandon(self) -> None:
        """Nothing will come of it: forget the key that the new file was to be under. For the loop."""
        keys = self._state.keys
        if self._rewrite is not None and keys is not None and self._state.stopped is None:
            keys.end_rewrite(self._state.segments, self._rewrite)

    def cancel(self, disk: Disk) -> None:
        """Remove the new files; what cannot be removed now is removed at the next start."""
        self._close()
        for suffix in SWAPPED_SUFFIXES:
            with suppress(StorageError):
                disk.remove(self._draft(suffix))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._reader is not None:
            self._reader.close()

    def finish(self) -> bool:
        """Put the new files in place; False if the log has changed too much since. Blocks for a few syncs."""
        state, segment = self._state, self._segment
        self._close()
        is_there = any(present is segment for present in state.segments)
        if not is_there or self._truncations != state.stats.truncations or state.stopped is not None:
            return False
        try:
            if segment.base_offset >= state.checkpoint.segment:
                # The checkpoint on disk must know it as sealed.
                checkpoint_now(state)
            for suffix in SWAPPED_SUFFIXES:
                name = f"{state.directory}/{numbered(self._base_offset, suffix)}{CLEANED}"
                state.disk.rename(self._draft(suffix), name)
            # A compaction may have named its files: it will find that this segment is another one. A start
            # must not take the table of that for one of these.
            with suppress(NoSuchFile):
                state.disk.remove(f"{state.directory}/{numbered(self._base_offset, ABORTED_INDEX)}{CLEANED}")
            state.disk.sync_directory(state.directory)
            rows = tuple(
                row._replace(size_bytes=self._size_bytes, gapless=self._is_gapless, swapping=True)
                if row.base_offset == self._base_offset
                else row
                for row in state.checkpoint.sealed
            )
            checkpoint = replace(state.checkpoint, sealed=rows, unsure_from=state.unsure_from)
            write_checkpoint(state, checkpoint)
            for suffix in SWAPPED_SUFFIXES:
                # Not by `redo_swaps`, which would remove what a compaction is writing now.
                name = f"{state.directory}/{numbered(self._base_offset, suffix)}"
                state.disk.rename(name + CLEANED, name)
            state.disk.sync_directory(state.directory)
        except StorageError as failed:
            # The checkpoint may or may not be on disk. If it is, the next start needs the new files.
            state.durability.stop(failed)
            raise
        if self._rewrite is not None and state.keys is not None:
            replaced = [(self._base_offset, self._end_offset)]
            state.keys.end_rewrite(state.segments, self._rewrite, replaced)
        state.stats.repaired_ranges += len(segment.damage)
        state.set_damage(segment, ())
        index = state.segments.index_of(self._base_offset)
        state.segments.replace(index, self._size_bytes, gapless=self._is_gapless)
        new = state.segments[index]
        new.cleaned, new.tombstones_until = segment.cleaned, segment.tombstones_until
        new.file.remember_time()
        state.note_loss()
        return True

    def _draft(self, suffix: str) -> str:
        return f"{self._directory}/{numbered(self._base_offset, suffix)}.{self._token}{TEMPORARY}"


def _keep_keys(keys: LogKeys, segment: Segment) -> None:
    """What goes to the quarantine stays readable, whatever key the offsets are under later."""
    for damage in segment.damage:
        keys.keep(damage.start, max(damage.end, Offset(damage.start + 1)))
    with suppress(DiskFull):
        keys.put()


def _lost_aborts(state: LogState, segment: Segment) -> list[ControlRecord]:
    """The markers of aborted transactions that stand in damaged ranges, the first one last."""
    try:
        table = segment.index.aborted
    except CorruptionError:
        return []
    if segment.lacks_aborted:
        return []
    return [
        _marker_of(state, row)
        for row in reversed(aborted_rows(array("q", table)))
        if any(damage.start <= row.last_offset < damage.end for damage in segment.damage)
    ]


def _marker_of(state: LogState, abort: AbortedTransaction) -> ControlRecord:
    # The epochs of the last marker of a producer count, and no others.
    known = state.producers.get(abort.producer_id)
    if known is None or known.marker_offset != abort.last_offset:
        epochs = (0, 0)
    else:
        epochs = (known.epoch, known.coordinator_epoch)
    return ControlRecord(abort.last_offset, NO_TIMESTAMP, ControlType.ABORT, abort.producer_id, *epochs)


def begin_reseal(state: LogState, token: str, base_offset: Offset) -> SegmentDraft | None:
    """The draft of a full segment as it is, under a new key; None if it is not there, or damaged. Blocks."""
    keys = state.keys
    if keys is None or state.stopped is not None:
        return None
    for segment in state.segments.items[:-1]:
        if segment.base_offset == base_offset and not segment.damage:
            end = state.segments.reach_of(segment, state.end)
            rewrite = keys.begin_rewrite(state.segments, base_offset, end)
            return SegmentDraft(state, segment, token, may_have_gaps=not segment.gapless, rewrite=rewrite)
    return None


def begin_refill(state: LogState, token: str, *, may_have_gaps: bool) -> SegmentDraft | None:
    """The draft for the first damaged segment that does not grow; None if there is none."""
    for segment in state.segments.items[:-1]:
        if segment.damage:
            return SegmentDraft(state, segment, token, may_have_gaps=may_have_gaps)
    return None
