"""Records go into a batch and come out the same."""

import struct

import pytest

from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    BatchIncomplete,
    CompressionType,
    InvalidRecord,
    Record,
    RecordsTooLarge,
    check_batch,
    read_header,
    read_records,
    rewrite_batch,
    write_batch,
)
from penstock.core.records.batch import seal

RECORDS = [
    Record(
        0,
        1_700_000_000_000,
        b"key",
        b"value",
        (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)),
    ),
    Record(1, 1_699_999_999_000, None, b"", ()),
    Record(2, 1_700_000_000_001, b"", None, (("", b"\x00"),)),
    Record(3, 1_700_000_100_000, b"k" * 300, b"v" * 70_000, ()),
]


@pytest.mark.parametrize("codec", CompressionType)
def test_records_come_out_as_they_went_in(codec: CompressionType) -> None:
    batch = write_batch(RECORDS, codec=codec)

    assert check_batch(batch).codec is codec
    assert list(read_records(batch)) == RECORDS


def test_records_are_numbered_from_the_base_offset_whatever_they_say() -> None:
    batch = write_batch([Record(99, 5, b"a", None), Record(99, 6, b"b", None)], base_offset=40)

    assert [r.offset for r in read_records(batch)] == [40, 41]


def test_the_header_says_what_the_writer_was_told() -> None:
    batch = write_batch(
        RECORDS,
        base_offset=8,
        leader_epoch=2,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
    )

    header = check_batch(batch)

    assert (header.base_offset, header.leader_epoch) == (8, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_100_000)


def test_log_append_time_can_be_written_at_once() -> None:
    batch = write_batch(RECORDS, log_append_time=12)

    assert check_batch(batch).is_log_append_time
    assert {r.timestamp for r in read_records(batch)} == {12}


def test_timestamps_have_64_bits_whatever_the_producer_has_written() -> None:
    batch = write_batch([Record(0, 0, b"a", None), Record(1, 5, b"b", None)])
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    seal(batch, 0, len(batch))
    records = list(read_records(batch))

    assert [record.timestamp for record in records] == [2**63 - 1, -(2**63) + 4]
    assert list(read_records(write_batch(records))) == records
    assert list(read_records(rewrite_batch(read_header(batch), records))) == records
    assert list(read_records(write_batch(records[::-1]))) == [
        record._replace(offset=offset) for offset, record in enumerate(records[::-1])
    ]


def test_a_batch_without_records_is_not_written() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        write_batch([])


def test_a_header_name_that_is_not_text_survives_reading_and_writing() -> None:
    batch = write_batch([Record(0, 1, None, None, (("name", b""),))])
    batch = batch.replace(b"name", b"n\xffme")
    seal(batch, 0, len(batch))

    again = write_batch(read_records(batch))

    assert again == batch


def test_the_cleaner_keeps_offsets_producer_and_range() -> None:
    header = check_batch(
        write_batch(
            RECORDS,
            codec=CompressionType.ZSTD,
            base_offset=10,
            producer_id=3,
            producer_epoch=1,
            base_sequence=4,
        )
    )
    survivors = [RECORDS[1]._replace(offset=11), RECORDS[3]._replace(offset=13)]

    batch = rewrite_batch(header, survivors)

    kept = check_batch(batch, compacted=True)
    assert list(read_records(batch)) == survivors
    assert (kept.base_offset, kept.last_offset, kept.record_count) == (10, 13, 2)
    assert (kept.producer_id, kept.last_sequence, kept.codec) == (3, 7, CompressionType.ZSTD)


def test_the_cleaner_may_leave_an_empty_batch() -> None:
    header = check_batch(
        write_batch(RECORDS, codec=CompressionType.SNAPPY, producer_id=3, producer_epoch=1, base_sequence=4)
    )

    batch = rewrite_batch(header, [])

    assert len(batch) == HEADER_BYTES
    assert check_batch(batch, compacted=True).last_sequence == 7
    assert list(read_records(batch)) == []


@pytest.mark.parametrize("codec", CompressionType)
def test_an_emptied_batch_may_still_name_its_codec(codec: CompressionType) -> None:
    batch = rewrite_batch(check_batch(write_batch(RECORDS)), [])
    struct.pack_into(">h", batch, 21, codec)
    seal(batch, 0, len(batch))

    assert check_batch(batch, compacted=True).codec is codec
    assert list(read_records(batch)) == []


def test_a_delete_horizon_does_not_move_the_timestamps() -> None:
    header = check_batch(write_batch(RECORDS))

    batch = rewrite_batch(header, RECORDS[2:], delete_horizon_ms=1_800_000_000_000)

    assert check_batch(batch, compacted=True).delete_horizon_ms == 1_800_000_000_000
    assert list(read_records(batch)) == RECORDS[2:]


def test_a_reader_may_stop_early() -> None:
    batch = write_batch(RECORDS)
    batch[-1:] = b""  # the last record is cut short, and nobody gets that far
    struct.pack_into(">i", batch, 8, len(batch) - 12)

    records = read_records(batch)

    assert next(records) == RECORDS[0]


def test_reading_needs_the_whole_batch() -> None:
    with pytest.raises(BatchIncomplete):
        read_records(write_batch(RECORDS)[:-1])


def test_uncompressed_records_obey_the_limit_as_well() -> None:
    batch = write_batch(RECORDS)

    with pytest.raises(RecordsTooLarge):
        read_records(batch, limit_bytes=len(batch) - HEADER_BYTES - 1)
    assert list(read_records(batch, limit_bytes=len(batch) - HEADER_BYTES)) == RECORDS


def rewritten(header: BatchHeader, *deltas: int) -> bytearray:
    return rewrite_batch(header, [Record(header.base_offset + delta, 5, b"k", None) for delta in deltas])


@pytest.mark.parametrize("deltas", [(1, 0), (2, 2), (0, 4), (0, -1)])
def test_offsets_that_do_not_grow_within_the_batch_are_refused(deltas: tuple[int, ...]) -> None:
    header = read_header(write_batch(RECORDS, base_offset=100))

    with pytest.raises(InvalidRecord, match="record 1: offset delta"):
        list(read_records(rewritten(header, *deltas)))


def test_a_claim_of_more_records_than_there_are_names_the_first_missing_one() -> None:
    batch = write_batch(RECORDS)
    struct.pack_into(">i", batch, 23, 9)
    struct.pack_into(">i", batch, 57, 10)

    with pytest.raises(InvalidRecord) as caught:
        list(read_records(batch))

    assert (caught.value.index, caught.value.reason) == (4, "the records end early")


def test_a_claim_of_fewer_records_leaves_bytes_over() -> None:
    batch = write_batch(RECORDS)
    struct.pack_into(">i", batch, 57, 3)

    with pytest.raises(InvalidRecord, match="bytes follow the last record"):
        list(read_records(batch))
