"""The fixed 61 bytes in front of every record batch.

     0 base offset   8 │  8 batch length 4 │ 12 leader epoch 4 │ 16 magic 1 │ 17 CRC-32C 4
    21 attributes    2 │ 23 last offset delta 4 │ 27 base timestamp 8 │ 35 max timestamp 8
    43 producer id   8 │ 51 producer epoch 2    │ 53 base sequence  4 │ 57 record count  4

The CRC covers everything from the attributes to the end of the batch; what stands
before it may be rewritten by the broker without touching the checksum.
"""

import enum
import struct
from typing import NamedTuple

from penstock.core.records.buffers import Buffer
from penstock.core.records.errors import BatchIncomplete, CorruptBatch, UnsupportedMagic

PREFIX_BYTES = 12
HEADER_BYTES = 61
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
MAX_TIMESTAMP_POSITION = 35
LAYOUT = struct.Struct(">qiibIhiqqqhii")
assert LAYOUT.size == HEADER_BYTES

BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
# A batch that starts here still ends within the 63 bits that offsets have.
BASE_OFFSET_MAX = 2**63 - 1 - 2**31
SEQUENCES = 2**31

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class Codec(enum.IntEnum):
    """How the records of a batch are compressed; the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_MAX = int(Codec.ZSTD)


class BatchHeader(NamedTuple):
    """What a batch says about itself, field by field in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When a compacted batch's tombstones may go; the flag lends it the base timestamp's place."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2**31 - 1 comes 0. -1 without an idempotent producer."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the records behind it need not be there yet."""
    try:
        # Not by `_make`, which is a Python call that counts what the layout has counted.
        header = tuple.__new__(BatchHeader, LAYOUT.unpack_from(buffer, position))
    except struct.error:
        raise _too_short(buffer, position) from None
    if (
        header[3] != MAGIC
        or header[1] < BATCH_LENGTH_MIN
        or not 0 <= header[0] <= BASE_OFFSET_MAX
        or not 0 <= header[12] <= header[6] + 1
        or header[6] < 0
        or header[5] & CODEC_MASK > CODEC_MAX
    ):
        raise _impossible(header)
    return header


def _too_short(buffer: Buffer, position: int) -> CorruptBatch:
    """Old message sets can be shorter than our header: name them, do not wait for more bytes."""
    view = memoryview(buffer)
    present = max(0, len(view) - position)
    if present > MAGIC_POSITION and view[position + MAGIC_POSITION] < MAGIC:
        return UnsupportedMagic(view[position + MAGIC_POSITION])
    return BatchIncomplete(HEADER_BYTES, present)


def _impossible(header: BatchHeader) -> CorruptBatch:
    """Say which field rules these bytes out as a batch."""
    if header.magic in (0, 1):
        return UnsupportedMagic(header.magic)
    if header.magic != MAGIC:
        return CorruptBatch(f"magic is {header.magic}, not {MAGIC}")
    if header.batch_length < BATCH_LENGTH_MIN:
        return CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    if not 0 <= header.base_offset <= BASE_OFFSET_MAX:
        return CorruptBatch(f"base offset {header.base_offset} is impossible")
    if header.attributes & CODEC_MASK > CODEC_MAX:
        return CorruptBatch(f"compression codec {header.attributes & CODEC_MASK} does not exist")
    return CorruptBatch(
        f"{header.record_count} records cannot end at offset delta {header.last_offset_delta}"
    )
