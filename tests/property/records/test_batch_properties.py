"""What holds for every batch: round trips, damage found, cuts found."""

from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import ApiError, LeaderEpoch, Offset, Timestamp
from penstock.core.records import (
    HEADER_BYTES,
    BatchIncomplete,
    CompressionType,
    ControlRecord,
    ControlType,
    CorruptBatch,
    InvalidRecord,
    Record,
    check_batch,
    check_batches,
    check_client_batch,
    index_records,
    read_control,
    read_records,
    records_in,
    rewrite_batch,
    stamp,
    stamp_log_append_time,
    validate_records,
    write_batch,
    write_control_batch,
)
from penstock.core.records.batch import seal
from penstock.core.records.client_batch import SMALL_RECORDS
from penstock.core.records.varints import read_varint, read_varlong, write_varint
from tests.property.records.record_strategies import numbered, record_lists, records

CRC_START = 21
codecs = st.sampled_from(CompressionType)
offsets = st.integers(0, 2**62)


@given(record_lists, codecs, offsets)
def test_records_survive_the_round_trip(
    written: list[Record], codec: CompressionType, base_offset: int
) -> None:
    batch = write_batch(written, codec=codec, base_offset=base_offset)

    assert check_batch(batch) == validate_records(batch)
    assert list(read_records(batch)) == numbered(written, base_offset)


@given(record_lists, codecs)
def test_what_a_producer_writes_may_be_written(written: list[Record], codec: CompressionType) -> None:
    batch = write_batch(written, codec=codec)

    assert check_client_batch(memoryview(batch)) == check_batch(batch)


@given(st.lists(records, min_size=1, max_size=SMALL_RECORDS), st.data())
def test_a_small_batch_that_a_client_may_write_can_be_read(
    written: list[Record], data: st.DataObject
) -> None:
    small = [record._replace(key=(record.key or b"")[:9], value=b"v") for record in written]
    batch = write_batch(small)
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    seal(batch, 0, len(batch))

    found = check_client_batch(memoryview(batch))

    if isinstance(found, ApiError):
        with pytest.raises(InvalidRecord):
            validate_records(batch)
    else:
        assert len(list(read_records(batch))) == len(written)


@given(record_lists, codecs, st.data())
def test_any_flipped_bit_under_the_crc_is_found(
    written: list[Record], codec: CompressionType, data: st.DataObject
) -> None:
    batch = write_batch(written, codec=codec)
    bit = data.draw(st.integers(CRC_START * 8, len(batch) * 8 - 1))

    batch[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptBatch):
        check_batch(batch)


@given(st.lists(records, min_size=1, max_size=3))
def test_every_flipped_bit_of_a_small_batch_is_found_or_outside_the_crc(written: list[Record]) -> None:
    small = [Record(0, r.timestamp, (r.key or b"")[:3], None) for r in written]
    batch = write_batch(small)

    for bit in range(CRC_START * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            check_batch(damaged)


@given(st.lists(records, min_size=1, max_size=3), codecs)
def test_a_cut_at_any_byte_is_an_incomplete_batch(written: list[Record], codec: CompressionType) -> None:
    small = [Record(0, r.timestamp, (r.key or b"")[:20], None) for r in written]
    batch = bytes(write_batch(small, codec=codec))

    for length in range(len(batch)):
        with pytest.raises(BatchIncomplete):
            check_batch(batch[:length])


@given(st.lists(record_lists, max_size=5), codecs)
def test_batches_side_by_side_are_told_apart(groups: list[list[Record]], codec: CompressionType) -> None:
    bases = [0, *accumulate(len(group) for group in groups)]
    batches = [write_batch(g, codec=codec, base_offset=b) for g, b in zip(groups, bases, strict=False)]
    whole = b"".join(batches)

    headers = check_batches(whole)

    positions = [0, *accumulate(header.size_bytes for header in headers)]
    assert [(h.base_offset, h.record_count) for h in headers] == [
        (b, len(g)) for g, b in zip(groups, bases, strict=False)
    ]
    assert [r for start in positions[:-1] for r in read_records(memoryview(whole)[start:])] == [
        record for group, base in zip(groups, bases, strict=False) for record in numbered(group, base)
    ]


@given(record_lists, codecs, offsets, st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_stamps_change_what_they_name_and_nothing_else(
    written: list[Record], codec: CompressionType, offset: int, epoch: int, now: int
) -> None:
    batch = write_batch(written, codec=codec)
    before = check_batch(batch)

    stamp(batch, 0, Offset(offset), LeaderEpoch(epoch))
    stamped = check_batch(batch)
    stamp_log_append_time(batch, 0, Timestamp(now))
    appended = check_batch(batch)

    assert stamped == before._replace(base_offset=offset, leader_epoch=epoch)
    assert appended == stamped._replace(attributes=before.attributes | 8, max_timestamp=now, crc=appended.crc)
    assert [r._replace(timestamp=0) for r in read_records(batch)] == [
        r._replace(timestamp=0) for r in numbered(written, offset)
    ]


@given(record_lists, codecs, st.data())
def test_compaction_keeps_survivors_where_they_were(
    written: list[Record], codec: CompressionType, data: st.DataObject
) -> None:
    batch = write_batch(written, codec=codec, base_offset=50)
    survivors = [record for record in read_records(batch) if data.draw(st.booleans())]

    compacted = rewrite_batch(check_batch(batch), survivors)

    assert check_batch(compacted, compacted=True).last_offset == check_batch(batch).last_offset
    assert list(read_records(compacted)) == survivors


@given(record_lists, st.data())
def test_validation_and_reading_agree_on_damaged_records(written: list[Record], data: st.DataObject) -> None:
    batch = write_batch(written)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))

    try:
        validate_records(batch)
    except InvalidRecord as refused:
        # Gaps in the offsets are the one thing that only validation minds.
        if "offset delta" not in refused.reason:
            with pytest.raises(InvalidRecord):
                list(read_records(batch))
    else:
        assert len(list(read_records(batch))) == len(written)


@given(
    st.builds(
        ControlRecord,
        offsets,
        st.integers(0, 2**62),
        st.sampled_from(ControlType),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
    )
)
def test_markers_survive_the_round_trip(marker: ControlRecord) -> None:
    assert read_control(write_control_batch(marker)) == marker


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_survive_the_round_trip(value: int) -> None:
    out = bytearray()

    write_varint(out, value)

    assert read_varlong(bytes(out), 0) == (value, len(out))
    if -(2**31) <= value < 2**31:
        assert read_varint(bytes(out), 0) == (value, len(out))
    else:
        with pytest.raises(ValueError, match="past 32 bits"):
            read_varint(bytes(out), 0)


@given(record_lists, codecs, offsets, st.data())
def test_what_is_cut_out_of_a_batch_is_what_is_read_of_it(
    written: list[Record], codec: CompressionType, base_offset: int, data: st.DataObject
) -> None:
    batch = bytes(write_batch(written, codec=codec, base_offset=base_offset))
    if data.draw(st.booleans()):
        kept = [each for each in read_records(batch) if data.draw(st.booleans())]
        batch = bytes(rewrite_batch(check_batch(batch), kept))
    whole = list(read_records(batch))
    start, end = sorted(base_offset + data.draw(st.integers(-1, len(written) + 1)) for _ in range(2))

    indexed = index_records(batch)
    piece = indexed.slice(start, end)

    assert list(indexed.offsets) == [each.offset for each in whole]
    assert indexed.records() == whole
    assert ([] if piece is None else records_in(piece)) == [
        each for each in whole if start <= each.offset < end
    ]


@given(record_lists, st.data())
def test_records_that_cannot_be_read_cannot_be_cut_out_either(
    written: list[Record], data: st.DataObject
) -> None:
    batch = write_batch(written)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))

    assert read_or_error(lambda: index_records(batch).records()) == read_or_error(
        lambda: list(read_records(batch))
    )


def read_or_error(read: Callable[[], list[Record]]) -> list[Record] | str:
    try:
        return read()
    except InvalidRecord as error:
        return str(error)
