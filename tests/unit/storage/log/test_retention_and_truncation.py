"""Retention, delete-records and truncation."""

import errno
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import LeaderEpoch, Offset, StorageError, Timestamp
from penstock.core.records import ControlType, check_batches
from penstock.core.replica import ACCEPTED, DuplicateBatch
from penstock.storage.disk import FailingDisk, FailureRule
from penstock.storage.log import LogOptions, LogStopped, OffsetOutOfRange

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

DAY_MS = 86_400_000


def expire(bench: "Bench", now: int, high_watermark: int | None = None) -> list[int]:
    bench.log.set_high_watermark(bench.log.end if high_watermark is None else Offset(high_watermark))
    return [removed.base_offset for removed in bench.log.expire(Timestamp(now))]


def three_segments(bench: "Bench") -> None:
    """Segments at 0, 4 and 8, with timestamps 0 to 30, 40 to 70 and 80 to 110."""
    for _ in range(2):
        bench.fill(2)
        bench.log.roll()
    bench.fill(2)


def with_retention(bench: "Bench", ms: int = -1, size: int = -1) -> None:
    bench.options = LogOptions(segment_bytes=1000, retention_ms=ms, retention_bytes=size)
    bench.reopen()


def test_segments_whose_newest_record_is_too_old_are_deleted(bench: "Bench") -> None:
    three_segments(bench)
    with_retention(bench, ms=100)

    assert expire(bench, now=120) == []
    assert expire(bench, now=121) == [0]

    assert bench.log.start == 4
    assert bench.everything() == [4, 6, 8, 10]
    assert bench.files("00000000000000000000.log") == []


def test_a_quiet_log_does_not_keep_its_last_records_for_ever(bench: "Bench") -> None:
    three_segments(bench)
    with_retention(bench, ms=100)

    assert expire(bench, now=10_000) == [0, 4, 8]

    assert (bench.log.start, bench.log.end) == (12, 12)
    assert bench.append().first_offset == 12


def test_the_oldest_segments_go_when_the_log_is_too_large(bench: "Bench") -> None:
    three_segments(bench)
    size = bench.log.size_bytes // 3
    with_retention(bench, size=2 * size)

    assert expire(bench, now=0) == [0]
    assert bench.log.size_bytes == 2 * size


def test_records_above_the_high_watermark_are_never_expired(bench: "Bench") -> None:
    three_segments(bench)
    with_retention(bench, ms=1)

    assert expire(bench, now=10 * DAY_MS, high_watermark=7) == [0]


def test_a_negative_retention_keeps_everything(bench: "Bench") -> None:
    three_segments(bench)
    with_retention(bench)

    assert expire(bench, now=1000 * DAY_MS) == []


def test_deleted_records_stay_deleted_after_a_restart(bench: "Bench") -> None:
    three_segments(bench)

    start = bench.log.delete_records(Offset(6))
    bench.reopen(clean=False)

    assert (start, bench.log.start) == (6, 6)
    assert bench.segment_bases() == [4, 8]


def test_what_was_deleted_was_committed_which_a_restart_does_not_forget(bench: "Bench") -> None:
    bench.fill(4)
    bench.checkpoint()
    bench.log.set_high_watermark(Offset(6))

    bench.log.delete_records(Offset(5))
    bench.reopen(clean=False)

    assert (bench.log.start, bench.log.high_watermark) == (5, 5)


def test_deleting_beyond_the_end_is_refused_and_below_the_start_does_nothing(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.delete_records(Offset(5))

    with pytest.raises(OffsetOutOfRange):
        bench.log.delete_records(Offset(13))

    assert bench.log.delete_records(Offset(2)) == 5


def test_a_start_that_is_raised_without_blocking_counts_when_it_is_durable(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.advance_start(Offset(6), bench.answers.append)

    while bench.rounds.waiting:
        assert (bench.log.start, bench.answers) == (0, [])
        assert bench.segment_bases() == [0, 4, 8]
        bench.rounds.finish()

    assert (bench.log.start, bench.answers) == (6, [None])
    assert bench.segment_bases() == [4, 8]
    bench.reopen(clean=False)
    assert (bench.log.start, bench.everything()) == (6, [6, 8, 10])


def test_starts_that_are_asked_for_while_one_is_raised_are_raised_together(bench: "Bench") -> None:
    three_segments(bench)
    before = bench.log.stats.checkpoints

    for start in (1, 3, 2, 7, 5):
        bench.log.advance_start(Offset(start), bench.answers.append)
    bench.rounds.finish_all()

    assert bench.answers == [None] * 5
    assert bench.log.start == 7
    assert bench.log.stats.checkpoints - before <= 2


def test_a_checkpoint_that_was_under_way_does_not_bring_a_start_back(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.checkpoint()

    bench.log.advance_start(Offset(6), bench.answers.append)
    bench.rounds.finish_all()
    bench.reopen(clean=False)

    assert bench.answers == [None]
    assert bench.log.start == 6


def test_a_start_that_is_raised_leaves_the_segment_that_its_checkpoint_names(bench: "Bench") -> None:
    bench.fill(2)
    bench.checkpoint()
    bench.fill(1)
    bench.log.set_high_watermark(bench.log.end)
    bench.log.advance_start(Offset(6), bench.answers.append)
    # Behind the checkpoint that says where the log will start.
    bench.log.roll()
    bench.fill(1)
    bench.rounds.finish_all()
    assert bench.log.start == 6

    bench.crashable = bench.crashable.crash(random.Random(1))
    bench.disk = FailingDisk(bench.crashable)
    bench.reopen(clean=False)

    assert bench.report.corruption == ()
    assert bench.log.start == 6


def test_a_start_beyond_the_end_is_refused_and_one_below_the_start_is_there_already(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.delete_records(Offset(5))

    with pytest.raises(OffsetOutOfRange):
        bench.log.advance_start(Offset(13), bench.answers.append)
    bench.log.advance_start(Offset(2), bench.answers.append)

    assert bench.answers == [None]
    assert bench.log.start == 5


def test_a_start_that_is_being_raised_is_given_up_with_the_records_above_it(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.advance_start(Offset(6), bench.answers.append)

    bench.log.truncate_to(Offset(4))
    bench.rounds.finish_all()

    (answer,) = bench.answers
    assert isinstance(answer, StorageError)
    assert (bench.log.start, bench.log.end) == (0, 4)
    bench.reopen()
    assert bench.everything() == [0, 2]


def test_a_start_is_not_raised_by_a_checkpoint_that_fails(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.advance_start(Offset(6), bench.answers.append)

    bench.rounds.finish(OSError(errno.EIO, "device error"))
    bench.rounds.finish_all()

    (answer,) = bench.answers
    assert isinstance(answer, StorageError)
    assert bench.log.start == 0


def test_a_start_is_raised_on_a_full_disk(bench: "Bench") -> None:
    three_segments(bench)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends="checkpoint.1.tmp"))

    bench.log.advance_start(Offset(6), bench.answers.append)
    bench.rounds.finish_all()

    assert (bench.answers, bench.log.start) == ([None], 6)


def test_epochs_below_the_log_start_are_forgotten(bench: "Bench") -> None:
    for epoch in range(3):
        bench.append(epoch=epoch)
        bench.log.roll()

    bench.log.delete_records(Offset(2))

    assert bench.log.epochs.entries() == ((2, 2),)


def test_truncation_cuts_whole_batches(bench: "Bench") -> None:
    bench.fill(4, count=3)

    assert bench.log.truncate_to(Offset(7)) == 6

    assert (bench.log.end, bench.log.synced, bench.everything()) == (6, 6, [0, 3])
    assert bench.append().first_offset == 6


def test_truncation_at_or_beyond_the_end_does_nothing(bench: "Bench") -> None:
    bench.fill(2)

    assert bench.log.truncate_to(Offset(4)) == 4
    assert bench.log.truncate_to(Offset(9)) == 4
    assert bench.log.stats.truncations == 0


def test_truncation_removes_later_segments_and_makes_an_earlier_one_grow_again(bench: "Bench") -> None:
    three_segments(bench)

    bench.log.truncate_to(Offset(6))
    bench.fill(20)
    bench.reopen(clean=False)

    assert bench.everything() == list(range(0, 46, 2))
    found = bench.log.offset_for_timestamp(Timestamp(61))
    assert found is not None
    assert found.offset == 8


def test_truncation_takes_epochs_times_and_the_high_watermark_with_it(bench: "Bench") -> None:
    for epoch in range(4):
        bench.append(2, at=100 * epoch, epoch=epoch)
    bench.log.set_high_watermark(Offset(8))

    bench.log.truncate_to(Offset(4))

    assert bench.log.epochs.entries() == ((0, 0), (1, 2))
    assert bench.log.max_timestamp == 100
    assert bench.log.high_watermark == 4
    assert bench.log.end_offset_for(LeaderEpoch(1)) == (1, 4)


def test_times_of_what_was_cut_off_do_not_mislead_a_search(bench: "Bench") -> None:
    bench.fill(10)
    bench.log.truncate_to(Offset(4))
    bench.append(2, at=500)
    for _ in range(7):
        bench.append(2, at=100)

    found = bench.log.offset_for_timestamp(Timestamp(181))

    assert found is not None
    assert found.offset == 4


def test_truncation_gives_producers_and_transactions_back_their_earlier_state(bench: "Bench") -> None:
    alice: dict[str, int | bool] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    bench.append(2, base_sequence=0, **alice)
    first = bench.headers(0, max_bytes=1)[0]
    bench.log.roll()
    bench.append(2, base_sequence=2, **alice)
    second = bench.headers(2, max_bytes=1)[0]
    bench.end_transaction(1, ControlType.ABORT)

    bench.log.truncate_to(Offset(2))

    assert isinstance(bench.log.producers.check(first), DuplicateBatch)
    assert bench.log.producers.check(second) == ACCEPTED
    assert bench.log.producers.transactions.ongoing() == [(1, 0)]
    assert bench.log.aborted_between(Offset(0), Offset(9)) == []


def test_a_log_can_start_anew_anywhere(bench: "Bench") -> None:
    three_segments(bench)

    bench.log.truncate_fully(Offset(1000))
    bench.fill(1)
    bench.reopen(clean=False)

    assert (bench.log.start, bench.log.end) == (1000, 1002)
    assert bench.segment_bases() == [1000]
    assert bench.everything() == [1000]


def test_a_truncation_that_fails_stops_the_log(bench: "Bench") -> None:
    three_segments(bench)
    bench.disk.fail(FailureRule("sync_directory", errno.EIO))

    with pytest.raises(StorageError):
        bench.log.truncate_to(Offset(6))
    bench.disk.heal()

    with pytest.raises(LogStopped):
        bench.append()


def test_the_disk_being_full_does_not_let_anything_expire_half(bench: "Bench") -> None:
    three_segments(bench)
    with_retention(bench, ms=100)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends="checkpoint.tmp", times=2))

    with pytest.raises(StorageError):
        expire(bench, now=121)

    assert bench.bases(4) == [4, 6]
    assert expire(bench, now=121) == [0]


def expiring_segments(bench: "Bench", count: int) -> None:
    """So many closed segments, all of them too old."""
    for _ in range(count):
        bench.append()
        bench.log.roll()
    bench.sync_now()
    bench.log.set_high_watermark(bench.log.end)
    bench.log.configure(replace(bench.options, retention_ms=0))


def test_many_segments_that_expire_together_go_a_few_at_a_time(bench: "Bench") -> None:
    expiring_segments(bench, 40)
    before = bench.log.stats.checkpoints

    counts = []
    while deleted := bench.log.expire(Timestamp(10**12), 3):
        counts.append(len(deleted))

    assert sum(counts) == 40
    assert max(counts) == 3
    assert bench.log.start == bench.log.end
    # One checkpoint for several portions: each has to be durable before a file goes.
    assert bench.log.stats.checkpoints - before < len(counts) / 4


def test_segments_that_are_left_below_the_log_start_go_after_a_restart(bench: "Bench") -> None:
    expiring_segments(bench, 10)
    bench.log.expire(Timestamp(10**12), 1)
    start = bench.log.start
    assert bench.segment_bases()[0] < start

    bench.reopen(clean=False)

    assert bench.log.start == start
    assert bench.segment_bases()[0] == start


def test_files_that_others_remove_bear_names_that_no_log_will_use_again(bench: "Bench") -> None:
    three_segments(bench)
    doomed: list[str] = []
    bench.log.set_file_remover(lambda paths, _delay_ms: doomed.extend(paths))

    bench.log.delete_records(Offset(9))
    left = set(bench.disk.listdir(bench.log.directory))

    assert len(doomed) >= 2
    assert all(path.endswith(".deleted") for path in doomed)
    assert {path.rpartition("/")[2] for path in doomed} <= left
    assert [name for name in sorted(left) if name.endswith(".log")] == [f"{8:020d}.log"]


def test_files_that_nobody_came_to_remove_go_when_the_log_is_opened(bench: "Bench") -> None:
    three_segments(bench)
    bench.log.set_file_remover(lambda _paths, _delay_ms: None)
    bench.log.delete_records(Offset(9))

    bench.reopen()

    assert [name for name in bench.disk.listdir(bench.log.directory) if ".deleted" in name] == []
    assert bench.log.start == 9


def test_what_will_be_cut_can_be_kept_in_the_quarantine(bench: "Bench") -> None:
    three_segments(bench)
    sizes = [segment.size_bytes for segment in bench.log.segments()]

    kept = bench.log.tail_copy(Offset(6), 1 << 20).work(bench.disk)

    assert (kept.kept_bytes, kept.size_bytes) == (sizes[1] // 2 + sizes[2],) * 2
    copies = [f"{6:020d}.cut", f"{8:020d}.cut"]
    assert kept.path == f"{bench.log.directory}/quarantine/{copies[0]}"
    cut = [bench.disk.open(f"{bench.log.directory}/quarantine/{name}", readonly=True) for name in copies]
    assert [copy.size() for copy in cut] == [sizes[1] // 2, sizes[2]]
    headers = check_batches(memoryview(cut[0].pread(0, cut[0].size())))
    assert [header.base_offset for header in headers] == [6]
    assert bench.everything() == [0, 2, 4, 6, 8, 10]


def test_what_is_kept_has_a_bound(bench: "Bench") -> None:
    three_segments(bench)
    sizes = [segment.size_bytes for segment in bench.log.segments()]

    kept = bench.log.tail_copy(Offset(0), sizes[0] + 10).work(bench.disk)

    assert (kept.kept_bytes, kept.size_bytes) == (sizes[0] + 10, sum(sizes))


def test_a_full_disk_keeps_nothing_and_says_so(bench: "Bench") -> None:
    three_segments(bench)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends=".cut", times=3))

    kept = bench.log.tail_copy(Offset(0), 1 << 20).work(bench.disk)

    assert (kept.path, kept.kept_bytes) == (None, 0)
