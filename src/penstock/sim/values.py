"""Unique values as record batches, and back: what simulated producers send and consumers read.

Where compaction is to find something, records have keys: few, and each follows from the value.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.core.model import ProducerId
from penstock.core.records import (
    BatchHeader,
    ControlType,
    Record,
    check_batch,
    read_control,
    read_header,
    read_records,
    write_batch,
)

NO_PRODUCER = ProducerId(-1)
# In the past of every node's clock, however wrong.
_TIMESTAMP = 1_700_000_000_000
# Base offset, length and leader epoch: what a log puts in front of the bytes that producers sent.
_PLACE_BYTES = 16
_LENGTH_ENDS = 12
_KEYS = 24


def key_of(value: bytes) -> bytes:
    """The key under which a value is written, if there are keys."""
    return b"%d" % (zlib.crc32(value) % _KEYS)


def batch_of(
    values: Sequence[bytes],
    producer_id: ProducerId = NO_PRODUCER,
    sequence: int = -1,
    *,
    keyed: bool = False,
    epoch: int = 0,
    transactional: bool = False,
) -> bytes:
    """One batch; with a producer id it is an idempotent one."""
    return bytes(
        write_batch(
            [Record(0, _TIMESTAMP, key_of(value) if keyed else None, value) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def values_of(content: bytes) -> list[tuple[int, bytes]]:
    """Every record of some batches but for markers, with its offset. A batch that is damaged raises."""
    values: list[tuple[int, bytes]] = []
    position, end = 0, len(content)
    while position < end:
        base = int.from_bytes(content[position : position + 8])
        size = _LENGTH_ENDS + int.from_bytes(content[position + 8 : position + _LENGTH_ENDS])
        if not read_header(content, position).is_control:
            batch = content[position + _PLACE_BYTES : position + size]
            values += [(base + delta, value) for delta, value in _records_of(batch)]
        position += size
    return values


def end_of(content: bytes) -> int:
    """The offset behind the last of some batches, which may have no records any more; 0 without any."""
    position, end = 0, 0
    while position < len(content):
        header = read_header(content, position)
        end = header.next_offset
        position += header.size_bytes
    return end


class OpenBatch(NamedTuple):
    """A batch, with what it holds: records, or the marker of a transaction."""

    header: BatchHeader
    values: Sequence[tuple[int, bytes]]
    is_commit: bool | None


def batches_of(content: bytes) -> Iterator[OpenBatch]:
    """Batches one by one, control batches among them. One that is damaged raises."""
    position = 0
    while position < len(content):
        header = read_header(content, position)
        batch = content[position : position + header.size_bytes]
        if header.is_control:
            check_batch(batch)
            yield OpenBatch(header, (), read_control(batch).control_type is ControlType.COMMIT)
        else:
            yield OpenBatch(header, values_of(batch), None)
        position += header.size_bytes


def read_all_records(content: bytes) -> Iterator[Record]:
    """The records of some batches as they are, but for markers. A batch that is damaged raises."""
    position = 0
    while position < len(content):
        header = read_header(content, position)
        batch = content[position : position + header.size_bytes]
        check_batch(batch)
        if not header.is_control:
            yield from read_records(memoryview(batch))
        position += header.size_bytes


def committed_values_of(content: bytes, aborted: Iterable[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """What read_committed shows of some batches.

    `aborted` are producer and first offset of aborted transactions. As the Java client does: a transaction
    counts as aborted from its first offset to its marker.
    """
    coming = sorted(aborted, key=lambda one: one[1], reverse=True)
    under_way: dict[int, None] = {}
    values: list[tuple[int, bytes]] = []
    for header, found, is_commit in batches_of(content):
        while coming and coming[-1][1] <= header.last_offset:
            under_way[coming.pop()[0]] = None
        if is_commit is not None:
            if not is_commit:
                under_way.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in under_way):
            values += found
    return values


@lru_cache(maxsize=10_000)
def _records_of(batch: bytes) -> tuple[tuple[int, bytes], ...]:
    """What a batch holds, without its place: the same bytes are read again and again in a run."""
    length = _PLACE_BYTES - _LENGTH_ENDS + len(batch)
    whole = bytes(8) + length.to_bytes(4) + bytes(4) + batch
    check_batch(whole, compacted=True)
    return tuple((record.offset, record.value or b"") for record in read_records(memoryview(whole)))
