"""The work of a compaction: read the dirty part, rewrite the segments. Blocks, and takes its time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TypeAlias

from penstock.core.model import CorruptionError, StorageError
from penstock.core.records import BatchHeader, Record, read_records, rewrite_batch
from penstock.storage.disk import Buffer, Disk, File, NoSuchFile, PosixDisk
from penstock.storage.log.compaction.draft import Draft
from penstock.storage.log.compaction.keys import AbortedRanges, LatestOffsets
from penstock.storage.log.compaction.values import (
    Cleaned,
    CleanedSegment,
    CleaningFailed,
    CompactionOrder,
    Source,
    Uncleanable,
)
from penstock.storage.log.names import LOG, numbered
from penstock.storage.log.recovery.swaps import SWAPPED_SUFFIXES
from penstock.storage.log.segment import OFFSET_DELTA_MAX, Checked, checked_batches

Cleaner: TypeAlias = Callable[[CompactionOrder], Cleaned]


def cleaner_for(disk: Disk) -> Cleaner:
    """How orders are carried out on this disk; a real one can be reached from any process."""
    return partial(clean_at, disk.root) if isinstance(disk, PosixDisk) else partial(clean, disk)


def clean_at(root: str, order: CompactionOrder) -> Cleaned:
    """Carry out an order in the data directory `root`."""
    return clean(PosixDisk(root), order)


def clean(disk: Disk, order: CompactionOrder) -> Cleaned:
    """Write what stays of the order's segments into files beside them, durably but for their names.

    When this raises, nothing is left of it.
    """
    try:
        return _Cleaning(disk, order).run()
    except CorruptionError as corrupt:
        remove_drafts(disk, order)
        raise Uncleanable(str(corrupt)) from None
    except StorageError as failed:
        remove_drafts(disk, order)
        raise CleaningFailed(str(failed)) from None


def remove_drafts(disk: Disk, order: CompactionOrder) -> None:
    """Nobody wants the new files any more; what cannot be removed now goes at the next start."""
    for source in order.sources:
        for suffix in SWAPPED_SUFFIXES:
            with suppress(StorageError):
                disk.remove(order.draft(source.base_offset, suffix))


class _Cleaning:
    """One order being carried out."""

    def __init__(self, disk: Disk, order: CompactionOrder) -> None:
        self._disk = disk
        self._order = order
        self._latest = LatestOffsets()
        self._aborted = AbortedRanges(order.aborted)
        self._records_before = 0
        self._records_after = 0
        self._tombstones_until: int | None = None

    def run(self) -> Cleaned:
        covered = self._build_map()
        groups = grouped(self._order.sources[:covered], self._order.options.segment_bytes)
        segments = tuple(self._rewrite(group) for group in groups)
        return Cleaned(segments, self._records_before, self._records_after)

    def _build_map(self) -> int:
        """Note the keys of the dirty part; answers how many segments it has room for.

        What was noted of a segment that did not fit does no harm: its records stay where they are,
        and outdate earlier ones.
        """
        for index in range(self._order.dirty_from, len(self._order.sources)):
            for batch in self._batches(self._order.sources[index]):
                if len(self._latest) >= self._order.rules.keys_max and index > self._order.dirty_from:
                    return index
                if not batch.header.is_control and not self._aborted.holds(batch.header):
                    for record in read_records(batch.content):
                        if record.key is not None:
                            self._latest.note(record.key, record.offset)
        return len(self._order.sources)

    def _rewrite(self, group: Sequence[Source]) -> CleanedSegment:
        self._tombstones_until = None
        with closing(Draft(self._disk, self._order, group)) as draft:
            for source in group:
                with closing(self._open(source)) as file:
                    for batch in _checked(file, source):
                        at_end = batch.position + batch.header.size_bytes == source.size_bytes
                        kept = self._what_stays(batch, is_last=at_end and source is group[-1])
                        draft.add(file, batch, kept)
            return draft.finish()._replace(tombstones_until=self._tombstones_until)

    def _what_stays(self, batch: Checked, *, is_last: bool) -> Buffer | None:
        """The batch as it was, a smaller one, or None if it goes altogether."""
        header = batch.header
        if header.is_control:
            return batch.content
        records = list(read_records(batch.content))
        kept = [] if self._aborted.holds(header) else [one for one in records if self._stays(header, one)]
        self._records_before += len(records)
        self._records_after += len(kept)
        if not kept and not is_last and header.last_offset not in self._order.producer_ends:
            return None
        horizon = self._new_horizon(header, kept)
        self._note_tombstones(header.delete_horizon_ms if horizon is None else horizon, kept)
        if horizon is None and len(kept) == len(records):
            return batch.content
        return rewrite_batch(header, kept, delete_horizon_ms=horizon)

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if self._latest.is_outdated(record):
            return False
        horizon = header.delete_horizon_ms
        return record.value is not None or horizon is None or horizon >= self._order.now

    def _new_horizon(self, header: BatchHeader, kept: list[Record]) -> int | None:
        """Tombstones that compaction meets for the first time are told how long they have."""
        if header.delete_horizon_ms is not None or all(record.value is not None for record in kept):
            return None
        return self._order.now + self._order.rules.delete_retention_ms

    def _note_tombstones(self, until: int | None, kept: list[Record]) -> None:
        before = self._tombstones_until
        if until is not None and any(record.value is None for record in kept):
            self._tombstones_until = until if before is None else min(before, until)

    def _batches(self, source: Source) -> Iterator[Checked]:
        with closing(self._open(source)) as file:
            yield from _checked(file, source)

    def _open(self, source: Source) -> File:
        path = f"{self._order.directory}/{numbered(source.base_offset, LOG)}"
        try:
            return self._disk.open(path, readonly=True)
        except NoSuchFile:
            # Retention may have taken it meanwhile; then the whole order is void.
            raise CleaningFailed(f"{path} is gone") from None


def grouped(sources: Sequence[Source], segment_bytes: int) -> list[list[Source]]:
    """Neighbours that fit into one segment as they are; what becomes of them is smaller still."""
    groups: list[list[Source]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, segment_bytes):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(group: Sequence[Source], source: Source, segment_bytes: int) -> bool:
    return (
        source.is_mergeable
        and group[0].is_mergeable
        and sum(one.size_bytes for one in group) + source.size_bytes <= segment_bytes
        and source.end_offset - group[0].base_offset <= OFFSET_DELTA_MAX
    )


def _checked(file: File, source: Source) -> Iterator[Checked]:
    """The batches of a segment, which must be in order and belong there."""
    expected: int = source.base_offset
    for batch in checked_batches(file, 0, source.size_bytes):
        header = batch.header
        if header.base_offset < expected or header.next_offset > source.end_offset:
            raise Uncleanable(f"offset {header.base_offset} stands where {expected} should")
        yield batch
        expected = header.next_offset
