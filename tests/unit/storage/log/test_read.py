"""Which batches a read returns, from which place, and what it costs."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import Offset, Timestamp
from penstock.core.records import ControlType
from penstock.storage.disk import File
from penstock.storage.log import OffsetOutOfRange, SuspectSegment

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench


def test_the_first_batch_is_the_one_that_contains_the_offset(bench: "Bench") -> None:
    bench.fill(5, count=3)

    assert bench.bases(4) == [3, 6, 9, 12]
    assert bench.bases(6) == [6, 9, 12]
    assert bench.bases(14) == [12]


def test_at_least_one_batch_is_answered_however_small_the_limit(bench: "Bench") -> None:
    bench.fill(3)

    assert bench.bases(2, max_bytes=0) == [2]
    assert bench.bases(2, max_bytes=1) == [2]


@pytest.mark.parametrize("sealed", [False, True])
def test_only_whole_batches_within_the_limit_are_answered(bench: "Bench", *, sealed: bool) -> None:
    bench.fill(6)
    size = bench.headers()[0].size_bytes
    if sealed:
        bench.log.roll()

    assert bench.bases(0, max_bytes=3 * size) == [0, 2, 4]
    assert bench.bases(0, max_bytes=3 * size - 1) == [0, 2]
    assert bench.bases(4, max_bytes=100 * size) == [4, 6, 8, 10]


def test_only_batches_that_end_below_the_given_end_are_answered(bench: "Bench") -> None:
    bench.fill(4, count=3)

    assert bench.bases(0, end=6) == [0, 3]
    assert bench.bases(0, end=8) == [0, 3]
    assert bench.bases(0, end=9) == [0, 3, 6]
    assert bench.bases(0, end=2) == []
    assert bench.bases(0, end=99) == [0, 3, 6, 9]


def test_a_read_stays_within_one_segment_and_the_next_one_goes_on(bench: "Bench") -> None:
    bench.fill(3)
    bench.log.roll()
    bench.fill(2)

    assert bench.bases(2) == [2, 4]
    assert bench.bases(6) == [6, 8]


def test_offsets_outside_of_the_log_are_refused_with_its_range(bench: "Bench") -> None:
    bench.fill(4)
    bench.log.delete_records(Offset(3))

    for offset in (2, 9):
        with pytest.raises(OffsetOutOfRange) as refused:
            bench.log.read(Offset(offset), 100)

        assert (refused.value.start, refused.value.end) == (3, 8)
    assert bench.bases(8) == []


def test_every_offset_is_found_in_sealed_and_active_segments(bench: "Bench") -> None:
    bench.fill(60, count=2)
    bench.reopen()
    bench.fill(3)

    for offset in range(126):
        assert bench.bases(offset, max_bytes=1) == [offset // 2 * 2]


def test_a_consumer_at_the_tail_costs_no_read_of_the_file(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(4)
    reads: list[int] = []
    reader = type(bench.log.read(Offset(0), 1).ranges[0].file)
    honest = reader.pread

    def counted(self: File, position: int, length: int) -> bytes:
        reads.append(position)
        return honest(self, position, length)

    monkeypatch.setattr(reader, "pread", counted)

    for start in range(8):
        bench.log.read(Offset(start), 10_000)
        bench.log.read(Offset(start), 150, end=Offset(7))

    assert reads == []


def test_a_range_that_was_lent_out_stays_readable_when_its_segment_is_deleted(bench: "Bench") -> None:
    bench.fill(3)
    bench.log.roll()
    bench.fill(1)
    lent = bench.log.read(Offset(0), 10_000)
    before = lent.to_bytes()

    bench.log.delete_records(Offset(7))

    assert bench.files("00000000000000000000.log") == []
    assert lent.to_bytes() == before


def test_times_lead_to_the_first_record_at_or_after_them(bench: "Bench") -> None:
    bench.fill(40)

    for timestamp in range(0, 781, 7):
        found = bench.log.offset_for_timestamp(Timestamp(timestamp))

        assert found is not None
        assert found == (-(-timestamp // 20) * 2, -(-timestamp // 20) * 20)
    assert bench.log.offset_for_timestamp(Timestamp(781)) is None
    assert bench.log.max_timestamp == 780


def test_times_that_go_back_are_found_at_their_first_place(bench: "Bench") -> None:
    for timestamp in (50, 90, 20, 10, 95, 40):
        bench.append(at=timestamp)

    answers = [bench.log.offset_for_timestamp(Timestamp(t)) for t in (10, 51, 91, 96)]

    assert [a and a.offset for a in answers] == [0, 1, 4, None]


def test_a_search_by_time_does_not_go_below_the_log_start(bench: "Bench") -> None:
    bench.fill(4)
    bench.log.delete_records(Offset(3))

    found = bench.log.offset_for_timestamp(Timestamp(0))

    assert found == (3, 20)


def test_readers_of_committed_records_get_the_aborted_transactions(bench: "Bench") -> None:
    alice: dict[str, int | bool] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    bob = alice | {"producer_id": 2}
    bench.append(2, base_sequence=0, **alice)
    bench.append(2, base_sequence=0, **bob)
    bench.log.set_high_watermark(bench.log.end)
    undecided = bench.log.last_stable_offset
    bench.end_transaction(1, ControlType.ABORT)
    bench.log.roll()
    bench.append(2, base_sequence=2, **bob)
    bench.end_transaction(2, ControlType.COMMIT)
    bench.log.set_high_watermark(bench.log.end)

    assert undecided == 0
    assert bench.log.last_stable_offset == bench.log.end == 8
    assert bench.log.aborted_between(Offset(0), Offset(8)) == [(1, 0, 4, 2)]
    assert bench.log.aborted_between(Offset(5), Offset(8)) == []


def test_behind_a_transaction_that_was_open_for_long_only_those_of_the_range_are_found(
    bench: "Bench",
) -> None:
    def begin(producer: int, sequence: int = 0) -> None:
        bench.append(1, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)

    begin(1)
    begin(2)
    for short in range(30):
        begin(3, short)
        bench.end_transaction(3, ControlType.ABORT)
        if short == 20:
            bench.end_transaction(2, ControlType.ABORT)
        if short % 8 == 7:
            bench.log.roll()
    bench.end_transaction(1, ControlType.COMMIT)
    bench.append(1)
    rows = bench.log.aborted_between(Offset(0), bench.log.end)
    assert len(rows) == 31
    for start in range(bench.log.end):
        for end in range(start + 1, bench.log.end + 1):
            expected = [row for row in rows if row.last_offset >= start and row.first_offset < end]
            assert bench.log.aborted_between(Offset(start), Offset(end)) == expected


def test_aborted_transactions_are_known_after_a_restart_and_without_their_index(bench: "Bench") -> None:
    for producer in range(4):
        bench.append(2, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        bench.end_transaction(producer, ControlType.ABORT if producer % 2 else ControlType.COMMIT)
        bench.log.roll()
    expected = bench.log.aborted_between(Offset(0), bench.log.end)

    bench.reopen()
    for name in bench.files(".txnindex"):
        bench.flip(name, 3)

    assert [aborted.producer_id for aborted in expected] == [1, 3]
    assert bench.log.aborted_between(Offset(0), bench.log.end) == expected


def test_aborted_transactions_of_large_segments_are_found_again_by_a_thread(bench: "Bench") -> None:
    for producer in range(4):
        bench.append(2, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        bench.end_transaction(producer, ControlType.ABORT if producer % 2 else ControlType.COMMIT)
        bench.log.roll()
    expected = bench.log.aborted_between(Offset(0), bench.log.end)
    bench.reopen()
    # Not even snapshots say where transactions began.
    for name in (*bench.files(".txnindex"), *bench.files(".snapshot")):
        bench.flip(name, 3)
    bench.log.configure(replace(bench.options, rebuild_bytes_max=0))

    for segment in bench.log.segments()[:-1]:
        rebuild = bench.log.index_rebuild(segment.base_offset)
        assert rebuild is not None
        with pytest.raises(SuspectSegment):
            bench.log.aborted_between(segment.base_offset, segment.end_offset)
        assert rebuild.finish(rebuild.work())

    assert bench.log.aborted_between(Offset(0), bench.log.end) == expected
    assert bench.reopen().indexes_rebuilt == 0
    assert bench.log.aborted_between(Offset(0), bench.log.end) == expected


def test_a_damaged_segment_without_its_aborted_transactions_gives_none_to_readers(bench: "Bench") -> None:
    bench.append(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    bench.end_transaction(1, ControlType.ABORT)
    bench.append(2)
    bench.log.roll()
    bench.reopen()
    bench.flip(bench.files(".txnindex")[0], 3)
    bench.flip(bench.files(".log")[0], 70)

    for _ in bench.log.scrub():
        pass

    assert bench.log.corruption
    with pytest.raises(SuspectSegment):
        bench.log.aborted_between(Offset(3), bench.log.end)
