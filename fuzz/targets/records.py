"""Record batches: headers, whole batches, packed and unpacked records, markers."""

import random
import struct
from collections.abc import Callable
from functools import partial

from fuzz.harness import Target
from penstock.core.model import ApiError
from penstock.core.records import (
    HEADER_BYTES,
    CompressionType,
    ControlRecord,
    ControlType,
    CorruptBatch,
    InvalidRecord,
    Record,
    check_batches,
    check_client_batch,
    read_control,
    read_header,
    read_records,
    validate_records,
    write_batch,
    write_control_batch,
)
from penstock.core.records.batch import BatchHeader, seal
from penstock.core.records.client_batch import PACKED_RECORDS_PER_BYTE_MAX, SMALL_BYTES, SMALL_RECORDS
from penstock.core.records.record import assemble

# Small, so that what may be unpacked fits into the allowance for allocations.
LIMIT_BYTES = 256 * 1024
RECORDS = 4


def random_records(rng: random.Random, count: int) -> list[Record]:
    def blob() -> bytes | None:
        return (
            None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 5, 70))) * rng.choice((1, 1, 3))
        )

    def headers() -> tuple[tuple[str, bytes | None], ...]:
        return tuple((f"name-{n}", blob()) for n in range(rng.choice((0, 0, 1, 3))))

    return [Record(0, rng.randrange(2**41), blob(), blob(), headers()) for _ in range(count)]


def one_batch(rng: random.Random, codec: CompressionType = CompressionType.NONE) -> bytes:
    return bytes(write_batch(random_records(rng, rng.randint(1, RECORDS)), codec=codec))


def any_batch(rng: random.Random) -> bytes:
    return one_batch(rng, rng.choice(list(CompressionType)))


def some_batches(rng: random.Random) -> bytes:
    return b"".join(one_batch(rng, rng.choice(list(CompressionType))) for _ in range(rng.randint(1, 3)))


def one_marker(rng: random.Random) -> bytes:
    marker = ControlRecord(
        offset=rng.randrange(2**40),
        timestamp=rng.randrange(2**41),
        control_type=rng.choice(list(ControlType)),
        producer_id=rng.randrange(2**40),
        producer_epoch=rng.randrange(2**15),
        coordinator_epoch=rng.randrange(2**31),
    )
    return bytes(write_control_batch(marker))


def resealed(data: bytes) -> bytes:
    """The same batches with their CRCs put right, so that damage gets past that check."""
    out = bytearray(data)
    position = 0
    while position + HEADER_BYTES <= len(out):
        end = position + 12 + struct.unpack_from(">i", out, position + 8)[0]
        if not position + HEADER_BYTES <= end <= len(out):
            break
        seal(out, position, end)
        position = end
    return bytes(out)


def read_all(data: bytes) -> None:
    for _ in read_records(data, LIMIT_BYTES):
        pass


def read_resealed(data: bytes) -> None:
    data = resealed(data)
    position = 0
    for header in check_batches(data):
        assert header.size_bytes >= HEADER_BYTES
        position += header.size_bytes
    assert position == len(data)


def produce_resealed(data: bytes) -> None:
    """What a broker takes from a client it can serve: no more records than bytes, and small batches whole."""
    batch = memoryview(resealed(data))
    header = check_client_batch(batch)
    if isinstance(header, ApiError):
        raise CorruptBatch(str(header))
    assert len(batch) == header.size_bytes
    assert header.record_count == header.last_offset_delta + 1
    assert 0 < header.record_count <= PACKED_RECORDS_PER_BYTE_MAX * (len(batch) - HEADER_BYTES)
    is_small = header.record_count <= SMALL_RECORDS and len(batch) <= SMALL_BYTES
    if is_small and header.codec is CompressionType.NONE:
        validate_records(batch, LIMIT_BYTES)


def one_payload(rng: random.Random) -> bytes:
    """Uncompressed records behind two bytes that say how many the header will claim."""
    records = random_records(rng, rng.randint(1, RECORDS))
    return struct.pack(">H", len(records)) + bytes(write_batch(records))[HEADER_BYTES:]


def around(data: bytes, codec: CompressionType) -> bytes:
    """A batch with damaged records inside an undamaged header and codec."""
    count = max(1, int.from_bytes(data[:2], "big"))
    header = BatchHeader(0, 0, -1, 2, 0, int(codec), count - 1, 0, 0, -1, -1, -1, count)
    return bytes(assemble(header, data[2:]))


def both_ways(data: bytes, codec: CompressionType) -> None:
    """Reading and validation agree, except on gaps, which only validation minds."""
    batch = around(data, codec)
    try:
        validate_records(batch, LIMIT_BYTES)
    except InvalidRecord as refused:
        if "offset delta" in refused.reason:
            return
        try:
            read_all(batch)
        except InvalidRecord:
            raise refused from None
        raise AssertionError(f"read what validation refuses: {refused}") from refused
    read_all(batch)


def _per_codec(codec: CompressionType) -> tuple[Target, ...]:
    name = codec.name.lower()
    packed: Callable[[random.Random], bytes] = partial(one_batch, codec=codec)
    return (
        Target(f"records.read.{name}", packed, read_all, (CorruptBatch,)),
        Target(
            f"records.validate.{name}",
            packed,
            partial(validate_records, limit_bytes=LIMIT_BYTES),
            (CorruptBatch,),
        ),
        Target(f"records.payload.{name}", one_payload, partial(both_ways, codec=codec), (CorruptBatch,)),
    )


TARGETS = (
    Target("records.header", one_batch, read_header, (CorruptBatch,)),
    Target("records.check", some_batches, check_batches, (CorruptBatch,)),
    Target("records.check.resealed", some_batches, read_resealed, (CorruptBatch,)),
    Target("records.client", any_batch, produce_resealed, (CorruptBatch,)),
    Target("records.control", one_marker, read_control, (CorruptBatch,)),
    *(target for codec in CompressionType for target in _per_codec(codec)),
)
