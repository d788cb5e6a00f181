"""Transaction markers."""

from collections.abc import Callable
from functools import partial

import pytest

from penstock.core.records import (
    ControlRecord,
    ControlType,
    CorruptBatch,
    Record,
    check_batch,
    read_control,
    validate_records,
    write_batch,
    write_control_batch,
)
from penstock.core.records.batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, CompressionType
from penstock.core.records.control import _read_any
from penstock.core.records.record import assemble, write_record

ATTRIBUTES_LOW_BYTE = 22
MARKER = ControlRecord(
    offset=42,
    timestamp=1_000,
    control_type=ControlType.COMMIT,
    producer_id=7,
    producer_epoch=3,
    coordinator_epoch=11,
)


def control_batch(*records: Record) -> bytearray:
    header = check_batch(write_batch(records, producer_id=7, producer_epoch=3))
    payload = bytearray()
    for delta, record in enumerate(records):
        write_record(payload, record, delta, 0)
    return assemble(header._replace(attributes=CONTROL), payload)


@pytest.mark.parametrize("control_type", ControlType)
def test_markers_come_out_as_they_went_in(control_type: ControlType) -> None:
    marker = MARKER._replace(control_type=control_type)

    batch = write_control_batch(marker, leader_epoch=5)

    header = check_batch(batch)
    assert read_control(batch) == marker
    assert validate_records(batch) == header
    assert (header.is_control, header.is_transactional, header.leader_epoch) == (True, True, 5)
    assert (header.base_sequence, header.record_count) == (-1, 1)


def test_a_marker_is_written_like_any_record() -> None:
    record = Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x0b")
    payload = bytearray()
    write_record(payload, record, 0, 0)

    assert bytes(write_control_batch(MARKER)[HEADER_BYTES:]) == payload


@pytest.mark.parametrize(
    "changed",
    [
        # Brokers of old stored the time of the append; compaction moves the base.
        pytest.param({"attributes": CONTROL | LOG_APPEND_TIME, "max_timestamp": 2_000}, id="append time"),
        pytest.param({"attributes": CONTROL | int(CompressionType.GZIP)}, id="compressed"),
    ],
)
def test_markers_that_are_not_as_usual_are_read_like_records(changed: dict[str, int]) -> None:
    batch = write_control_batch(MARKER)
    header = check_batch(batch)._replace(**changed)

    found = read_control(assemble(header, bytes(batch[HEADER_BYTES:])))

    timestamp = 2_000 if header.is_log_append_time else 1_000
    assert found == MARKER._replace(timestamp=timestamp)


def test_a_marker_with_any_byte_changed_is_what_reading_its_record_says() -> None:
    batch = write_control_batch(MARKER)
    header = check_batch(batch)

    for at in range(HEADER_BYTES, len(batch)):
        for byte in range(256):
            changed = bytes((*batch[:at], byte, *batch[at + 1 :]))
            assert _outcome(partial(read_control, changed)) == _outcome(partial(_read_any, changed, header))


def _outcome(read: Callable[[], ControlRecord]) -> ControlRecord | str:
    try:
        return read()
    except CorruptBatch as error:
        return str(error)


def test_a_marker_that_says_it_is_compressed_and_is_not_is_refused() -> None:
    batch = write_control_batch(MARKER)
    batch[ATTRIBUTES_LOW_BYTE] |= int(CompressionType.GZIP)

    with pytest.raises(CorruptBatch, match="gzip data is broken"):
        read_control(batch)


def test_a_marker_that_is_cut_short_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        read_control(write_control_batch(MARKER)[:-1])


def test_an_ordinary_batch_holds_no_marker() -> None:
    with pytest.raises(CorruptBatch, match="not a control batch"):
        read_control(write_batch([Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x01")]))


def test_fields_of_later_versions_are_skipped() -> None:
    batch = control_batch(Record(0, 9, b"\x00\x01\x00\x00more", b"\x00\x02\x00\x00\x00\x08more"))

    assert read_control(batch) == ControlRecord(0, 9, ControlType.ABORT, 7, 3, 8)


KEY, VALUE = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\x00\x00\x00", VALUE, "key of a control record is cut short"),
        (None, VALUE, "key of a control record is cut short"),
        (KEY, b"\x00\x00\x00\x00\x00", "value of a control record is cut short"),
        (KEY, None, "value of a control record is cut short"),
        (b"\x00\x00\x00\x02", VALUE, "type 2 is not a transaction marker"),
        (b"\xff\xff\x00\x01", VALUE, "key version -1"),
        (KEY, b"\xff\xff\x00\x00\x00\x01", "value version -1"),
    ],
)
def test_broken_markers_are_refused_with_a_reason(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        read_control(control_batch(Record(0, 0, key, value)))


def test_one_marker_per_batch() -> None:
    with pytest.raises(CorruptBatch, match="one record, not 2"):
        read_control(control_batch(Record(0, 0, KEY, VALUE), Record(0, 0, KEY, VALUE)))
