"""Control batches: the markers that end a transaction in each of its partitions.

    key    version 2 │ type 2 (0 abort, 1 commit)
    value  version 2 │ coordinator epoch 4

A marker takes one offset in the log and is never shown to an application. Fields that
later versions add behind these are skipped.
"""

import enum
import struct
from typing import NamedTuple

from penstock.core.records.batch import (
    CONTROL,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CorruptBatch,
    read_header,
)
from penstock.core.records.record import Record, assemble, read_records, write_record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
# A marker has some twenty bytes; a larger one is not a marker.
_LIMIT_BYTES = 4096


class ControlType(enum.IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


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
    key = _KEY.pack(_VERSION, marker.control_type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    payload = bytearray()
    write_record(payload, Record(marker.offset, marker.timestamp, key, value), 0, 0)
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
