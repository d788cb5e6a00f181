"""Walking the records: what is wrong, and in which record."""

import struct

import pytest

from penstock.core.records import (
    CompressionType,
    InvalidRecord,
    Record,
    RecordsTooLarge,
    read_header,
    read_records,
    validate_records,
    write_batch,
)
from penstock.core.records.batch import BatchHeader
from penstock.core.records.record import assemble

# Length 7, attributes, deltas 0 and 0, key "k", null value, no headers.
GOOD = bytes.fromhex("0e 00 00 00 02 6b 01 00")
HEADER = read_header(write_batch([Record(0, 0, b"k", None)]))


def batch_of(*records: bytes, header: BatchHeader = HEADER, count: int = 0) -> bytearray:
    count = count or len(records)
    return assemble(header._replace(record_count=count, last_offset_delta=count - 1), b"".join(records))


def record(body: str) -> bytes:
    content = bytes.fromhex(body)
    return bytes([len(content) * 2]) + content


@pytest.mark.parametrize("codec", CompressionType)
def test_good_batches_pass_and_give_their_header(codec: CompressionType) -> None:
    batch = write_batch(
        [Record(0, 5, None, b"v", (("h", None), ("", b"x"))), Record(0, 4, b"k", b"")], codec=codec
    )

    assert validate_records(batch) == read_header(batch)


def test_the_hand_made_record_is_good() -> None:
    assert list(read_records(batch_of(GOOD))) == [Record(0, 0, b"k", None)]
    validate_records(batch_of(GOOD))


SECOND_RECORDS = {
    "offset delta is 2, not 1": "00 00 04 02 6b 01 00",
    "offset delta is 0, not 1": "00 00 00 02 6b 01 00",
    "field length 4 runs past the end": "00 00 02 08 6b 01 00",
    "field length 63 runs past the end": "00 00 02 01 7e 01 00",
    "field length -2 is less than -1": "00 00 02 03 6b 01 00",
    "field length -64 is less than -1": "00 00 02 01 7f 01 00",
    "is off by 1 bytes": "00 00 02 02 6b 01 00 00",
    "header count 7 is impossible": "00 00 02 02 6b 01",  # the count is the next record's first byte
    "header count -1 is impossible": "00 00 02 01 01 01",
    "header count 63 is impossible": "00 00 02 01 01 7e 00 00",
    "header count 1 is impossible": "00 00 02 01 01 02",
    "field length -1 is less than 0": "00 00 02 01 01 02 01 01",
    "integer runs past 32 bits": "00 00 02 ff ff ff ff ff 01 00",
    "integer runs past 64 bits": "00 ff ff ff ff ff ff ff ff ff ff 01 02 01 01 00",
}


@pytest.mark.parametrize(("reason", "body"), SECOND_RECORDS.items())
def test_the_first_bad_record_is_named_with_its_reason(reason: str, body: str) -> None:
    third = record("00 00 04 02 6b 01 00")
    batch = batch_of(GOOD, record(body), third)

    with pytest.raises(InvalidRecord) as caught:
        validate_records(batch)

    assert caught.value.index == 1
    assert reason in caught.value.reason


@pytest.mark.parametrize(("reason", "body"), SECOND_RECORDS.items())
def test_a_reader_refuses_the_same_for_the_same_reason(reason: str, body: str) -> None:
    if reason.startswith("offset delta"):
        reason = "offset delta"
        body = body.replace("00 00 04", "00 00 06")  # a reader minds an offset past the last, not a gap
    if reason == "field length -1 is less than 0":
        reason = "header name is null"
    batch = batch_of(GOOD, record(body), record("00 00 04 02 6b 01 00"))

    with pytest.raises(InvalidRecord) as caught:
        list(read_records(batch))

    assert caught.value.index == 1
    assert reason in caught.value.reason


@pytest.mark.parametrize("length", ["01", "10", "fe ff ff ff 0f"])
def test_a_record_length_that_cannot_be_is_refused(length: str) -> None:
    batch = batch_of(bytes.fromhex(length) + GOOD[1:])

    with pytest.raises(InvalidRecord, match=r"record 0: length .* does not fit"):
        validate_records(batch)
    with pytest.raises(InvalidRecord, match=r"record 0: length .* does not fit"):
        list(read_records(batch))


def test_bytes_after_the_last_record_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="record 1: 1 bytes follow"):
        validate_records(batch_of(GOOD, b"\x00", count=1))


def test_missing_records_are_refused_at_once_however_many_are_claimed() -> None:
    with pytest.raises(InvalidRecord, match="record 1: the records end early"):
        validate_records(batch_of(GOOD, count=2**31 - 1))


def test_the_limit_holds_for_validation_too() -> None:
    batch = write_batch([Record(0, 0, None, bytes(100_000))], codec=CompressionType.ZSTD)

    with pytest.raises(RecordsTooLarge):
        validate_records(batch, limit_bytes=100_000)
    validate_records(batch, limit_bytes=100_100)


def test_validation_needs_no_good_crc() -> None:
    batch = batch_of(GOOD)
    struct.pack_into(">I", batch, 17, 0)

    validate_records(batch)
