"""From batch to batch through a segment file."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.records import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    BatchIncomplete,
    CorruptBatch,
    check_batch,
    read_header,
)
from penstock.storage.disk import File

LOCATE_BYTES = 8 << 10
SCAN_BYTES = 1 << 20


class Placed(NamedTuple):
    """A batch and where it begins."""

    position: int
    header: BatchHeader


def headers(file: File, position: int, end: int, chunk_bytes: int = LOCATE_BYTES) -> Iterator[Placed]:
    """The headers from `position`, where a batch begins, to `end`; raises CorruptBatch.

    Offsets must grow. Large batches are stepped over without being read.
    """
    chunk, chunk_start, expected = b"", position, 0
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.pread(position, min(chunk_bytes, end - position))
            chunk_start, at = position, 0
        header = read_header(chunk, at)
        if position + PREFIX_BYTES + header.batch_length > end:
            raise BatchIncomplete(header.size_bytes, end - position)
        if header.base_offset < expected:
            raise CorruptBatch(f"offset {header.base_offset} follows {expected - 1}")
        yield Placed(position, header)
        expected = header.next_offset
        position += header.size_bytes


class Checked(NamedTuple):
    """A batch whose CRC was found right, with its bytes."""

    position: int
    header: BatchHeader
    content: memoryview


def checked_batches(file: File, position: int, end: int) -> Iterator[Checked]:
    """Whole batches from `position` to `end`, each one read and checked; raises CorruptBatch."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        at = position - chunk_start
        try:
            header = check_batch(chunk[at:], compacted=True)
        except BatchIncomplete as incomplete:
            # Either the chunk ends here, or the file does.
            wanted = max(incomplete.needed_bytes, SCAN_BYTES)
            available = end - position
            if incomplete.needed_bytes > available or incomplete.present_bytes >= available:
                raise BatchIncomplete(incomplete.needed_bytes, available) from None
            chunk = memoryview(file.pread(position, min(wanted, available)))
            chunk_start = position
            if len(chunk) < min(wanted, available):
                raise BatchIncomplete(incomplete.needed_bytes, len(chunk)) from None
            continue
        yield Checked(position, header, chunk[at : at + header.size_bytes])
        position += header.size_bytes
