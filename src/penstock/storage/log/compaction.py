"""Compaction: of every key, only the latest record stays.

    cleaned ───────────────┬ dirty ─────────────┬ not yet ─────────────┐
    one record per key     │ read into a map    │ too young, undecided,│
                           │ key → last offset  │ or still growing     │
    └── rewritten without what the map knows to be outdated ──┘

What holds:

* Offsets and their order never change; readers meet gaps. A batch keeps its range of offsets.
* Only sealed segments below the last stable offset, listed in a checkpoint, are compacted.
* A tombstone (a key without a value) stays until `delete.retention.ms` after the first time
  that compaction has met it, so that readers on their way can see it. The batch says until when.
* Records of aborted transactions go, and never count as the latest of their key.
* A marker stays while a batch of its transaction is there, and then as long as a tombstone. The last marker
  of every producer stays for its epoch.
* The last batch of every producer stays, empty if need be, for its sequence; so does the last one of
  every segment, so that each file shows by itself where it ends.
* Records without a key, from a time when the topic was not compacted, go.

It takes four steps. `plan` says on the loop what there is to do. `clean` does it in a worker process,
and writes new files beside the old ones, unseen by readers, and syncs them. `Compaction.prepare` is on the
loop again, and has brought to the device off the loop what the last step relies on: the names that the new
files have for now, and a checkpoint that nobody sees yet.

    last checkpoint's ─ round ─▶ names ─┐
    name                         bytes ─┴ round ─▶ checkpoint renamed ─ names synced ─ files renamed ─▶ round
                                                   └──────── one turn of the loop, `finish` ───────┘

`Compaction.finish` puts them in place in one turn: while the checkpoint on disk may say something else than
memory does, nothing may happen to the log, so this one sync blocks. If a power cut interrupts that,
`redo_swaps` in `recovery` finishes it. The last names need not wait: a start repeats the renames, and
every checkpoint that does not say `swapping` any more is written after a later sync of the directory.

The map holds digests, so its size depends on the number of keys alone. It takes whole segments until
it is full, and the next compaction goes on behind them.

Neighbours that fit into one segment become one, under the name of the first. When nothing is dirty
and the first tombstones have expired, compaction goes through the log all the same; after a restart
they get their whole time once more, since it is not stored.

A marker that goes takes its row of the aborted index along: a consumer ends what it skips of a producer at
the marker. Producer snapshots in which its transaction is open are corrected before, or a log that is rebuilt
from one of them would wait for the marker for ever.

Left out: the map takes at least one segment, however many keys that has. A replica that was away for longer
than `delete.retention.ms` may have records of a transaction whose marker is gone elsewhere, as with Kafka.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from penstock.core.model import CorruptionError, Offset, ProducerId, StorageError, Timestamp
from penstock.core.records import (
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    Record,
    read_header,
    read_records,
    rewrite_batch,
)
from penstock.core.replica import AbortedTransaction, ProducerStateManager, decode_snapshot, encode_snapshot
from penstock.storage.disk import Buffer, Disk, DiskFull, File, NoSuchFile, PosixDisk
from penstock.storage.log import read
from penstock.storage.log.checkpoint import rename_checkpoint, write_checkpoint
from penstock.storage.log.durability import Done
from penstock.storage.log.file_names import CHECKPOINT, CLEANED, LOG, SNAPSHOT, TEMPORARY, numbered
from penstock.storage.log.files import (
    Checkpoint,
    FileKind,
    SealedSegment,
    encode_checkpoint,
    frame,
    read_file,
    replace_durably,
    unframe,
)
from penstock.storage.log.index import (
    ABORTED,
    OFFSETS,
    TIMES,
    ActiveIndex,
    IndexRowFormat,
    encode_words,
    footer,
)
from penstock.storage.log.keys import KeyOfRewrite
from penstock.storage.log.recovery import CLEANED_SUFFIXES, redo_swaps
from penstock.storage.log.segment import (
    OFFSET_DELTA_MAX,
    SCAN_BYTES,
    UNKNOWN_MS,
    CheckedBatch,
    Segment,
    checked_batches,
)
from penstock.storage.log.state import LogState
from penstock.storage.log.types import DAY_MS, LogOptions, LogStopped
from penstock.storage.sealing import BrokenSeal, KeyTable, seal_batch
from penstock.storage.sealing.sealed_batch import NONCE_BYTES

_DIGEST_BYTES = 16
NEVER_MS = 2**63 - 1
# About 100 MB of digests and offsets.
KEYS_MAX = 500_000
UNKNOWN_OFFSET = -1
# The coordinator epoch of a producer that has no marker.
NO_COORDINATOR = -1
# Nothing is dirty, but there is something to do.
LEAST_URGENT = 1e-6


class OffsetMap:
    """The offset of the last record of every key that was noted.

    Keys are kept as digests of 128 bits: a collision is too unlikely to matter.
    """

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def note(self, key: bytes, offset: int) -> None:
        """Records come in the order of their offsets."""
        self._latest[blake2b(key, digest_size=_DIGEST_BYTES).digest()] = offset

    def is_outdated(self, record: Record) -> bool:
        """Whether the key has a later record, or there is no key at all."""
        if record.key is None:
            return True
        latest = self._latest.get(blake2b(record.key, digest_size=_DIGEST_BYTES).digest())
        return latest is not None and latest > record.offset


class AbortedRanges:
    """Which batches belong to transactions that were aborted."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # First and last offsets; those of one producer follow each other.
        self._by_producer: dict[ProducerId, tuple[list[int], list[int]]] = {}
        for transaction in aborted:
            firsts, lasts = self._by_producer.setdefault(transaction.producer_id, ([], []))
            firsts.append(transaction.first_offset)
            lasts.append(transaction.last_offset)

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or not self._by_producer:
            return False
        ranges = self._by_producer.get(ProducerId(header.producer_id))
        if ranges is None:
            return False
        at = bisect_right(ranges[0], header.base_offset) - 1
        return at >= 0 and header.base_offset <= ranges[1][at]


class Uncleanable(CorruptionError):
    """A segment holds something that cannot be read: compacting it could lose records."""

    def __init__(self, reason: str, segment: int = -1) -> None:
        super().__init__(reason)
        self.segment = segment

    def __reduce__(self) -> tuple[type["Uncleanable"], tuple[str, int]]:
        # It comes from another process.
        return Uncleanable, (str(self), self.segment)


class CleaningFailed(StorageError):
    """The disk failed; the log is as it was, and compaction may be tried again."""


class CompactionRules(NamedTuple):
    """What a topic says about compaction."""

    min_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    min_lag_ms: int = 0
    max_lag_ms: int = NEVER_MS
    keys_max: int = KEYS_MAX


class CompactionSeals(NamedTuple):
    """The keys of a log as a worker gets them: its table as it is, and the key of what is rewritten."""

    table: KeyTable
    rewrite: KeyOfRewrite

    def sealed(self, batch: Buffer) -> Buffer:
        key = self.rewrite.key
        if key is None:
            return batch
        return seal_batch(batch, key, self.table.context, os.urandom(NONCE_BYTES))


class SegmentToClean(NamedTuple):
    """A segment to be rewritten: its offsets and its size."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    gapless: bool


class CompactionTask(NamedTuple):
    """What is to be cleaned: every segment from the first, those from `dirty_from` on for the first time.

    `aborted` has rows of the aborted indexes. `producer_ends` are the last offsets of batches that must not
    vanish, `last_markers` the offsets of the markers that must not, by producer; -1 if it is not known which
    is the last. `token` keeps the files of this task apart from those that an abandoned worker may still be
    writing.
    """

    directory: str
    sources: tuple[SegmentToClean, ...]
    dirty_from: int
    aborted: "array[int]"
    producer_ends: frozenset[int]
    last_markers: dict[int, int]
    now: Timestamp
    rules: CompactionRules
    options: LogOptions
    token: str
    # What opens the batches, and under which key they are written again; None if all of them are plain.
    seals: "CompactionSeals | None" = None

    def draft(self, base_offset: Offset, suffix: str) -> str:
        """Where the rewritten file goes at first."""
        return f"{self.directory}/{numbered(base_offset, suffix)}.{self.token}{CLEANED}"


class CleanedSegment(NamedTuple):
    """What became of a segment and of those behind it that it has absorbed.

    If nothing had to go, there is no new file. The first of the tombstones that are left may go
    at `tombstones_until`.
    """

    base_offset: Offset
    size_bytes: int
    gapless: bool
    is_rewritten: bool
    absorbed: tuple[Offset, ...] = ()
    tombstones_until: int | None = None


class CleaningResult(NamedTuple):
    """The result of a task: the first segments of it, as many as the map had room for."""

    segments: tuple[CleanedSegment, ...]
    records_before: int
    records_after: int
    markers_removed: int = 0
    # Producer snapshots without the transactions whose markers went, by their offsets.
    snapshots: tuple[tuple[Offset, bytes], ...] = ()
    # Batches that are as they were written and cannot be decoded: how many, and why the first cannot.
    unreadable: int = 0
    first_unreadable: tuple[int, str] | None = None


class CompactionResult(NamedTuple):
    """What a compaction has achieved."""

    end_offset: Offset
    segments: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


class CleanedSegmentWriter:
    """A segment being written anew. No file is made before something differs from the old one."""

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_buffer",
        "_disk",
        "_dropped",
        "_file",
        "_group",
        "_index",
        "_order",
        "_size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        order: CompactionTask,
        group: Sequence[SegmentToClean],
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        self._disk = disk
        self._order = order
        self._aborted = aborted
        self._group = group
        self._base_offset = group[0].base_offset
        self._index = ActiveIndex(self._base_offset, order.options)
        # Segments that are merged differ from the first byte on.
        self._file: File | None = self._create(LOG) if len(group) > 1 else None
        self._buffer = bytearray()
        self._size_bytes = 0
        self._dropped = 0

    def add(self, old: File, batch: CheckedBatch, kept: Buffer | None) -> None:
        """The next batch of the `old` file, and what stays of it."""
        if kept is not None and batch.header.is_control:
            self._note_aborted(batch.header.base_offset)
        if kept is not batch.content and self._file is None:
            self._begin(old, batch.position)
        if kept is None:
            self._dropped += 1
            return
        self._put_batch(batch.header if kept is batch.content else read_header(kept), kept)

    def _put_batch(self, header: BatchHeader, kept: Buffer) -> None:
        seals = self._order.seals
        if seals is not None and self._file is not None:
            kept = seals.sealed(kept)
        self._index.note(header.base_offset, header.last_offset, self._size_bytes, header.max_timestamp)
        self._size_bytes += len(kept)
        if self._file is not None:
            self._buffer += kept
            if len(self._buffer) >= SCAN_BYTES:
                self._write_out(self._file)

    def _note_aborted(self, marker: int) -> None:
        rows = self._aborted
        at = bisect_left(rows, marker, key=lambda row: row.last_offset)
        if at < len(rows) and rows[at].last_offset == marker:
            self._index.note_aborted(rows[at])

    def finish(self) -> CleanedSegment:
        """Bring everything to the device, indexes too."""
        base_offset, file = self._base_offset, self._file
        gapless = all(source.gapless for source in self._group)
        if file is None:
            return CleanedSegment(base_offset, self._group[0].size_bytes, gapless, is_rewritten=False)
        self._write_out(file)
        file.sync()
        self._index.close_times(self._group[-1].end_offset - 1)
        self._put(OFFSETS, self._index.offsets)
        self._put(TIMES, self._index.times)
        self._put(ABORTED, self._index.aborted)
        return CleanedSegment(
            base_offset,
            self._size_bytes,
            gapless and not self._dropped,
            is_rewritten=True,
            absorbed=tuple(source.base_offset for source in self._group[1:]),
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self, old: File, same_bytes: int) -> None:
        """Create the new file with the first `same_bytes` of the old one, which are the same.

        Where batches are sealed, they are so under another key, and may have another size.
        """
        self._file = file = self._create(LOG)
        seals = self._order.seals
        if seals is None:
            for position in range(0, same_bytes, SCAN_BYTES):
                file.append(old.pread(position, min(SCAN_BYTES, same_bytes - position)))
            return
        aborted, self._size_bytes = self._index.aborted, 0
        self._index = ActiveIndex(self._base_offset, self._order.options)
        self._index.aborted = aborted
        for batch in checked_batches(old, 0, same_bytes):
            self._put_batch(batch.header, seals.table.unseal_one(batch.content, batch.header))

    def _write_out(self, file: File) -> None:
        if self._buffer:
            file.append(self._buffer)
            self._buffer = bytearray()

    def _put(self, shape: IndexRowFormat, words: "array[int]") -> None:
        rows = encode_words(words)
        file = self._create(shape.suffix)
        try:
            file.append(rows + footer(shape, rows))
            file.sync()
        finally:
            file.close()

    def _create(self, suffix: str) -> File:
        return self._disk.open(self._order.draft(self._base_offset, suffix), create=True, exclusive=True)


Cleaner: TypeAlias = Callable[[CompactionTask], CleaningResult]


def cleaner_for(disk: Disk) -> Cleaner:
    """The function that carries out tasks on this disk; a real one can be reached from any process."""
    return partial(clean_at, disk.root) if isinstance(disk, PosixDisk) else partial(clean, disk)


def clean_at(root: str, order: CompactionTask) -> CleaningResult:
    """Carry out a task in the data directory `root`."""
    return clean(PosixDisk(root), order)


def clean(disk: Disk, order: CompactionTask) -> CleaningResult:
    """Write what stays of the task's segments into files beside them, durably but for their names.

    When this raises, nothing is left of it.
    """
    try:
        return _Cleaning(disk, order).run()
    except CorruptionError as corrupt:
        remove_drafts(disk, order)
        segment = corrupt.segment if isinstance(corrupt, Uncleanable) else -1
        raise Uncleanable(str(corrupt), segment) from None
    except StorageError as failed:
        remove_drafts(disk, order)
        raise CleaningFailed(str(failed)) from None


def remove_drafts(disk: Disk, order: CompactionTask) -> None:
    """Remove the new files; those that cannot be removed now are removed at the next start."""
    for source in order.sources:
        for suffix in CLEANED_SUFFIXES:
            with suppress(StorageError):
                disk.remove(order.draft(source.base_offset, suffix))


class _Cleaning:
    """One task being carried out."""

    def __init__(self, disk: Disk, order: CompactionTask) -> None:
        self._disk = disk
        self._order = order
        self._latest = OffsetMap()
        self._aborted_rows = read.aborted_rows(order.aborted)
        self._aborted = AbortedRanges(self._aborted_rows)
        self._records_before = 0
        self._records_after = 0
        self._tombstones_until: int | None = None
        # Producers with batches of a transaction whose marker has not come yet.
        self._in_transaction: dict[int, None] = {}
        self._last_marker: dict[int, int] = {}
        # By producer: where each marker that went was, and where the one before it was at the latest.
        self._dropped: dict[int, list[tuple[int, int]]] = {}
        self._unreadable = 0
        self._first_unreadable: tuple[int, str] | None = None

    def run(self) -> CleaningResult:
        covered = self._build_map()
        groups = group_segments(self._order.sources[:covered], self._order.options.segment_bytes)
        segments = tuple(self._rewrite(group) for group in groups)
        return CleaningResult(
            segments,
            self._records_before,
            self._records_after,
            sum(map(len, self._dropped.values())),
            tuple(self._corrected_snapshots(self._order.sources[:covered])),
            self._unreadable,
            self._first_unreadable,
        )

    def _corrected_snapshots(self, sources: Sequence[SegmentToClean]) -> Iterator[tuple[Offset, bytes]]:
        """The snapshots that say of a transaction that it is open, and its marker went."""
        for source in sources if self._dropped else ():
            base = source.base_offset
            path = f"{self._order.directory}/{numbered(base, SNAPSHOT)}"
            content = read_file(self._disk, path)
            try:
                producers = decode_snapshot(unframe(FileKind.SNAPSHOT, content or b""))
            except CorruptionError:
                # There is none, or a scrub will find that it is damaged.
                continue
            ended = [
                producer_id
                for producer_id, _ in producers.transactions.ongoing()
                if any(after < base <= offset for after, offset in self._dropped.get(producer_id, ()))
            ]
            if ended:
                yield base, frame(FileKind.SNAPSHOT, encode_snapshot(producers.without_open(ended)))

    def _build_map(self) -> int:
        """Note the keys of the dirty part; returns how many segments it has room for.

        What was noted of a segment that did not fit does no harm: its records stay where they are,
        and outdate earlier ones.
        """
        for index in range(self._order.dirty_from, len(self._order.sources)):
            for batch in self._batches(self._order.sources[index]):
                if len(self._latest) >= self._order.rules.keys_max and index > self._order.dirty_from:
                    return index
                if not batch.header.is_control and not self._aborted.holds(batch.header):
                    for record in _decoded(batch) or ():
                        if record.key is not None:
                            self._latest.note(record.key, record.offset)
        return len(self._order.sources)

    def _rewrite(self, group: Sequence[SegmentToClean]) -> CleanedSegment:
        self._tombstones_until = None
        with closing(CleanedSegmentWriter(self._disk, self._order, group, self._aborted_rows)) as draft:
            for source in group:
                with closing(self._open(source)) as file:
                    for batch in self._opened(file, source):
                        at_end = batch.stop == source.size_bytes
                        kept = self._what_stays(batch, is_last=at_end and source is group[-1])
                        draft.add(file, batch, kept)
            return draft.finish()._replace(tombstones_until=self._tombstones_until)

    def _what_stays(self, batch: CheckedBatch, *, is_last: bool) -> Buffer | None:
        """The batch as it was, a smaller one, or None if it goes altogether."""
        header = batch.header
        if header.is_control:
            return self._what_stays_of_marker(batch, is_last=is_last)
        if header.is_transactional:
            self._in_transaction[header.producer_id] = None
        records = _decoded(batch)
        if records is None:
            return self._keep_unreadable(batch)
        kept = [] if self._aborted.holds(header) else [one for one in records if self._stays(header, one)]
        self._records_before += len(records)
        self._records_after += len(kept)
        if not kept:
            if not is_last and header.last_offset not in self._order.producer_ends:
                return None
            if header.is_transactional:
                # It is there for its offsets or its sequence alone, and must not keep a marker.
                return rewrite_batch(header._replace(attributes=header.attributes & ~TRANSACTIONAL), [])
        horizon = self._new_horizon(header, kept)
        self._note_tombstones(header.delete_horizon_ms if horizon is None else horizon, kept)
        if horizon is None and len(kept) == len(records):
            return batch.content
        return rewrite_batch(header, kept, delete_horizon_ms=horizon)

    def _keep_unreadable(self, batch: CheckedBatch) -> Buffer:
        """Nobody can say which keys it has. It outdates nothing, and stays as it is."""
        self._unreadable += 1
        self._records_before += batch.header.record_count
        self._records_after += batch.header.record_count
        if self._first_unreadable is None:
            self._first_unreadable = (batch.header.base_offset, why_unreadable(batch.content))
        return batch.content

    def _what_stays_of_marker(self, batch: CheckedBatch, *, is_last: bool) -> Buffer | None:
        header, now = batch.header, self._order.now
        producer_id, offset = header.producer_id, header.base_offset
        after = self._last_marker.get(producer_id, -1)
        self._last_marker[producer_id] = offset
        if producer_id in self._in_transaction:
            # There were batches of its transaction before this compaction: the next one may find none.
            del self._in_transaction[producer_id]
            return batch.content
        horizon = header.delete_horizon_ms
        if horizon is None:
            horizon = now + self._order.rules.delete_retention_ms
            self._note_until(horizon)
            return rewrite_batch(header, read_records(batch.content), delete_horizon_ms=horizon)
        if is_last or self._order.last_markers.get(producer_id) in (offset, UNKNOWN_OFFSET):
            return batch.content
        if horizon >= now:
            self._note_until(horizon)
            return batch.content
        self._dropped.setdefault(producer_id, []).append((after, offset))
        return None

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if self._latest.is_outdated(record):
            return False
        horizon = header.delete_horizon_ms
        return record.value is not None or horizon is None or horizon >= self._order.now

    def _new_horizon(self, header: BatchHeader, kept: list[Record]) -> int | None:
        """Until when tombstones that compaction meets for the first time stay; None if there are none."""
        if header.delete_horizon_ms is not None or all(record.value is not None for record in kept):
            return None
        return self._order.now + self._order.rules.delete_retention_ms

    def _note_tombstones(self, until: int | None, kept: list[Record]) -> None:
        if until is not None and any(record.value is None for record in kept):
            self._note_until(until)

    def _note_until(self, until: int) -> None:
        before = self._tombstones_until
        self._tombstones_until = until if before is None else min(before, until)

    def _batches(self, source: SegmentToClean) -> Iterator[CheckedBatch]:
        with closing(self._open(source)) as file:
            yield from self._opened(file, source)

    def _opened(self, file: File, source: SegmentToClean) -> Iterator[CheckedBatch]:
        """The batches of a segment, as they were before they were sealed."""
        seals = self._order.seals
        if seals is None:
            yield from _checked(file, source)
            return
        try:
            for batch in _checked(file, source):
                plain = memoryview(seals.table.unseal_one(batch.content, batch.header))
                yield CheckedBatch(batch.position, read_header(plain), plain, batch.stop)
        except BrokenSeal as broken:
            raise Uncleanable(str(broken), source.base_offset) from None

    def _open(self, source: SegmentToClean) -> File:
        path = f"{self._order.directory}/{numbered(source.base_offset, LOG)}"
        try:
            return self._disk.open(path, readonly=True)
        except NoSuchFile:
            # Retention may have deleted it meanwhile; then the whole task is void.
            raise CleaningFailed(f"the segment {path} was deleted during compaction") from None


def _decoded(batch: CheckedBatch) -> list[Record] | None:
    """All records of a batch, or None if one of them cannot be decoded: readers see none of them, then."""
    try:
        return list(read_records(batch.content))
    except CorruptBatch:
        return None


def why_unreadable(batch: Buffer) -> str:
    """Why the records of a batch cannot be decoded; nothing if they can."""
    try:
        for _ in read_records(batch):
            pass
    except CorruptBatch as broken:
        return str(broken)
    return ""


def group_segments(sources: Sequence[SegmentToClean], segment_bytes: int) -> list[list[SegmentToClean]]:
    """Neighbours that fit into one segment as they are; what becomes of them is smaller still."""
    groups: list[list[SegmentToClean]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, segment_bytes):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(group: Sequence[SegmentToClean], source: SegmentToClean, segment_bytes: int) -> bool:
    return (
        sum(one.size_bytes for one in group) + source.size_bytes <= segment_bytes
        and source.end_offset - group[0].base_offset <= OFFSET_DELTA_MAX
    )


def _checked(file: File, source: SegmentToClean) -> Iterator[CheckedBatch]:
    """The batches of a segment, which must be in order and belong there."""
    expected: int = source.base_offset
    try:
        for batch in checked_batches(file, 0, source.size_bytes):
            header = batch.header
            if header.base_offset < expected or header.next_offset > source.end_offset:
                raise CorruptBatch(f"offset {header.base_offset} stands where {expected} should")
            yield batch
            expected = header.next_offset
    except CorruptBatch as corrupt:
        raise Uncleanable(str(corrupt), source.base_offset) from None


class CleanableSegments(NamedTuple):
    """The segments that may be rewritten, the first `clean` of them not for the first time.

    `overdue`: a record has waited for too long; `expired`: tombstones have stayed for long enough.
    """

    segments: tuple[Segment, ...]
    clean: int
    overdue: bool
    expired: bool = False

    @property
    def dirty_ratio(self) -> float:
        """Which part of the bytes compaction has not seen yet."""
        total = sum(segment.size_bytes for segment in self.segments)
        dirty = sum(segment.size_bytes for segment in self.segments[self.clean :])
        return dirty / total if total else 0.0

    def is_due(self, rules: CompactionRules) -> bool:
        ratio = self.dirty_ratio
        return ratio > rules.min_dirty_ratio or (self.overdue and ratio > 0) or self.expired

    def urgency(self, rules: CompactionRules) -> float:
        """The dirty ratio if compaction is due, however little of it there is; or else 0."""
        return max(self.dirty_ratio, LEAST_URGENT) if self.is_due(rules) else 0.0


NO_SEGMENTS = CleanableSegments((), 0, overdue=False)


def cleanable(
    state: LogState, rules: CompactionRules, now: Timestamp, *, after_checkpoint: bool = False
) -> CleanableSegments:
    """What could be compacted now, or after a checkpoint; nothing before the last compaction is finished."""
    if state.stopped is not None or any(row.swapping for row in state.checkpoint.sealed):
        return NO_SEGMENTS
    if state.unsure_from is not None:
        # What was committed may count as aborted, and would go.
        return NO_SEGMENTS
    found: list[Segment] = []
    clean, in_clean_part = 0, True
    covered = state.end if after_checkpoint else state.checkpoint.segment
    for index in range(len(state.segments) - 1):
        segment = state.segments[index]
        in_clean_part = in_clean_part and segment.cleaned
        if not _is_settled(state, index, covered) or not (
            in_clean_part or _is_old_enough(segment, rules, now)
        ):
            break
        found.append(segment)
        clean += in_clean_part
    overdue = clean < len(found) and _is_overdue(found[clean], rules, now)
    expired = any(_has_expired(segment, rules, now) for segment in found[:clean])
    return CleanableSegments(tuple(found), clean, overdue, expired)


def plan(state: LogState, rules: CompactionRules, now: Timestamp, token: str) -> CompactionTask | None:
    """The task for a worker, if a compaction is due."""
    found = cleanable(state, rules, now)
    if not found.is_due(rules):
        return None
    sources = tuple(
        SegmentToClean(
            segment.base_offset,
            state.segments.end_of(index, state.end),
            segment.size_bytes,
            segment.gapless,
        )
        for index, segment in enumerate(found.segments)
    )
    aborted = read.aborted_words(state, sources[0].base_offset, sources[-1].end_offset)
    if state.unsure_from is not None:
        # A table was missing, and rebuilt without records that are missing as well.
        return None
    seals = None
    if state.keys is not None:
        rewrite = state.keys.begin_rewrite(state.segments, sources[0].base_offset, sources[-1].end_offset)
        seals = CompactionSeals(state.keys.table, rewrite)
    return CompactionTask(
        state.directory,
        sources,
        found.clean,
        aborted,
        _ends_of(state.producers),
        _last_markers_of(state.producers),
        now,
        rules,
        state.options,
        token,
        seals,
    )


def _is_settled(state: LogState, index: int, covered: Offset) -> bool:
    """Whether a segment is whole and durable, and everything in it decided for good."""
    end = state.segments.end_of(index, state.end)
    stable = state.producers.transactions.last_stable_offset(state.high_watermark)
    return end <= min(stable, state.high_watermark, covered) and not state.segments[index].damage


def _is_old_enough(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    return rules.min_lag_ms <= 0 or segment.index.max_timestamp <= now - rules.min_lag_ms


def _has_expired(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    """Whether there are tombstones that have stayed long enough."""
    if segment.tombstones_until == UNKNOWN_MS:
        # Its tombstones, if any, were given at most this much time.
        segment.tombstones_until = now + rules.delete_retention_ms
    return segment.tombstones_until is not None and segment.tombstones_until < now


def _is_overdue(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    """Whether its first record has waited for too long."""
    if rules.max_lag_ms >= NEVER_MS or not segment.size_bytes:
        return False
    try:
        header = read_header(segment.file.pread(0, HEADER_BYTES))
    except CorruptBatch:
        return False  # a scrub or a read will report the damage
    return 0 <= header.max_timestamp < now - rules.max_lag_ms


def _ends_of(producers: ProducerStateManager) -> frozenset[int]:
    """Where the last batch of every producer ends: its sequence must be found again in the log."""
    return frozenset(int(end) for _, producer in producers if (end := producer.last_offset) is not None)


def _last_markers_of(producers: ProducerStateManager) -> dict[int, int]:
    """Where the last marker of every producer is: its epoch must be found again in the log."""
    return {
        producer_id: producer.marker_offset
        for producer_id, producer in producers
        if producer.coordinator_epoch != NO_COORDINATOR
    }


class Compaction:
    """One compaction that is under way, while the log goes on."""

    __slots__ = ("_is_named", "_is_prepared", "_segments", "_state", "_stored", "_truncations", "order")

    def __init__(self, state: LogState, order: CompactionTask) -> None:
        self.order = order
        self._state = state
        # The segments of the task. Retention, truncation and quarantine may remove them meanwhile.
        self._segments = [state.segments[index] for index in range(len(order.sources))]
        self._truncations = state.stats.truncations
        # Whether new files may have the names that a start looks for.
        self._is_named = False
        # Whether these names and the corrected snapshots are on the device.
        self._is_prepared = False
        # The checkpoint that was written already, and the one it was made from.
        self._stored: tuple[Checkpoint, Checkpoint] | None = None

    def prepare(self, cleaned: CleaningResult, done: Done) -> None:
        """Bring to disk what `finish` relies on, without blocking.

        Nothing of it counts yet: if the log changes before `finish`, that throws it away, or does some of it
        again. After an error the compaction has to be cancelled.
        """
        if self._is_valid():
            # A checkpoint that is not durable may have followed the last swap. Until it is, a power cut can
            # bring that one back, and a start would take the new files for those of it.
            self._state.durability.request_names(partial(self._prepare_files, cleaned, done))
        else:
            done(None)

    def _prepare_files(self, cleaned: CleaningResult, done: Done, error: StorageError | None) -> None:
        state = self._state
        if error is not None or not self._is_valid():
            done(error)
            return

        def synced(error: StorageError | None) -> None:
            self._is_prepared = error is None
            self._synced(cleaned, done, error)

        try:
            self._name(cleaned)
            for base_offset, content in cleaned.snapshots:
                self._write(numbered(base_offset, SNAPSHOT), content)
            # They end in this order, and the first that fails stops the log.
            state.durability.request_names()
            self._store_checkpoint(cleaned, synced)
        except StorageError as failed:
            done(failed)

    def _synced(self, cleaned: CleaningResult, done: Done, error: StorageError | None) -> None:
        state = self._state
        if state.durability.stopped is not None:
            error = error or LogStopped(state.directory, state.durability.stopped)
        is_outdated = self._stored is not None and self._stored[1] is not state.checkpoint
        if error is not None or not is_outdated or not self._is_valid():
            done(error)
            return
        # There was a checkpoint meanwhile, which is seldom.
        try:
            self._store_checkpoint(cleaned, partial(self._synced, cleaned, done))
        except StorageError as failed:
            done(failed)

    def _store_checkpoint(self, cleaned: CleaningResult, done: Done) -> None:
        before = self._state.checkpoint
        checkpoint = replace(before, sealed=self._rows(cleaned))
        self._stored = (checkpoint, before)
        self._write(CHECKPOINT, encode_checkpoint(checkpoint), done)

    def _write(self, name: str, content: bytes, done: Done | None = None) -> None:
        """Write a small file under a name of this compaction's own; `done` is called when it is synced."""
        state = self._state
        file = state.disk.open(self._temporary(name), create=True)
        try:
            file.truncate(0)
            file.append(content)
        except StorageError:
            file.close()
            raise
        state.durability.request_file(file, done, close=True)

    def _temporary(self, name: str) -> str:
        return f"{self._state.directory}/{name}.{self.order.token}{TEMPORARY}"

    def finish(self, cleaned: CleaningResult) -> CompactionResult | None:
        """Put the new files in place; None if the log has changed too much since.

        Blocks for one sync if everything was prepared, for one more if there are snapshots to be corrected,
        and otherwise for a few.
        """
        state = self._state
        if not self._is_valid():
            self.cancel()
            return None
        try:
            checkpoint = self._put_checkpoint(cleaned)
        except DiskFull:
            if state.durability.stopped is None:
                # Nothing has been replaced: remove the new files and give their space back.
                self.cancel()
                redo_swaps(state.disk, state.directory, state.checkpoint)
            raise
        except StorageError as failed:
            # The checkpoint may or may not be on disk. If it is, the next start needs the new files.
            state.durability.stop(failed)
            raise
        try:
            redo_swaps(state.disk, state.directory, checkpoint, is_synced_later=self._is_prepared)
        except StorageError as failed:
            state.durability.stop(failed)
            raise
        if self._is_prepared:
            # Before anything that a later checkpoint asks for.
            state.durability.request_names()
        if state.keys is not None and self.order.seals is not None:
            ends = {source.base_offset: source.end_offset for source in self.order.sources}
            replaced = [
                (new.base_offset, ends[(new.base_offset, *new.absorbed)[-1]]) for new in _rewritten(cleaned)
            ]
            state.keys.end_rewrite(state.segments, self.order.seals.rewrite, replaced)
        return self._count(cleaned)

    def _put_checkpoint(self, cleaned: CleaningResult) -> Checkpoint:
        """Have the checkpoint on disk say that the new files take the place of the old ones. Blocks."""
        state = self._state
        if not self._is_prepared:
            self._correct_snapshots(cleaned)
            # Before the names, for the reason given in `prepare`.
            state.disk.sync_directory(state.directory)
            self._name(cleaned)
            state.disk.sync_directory(state.directory)
        elif cleaned.snapshots:
            for base_offset, _ in cleaned.snapshots:
                name = numbered(base_offset, SNAPSHOT)
                state.disk.rename(self._temporary(name), f"{state.directory}/{name}")
            state.disk.sync_directory(state.directory)
        if self._is_prepared and self._stored is not None and self._stored[1] is state.checkpoint:
            checkpoint, _ = self._stored
            rename_checkpoint(state, checkpoint, self._temporary(CHECKPOINT))
        else:
            checkpoint = replace(state.checkpoint, sealed=self._rows(cleaned))
            write_checkpoint(state, checkpoint)
        return checkpoint

    def cancel(self) -> None:
        """Throw the new files away; what cannot be removed now is removed at the next start."""
        state = self._state
        remove_drafts(state.disk, self.order)
        if self._is_named and len(state.segments) and state.durability.stopped is None:
            # Otherwise somebody else may use these names.
            self._remove_prepared()
        if state.keys is not None and self.order.seals is not None and state.stopped is None:
            state.keys.end_rewrite(state.segments, self.order.seals.rewrite)

    def _remove_prepared(self) -> None:
        state = self._state
        names = [self._temporary(CHECKPOINT)]
        for source in self.order.sources:
            names.append(self._temporary(numbered(source.base_offset, SNAPSHOT)))
            names += [self._swap_path(source.base_offset, suffix) for suffix in CLEANED_SUFFIXES]
        for name in names:
            with suppress(StorageError):
                state.disk.remove(name)

    def _is_valid(self) -> bool:
        state = self._state
        present = {id(segment) for segment in state.segments}
        return (
            state.stopped is None
            and self._truncations == state.stats.truncations
            and all(id(segment) in present for segment in self._segments)
            and not any(segment.damage for segment in self._segments)
        )

    def _correct_snapshots(self, cleaned: CleaningResult) -> None:
        """End the transactions whose markers go where a producer snapshot says that they are open."""
        state = self._state
        for base_offset, content in cleaned.snapshots:
            replace_durably(state.disk, state.directory, numbered(base_offset, SNAPSHOT), content)

    def _name(self, cleaned: CleaningResult) -> None:
        """Give the files the names that recovery expects; nothing else keeps files under these names."""
        state = self._state
        self._is_named = True
        for segment in _rewritten(cleaned):
            for suffix in CLEANED_SUFFIXES:
                name = self._swap_path(segment.base_offset, suffix)
                state.disk.rename(self.order.draft(segment.base_offset, suffix), name)

    def _swap_path(self, base_offset: Offset, suffix: str) -> str:
        return f"{self._state.directory}/{numbered(base_offset, suffix)}{CLEANED}"

    def _rows(self, cleaned: CleaningResult) -> tuple[SealedSegment, ...]:
        """What a start will find: without those that were absorbed, whose files it removes."""
        by_base = {segment.base_offset: segment for segment in cleaned.segments}
        absorbed = {base for segment in cleaned.segments for base in segment.absorbed}
        return tuple(
            row
            if (new := by_base.get(row.base_offset)) is None
            else SealedSegment(
                row.base_offset, new.size_bytes, new.gapless, cleaned=True, swapping=new.is_rewritten
            )
            for row in self._state.checkpoint.sealed
            if row.base_offset not in absorbed
        )

    def _count(self, cleaned: CleaningResult) -> CompactionResult:
        segments = self._state.segments
        for new in cleaned.segments:
            index = segments.index_of(new.base_offset)
            if new.is_rewritten:
                segments.replace(index, new.size_bytes, gapless=new.gapless)
            segments[index].cleaned = True
            segments[index].tombstones_until = new.tombstones_until
            for base_offset in new.absorbed:
                assert segments.forget(index + 1).base_offset == base_offset
                # What cannot be removed now is removed at the next start.
                with suppress(StorageError):
                    segments.remove_files(base_offset)
        covered = self.order.sources[: sum(1 + len(new.absorbed) for new in cleaned.segments)]
        return CompactionResult(
            covered[-1].end_offset,
            len(_rewritten(cleaned)),
            cleaned.records_before,
            cleaned.records_after,
            sum(source.size_bytes for source in covered),
            sum(segment.size_bytes for segment in cleaned.segments),
        )


def _rewritten(cleaned: CleaningResult) -> list[CleanedSegment]:
    return [segment for segment in cleaned.segments if segment.is_rewritten]
