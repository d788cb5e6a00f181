"""Putting records into a batch."""

from collections.abc import Iterable

from penstock.core.records.batch import seal
from penstock.core.records.header import (
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

_NO_TIMESTAMP = -1


def write_batch(  # noqa: PLR0913 - one keyword per header field that a writer may choose
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A sealed batch of `records`, numbered from `base_offset` in the order given.

    The records' own offsets are not looked at: a producer does not know them.
    """
    payload = bytearray()
    count, base_timestamp, max_timestamp = 0, _NO_TIMESTAMP, _NO_TIMESTAMP
    for count, record in enumerate(records, start=1):
        if count == 1:
            base_timestamp = max_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        write_record(payload, record, count - 1, record.timestamp - base_timestamp)
    if count == 0:
        raise ValueError("a batch holds at least one record")
    attributes = codec | (TRANSACTIONAL if transactional else 0)
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
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return assemble(header, payload)


def assemble(header: BatchHeader, payload: bytes | bytearray) -> bytearray:
    """Header and (already compressed) records as one sealed batch."""
    size_bytes = HEADER_BYTES + len(payload)
    batch = bytearray(LAYOUT.pack(*header._replace(batch_length=size_bytes - PREFIX_BYTES)))
    batch += payload
    seal(batch, 0, size_bytes)
    return batch
