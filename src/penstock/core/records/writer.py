"""Putting records into a batch."""

from collections.abc import Iterable

from penstock.core.records.batch import seal
from penstock.core.records.compression import compress
from penstock.core.records.header import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LAYOUT,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from penstock.core.records.record import Record, write_record


def write_batch(  # noqa: PLR0913 - one keyword per header field that a writer may choose
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A sealed batch of `records`, numbered from `base_offset` in the order given.

    The records' own offsets are not looked at: a producer does not know them yet.
    """
    records = list(records)
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    payload = bytearray()
    for delta, record in enumerate(records):
        write_record(payload, record, delta, record.timestamp - base_timestamp)
    attributes = int(codec) | (TRANSACTIONAL if transactional else 0)
    max_timestamp = max(record.timestamp for record in records)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, payload, level)


def rewrite_batch(
    header: BatchHeader, records: Iterable[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` with only `records` left, each at the offset it always had.

    This is what compaction writes. The batch keeps its range of offsets, its producer
    and its sequences even when no record is left, so that a restart still knows the last
    sequence. With `delete_horizon_ms`, the base timestamp says when tombstones may go.
    """
    records = list(records)
    payload = bytearray()
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    for record in records:
        write_record(payload, record, record.offset - header.base_offset, record.timestamp - base_timestamp)
    attributes = header.attributes if delete_horizon_ms is None else header.attributes | DELETE_HORIZON
    max_timestamp = header.max_timestamp
    if records and not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in records)
    if not records:
        attributes &= ~CODEC_MASK  # nothing is left that could be packed
    kept = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return assemble(kept, payload)


def assemble(header: BatchHeader, payload: bytes | bytearray, level: int | None = None) -> bytearray:
    """Header and records as one sealed batch, compressed as the header says."""
    packed = compress(header.codec, payload, level)
    size_bytes = HEADER_BYTES + len(packed)
    batch = bytearray(LAYOUT.pack(*header._replace(batch_length=size_bytes - PREFIX_BYTES)))
    batch += packed
    seal(batch, 0, size_bytes)
    return batch
