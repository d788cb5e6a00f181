"""Batches of topics that want their records looked at, or stored with another codec.

This walks and copies records, and so costs what the hot path must not: only topics that are
compacted, ask for deep validation or name a `compression.type` come here.
"""

from penstock.core.metadata.configs import TopicOptions
from penstock.core.records import (
    BatchHeader,
    read_records,
    validate_records,
    write_batch,
)


def rewritten(records: memoryview, header: BatchHeader, options: TopicOptions) -> memoryview:
    """The batch as the topic wants it: the same one, or a copy with the topic's codec."""
    validate_records(records)
    if options.compression is None or options.compression is header.codec:
        return records
    batch = write_batch(
        read_records(records),
        codec=options.compression,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
    )
    return memoryview(batch)


def keyless(records: memoryview) -> tuple[int, ...]:
    """Which records have no key: compaction keeps the latest per key, so every record needs one."""
    return tuple(index for index, record in enumerate(read_records(records)) if record.key is None)
