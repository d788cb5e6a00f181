"""Records of many batches, unpacked and laid end to end in one buffer."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from penstock.core.records import BatchHeader, CorruptBatch
from penstock.core.records.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.pipeline.reading.decoding.batches import Shown, named
from penstock.pipeline.reading.decoding.fields import Fields, Ints, Unsettled, read_fields, settle
from penstock.pipeline.reading.decoding.walking import walk

# Arrow's offsets have 31 bits. An arena is closed at the first size and the last batch in it unpacks
# to the codec's limit at most, so that positions never come near to that.
ARENA_BYTES = 32 << 20


assert ARENA_BYTES + LIMIT_BYTES < 1 << 31

# Sums of times within this are far from 64 bits.
_TIMESTAMP_LIMIT = 1 << 61


class Arena(NamedTuple):
    """The batches, and their records without headers, one batch after the other."""

    batches: list[Shown]
    octets: bytes
    starts: list[int]


def arenas(shown: Iterable[Shown], arena_bytes: int = ARENA_BYTES) -> Iterator[Arena]:
    """Lay out batches; a new arena begins when one is full."""
    batches: list[Shown] = []
    payloads: list[bytes | memoryview] = []
    starts = [0]
    for one in shown:
        payload = _unpacked(one)
        batches.append(one)
        payloads.append(payload)
        starts.append(starts[-1] + len(payload))
        if starts[-1] >= arena_bytes:
            yield Arena(batches, b"".join(payloads), starts)
            batches, payloads, starts = [], [], [0]
    if batches:
        yield Arena(batches, b"".join(payloads), starts)


def _unpacked(one: Shown) -> bytes | memoryview:
    if not one.header[5] & CODEC_MASK and len(one.batch) <= LIMIT_BYTES:
        return one.batch[HEADER_BYTES:]
    try:
        return unpack_payload(one.batch, one.header, LIMIT_BYTES)
    except CorruptBatch as broken:
        raise named(one.header, broken) from None


def locate(arena: Arena) -> Fields:
    """The fields of all records; Unsettled where a batch is not exactly what its header says."""
    counts = [header[12] for header, _ in arena.batches]
    try:
        ends: Ints = np.array(walk(arena.octets, arena.starts, counts), dtype=np.int64)
    except IndexError:
        raise Unsettled from None
    settle(0 < len(ends) == sum(counts))
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1]
    fields = read_fields(np.frombuffer(arena.octets, np.uint8), starts, ends)
    settle(bool(ends[-1] == arena.starts[-1]))
    return fields


def per_record(arena: Arena, fields: Fields) -> tuple[Ints, Ints, Ints]:
    """Offset, timestamp in milliseconds and kind of timestamp of each record."""
    headers = BatchHeader._make(zip(*(header for header, _ in arena.batches), strict=True))
    counts = _ints(headers.record_count)
    _check_order(fields.offset_deltas, counts, _ints(headers.last_offset_delta))
    offsets = np.repeat(_ints(headers.base_offset), counts) + fields.offset_deltas
    kinds = (_ints(headers.attributes) & LOG_APPEND_TIME) // LOG_APPEND_TIME
    stamps = np.where(kinds, _ints(headers.max_timestamp), _ints(headers.base_timestamp))
    settle(bool((abs(stamps) < _TIMESTAMP_LIMIT).all()) and bool((stamps > -_TIMESTAMP_LIMIT).all()))
    timestamps = np.repeat(stamps, counts) + fields.timestamp_deltas * np.repeat(1 - kinds, counts)
    return offsets, timestamps, np.repeat(kinds, counts)


def _check_order(deltas: Ints, counts: Ints, lasts: Ints) -> None:
    """Offsets grow within a batch, from 0 at least to the header's last at most."""
    firsts = np.cumsum(counts) - counts
    before = np.empty_like(deltas)
    before[1:] = deltas[:-1]
    before[firsts[counts > 0]] = -1
    settle(bool((deltas > before).all()) and bool((deltas <= np.repeat(lasts, counts)).all()))


def _ints(column: object) -> Ints:
    return np.array(column, dtype=np.int64)
