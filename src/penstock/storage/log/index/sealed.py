"""The indexes of a segment that is full: mapped when first asked for, checked once."""

from collections.abc import Callable

from penstock.core.model import CorruptionError
from penstock.storage.disk import Disk, NoSuchFile
from penstock.storage.log.index.active import NO_TIMESTAMP
from penstock.storage.log.index.rows import ABORTED, OFFSETS, TIMES, Shape, Words, parse_sealed
from penstock.storage.log.names import numbered


class SealedIndex:
    """Three tables on disk. A table that is missing or damaged is rebuilt from the segment."""

    __slots__ = ("_base_offset", "_directory", "_disk", "_rebuild", "_tables", "rebuilt")

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, rebuild: Callable[[Shape], Words]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._rebuild = rebuild
        self._tables: dict[Shape, Words] = {}
        self.rebuilt = 0

    @property
    def offsets(self) -> Words:
        return self._table(OFFSETS)

    @property
    def times(self) -> Words:
        return self._table(TIMES)

    @property
    def aborted(self) -> Words:
        return self._table(ABORTED)

    @property
    def max_timestamp(self) -> int:
        times = self.times
        return times[-2] if len(times) else NO_TIMESTAMP

    def distrust(self) -> None:
        """A row led to the wrong place: build the tables anew."""
        for shape in (OFFSETS, TIMES):
            self._tables[shape] = self._rebuilt(shape)

    def drop(self) -> None:
        """Let go of the mapped files, which are about to change."""
        self._tables.clear()

    def _table(self, shape: Shape) -> Words:
        table = self._tables.get(shape)
        if table is None:
            table = self._tables[shape] = self._load(shape)
        return table

    def _load(self, shape: Shape) -> Words:
        path = f"{self._directory}/{numbered(self._base_offset, shape.suffix)}"
        try:
            file = self._disk.open(path, readonly=True)
            try:
                return parse_sealed(shape, file.map_readonly())
            finally:
                file.close()
        except (NoSuchFile, CorruptionError):
            return self._rebuilt(shape)

    def _rebuilt(self, shape: Shape) -> Words:
        self.rebuilt += 1
        return self._rebuild(shape)
