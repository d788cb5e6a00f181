"""Putting rewritten segments in the place of the old ones."""

from contextlib import suppress
from dataclasses import replace

from penstock.core.model import StorageError
from penstock.storage.disk import DiskFull
from penstock.storage.log.checkpointing import write_checkpoint
from penstock.storage.log.compaction.cleaning import remove_drafts
from penstock.storage.log.compaction.values import Cleaned, CleanedSegment, Compacted, CompactionOrder
from penstock.storage.log.files.checkpoint import SealedSegment
from penstock.storage.log.names import CLEANED, numbered
from penstock.storage.log.recovery.swaps import SWAPPED_SUFFIXES, redo_swaps
from penstock.storage.log.state import LogState


class Compaction:
    """One compaction that is under way, while the log goes on."""

    __slots__ = ("_segments", "_state", "_truncations", "order")

    def __init__(self, state: LogState, order: CompactionOrder) -> None:
        self.order = order
        self._state = state
        # What the order is about. Retention, truncation and quarantine may take it away.
        self._segments = [state.segments[index] for index in range(len(order.sources))]
        self._truncations = state.stats.truncations

    def finish(self, cleaned: Cleaned) -> Compacted | None:
        """Let the new files count; None if the log has changed too much meanwhile. Blocks for a few syncs."""
        state = self._state
        if not self._is_valid():
            self.cancel()
            return None
        try:
            self._name(cleaned)
            checkpoint = replace(state.checkpoint, sealed=self._rows(cleaned))
            write_checkpoint(state, checkpoint)
        except DiskFull:
            # Nothing has been replaced, and whoever waits for room gets some back.
            self.cancel()
            redo_swaps(state.disk, state.directory, state.checkpoint)
            raise
        except StorageError as failed:
            # The checkpoint may be on disk or not: a start will see, and needs the new files for it.
            state.durability.stop(failed)
            raise
        try:
            redo_swaps(state.disk, state.directory, checkpoint)
        except StorageError as failed:
            state.durability.stop(failed)
            raise
        return self._count(cleaned)

    def cancel(self) -> None:
        """Throw the new files away."""
        remove_drafts(self._state.disk, self.order)

    def _is_valid(self) -> bool:
        state = self._state
        present = {id(segment) for segment in state.segments}
        return (
            state.stopped is None
            and self._truncations == state.stats.truncations
            and all(id(segment) in present for segment in self._segments)
            and not any(segment.base_offset in state.damage for segment in self._segments)
        )

    def _name(self, cleaned: Cleaned) -> None:
        """From here on the files are named as recovery expects them; nobody else writes under these names."""
        state = self._state
        for segment in _rewritten(cleaned):
            for suffix in SWAPPED_SUFFIXES:
                name = f"{state.directory}/{numbered(segment.base_offset, suffix)}{CLEANED}"
                state.disk.rename(self.order.draft(segment.base_offset, suffix), name)
        state.disk.sync_directory(state.directory)

    def _rows(self, cleaned: Cleaned) -> tuple[SealedSegment, ...]:
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

    def _count(self, cleaned: Cleaned) -> Compacted:
        segments = self._state.segments
        for new in cleaned.segments:
            index = segments.index_of(new.base_offset)
            if new.is_rewritten:
                segments.replace(index, new.size_bytes, gapless=new.gapless)
            segments[index].cleaned = True
            segments[index].tombstones_until = new.tombstones_until
            for base_offset in new.absorbed:
                assert segments.forget(index + 1).base_offset == base_offset
                # What cannot be removed now goes at the next start.
                with suppress(StorageError):
                    segments.remove_files(base_offset)
        covered = self.order.sources[: sum(1 + len(new.absorbed) for new in cleaned.segments)]
        return Compacted(
            covered[-1].end_offset,
            len(_rewritten(cleaned)),
            cleaned.records_before,
            cleaned.records_after,
            sum(source.size_bytes for source in covered),
            sum(segment.size_bytes for segment in cleaned.segments),
        )


def _rewritten(cleaned: Cleaned) -> list[CleanedSegment]:
    return [segment for segment in cleaned.segments if segment.is_rewritten]
