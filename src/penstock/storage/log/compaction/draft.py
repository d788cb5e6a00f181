"""The files that are to replace a segment and its indexes, or several neighbours."""

from array import array
from collections.abc import Sequence

from penstock.core.records import read_header
from penstock.storage.disk import Buffer, Disk, File
from penstock.storage.log.compaction.values import CleanedSegment, CompactionOrder, Source
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.rows import OFFSETS, TIMES, Shape, encode_words, footer
from penstock.storage.log.names import LOG
from penstock.storage.log.segment import Checked
from penstock.storage.log.segment.walk import SCAN_BYTES


class Draft:
    """A segment being written anew. No file is made before something differs from the old one."""

    __slots__ = (
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

    def __init__(self, disk: Disk, order: CompactionOrder, group: Sequence[Source]) -> None:
        self._disk = disk
        self._order = order
        self._group = group
        self._base_offset = group[0].base_offset
        self._index = ActiveIndex(self._base_offset, order.options)
        # Several that become one differ from the first byte on.
        self._file: File | None = self._create(LOG) if len(group) > 1 else None
        self._buffer = bytearray()
        self._size_bytes = 0
        self._dropped = 0

    def add(self, old: File, batch: Checked, kept: Buffer | None) -> None:
        """The next batch of the `old` file, and what stays of it."""
        if kept is not batch.content and self._file is None:
            self._file = self._begin(old, batch.position)
        if kept is None:
            self._dropped += 1
            return
        header = batch.header if kept is batch.content else read_header(kept)
        self._index.note(header.base_offset, header.last_offset, self._size_bytes, header.max_timestamp)
        self._size_bytes += len(kept)
        if self._file is not None:
            self._buffer += kept
            if len(self._buffer) >= SCAN_BYTES:
                self._write_out(self._file)

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

    def _begin(self, old: File, same_bytes: int) -> File:
        """Up to here the files are the same."""
        file = self._create(LOG)
        for position in range(0, same_bytes, SCAN_BYTES):
            file.append(old.pread(position, min(SCAN_BYTES, same_bytes - position)))
        return file

    def _write_out(self, file: File) -> None:
        if self._buffer:
            file.append(self._buffer)
            self._buffer = bytearray()

    def _put(self, shape: Shape, words: "array[int]") -> None:
        rows = encode_words(words)
        file = self._create(shape.suffix)
        try:
            file.append(rows + footer(shape, rows))
            file.sync()
        finally:
            file.close()

    def _create(self, suffix: str) -> File:
        return self._disk.open(self._order.draft(self._base_offset, suffix), create=True, exclusive=True)
