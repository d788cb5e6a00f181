"""Batches of topics that want their records looked at, or stored with another codec.

This walks and copies records, and so costs what the hot path must not: only topics that are
compacted, ask for deep validation or name a `compression.type` come here. Workers run it on
large batches, so it depends on its arguments alone, and its answer can be pickled.
"""

from penstock.core.model import CorruptionError, Refused, Why
from penstock.core.records import (
    BatchHeader,
    CompressionType,
    InvalidRecord,
    check_batch,
    read_records,
    validate_records,
    write_batch,
)


def finish_batch(
    batch: bytes | memoryview, codec: CompressionType | None, level: int | None = None, *, keyed: bool
) -> bytes | Refused | None:
    """The batch with the topic's codec, None if it may stay as it is, or why the topic does not take it."""
    records = memoryview(batch)
    try:
        if keyed and (missing := keyless(records)):
            return Refused(Why.INVALID_RECORD, "a compacted topic takes no record without a key", missing)
        validate_records(records)
        header = check_batch(records)
        return (
            None if codec is None or codec is header.codec else _recompressed(records, header, codec, level)
        )
    except InvalidRecord as error:
        return Refused(Why.INVALID_RECORD, str(error), (error.index,))
    except CorruptionError as error:
        return Refused(Why.CORRUPT_BATCH, str(error))


def _recompressed(
    records: memoryview, header: BatchHeader, codec: CompressionType, level: int | None
) -> bytes:
    batch = write_batch(
        read_records(records),
        codec=codec,
        level=level,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
    )
    return bytes(batch)


def keyless(records: memoryview) -> tuple[int, ...]:
    """Which records have no key: compaction keeps the latest per key, so every record needs one."""
    return tuple(index for index, record in enumerate(read_records(records)) if record.key is None)
