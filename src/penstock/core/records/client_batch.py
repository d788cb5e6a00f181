"""What a client may write: the checks that every Produce pays for, whatever its topic says.

    header    one batch fills the buffer, magic 2, CRC; as many records as offsets, and no more than
              the bytes can hold; only the codec and the transactional bit of the attributes; timestamps
              that exist; an idempotent producer with id, epoch and sequence
    records   small batches as a whole, of larger ones the first record; of compressed ones the beginning
              of the frame

A batch that fails was made wrong, and retrying does not help: the error is INVALID_RECORD or
INVALID_TIMESTAMP. CORRUPT_BATCH, which clients retry, says that bytes changed on the way.

What Kafka's clients send is accepted as it is: Sarama leaves the max timestamp at -1, and kafkajs and Sarama
number batches without a producer id from sequence 0.

These checks are for clients alone. What a log holds may be older than they are, or of a broker: compaction
leaves gaps, and markers, delete horizons and append times are written by brokers.
"""

import struct
from functools import cache
from typing import Final

from fastcrc import crc32

from penstock.core.model import ApiError, ErrorKind
from penstock.core.records.batch import (
    BASE_OFFSET_MAX,
    CODEC_MASK,
    CODEC_MAX,
    CRC_START,
    HEADER_BYTES,
    LAYOUT,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    BatchIncomplete,
    CompressionType,
    CorruptBatch,
    InvalidRecord,
    UnsupportedMagic,
    check_layout,
    too_short,
)
from penstock.core.records.compression import LIMIT_BYTES, check_frame
from penstock.core.records.record import read_record
from penstock.core.records.validation import walk
from penstock.core.records.varints import read_varint, write_varint

# Length, attributes, both deltas, lengths of key and value, number of headers: a byte each.
RECORD_BYTES_MIN: Final = 7
# The best that a codec makes of empty records that differ in nothing but their offset is one and a quarter;
# as each has a number of its own, it costs a bit at least.
PACKED_RECORDS_PER_BYTE_MAX: Final = 16
PACKED_RECORDS_MAX: Final = LIMIT_BYTES // RECORD_BYTES_MIN
# Batches of this size are looked through as a whole.
SMALL_RECORDS: Final = 8
SMALL_BYTES: Final = HEADER_BYTES + 4096
NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1
# Append times, control batches, delete horizons are for brokers to write; the rest has no meaning.
_BROKER_ATTRIBUTES: Final = ~(CODEC_MASK | TRANSACTIONAL)
_VARINT_BYTES_MAX: Final = 5
ONE_BATCH = ApiError(ErrorKind.INVALID_RECORD, "a partition takes exactly one batch per request")
_crc32c = crc32.iscsi
_new_header = tuple.__new__
_unpack_header = LAYOUT.unpack_from


def check_client_batch(batch: memoryview) -> BatchHeader | ApiError:
    """The header of the one batch in the buffer, or why a client may not write it."""
    size = len(batch)
    try:
        # Not by `_make`, which is a Python call that counts what the layout has counted.
        header = _new_header(BatchHeader, _unpack_header(batch))
    except struct.error:
        return _refusal(batch)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = header
    if (
        magic != MAGIC
        or PREFIX_BYTES + length != size
        or attributes & _BROKER_ATTRIBUTES
        or count != last_delta + 1
        or count <= 0
        or base_timestamp < NO_TIMESTAMP
        or (max_timestamp < base_timestamp and max_timestamp != NO_TIMESTAMP)
        or (producer_id != NO_PRODUCER and (producer_id < 0 or producer_epoch < 0 or base_sequence < 0))
        or not 0 <= base_offset <= BASE_OFFSET_MAX
        or _crc32c(batch[CRC_START:]) != crc
    ):
        return _refusal(batch)
    if attributes & CODEC_MASK:
        return _check_packed(batch, header)
    if count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        return _refusal(batch)
    try:
        if count <= SMALL_RECORDS and size <= SMALL_BYTES:
            payload = bytes(batch[HEADER_BYTES:])
            if count != 1 or not _is_plain_record(payload):
                walk(payload, count)
        else:
            _check_first(bytes(batch[HEADER_BYTES:SMALL_BYTES]), size - HEADER_BYTES, count)
    except InvalidRecord as broken:
        return ApiError(ErrorKind.INVALID_RECORD, str(broken), (broken.index,))
    return header


def _is_plain_record(payload: bytes) -> bool:
    """Whether this is one record as most are: without headers, and with a key of less than 64 bytes or none.

    As the record fills the payload, its size says what its numbers must be: they are compared with
    those of a record of that size, not decoded.

        length | attributes 0 | time 0 | offset 0 | key length | key | value length | value | headers 0
        └───────────── of the payload's size ───┘                   └ of what is left ┘
    """
    size = len(payload)
    start = _record_start(size)
    at = len(start)
    if not payload.startswith(start) or payload[-1]:
        return False
    key = payload[at]
    # An odd number is a negative length: -1 is no key.
    if key > 0x7F or (key & 1 and key != 1):
        return False
    at += 1 + (key >> 1)
    return at < size and payload.startswith(_value_length(size - at), at)


@cache
def _record_start(size: int) -> bytes:
    """The length of a record that has so many bytes with it, and three zeros."""
    return _length_of_rest(size) + b"\x00\x00\x00"


@cache
def _value_length(size: int) -> bytes:
    """The length of a value that has so many bytes with it and a zero behind it."""
    return _length_of_rest(size - 1)


def _length_of_rest(size: int) -> bytes:
    """The varint that says how many of `size` bytes follow it; something that is no varint if none does."""
    for digits in range(1, _VARINT_BYTES_MAX + 1):
        length = bytearray()
        write_varint(length, size - digits)
        if size >= digits and len(length) == digits:
            return bytes(length)
    return b"\xff" * (_VARINT_BYTES_MAX + 1)


def _check_first(window: bytes, payload_bytes: int, count: int) -> None:
    """Raise InvalidRecord unless the first of `count` records, or as much of it as is there, is one."""
    try:
        length, position = read_varint(window, 0)
        end, left = position + length, payload_bytes - position
        rest = (count - 1) * RECORD_BYTES_MIN
        if length < RECORD_BYTES_MIN - 1 or length > left - rest or (count == 1 and length != left):
            raise ValueError(f"length {length} does not fit into the {left} bytes of {count} records")
        if end <= len(window):
            delta = read_record(window, 0)[1]
            if delta != 0:
                raise ValueError(f"offset delta is {delta}, not 0")
    except ValueError as broken:
        raise InvalidRecord(0, str(broken)) from None
    except IndexError:
        raise InvalidRecord(0, "the records end early") from None


def _check_packed(batch: memoryview, header: BatchHeader) -> BatchHeader | ApiError:
    packed = batch[HEADER_BYTES:]
    if header.record_count > min(PACKED_RECORDS_MAX, len(packed) * PACKED_RECORDS_PER_BYTE_MAX):
        return _too_many(header, len(packed))
    codec = header.attributes & CODEC_MASK
    if codec > CODEC_MAX:
        return ApiError(ErrorKind.UNSUPPORTED_COMPRESSION, f"compression codec {codec} does not exist")
    try:
        check_frame(CompressionType(codec), packed)
    except CorruptBatch as broken:
        return ApiError(ErrorKind.INVALID_RECORD, str(broken))
    return header


def _refusal(batch: memoryview) -> ApiError:
    """Say what is wrong with a batch that failed the quick check: first what may have changed on the way."""
    try:
        header = _sound_header(batch)
    except UnsupportedMagic as old:
        return ApiError(ErrorKind.UNSUPPORTED_FORMAT, str(old))
    except CorruptBatch as broken:
        return ApiError(ErrorKind.CORRUPT_BATCH, str(broken))
    if header.size_bytes < len(batch):
        return ONE_BATCH
    return _wrong_attributes(header) or _wrong_times(header) or _wrong_numbers(header, len(batch))


def _sound_header(batch: memoryview) -> BatchHeader:
    """The header of a batch that is as somebody wrote it; or CorruptBatch."""
    try:
        header = BatchHeader(*_unpack_header(batch))
    except struct.error:
        raise too_short(batch) from None
    check_layout(header)
    if header.size_bytes > len(batch):
        raise BatchIncomplete(header.size_bytes, len(batch))
    if _crc32c(batch[CRC_START : header.size_bytes]) != header.crc:
        raise CorruptBatch("CRC-32C of the batch does not match")
    return header


def _wrong_attributes(header: BatchHeader) -> ApiError | None:
    bits = header.attributes & _BROKER_ATTRIBUTES & 0xFFFF
    if header.is_control:
        return ApiError(ErrorKind.INVALID_RECORD, "clients may not write control batches")
    if header.is_log_append_time:
        return ApiError(ErrorKind.INVALID_TIMESTAMP, "clients may not set the timestamp type LogAppendTime")
    if bits:
        return ApiError(ErrorKind.INVALID_RECORD, f"clients may not set the attribute bits {bits:#06x}")
    return None


def _wrong_times(header: BatchHeader) -> ApiError | None:
    base, latest = header.base_timestamp, header.max_timestamp
    if base >= NO_TIMESTAMP and (latest >= base or latest == NO_TIMESTAMP):
        return None
    return ApiError(
        ErrorKind.INVALID_TIMESTAMP, f"base timestamp {base} and max timestamp {latest} are impossible"
    )


def _wrong_numbers(header: BatchHeader, size: int) -> ApiError:
    count, offsets = header.record_count, header.last_offset_delta + 1
    if count != offsets or count <= 0:
        return ApiError(ErrorKind.INVALID_RECORD, f"{count} records for {offsets} offsets")
    if header.producer_id < NO_PRODUCER:
        return ApiError(ErrorKind.INVALID_RECORD, f"producer id {header.producer_id} is impossible")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return ApiError(
            ErrorKind.INVALID_RECORD, "an idempotent batch needs a producer epoch and a base sequence"
        )
    return _too_many(header, size - HEADER_BYTES)


def _too_many(header: BatchHeader, payload_bytes: int) -> ApiError:
    return ApiError(
        ErrorKind.INVALID_RECORD, f"{header.record_count} records cannot be in {payload_bytes} bytes"
    )
