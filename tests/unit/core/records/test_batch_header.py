"""The 61 bytes in front of a batch, read and judged."""

import mmap
import struct

import pytest

from penstock.core.model import CorruptionError
from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    BatchIncomplete,
    CompressionType,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    read_header,
    write_batch,
)

BATCH = bytes(
    write_batch(
        [Record(0, 1_000, b"k", b"v"), Record(0, 3_000, b"k", None), Record(0, 2_000, None, b"")],
        base_offset=70_000_000_000,
        leader_epoch=9,
        producer_id=4_000,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
    )
)


def patched(form: str, position: int, value: int) -> bytes:
    batch = bytearray(BATCH)
    struct.pack_into(form, batch, position, value)
    return bytes(batch)


def test_every_field_is_read_from_its_place() -> None:
    header = read_header(BATCH)

    assert header == BatchHeader(
        base_offset=70_000_000_000,
        batch_length=len(BATCH) - 12,
        leader_epoch=9,
        magic=2,
        crc=struct.unpack_from(">I", BATCH, 17)[0],
        attributes=0x10,
        last_offset_delta=2,
        base_timestamp=1_000,
        max_timestamp=3_000,
        producer_id=4_000,
        producer_epoch=3,
        base_sequence=17,
        record_count=3,
    )


def test_what_follows_from_the_fields() -> None:
    header = read_header(BATCH)

    assert header.size_bytes == len(BATCH)
    assert (header.last_offset, header.next_offset) == (70_000_000_002, 70_000_000_003)
    assert header.codec is CompressionType.NONE
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert header.last_sequence == 19
    assert header.delete_horizon_ms is None


def test_the_delete_horizon_flag_gives_the_base_timestamp_a_second_meaning() -> None:
    header = read_header(patched(">h", 21, 0x50))

    assert header.delete_horizon_ms == 1_000


@pytest.mark.parametrize(("base", "last"), [(2**31 - 1, 1), (2**31 - 2, 0), (2**31 - 3, 2**31 - 1), (-1, -1)])
def test_sequences_wrap_to_zero_after_the_largest_int(base: int, last: int) -> None:
    header = read_header(BATCH)._replace(base_sequence=base)

    assert header.last_sequence == last


def test_only_the_header_needs_to_be_there() -> None:
    assert read_header(BATCH[:HEADER_BYTES]).record_count == 3


@pytest.mark.parametrize("length", [0, 1, 16, 17, 60])
def test_fewer_bytes_than_a_header_are_incomplete(length: int) -> None:
    with pytest.raises(BatchIncomplete) as caught:
        read_header(BATCH[:length])

    assert (caught.value.needed_bytes, caught.value.present_bytes) == (HEADER_BYTES, length)


def test_bytes_are_counted_from_the_position() -> None:
    with pytest.raises(BatchIncomplete, match="60 are there"):
        read_header(BATCH[:70], 10)
    with pytest.raises(BatchIncomplete, match="0 are there"):
        read_header(BATCH, len(BATCH) + 5)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [17, 34, len(BATCH)])
def test_old_message_formats_are_named_even_when_shorter_than_our_header(magic: int, length: int) -> None:
    with pytest.raises(UnsupportedMagic, match=f"magic {magic} is not supported"):
        read_header(patched(">b", 16, magic)[:length])


@pytest.mark.parametrize(
    ("form", "position", "value", "reason"),
    [
        (">b", 16, 3, "magic is 3"),
        (">b", 16, -1, "magic is -1"),
        (">i", 8, 48, "batch length 48"),
        (">i", 8, -1, "batch length -1"),
        (">q", 0, -1, "base offset -1"),
        (">q", 0, 2**63 - 1, "base offset"),
        (">h", 21, 5, "codec 5"),
        (">h", 21, 7, "codec 7"),
        (">i", 57, 4, "4 records"),
        (">i", 57, -1, "-1 records"),
        (">i", 23, -2, "offset delta -2"),
        (">i", 23, -1, "offset delta -1"),
    ],
)
def test_impossible_values_are_corruption_with_a_reason(
    form: str, position: int, value: int, reason: str
) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        read_header(patched(form, position, value))


def test_no_records_and_no_offsets_is_impossible_too() -> None:
    batch = bytearray(BATCH)
    struct.pack_into(">i", batch, 23, -1)
    struct.pack_into(">i", batch, 57, 0)

    with pytest.raises(CorruptBatch, match="0 records cannot end at offset delta -1"):
        read_header(batch)


def test_corruption_is_the_shared_kind_of_error() -> None:
    assert issubclass(BatchIncomplete, CorruptBatch)
    assert issubclass(UnsupportedMagic, CorruptBatch)
    assert issubclass(CorruptBatch, CorruptionError)


def test_any_buffer_will_do() -> None:
    mapped = mmap.mmap(-1, len(BATCH))
    mapped[:] = BATCH

    headers = [read_header(buffer) for buffer in (BATCH, bytearray(BATCH), memoryview(BATCH), mapped)]

    assert headers == [headers[0]] * 4
    mapped.close()
