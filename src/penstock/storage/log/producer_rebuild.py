"""Derives producers and aborted transactions again, once records are back that were missing before.

    start     │ snapshot ─── records ──┊ lost ┊── records ── log end      unsure from here ↑ lost
    refill    │ snapshot ─── records ──┊ back ┊── records ── log end
    rebuild   │ snapshot ═══ folded, from segment to segment ═══════►     sure again

Most damage is found in segments whose records were folded while they were whole: it changes nothing here.
But a start that finds records of the growing segment lost goes on without them, and knows neither the
transactions that began or ended there nor the last sequences of their producers. It notes from where on,
in every checkpoint (`unsure_from`). Meanwhile no producer snapshot and no rebuilt index behind that offset is
written, so that those on disk are right, and nothing is compacted; the replica is not relied on, as long as
there is another one (see `broker.partitions.replica_repair`), and tells no reader what is committed.

When no damage is left, threads fold the log from the last snapshot before that offset, and write the aborted
indexes and the snapshots of the segments from there on beside the old ones. `finish` puts them in place, and
a checkpoint with the new producers says that all is sure. Until that is on disk, every start says that it has
to be done again, whichever of the files have been replaced.

Left out: a replica that is the only one. What it has lost nobody can tell, so it stays unsure.
"""

from array import array
from contextlib import closing, suppress

from penstock.core.model import Offset, StorageError
from penstock.core.replica import encode_snapshot
from penstock.storage.disk import Disk
from penstock.storage.log.checkpoint import checkpoint_now
from penstock.storage.log.file_names import LOG, SNAPSHOT, TEMPORARY, numbered
from penstock.storage.log.files import FileKind, frame
from penstock.storage.log.index import ABORTED, SealedIndex, encode_words, footer
from penstock.storage.log.recovery import fold_placed, nearest_snapshot
from penstock.storage.log.segment import SCAN_BYTES, PositionalReader, headers
from penstock.storage.log.state import LogState

# What a thread reads at a time, and what may have been appended since, which the loop reads.
SLICE_BYTES = 64 << 20
CATCH_UP_BYTES = 1 << 20


class ProducerRebuild:
    """One rebuild. Threads call `work`, one at a time, until it `is_done`; the rest is for the loop."""

    __slots__ = (
        "_number",
        "_position",
        "_producers",
        "_rows",
        "_seen_at",
        "_segments",
        "_size_bytes",
        "_state",
        "_token",
        "_truncations",
        "is_done",
    )

    def __init__(self, state: LogState, token: str) -> None:
        assert state.unsure_from is not None
        self._state = state
        self._token = token
        self._truncations = state.stats.truncations
        self._seen_at = state.replayed_at
        known, self._producers = nearest_snapshot(state, state.unsure_from, at_base=True)
        self._segments = [segment for segment in state.segments if segment.base_offset >= known]
        self._size_bytes = [segment.size_bytes for segment in self._segments]
        # Which segment is read, from where on, and what was aborted in it so far.
        self._number = 0
        self._position = 0
        self._rows = array("q")
        self.is_done = False

    @property
    def base_offset(self) -> Offset:
        """That of the segment that is read."""
        return self._segments[self._number].base_offset

    def work(self, disk: Disk) -> None:
        """Fold the next slice. For a thread; raises CorruptBatch if it is damaged after all."""
        if self._position == 0 and self._number > 0:
            content = frame(FileKind.SNAPSHOT, encode_snapshot(self._producers))
            self._put(disk, self._draft(self.base_offset, SNAPSHOT), content)
        size = self._size_bytes[self._number]
        path = f"{self._state.directory}/{numbered(self.base_offset, LOG)}"
        with closing(disk.open(path, readonly=True)) as file:
            self._fold(file, min(size, self._position + SLICE_BYTES), size)
        if self._position < size:
            return
        if self._number == len(self._segments) - 1:
            self.is_done = True
            return
        rows = encode_words(self._rows)
        self._put(disk, self._draft(self.base_offset, ABORTED.suffix), rows + footer(ABORTED, rows))
        self._number, self._position, self._rows = self._number + 1, 0, array("q")

    def _fold(self, file: PositionalReader, stop: int, end: int) -> None:
        """Read batches up to the first one that reaches `stop`."""
        for placed in headers(file, self._position, end, SCAN_BYTES):
            self._rows.extend(
                fold_placed(self._producers, file, placed, self._seen_at, self._state.key_table)
            )
            self._position = placed.position + placed.header.size_bytes
            if self._position >= stop:
                return

    def _put(self, disk: Disk, path: str, content: bytes) -> None:
        with closing(disk.open(path, create=True, exclusive=True)) as file:
            file.append(content)
            file.sync()

    def _draft(self, base_offset: Offset, suffix: str) -> str:
        return f"{self._state.directory}/{numbered(base_offset, suffix)}.{self._token}{TEMPORARY}"

    def finish(self) -> bool:
        """Use what was rebuilt; False if the log has changed too much since. Blocks for a few syncs."""
        assert self.is_done
        state = self._state
        if not self._is_valid():
            return False
        active = state.segments.active
        self._fold(active.file, active.size_bytes, active.size_bytes)
        sealed = self._segments[:-1]
        try:
            for segment in sealed:
                self._rename(segment.base_offset, ABORTED.suffix)
            for segment in self._segments[1:]:
                self._rename(segment.base_offset, SNAPSHOT)
            state.disk.sync_directory(state.directory)
        except StorageError as failed:
            # It is unknown which of them are in place; the next start does all of it again.
            state.durability.stop(failed)
            raise
        for segment in sealed:
            assert isinstance(segment.index, SealedIndex)
            segment.index.drop()
        state.active_index.replace_aborted(self._rows)
        self._producers.transactions.settle(state.high_watermark)
        state.producers = self._producers
        state.unsure_from = None
        checkpoint_now(state)
        return True

    def _is_valid(self) -> bool:
        state, segments = self._state, self._segments
        present = state.segments.items[-len(segments) :]
        return (
            state.stopped is None
            and not state.damage
            and self._truncations == state.stats.truncations
            and len(present) == len(segments)
            and all(one is other for one, other in zip(present, segments, strict=True))
            and segments[-1].size_bytes - self._position <= CATCH_UP_BYTES
        )

    def _rename(self, base_offset: Offset, suffix: str) -> None:
        name = f"{self._state.directory}/{numbered(base_offset, suffix)}"
        self._state.disk.rename(self._draft(base_offset, suffix), name)

    def cancel(self, disk: Disk) -> None:
        """Remove the new files; what cannot be removed now is removed at the next start."""
        for segment in self._segments:
            for suffix in (ABORTED.suffix, SNAPSHOT):
                with suppress(StorageError):
                    disk.remove(self._draft(segment.base_offset, suffix))
