"""Checking whole batches, and the few bytes a broker may rewrite in them.

This is the hot path of Produce: one header, one CRC over memory that is not copied,
and nothing per record.
"""

import struct

from fastcrc import crc32

from penstock.core.model import LeaderEpoch, Offset, Timestamp
from penstock.core.records.buffers import Buffer
from penstock.core.records.errors import BatchIncomplete, CorruptBatch
from penstock.core.records.header import (
    CRC_POSITION,
    CRC_START,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_POSITION,
    PREFIX_BYTES,
    BatchHeader,
    read_header,
)

_crc32c = crc32.iscsi
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
# Gives a batch its place in the log, as `stamp` does, without a call of ours: base offset, batch
# length and leader epoch stand in front of the CRC.
pack_place = struct.Struct(">qii").pack_into
_LEADER_EPOCH_POSITION = PREFIX_BYTES
_ATTRIBUTES_LOW_POSITION = CRC_START + 1


def check_batch(buffer: Buffer, position: int = 0, *, compacted: bool = False) -> BatchHeader:
    """Read the batch at `position` and make sure that it is whole and unharmed.

    A producer's batch numbers its records without gaps; only the cleaner makes
    batches that hold fewer records than offsets, which `compacted` accepts.
    """
    header = read_header(buffer, position)
    # The view is a temporary: kept in a variable it would live on in the traceback
    # of what is raised below, and a mapped file could not be closed.
    end = position + PREFIX_BYTES + header[1]
    if end > len(memoryview(buffer)):
        raise BatchIncomplete(PREFIX_BYTES + header[1], len(memoryview(buffer)) - position)
    if _crc32c(memoryview(buffer)[position + CRC_START : end]) != header[4]:
        raise CorruptBatch(f"CRC-32C of the batch at offset {header.base_offset} does not match")
    if header[12] != header[6] + 1 and not compacted:
        raise CorruptBatch(f"{header.record_count} records for {header.last_offset_delta + 1} offsets")
    return header


def check_batches(buffer: Buffer, *, compacted: bool = False) -> list[BatchHeader]:
    """Check batches that stand back to back and fill the buffer exactly."""
    headers = []
    position, end = 0, len(memoryview(buffer))
    while position < end:
        header = check_batch(buffer, position, compacted=compacted)
        headers.append(header)
        position += PREFIX_BYTES + header[1]
    return headers


def stamp(
    buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """Give a batch its place in the log; both fields stand outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: Timestamp) -> None:
    """Let the broker's clock stand for every record's time; the CRC is computed anew."""
    size_bytes = read_header(buffer, position).size_bytes
    end = position + size_bytes
    if end > len(buffer):
        raise BatchIncomplete(size_bytes, len(buffer) - position)
    buffer[position + _ATTRIBUTES_LOW_POSITION] |= LOG_APPEND_TIME
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    seal(buffer, position, end)


def seal(buffer: bytearray | memoryview, position: int, end: int) -> None:
    """Write the CRC of the batch that reaches from `position` to `end`."""
    _UINT32.pack_into(
        buffer, position + CRC_POSITION, _crc32c(memoryview(buffer)[position + CRC_START : end])
    )
