"""Transaction markers."""

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
from penstock.core.records.batch import CONTROL
from penstock.core.records.record import assemble, write_record

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
