"""Control batches: the markers that end a transaction in each of its partitions.

    key    version 2 │ type 2 (0 abort, 1 commit)
    value  version 2 │ coordinator epoch 4

A marker takes one offset in the log and is never shown to an application. Fields that
later versions add behind these are skipped.

Markers that are not compressed and have version 0 are all alike, 17 bytes behind the header:

    20 00 00 00   08 0000 type   0c 0000 epoch   00
    └ length, attributes, deltas, then key, value and headers with their lengths, as in any record

They are written and read at once; every other marker is read like a record.
"""

import enum
import struct
from typing import NamedTuple

from penstock.core.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CorruptBatch,
    read_header,
)
from penstock.core.records.record import assemble, read_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_RECORD = struct.Struct(">4sB hh B hi B")
_VERSION = 0
_LENGTH_AND_DELTAS = b"\x20\x00\x00\x00"
_KEY_LENGTH, _VALUE_LENGTH, _NO_HEADERS = 0x08, 0x0C, 0x00
# A marker has some twenty bytes; a larger one is not a marker.
_LIMIT_BYTES = 4096


class ControlType(enum.IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


_TYPES = tuple(ControlType)


class ControlRecord(NamedTuple):
    """The end of one producer's transaction in one partition."""

    offset: int
    timestamp: int
    control_type: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def read_control(batch: Buffer) -> ControlRecord:
    """Read the marker that a control batch holds."""
    header = read_header(batch)
    if not header.is_control:
        raise CorruptBatch(f"the batch at offset {header.base_offset} is not a control batch")
    return _read_usual(batch, header) or _read_any(batch, header)


def _read_usual(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """A marker as `write_control_batch` writes it; None for any other."""
    if (
        header.batch_length != HEADER_BYTES + _RECORD.size - PREFIX_BYTES
        or header.record_count != 1
        or header.attributes & (CODEC_MASK | LOG_APPEND_TIME)
    ):
        return None
    try:
        front, key_length, key_version, number, value_length, value_version, coordinator_epoch, headers = (
            _RECORD.unpack_from(batch, HEADER_BYTES)
        )
    except struct.error:
        return None
    if (
        front != _LENGTH_AND_DELTAS
        or (key_length, value_length, headers) != (_KEY_LENGTH, _VALUE_LENGTH, _NO_HEADERS)
        or key_version != _VERSION
        or value_version != _VERSION
        or not 0 <= number < len(_TYPES)
    ):
        return None
    return ControlRecord(
        header.base_offset,
        header.base_timestamp,
        _TYPES[number],
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
    )


def _read_any(batch: Buffer, header: BatchHeader) -> ControlRecord:
    records = list(read_records(batch, _LIMIT_BYTES))
    if len(records) != 1:
        raise CorruptBatch(f"a control batch holds one record, not {len(records)}")
    record = records[0]
    control_type = _read_type(record.key or b"")
    try:
        version, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise CorruptBatch("the value of a control record is cut short") from None
    if version < 0:
        raise CorruptBatch(f"control record value version {version} is negative")
    return ControlRecord(
        record.offset,
        record.timestamp,
        control_type,
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
    )


def _read_type(key: bytes) -> ControlType:
    try:
        version, number = _KEY.unpack_from(key)
    except struct.error:
        raise CorruptBatch("the key of a control record is cut short") from None
    if version < 0:
        raise CorruptBatch(f"control record key version {version} is negative")
    try:
        return ControlType(number)
    except ValueError:
        raise CorruptBatch(f"control record type {number} is not a transaction marker") from None


def write_control_batch(marker: ControlRecord, *, leader_epoch: int = -1) -> bytearray:
    """The batch that puts `marker` into a log at `marker.offset`."""
    payload = _RECORD.pack(
        _LENGTH_AND_DELTAS,
        _KEY_LENGTH,
        _VERSION,
        marker.control_type,
        _VALUE_LENGTH,
        _VERSION,
        marker.coordinator_epoch,
        _NO_HEADERS,
    )
    header = BatchHeader(
        base_offset=marker.offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=marker.timestamp,
        max_timestamp=marker.timestamp,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=-1,
        record_count=1,
    )
    return assemble(header, payload)
