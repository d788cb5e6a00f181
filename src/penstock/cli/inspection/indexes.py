"""Whether the sparse indexes of a segment lead to where they say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cli.inspection.directory import PartitionFiles
from penstock.core.model import CorruptionError
from penstock.core.records import BatchHeader
from penstock.storage.log.file_names import numbered
from penstock.storage.log.files import read_file
from penstock.storage.log.index import (
    ABORTED,
    OFFSETS,
    POSITION_BITS,
    POSITION_MASK,
    SHAPES,
    TIMES,
    IndexRowFormat,
    Words,
    parse_rows,
    parse_sealed,
)


class Indexes(NamedTuple):
    """The rows of a segment's three tables; empty where a table cannot be used."""

    offsets: Words = ()
    times: Words = ()
    aborted: Words = ()


def read_indexes(partition: PartitionFiles, base_offset: int) -> tuple[Indexes, list[tuple[str, str]]]:
    """A segment's tables, and which files are unusable and why."""
    tables: dict[IndexRowFormat, Words] = {}
    unusable = []
    for shape in SHAPES:
        name = numbered(base_offset, shape.suffix)
        try:
            tables[shape] = _read(partition, base_offset, shape)
        except CorruptionError as error:
            unusable.append((name, str(error)))
    return Indexes(tables.get(OFFSETS, ()), tables.get(TIMES, ()), tables.get(ABORTED, ())), unusable


def _read(partition: PartitionFiles, base_offset: int, shape: IndexRowFormat) -> Words:
    content = read_file(partition.disk, numbered(base_offset, shape.suffix))
    if base_offset != max(partition.segments):
        return parse_sealed(shape, content or b"")
    # The tables of the last segment grow; only as much as a checkpoint marked is ever used.
    checkpoint = partition.checkpoint
    if checkpoint is None or checkpoint.segment != base_offset:
        return ()
    mark = checkpoint.marks[SHAPES.index(shape)]
    return parse_rows(shape, content or b"", mark.rows, mark.crc)


@dataclass(slots=True)
class _Table:
    """One table during the walk: the row that comes next, and the first complaint."""

    shape: IndexRowFormat
    row: int = 0
    complaint: str = ""


class IndexWitness:
    """Sees every batch go by in order, and compares the tables with what it saw."""

    def __init__(self, base_offset: int, indexes: Indexes) -> None:
        self._base_offset = base_offset
        self._indexes = indexes
        self._offsets = _Table(OFFSETS)
        self._times = _Table(TIMES)
        self._max_timestamp = -1
        self._end_offset = base_offset

    def batch(self, position: int, header: BatchHeader) -> None:
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        self._end_offset = header.next_offset
        self._check_offset_row(position, header)
        self._check_time_rows(header)

    def complaints(self) -> Iterator[tuple[str, str]]:
        """What is wrong with each table, once all batches have gone by."""
        if self._offsets.row < len(self._indexes.offsets):
            self._offsets.complaint = self._offsets.complaint or "points behind the end of the segment"
        # A sealed table ends with a row for the whole segment, named by its last record.
        rest = list(self._indexes.times[2 * self._times.row :])
        if rest and rest != [self._max_timestamp, self._end_offset - 1]:
            self._times.complaint = self._times.complaint or "points behind the end of the segment"
        for table in (self._offsets, self._times):
            if table.complaint:
                yield numbered(self._base_offset, table.shape.suffix), table.complaint
        aborted = self._indexes.aborted
        rows = zip(aborted[1::4], aborted[2::4], strict=False)
        if any(not 0 <= first <= last < self._end_offset for first, last in rows):
            yield numbered(self._base_offset, ABORTED.suffix), "names offsets that the log does not hold"

    def _check_offset_row(self, position: int, header: BatchHeader) -> None:
        table, offsets = self._offsets, self._indexes.offsets
        if table.row >= len(offsets):
            return
        row = offsets[table.row]
        if row & POSITION_MASK > position:
            return
        offset = self._base_offset + (row >> POSITION_BITS)
        if (row & POSITION_MASK, offset) != (position, header.base_offset) and not table.complaint:
            table.complaint = (
                f"row {table.row} says that offset {offset} is at {row & POSITION_MASK}; it is not"
            )
        table.row += 1

    def _check_time_rows(self, header: BatchHeader) -> None:
        table, times = self._times, self._indexes.times
        while 2 * table.row < len(times) and times[2 * table.row + 1] <= header.base_offset:
            timestamp, offset = times[2 * table.row], times[2 * table.row + 1]
            if (timestamp, offset) != (self._max_timestamp, header.base_offset) and not table.complaint:
                table.complaint = f"row {table.row} says {timestamp} at offset {offset}, which is wrong"
            table.row += 1
