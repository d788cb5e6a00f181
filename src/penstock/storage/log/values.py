"""What goes in and out of a log."""

from typing import NamedTuple

from penstock.core.model import Offset, Timestamp
from penstock.storage.disk import File


class Appended(NamedTuple):
    """Where batches ended up. They are in the page cache, not yet on the device."""

    first_offset: Offset
    last_offset: Offset
    size_bytes: int
    rolled: bool
    log_start: Offset


class FileRange(NamedTuple):
    """Bytes of a segment, ready for sendfile. The file stays readable when the segment is deleted."""

    file: File
    position: int
    length: int

    def to_bytes(self) -> bytes:
        return self.file.pread(self.position, self.length)

    def is_warm(self) -> bool:
        """Whether sending it would not wait for the device."""
        return self.file.is_warm(self.position, self.length)


class Read(NamedTuple):
    """Whole batches that stand back to back, the first one containing the offset asked for."""

    ranges: tuple[FileRange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.length for part in self.ranges)

    def to_bytes(self) -> bytes:
        return b"".join(part.to_bytes() for part in self.ranges)


NOTHING = Read(())


class TimestampOffset(NamedTuple):
    """The first record at or after some time."""

    offset: Offset
    timestamp: Timestamp


class Damage(NamedTuple):
    """A range of offsets that the log was trusted with and cannot give back."""

    segment: Offset
    start: Offset
    end: Offset
    reason: str


class SegmentSummary(NamedTuple):
    """One segment, for listings and metrics."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
