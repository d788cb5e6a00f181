"""Whole batches: checked, stamped, and refused when harmed."""

import mmap
import pickle
import struct

import pytest

from penstock.core.model import LeaderEpoch, Offset, Timestamp
from penstock.core.records import (
    BatchIncomplete,
    CorruptBatch,
    Record,
    RecordsTooLarge,
    UnsupportedMagic,
    check_batch,
    check_batches,
    read_header,
    read_records,
    rewrite_batch,
    stamp,
    stamp_log_append_time,
    write_batch,
)

RECORDS = [Record(i, 1_000 + i, b"key", b"value" * 9, (("trace", b"7"),)) for i in range(5)]


def test_a_good_batch_gives_its_header() -> None:
    batch = write_batch(RECORDS)

    assert check_batch(batch) == read_header(batch)


def test_batches_back_to_back_are_found_at_their_positions() -> None:
    first, second = write_batch(RECORDS), write_batch(RECORDS[:1], base_offset=5)

    headers = check_batches(first + second)

    assert [(h.base_offset, h.record_count) for h in headers] == [(0, 5), (5, 1)]
    assert check_batch(first + second, len(first)) == headers[1]


def test_nothing_is_no_batches() -> None:
    assert check_batches(b"") == []


def test_bytes_after_the_last_batch_are_an_incomplete_batch() -> None:
    with pytest.raises(BatchIncomplete):
        check_batches(write_batch(RECORDS) + b"\x00")


def test_a_batch_cut_short_says_how_much_is_missing() -> None:
    batch = write_batch(RECORDS)

    with pytest.raises(BatchIncomplete) as caught:
        check_batch(batch[:-1])

    assert (caught.value.needed_bytes, caught.value.present_bytes) == (len(batch), len(batch) - 1)


def test_a_flipped_bit_in_the_records_is_found() -> None:
    batch = write_batch(RECORDS)
    batch[-3] ^= 0x10

    with pytest.raises(CorruptBatch, match="CRC"):
        check_batch(batch)


def test_offsets_without_records_are_refused_from_a_producer_but_not_from_the_cleaner() -> None:
    header = read_header(write_batch(RECORDS))
    compacted = rewrite_batch(header, RECORDS[1:3])

    with pytest.raises(CorruptBatch, match="2 records for 5 offsets"):
        check_batch(compacted)
    assert check_batch(compacted, compacted=True).record_count == 2
    assert len(check_batches(compacted + compacted, compacted=True)) == 2


def test_an_old_message_set_is_named() -> None:
    # Magic 1: offset, size, CRC, magic, attributes, timestamp, null key, one byte of value.
    message = struct.pack(">qiIbbqii", 0, 23, 0, 1, 0, 5, -1, 1) + b"v"

    with pytest.raises(UnsupportedMagic, match="magic 1"):
        check_batches(message)


def test_stamping_changes_offset_and_epoch_and_leaves_the_batch_valid() -> None:
    batch = write_batch(RECORDS)
    both = bytearray(batch + batch)

    stamp(both, len(batch), Offset(2**40), LeaderEpoch(77))

    first, second = check_batches(both)
    assert (first.base_offset, first.leader_epoch) == (0, -1)
    assert (second.base_offset, second.leader_epoch) == (2**40, 77)
    assert second._replace(base_offset=0, leader_epoch=-1) == first


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = write_batch(RECORDS)
    both = bytearray(batch + batch)

    stamp_log_append_time(memoryview(both), len(batch), Timestamp(9_999))

    first, second = check_batches(both)
    assert not first.is_log_append_time
    assert second.is_log_append_time
    assert second.max_timestamp == 9_999
    assert {r.timestamp for r in read_records(both[len(batch) :])} == {9_999}


def test_log_append_time_refuses_a_header_whose_batch_is_not_there() -> None:
    batch = write_batch(RECORDS)[:-1]
    before = bytes(batch)

    with pytest.raises(BatchIncomplete):
        stamp_log_append_time(batch, 0, Timestamp(1))

    assert batch == before


def test_a_mapped_file_can_be_closed_after_a_failed_check() -> None:
    batch = write_batch(RECORDS)
    batch[-1] ^= 1
    mapped = mmap.mmap(-1, len(batch))
    mapped[:] = bytes(batch)

    with pytest.raises(CorruptBatch) as caught:
        check_batch(mapped)

    assert caught.value is not None
    mapped.close()


def test_records_that_are_too_large_come_back_from_a_worker_as_they_were() -> None:
    error = pickle.loads(pickle.dumps(RecordsTooLarge(4_096)))

    assert isinstance(error, RecordsTooLarge)
    assert (error.limit_bytes, str(error)) == (4_096, str(RecordsTooLarge(4_096)))
