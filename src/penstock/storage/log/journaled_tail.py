"""The tail of a log as the node's journal has it: what recovery compares with, and copies from.

    journal   │ 3 4 5 │       │ 7 8 │ 9 │           small batches; 6 was too large, and skipped it
    file      │ 3 4 ! │ 6     │ 7 8   9 │           5 is mended from the journal, where it stands
    file      │ 3 4 5 │ !     │ 7 8   9 │           6 is lost, and nothing else is

Everything below the start of a range was durable when it was written, and so was everything below
`durable`: what is missing there is lost, and what is behind it is good.
"""

import errno as errnos
import operator
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice, takewhile
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, StorageError
from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    check_batch,
    check_batches,
    read_header,
)
from penstock.core.records.batch import BASE_OFFSET_MAX
from penstock.storage.disk import DiskFailed
from penstock.storage.journal import NOTHING_JOURNALED, JournaledLog, LogJournal
from penstock.storage.log.segment import MAGIC, SCAN_BYTES, PositionalReader

MAGIC_POSITION = 16
_MAGIC = bytes([MAGIC])
_OFFSET = struct.Struct(">q")
_epoch_of = operator.attrgetter("epoch")


class JournaledBatch(NamedTuple):
    """A batch as the journal holds it."""

    header: BatchHeader
    content: bytes


class JournaledTail:
    """What the journal has of a log behind its checkpoint."""

    def __init__(self, journal: LogJournal | None, known: JournaledLog = NOTHING_JOURNALED) -> None:
        self._journal = journal
        # Without a journal nobody knows what was durable.
        self.is_known = journal is not None
        self._ranges = known.ranges
        # Up to where the log was durable, and why that may not be all.
        self.durable = known.durable
        self.doubt = known.doubt
        self._epochs = known.ranges
        if min(map(_epoch_of, known.ranges), default=0) < 0:
            self._epochs = [found for found in known.ranges if found.epoch >= 0]
        self._next = 0
        # An epoch, and what `same_epoch_until` last found for it.
        self._same_epoch = (-1, 0)
        self._marked = known.marked if known.marked is not None and known.marked.epoch >= 0 else None

    @cached_property
    def _ends(self) -> list[Offset]:
        # Most logs are whole, and never need it.
        return [found.end for found in self._ranges]

    def check_epoch(self, header: BatchHeader) -> None:
        """Raise CorruptBatch if the journal has another epoch. Offsets must not decrease between calls.

        A batch's CRC does not cover its own. Epochs do not decrease, so that of a later batch is a bound.
        """
        marked = self._marked
        if marked is not None and header.base_offset < marked.end and header.leader_epoch > marked.epoch:
            raise CorruptBatch(f"leader epoch {header.leader_epoch} is later than {marked.epoch}")
        entries = self._epochs
        while self._next < len(entries) and entries[self._next].end <= header.base_offset:
            self._next += 1
        if self._next == len(entries):
            return
        entry = entries[self._next]
        is_other = header.leader_epoch != entry.epoch
        if header.leader_epoch > entry.epoch or (is_other and entry.start <= header.base_offset):
            raise CorruptBatch(f"leader epoch {header.leader_epoch} stands where {entry.epoch} should")

    def same_epoch_until(self, offset: int, epoch: int) -> int:
        """Up to where the journal has no other epoch than this, from `offset` on."""
        known, until = self._same_epoch
        entries = self._epochs
        if self._next < len(entries) and entries[self._next].epoch == entries[-1].epoch == epoch:
            # Epochs do not decrease.
            return BASE_OFFSET_MAX
        if known != epoch or until <= offset:
            # Kept, since a start asks after every batch that is not plain.
            others = (
                entry.start
                for entry in islice(entries, self._next, None)
                if entry.epoch != epoch and entry.end > offset
            )
            until = next(others, BASE_OFFSET_MAX)
            self._same_epoch = (epoch, until)
        return until

    def is_epoch_of(self, header: BatchHeader) -> bool:
        """Whether the journal has the same epoch for a batch, or none."""
        index = bisect_right(self._ends, header.base_offset)
        if index == len(self._ranges):
            return True
        entry = self._ranges[index]
        return entry.start > header.base_offset or entry.epoch in (-1, header.leader_epoch)

    def next_start(self, offset: Offset) -> Offset | None:
        """The first offset from this one on that the journal has; None if it has nothing behind it."""
        if not self._ranges or self._ranges[-1].end <= offset:
            return None
        index = bisect_right(self._ends, offset)
        return None if index == len(self._ranges) else max(offset, self._ranges[index].start)

    def runs(self, start: Offset, end: Offset) -> Iterator[list[JournaledBatch]]:
        """What the journal has between two offsets: batches that follow one another, and more behind gaps."""
        while (first := self.next_start(start)) is not None and first < end:
            run = list(takewhile(lambda batch: batch.header.next_offset <= end, self.batches_from(first)))
            if not run:
                return
            yield run
            start = Offset(run[-1].header.next_offset)

    def batches_from(self, offset: Offset) -> Iterator[JournaledBatch]:
        """The batches from `offset` on, for as far as they follow one another. Blocks.

        Raises DiskFailed if the journal may be readable later, as when there are too many open files.
        """
        journal = self._journal
        for found in self._ranges[bisect_right(self._ends, offset) :]:
            if found.start > offset or journal is None:
                return
            try:
                content = journal.read(found)
                headers = check_batches(content, compacted=True)
            except CorruptionError:
                return
            except DiskFailed as failed:
                if failed.errno not in (errnos.EIO, errnos.ENOENT):
                    raise
                return
            position = 0
            for header in headers:
                if header.base_offset >= offset:
                    yield JournaledBatch(header, content[position : position + header.size_bytes])
                position += header.size_bytes
            offset = found.end


class FoundBatch(NamedTuple):
    """A good batch behind a bad one, and where it begins."""

    position: int
    header: BatchHeader


def find_behind(
    file: PositionalReader,
    position: int,
    end: int,
    offsets: range,
    is_possible: Callable[[BatchHeader], bool],
) -> FoundBatch | None:
    """The first good batch behind a bad one at `position` that begins with one of these offsets.

    First where the length of the bad one says, then by its looks: records may hold anything.
    """
    with suppress(CorruptBatch, StorageError):
        linked = position + read_header(file.pread(position, HEADER_BYTES)).size_bytes
        header = _header_of(file, linked, end)
        if header is not None and header.base_offset in offsets and is_possible(header):
            return FoundBatch(linked, header)
    for first in range(position + 1, end, SCAN_BYTES):
        try:
            chunk = file.pread(first, min(SCAN_BYTES + HEADER_BYTES, end - first))
        except StorageError:
            continue
        at = chunk.find(_MAGIC, MAGIC_POSITION) - MAGIC_POSITION
        while 0 <= at < SCAN_BYTES:
            (offset,) = _OFFSET.unpack_from(chunk, at)
            header = _header_of(file, first + at, end) if offset in offsets else None
            if header is not None and is_possible(header):
                return FoundBatch(first + at, header)
            at = chunk.find(_MAGIC, at + MAGIC_POSITION + 1) - MAGIC_POSITION
    return None


def _header_of(file: PositionalReader, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`, if there is a whole one that is good."""
    if position + HEADER_BYTES <= end:
        with suppress(CorruptBatch, StorageError):
            size = read_header(file.pread(position, HEADER_BYTES)).size_bytes
            if position + size <= end:
                return check_batch(file.pread(position, size), compacted=True)
    return None
