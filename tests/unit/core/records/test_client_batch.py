"""What a client may write: one error for each way in which a batch is not what it says."""

import random  # noqa: TID251 - seeded, the same noise each time

import pytest

from penstock.core.model import ApiError, ErrorKind
from penstock.core.records import (
    HEADER_BYTES,
    CompressionType,
    InvalidRecord,
    Record,
    check_batch,
    check_client_batch,
    read_header,
    validate_records,
    write_batch,
)
from penstock.core.records.batch import BatchHeader, seal
from penstock.core.records.client_batch import PACKED_RECORDS_PER_BYTE_MAX, SMALL_RECORDS
from penstock.core.records.record import assemble

RECORDS = [Record(0, 1_000 + number, b"key", b"value" * 9, (("trace", b"7"),)) for number in range(3)]
MANY = [Record(0, 1_000, b"key", b"value") for _ in range(SMALL_RECORDS + 12)]
LARGE = [Record(0, 1_000, b"key", b"v" * 10_000)]
NOISE = random.Random(3).randbytes(400)
HEADER = read_header(write_batch(RECORDS))


def refused(batch: bytes | bytearray) -> ApiError:
    found = check_client_batch(memoryview(batch))
    assert isinstance(found, ApiError), found
    return found


def changed(**fields: int) -> bytearray:
    """A batch with other header fields, sealed as its producer would."""
    batch = write_batch(RECORDS)
    return assemble(read_header(batch)._replace(**fields), batch[HEADER_BYTES:])


def with_payload(payload: bytes, count: int, codec: CompressionType = CompressionType.NONE) -> bytearray:
    """These bytes behind a header that says what they are not."""
    header = HEADER._replace(attributes=0, record_count=count, last_offset_delta=count - 1)
    batch = assemble(header, payload)
    batch[22] = codec
    seal(batch, 0, len(batch))
    return batch


def read_all(batch: bytearray) -> BatchHeader | InvalidRecord:
    """What a check of every record says."""
    try:
        return validate_records(batch)
    except InvalidRecord as broken:
        return broken


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("records", [RECORDS, MANY, LARGE])
def test_what_clients_write_is_accepted(records: list[Record], codec: CompressionType) -> None:
    batch = write_batch(records, codec=codec)

    assert check_client_batch(memoryview(batch)) == read_header(batch)


@pytest.mark.parametrize("value", [None, b"", b"v" * 20, b"v" * 60, b"v" * 61, b"v" * 200])
@pytest.mark.parametrize("key", [None, b"", b"k" * 3, b"k" * 63, b"k" * 64])
def test_a_single_record_is_looked_through_whatever_one_of_its_bytes_is(
    key: bytes | None, value: bytes | None
) -> None:
    written = write_batch([Record(0, 1_000, key, value)])
    payload = bytes(written[HEADER_BYTES:])
    places = (*range(min(len(payload), 12)), len(payload) - 2, len(payload) - 1)

    for at in places:
        for byte in range(256):
            batch = with_payload(payload[:at] + bytes((byte,)) + payload[at + 1 :], 1)
            found = check_client_batch(memoryview(batch))
            assert isinstance(found, ApiError) == isinstance(read_all(batch), InvalidRecord), (at, byte)
    for other in (payload[:-1], payload + b"\x00"):
        assert isinstance(check_client_batch(memoryview(with_payload(other, 1))), ApiError)


@pytest.mark.parametrize(
    "fields",
    [
        # Sarama leaves it out.
        {"max_timestamp": -1},
        # kafkajs and Sarama, without an idempotent producer.
        {"producer_epoch": 0, "base_sequence": 0},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"base_timestamp": -1},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2**31 - 1},
        {"attributes": 0x10, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
        # The broker writes its own.
        {"leader_epoch": 77},
    ],
)
def test_fields_that_differ_between_clients_are_accepted(fields: dict[str, int]) -> None:
    assert isinstance(check_client_batch(memoryview(changed(**fields))), BatchHeader)


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"record_count": 2}, ErrorKind.INVALID_RECORD, "2 records for 3 offsets"),
        ({"last_offset_delta": 9}, ErrorKind.INVALID_RECORD, "3 records for 10 offsets"),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorKind.INVALID_RECORD, "0 records"),
        ({"record_count": -5, "last_offset_delta": -6}, ErrorKind.INVALID_RECORD, "-5 records"),
        (
            {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
            ErrorKind.INVALID_RECORD,
            "2147483647 records cannot be in",
        ),
        ({"record_count": 40, "last_offset_delta": 39}, ErrorKind.INVALID_RECORD, "40 records cannot be in"),
        ({"attributes": 0x08}, ErrorKind.INVALID_TIMESTAMP, "LogAppendTime"),
        ({"attributes": 0x20}, ErrorKind.INVALID_RECORD, "control"),
        ({"attributes": 0x40}, ErrorKind.INVALID_RECORD, "bits 0x0040"),
        ({"attributes": 0x80}, ErrorKind.INVALID_RECORD, "bits 0x0080"),
        ({"attributes": -0x8000}, ErrorKind.INVALID_RECORD, "bits 0x8000"),
        ({"base_timestamp": -2}, ErrorKind.INVALID_TIMESTAMP, "base timestamp -2"),
        ({"max_timestamp": -2}, ErrorKind.INVALID_TIMESTAMP, "max timestamp -2"),
        ({"max_timestamp": 999}, ErrorKind.INVALID_TIMESTAMP, "max timestamp 999"),
        ({"producer_id": -2}, ErrorKind.INVALID_RECORD, "producer id -2"),
        ({"producer_id": 4, "producer_epoch": 0}, ErrorKind.INVALID_RECORD, "base sequence"),
        ({"producer_id": 4, "base_sequence": 0}, ErrorKind.INVALID_RECORD, "producer epoch"),
    ],
)
def test_a_header_that_no_client_may_write_is_refused(
    fields: dict[str, int], kind: ErrorKind, reason: str
) -> None:
    error = refused(changed(**fields))

    assert error.kind is kind
    assert reason in str(error)
    assert "\n" not in str(error)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    error = refused(with_payload(NOISE, 1, 6))  # type: ignore[arg-type]

    assert error.kind is ErrorKind.UNSUPPORTED_COMPRESSION


def test_what_changed_on_the_way_may_be_sent_again() -> None:
    good = bytes(write_batch(RECORDS))
    flipped = bytearray(good)
    flipped[-1] ^= 1

    assert {refused(batch).kind for batch in (flipped, good[:-1], good[:30], b"")} == {
        ErrorKind.CORRUPT_BATCH
    }


def test_a_false_count_of_a_damaged_batch_is_damage() -> None:
    batch = write_batch(RECORDS)
    batch[60] = 200

    assert refused(batch).kind is ErrorKind.CORRUPT_BATCH


@pytest.mark.parametrize("count", [1, SMALL_RECORDS, SMALL_RECORDS + 1])
def test_noise_is_no_record(count: int) -> None:
    error = refused(with_payload(NOISE, count))

    assert error.kind is ErrorKind.INVALID_RECORD
    assert error.records == (0,)


@pytest.mark.parametrize("codec", CompressionType)
def test_a_payload_is_needed(codec: CompressionType) -> None:
    assert refused(with_payload(b"", 1, codec)).kind is ErrorKind.INVALID_RECORD


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_noise_is_not_compressed_records(codec: CompressionType) -> None:
    error = refused(with_payload(b"\xff" * 300, 1, codec))

    assert error.kind is ErrorKind.INVALID_RECORD
    assert codec.name.lower() in str(error)


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_more_records_than_compression_can_hold_are_refused(codec: CompressionType) -> None:
    payload = bytes(write_batch(RECORDS, codec=codec))[HEADER_BYTES:]
    count = len(payload) * PACKED_RECORDS_PER_BYTE_MAX + 1

    assert "cannot be in" in str(refused(with_payload(payload, count, codec)))


def test_a_wrong_record_of_a_small_batch_is_named() -> None:
    payload = bytearray(write_batch(RECORDS)[HEADER_BYTES:])
    size = len(payload) // len(RECORDS)
    payload[2 * size + 3] = 2 * 7  # the offset delta of the last

    error = refused(with_payload(bytes(payload), 3))

    assert error.records == (2,)
    assert "offset delta is 7, not 2" in str(error)


@pytest.mark.parametrize(
    ("position", "byte", "reason"),
    [(0, 0x02, "length 1 does not fit"), (3, 0x06, "offset delta is 3"), (4, 0x7E, "field length 63 runs")],
)
def test_the_first_record_of_a_larger_batch_is_checked(position: int, byte: int, reason: str) -> None:
    payload = bytearray(write_batch(MANY)[HEADER_BYTES:])
    payload[position] = byte

    assert reason in str(refused(with_payload(bytes(payload), len(MANY))))


@pytest.mark.parametrize("cut", [1, 400])
def test_the_only_record_of_a_large_batch_fills_it(cut: int) -> None:
    payload = bytes(write_batch(LARGE)[HEADER_BYTES:-cut])

    assert "does not fit" in str(refused(with_payload(payload, 1)))


def test_what_logs_hold_is_not_a_clients_batch_and_still_a_batch() -> None:
    of_a_broker = changed(attributes=0x48, base_timestamp=-5)

    assert check_batch(of_a_broker).attributes == 0x48
    assert refused(of_a_broker).kind is ErrorKind.INVALID_TIMESTAMP
