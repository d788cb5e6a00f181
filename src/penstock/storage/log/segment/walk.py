"""From batch to batch through a segment file."""

import struct
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
MAGIC = 2
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
# Base offset, length, magic and last offset delta: what leads from one batch to the next.
_LINK = struct.Struct(">qi4xb6xi")
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


def find_offset(file: File, position: int, end: int, offset: int, expected: int | None) -> int | None:
    """Where the first batch that reaches `offset` begins, looking from the batch at `position` on.

    Like `headers`, but reads just the fields that lead from batch to batch, which takes a
    quarter of the time. `expected` is the offset that must stand at `position`; None if any
    may, as in a segment with gaps.
    """
    gapless = expected is not None
    least = expected or 0
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _LINK.size > len(chunk):
            chunk = file.pread(position, min(LOCATE_BYTES, end - position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise BatchIncomplete(HEADER_BYTES, len(chunk))
        base_offset, length, magic, last_delta = _LINK.unpack_from(chunk, at)
        if base_offset < least or (gapless and base_offset != least) or magic != MAGIC or last_delta < 0:
            raise CorruptBatch(f"offset {base_offset}, magic {magic} stands where offset {least} should")
        if length < BATCH_LENGTH_MIN or position + PREFIX_BYTES + length > end:
            raise BatchIncomplete(PREFIX_BYTES + length, end - position)
        if base_offset + last_delta >= offset:
            return position
        least = base_offset + last_delta + 1
        position += PREFIX_BYTES + length
    return None


def find_boundary(file: File, position: int, end: int, limit: int) -> int:
    """The last place at or before `limit` where a batch begins or the segment ends, from `position` on."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _LINK.size > len(chunk):
            chunk = file.pread(position, min(LOCATE_BYTES, end - position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise BatchIncomplete(HEADER_BYTES, len(chunk))
        _, length, magic, _ = _LINK.unpack_from(chunk, at)
        if magic != MAGIC or length < BATCH_LENGTH_MIN:
            raise CorruptBatch(f"no batch begins at position {position}")
        if position + PREFIX_BYTES + length > limit:
            return position
        position += PREFIX_BYTES + length
    return end


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
