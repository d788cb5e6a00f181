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


class FileRange:
    """Bytes of a segment, ready for sendfile. The file stays readable when the segment is deleted.

    An encoder takes it for records of this length, and a connection for something to be sent.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """The descriptor to send from, asked for anew before every use."""
        return self.file.fileno()

    def to_bytes(self) -> bytes:
        return self.file.pread(self.position, self.length)

    # What a connection calls it that cannot send a file.
    read = to_bytes

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
