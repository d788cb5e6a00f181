"""The segments of a log in order, the last one growing."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.core.model import Offset, StorageError
from penstock.storage.disk import Disk, File, NoSuchFile
from penstock.storage.log.file_names import DOOMED, LOG, SEGMENT_SUFFIXES, numbered
from penstock.storage.log.index import SHAPES, ActiveIndex, IndexRowFormat, SealedIndex, Words, seal
from penstock.storage.log.segment import Segment, SegmentReader
from penstock.storage.log.types import LogOptions


class Segments:
    """Opens, creates, seals and removes segments. At least one exists while the log is open."""

    __slots__ = ("_bases", "_directory", "_disk", "_options", "_rebuild", "_retire", "active", "items")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        rebuild: Callable[[Segment, IndexRowFormat], Words],
        retire: Callable[[File], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        # In order of their offsets; only the methods of this class change it.
        self.items: list[Segment] = []
        self._bases: list[int] = []
        self._rebuild = rebuild
        self._retire = retire
        # The last one, which grows. Kept here because every append and every fetch needs it.
        self.active: Segment

    def configure(self, options: LogOptions) -> None:
        """New segments follow these options."""
        self._options = options

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Segment:
        return self.items[index]

    def index_of(self, offset: int) -> int:
        """The segment that holds `offset` or, where offsets are missing, lies before it."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_of(self, index: int, log_end: Offset) -> Offset:
        """The offset behind the segment's last one."""
        return self.items[index + 1].base_offset if index + 1 < len(self.items) else log_end

    def reach_of(self, segment: Segment, log_end: Offset) -> Offset:
        """The offset behind the last one that is in this segment or before it."""
        if segment is self.items[-1]:
            return log_end
        return self.end_of(self.index_of(segment.base_offset), log_end)

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{self._directory}/{numbered(base_offset, suffix)}"

    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.items)

    def add_sealed(self, base_offset: Offset, size_bytes: int) -> Segment:
        """A segment that is full already; its files are opened when they are needed."""
        path = self.path(base_offset, LOG)
        segment = Segment(
            base_offset, SegmentReader(self._disk, path), size_bytes, self._sealed_index(base_offset)
        )
        self._append(segment)
        return segment

    def add_active(
        self, base_offset: Offset, index: ActiveIndex | None = None, *, fresh: bool = False
    ) -> Segment:
        """The segment that grows, made if it does not exist, and emptied if it is to be `fresh`."""
        path = self.path(base_offset, LOG)
        writer = self._disk.open(path, create=True)
        if fresh and writer.size():
            writer.truncate(0)
        segment = Segment(
            base_offset,
            SegmentReader(self._disk, path),
            writer.size(),
            index or ActiveIndex(base_offset, self._options),
        )
        segment.writer = writer
        self._append(segment)
        return segment

    def seal_active(self, end: Offset) -> list[File]:
        """Write the active segment's indexes in their final form; returns files to be synced.

        The segment itself stays as it is, so that a failure can be tried again.
        """
        segment = self.active
        assert isinstance(segment.index, ActiveIndex)
        index = segment.index
        complete = ActiveIndex.restore(
            segment.base_offset,
            self._options,
            (index.offsets, array("q", index.times), index.aborted),
            (end, segment.size_bytes),
            index.max_timestamp,
        )
        complete.flushed_rows = list(index.flushed_rows)
        complete.close_times(end - 1)
        files = seal(self._disk, self._directory, segment.base_offset, complete)
        segment.index = self._sealed_index(segment.base_offset)
        return files

    def unseal(self, index: ActiveIndex) -> None:
        """Go on with a segment that could not be rolled, and the index it had before."""
        index.flushed_rows = [0, 0, 0]
        self.active.index = index
        with suppress(StorageError):
            self._empty_indexes(self.active.base_offset)

    def reopen_last(self, *, create: bool = False) -> Segment:
        """Let the last segment grow again, after the ones behind it were removed.

        If nothing of it stays, `create` its file if that is missing.
        What the index knows of recent batches is right only after it has been truncated.
        """
        segment = self.active
        segment.cleaned = False
        segment.file.sealed_ns = None
        was_sealed = isinstance(segment.index, SealedIndex)
        if isinstance(segment.index, SealedIndex):
            sealed = segment.index
            tables = (array("Q", sealed.offsets), array("q", sealed.times), array("q", sealed.aborted))
            # The file is about to be cut: nothing may touch the mapping after that.
            latest = sealed.max_timestamp
            sealed.drop()
            segment.index = ActiveIndex.restore(
                segment.base_offset, self._options, tables, (segment.base_offset, segment.size_bytes), latest
            )
            segment.index.flushed_rows = [0, 0, 0]
        if segment.writer is None:
            segment.writer = self._disk.open(self.path(segment.base_offset, LOG), create=create)
        if was_sealed:
            self._empty_indexes(segment.base_offset)
        return segment

    def _empty_indexes(self, base_offset: Offset) -> None:
        """Make sealed index files invalid, durably.

        The segment will be sealed again. If a power cut undid that, the old files would come
        back, complete and with a good CRC, for batches that are no longer there.
        """
        for shape in SHAPES:
            file = self._disk.open(self.path(base_offset, shape.suffix), create=True)
            try:
                file.truncate(0)
                file.sync()
            finally:
                file.close()

    def forget(self, index: int) -> Segment:
        """Take a segment out of the list; its files stay, and file ranges in use stay readable."""
        self._bases.pop(index)
        segment = self.items.pop(index)
        if self.items:
            self.active = self.items[-1]
        if segment.writer is not None:
            self._retire(segment.writer)
            segment.writer = None
        if isinstance(segment.index, SealedIndex):
            segment.index.drop()
        return segment

    def replace(self, index: int, size_bytes: int, *, gapless: bool) -> None:
        """Switch to the files that replaced a sealed segment's; file ranges in use keep the old ones."""
        old = self.items[index]
        assert old.writer is None
        if isinstance(old.index, SealedIndex):
            old.index.drop()
        file = SegmentReader(self._disk, old.file.path)
        new = Segment(old.base_offset, file, size_bytes, self._sealed_index(old.base_offset))
        new.gapless = gapless
        self.items[index] = new
        self.active = self.items[-1]

    def remove_files(self, base_offset: int) -> None:
        """Remove a segment's files, the batches first: a start ignores an index without its segment."""
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._disk.remove(self.path(base_offset, suffix))
            except NoSuchFile:
                continue

    def mark_deleted(self, base_offset: int) -> list[str]:
        """Take a segment's files out of the way, in the same order; returns what is to be removed."""
        doomed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(base_offset, suffix)
            try:
                self._disk.rename(path, path + DOOMED)
            except NoSuchFile:
                continue
            doomed.append(path + DOOMED)
        return doomed

    def remove_indexes(self, segment: Segment) -> None:
        """Give back the space of a sealed segment's indexes, which are rebuilt if they are needed again."""
        if isinstance(segment.index, SealedIndex):
            segment.index.drop()
            for shape in SHAPES:
                with suppress(NoSuchFile):
                    self._disk.remove(self.path(segment.base_offset, shape.suffix))

    def close(self) -> None:
        for segment in self.items:
            segment.file.close()
        self.abandon(self._retire)

    def abandon(self, release: Callable[[File], None]) -> None:
        """Drop every segment. File ranges in use stay readable; nothing else can be read."""
        for segment in self.items:
            if segment.writer is not None:
                release(segment.writer)
        if self.items:
            del self.active
        self.items.clear()
        self._bases.clear()

    def _append(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1]
        self.items.append(segment)
        self.active = segment
        self._bases.append(segment.base_offset)

    def _sealed_index(self, base_offset: int) -> SealedIndex:
        def rebuild(shape: IndexRowFormat) -> Words:
            return self._rebuild(self._by_base(base_offset), shape)

        return SealedIndex(self._disk, self._directory, base_offset, rebuild)

    def _by_base(self, base_offset: int) -> Segment:
        segment = self.items[self.index_of(base_offset)]
        assert segment.base_offset == base_offset
        return segment
