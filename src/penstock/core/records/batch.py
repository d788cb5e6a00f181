"""Record batches: the fixed 61 bytes in front of each, how they are checked and stamped.

     0 base offset   8 │  8 batch length 4 │ 12 leader epoch 4 │ 16 magic 1 │ 17 CRC-32C 4
    21 attributes    2 │ 23 last offset delta 4 │ 27 base timestamp 8 │ 35 max timestamp 8
    43 producer id   8 │ 51 producer epoch 2    │ 53 base sequence  4 │ 57 record count  4

The CRC covers everything from the attributes to the end of the batch; what stands
before it may be rewritten by the broker without touching the checksum.

Checking a batch is the hot path of Produce: one header, one CRC over memory that is not
copied, and nothing per record.
"""

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from fastcrc import crc32

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, Timestamp

PREFIX_BYTES = 12
HEADER_BYTES = 61
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
LAYOUT = struct.Struct(">qiibIhiqqqhii")
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
# A batch that starts here still ends within the 63 bits that offsets have.
BASE_OFFSET_MAX = 2**63 - 1 - 2**31
SEQUENCES = 2**31
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
# Of a batch that is encrypted for the disk (see `storage.sealing`): nobody ever sends one.
SEALED = 0x4000
_crc32c = crc32.iscsi
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
# Gives a batch its place in the log, as `stamp` does, without a call of ours: base offset, batch
# length and leader epoch stand in front of the CRC.
pack_place = struct.Struct(">qii").pack_into
_LEADER_EPOCH_POSITION = PREFIX_BYTES
_ATTRIBUTES_LOW_POSITION = CRC_START + 1


if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer  # noqa: PLC0414 - exported
else:
    # Python 3.11 has no such class at runtime; annotations are all it is for.
    Buffer = object


class CorruptBatch(CorruptionError):
    """These bytes cannot be a record batch, or are not the batch that was written."""


class BatchIncomplete(CorruptBatch):
    """The bytes end before the batch does: the mark of a torn write at the end of a log."""

    def __init__(self, needed_bytes: int, present_bytes: int) -> None:
        super().__init__(f"a batch needs {needed_bytes} bytes, {present_bytes} are there")
        self.needed_bytes = needed_bytes
        self.present_bytes = present_bytes


class UnsupportedMagic(CorruptBatch):
    """A message set in one of the formats Kafka used before version 0.11."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            f"message format magic {magic} is not supported, only magic 2 (Kafka 0.11 and later)"
        )
        self.magic = magic


class RecordsTooLarge(CorruptBatch):
    """The records would take more memory than the reader allows."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"records unpack to more than the {limit_bytes} bytes allowed")
        self.limit_bytes = limit_bytes

    def __reduce__(self) -> "tuple[type[RecordsTooLarge], tuple[int]]":
        """Workers raise it, too."""
        return RecordsTooLarge, (self.limit_bytes,)


class InvalidRecord(CorruptBatch):
    """One record breaks the format; `index` counts from 0 within its batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index}: {reason}")
        self.index = index
        self.reason = reason


assert LAYOUT.size == HEADER_BYTES


class CompressionType(enum.IntEnum):
    """How the records of a batch are compressed; the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_MAX = int(CompressionType.ZSTD)


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
    def codec(self) -> CompressionType:
        return CompressionType(self.attributes & CODEC_MASK)

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
        """When a compacted batch's tombstones may go; stored in place of the base timestamp."""
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
        raise too_short(buffer, position) from None
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


def too_short(buffer: Buffer, position: int = 0) -> CorruptBatch:
    """Old message sets can be shorter than our header: name them, do not wait for more bytes."""
    view = memoryview(buffer)
    present = max(0, len(view) - position)
    if present > MAGIC_POSITION and view[position + MAGIC_POSITION] < MAGIC:
        return UnsupportedMagic(view[position + MAGIC_POSITION])
    return BatchIncomplete(HEADER_BYTES, present)


def check_layout(header: BatchHeader) -> None:
    """Raise CorruptBatch if what stands in front of the CRC rules these bytes out as a batch."""
    if header.magic in (0, 1):
        raise UnsupportedMagic(header.magic)
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic is {header.magic}, not {MAGIC}")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    if not 0 <= header.base_offset <= BASE_OFFSET_MAX:
        raise CorruptBatch(f"base offset {header.base_offset} is impossible")


def _impossible(header: BatchHeader) -> CorruptBatch:
    """Say which field rules these bytes out as a batch."""
    try:
        check_layout(header)
    except CorruptBatch as broken:
        return broken
    if header.attributes & CODEC_MASK > CODEC_MAX:
        return CorruptBatch(f"compression codec {header.attributes & CODEC_MASK} does not exist")
    return CorruptBatch(
        f"{header.record_count} records cannot end at offset delta {header.last_offset_delta}"
    )


def check_batch(buffer: Buffer, position: int = 0, *, compacted: bool = False) -> BatchHeader:
    """Read the batch at `position` and make sure that it is whole and unharmed.

    A producer's batch numbers its records without gaps; only compaction makes
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


def producer_id_of(batch: Buffer) -> int:
    """The producer id of the batch at the start of the buffer, which has a header's bytes at least."""
    producer_id: int
    (producer_id,) = _INT64.unpack_from(batch, PRODUCER_ID_POSITION)
    return producer_id


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
