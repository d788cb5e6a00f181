"""What an append does to the log, and what a failed one does not."""

import errno
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Offset, ProducerId, StorageError, Timestamp, TopicId
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    read_header,
    write_batch,
    write_control_batch,
)
from penstock.storage.disk import DiskFull, FailureRule
from penstock.storage.log import BatchTooLarge, LogOptions, LogStopped, OffsetsNotIncreasing, PartitionLog

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

TOPIC = TopicId(UUID(int=7))


def replica_batch(base_offset: int, count: int = 1, epoch: int = 0) -> bytearray:
    records = [Record(0, 1000, None, b"value", ())] * count
    return write_batch(records, base_offset=base_offset, leader_epoch=epoch)


def append_replica(log: PartitionLog, *batches: bytearray) -> None:
    content = b"".join(batches)
    log.append_replica(content, check_batches(content), Timestamp(1))


def test_offsets_and_epoch_are_stamped_into_the_batches(bench: "Bench") -> None:
    bench.append(3, epoch=4)
    buffer = write_batch([Record(0, 1, None, b"a", ())]) + write_batch([Record(0, 1, None, b"b", ())] * 2)

    appended = bench.log.append(buffer, check_batches(buffer), LeaderEpoch(4), Timestamp(1))

    assert (appended.first_offset, appended.last_offset, appended.size_bytes) == (3, 5, len(buffer))
    assert [(h.base_offset, h.leader_epoch) for h in bench.headers()] == [(0, 4), (3, 4), (4, 4)]
    assert read_header(buffer).base_offset == 3


def test_a_batch_above_the_limit_is_refused_and_nothing_changes(bench: "Bench") -> None:
    bench.options = LogOptions(message_bytes_max=200)
    bench.reopen()

    with pytest.raises(BatchTooLarge):
        bench.append(20)

    assert bench.log.end == 0


def test_headers_that_do_not_describe_the_buffer_are_a_bug_of_the_caller(bench: "Bench") -> None:
    batch = write_batch([Record(0, 1, None, b"a", ())])

    with pytest.raises(ValueError, match="describe"):
        bench.log.append(batch + b"more", check_batches(batch), LeaderEpoch(0), Timestamp(1))

    assert bench.log.size_bytes == 0


def test_a_segment_that_would_grow_too_large_is_followed_by_the_next(bench: "Bench") -> None:
    bench.fill(30)

    assert len(bench.segment_bases()) > 2
    assert all(segment.size_bytes <= 1000 for segment in bench.log.segments())
    assert bench.everything() == list(range(0, 60, 2))


def test_a_segment_that_is_too_old_is_followed_by_the_next(bench: "Bench") -> None:
    bench.append(now=1000)

    bench.append(now=1000 + bench.options.segment_ms)
    bench.append(now=1001 + bench.options.segment_ms)

    assert bench.segment_bases() == [0, 2]


def test_jitter_closes_each_segment_earlier_by_a_time_of_its_own(bench: "Bench") -> None:
    bench.options = LogOptions(segment_ms=10_000, segment_jitter_ms=5_000)
    bench.reopen()

    for now in range(0, 100_000, 10):
        bench.append(now=now)

    starts = [segment.base_offset * 10 for segment in bench.log.segments()]
    ages = [later - earlier for earlier, later in pairwise(starts)]
    assert all(5_000 < age <= 10_010 for age in ages)
    assert len(set(ages)) > len(ages) // 2


def test_an_index_that_is_full_ends_the_segment(bench: "Bench") -> None:
    bench.options = LogOptions(index_interval_bytes=1, index_bytes_max=64)
    bench.reopen()

    bench.fill(20)

    assert len(bench.segment_bases()) > 1
    assert bench.everything() == list(range(0, 40, 2))


def test_followers_keep_the_offsets_of_the_leader_gaps_included(bench: "Bench") -> None:
    append_replica(bench.log, replica_batch(0, 2), replica_batch(5, 2, epoch=1))
    append_replica(bench.log, replica_batch(9, epoch=3))

    assert bench.everything() == [0, 5, 9]
    assert bench.log.end == 10
    assert bench.log.epochs.entries() == ((0, 0), (1, 5), (3, 9))
    assert bench.bases(3) == [5, 9]


def test_gaps_survive_a_crash(bench: "Bench") -> None:
    append_replica(bench.log, replica_batch(0, 2), replica_batch(5, 2))
    bench.sync_now()

    bench.reopen(clean=False)

    assert bench.everything() == [0, 5]
    assert bench.report.cut is None


def test_followers_end_one_transaction_before_the_next_one_that_comes_with_it(bench: "Bench") -> None:
    def written(offset: int, epoch: int) -> bytearray:
        return write_batch(
            [Record(0, 1000, None, b"value", ())],
            base_offset=offset,
            leader_epoch=0,
            producer_id=3,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )

    def ended(offset: int, epoch: int, ending: ControlType) -> bytearray:
        return write_control_batch(ControlRecord(offset, 1000, ending, 3, epoch, 1), leader_epoch=0)

    append_replica(
        bench.log,
        written(0, 0),
        ended(1, 1, ControlType.ABORT),
        written(2, 1),
        ended(3, 2, ControlType.COMMIT),
        written(4, 2),
        ended(5, 3, ControlType.ABORT),
        written(6, 3),
    )

    aborted = bench.log.aborted_between(Offset(0), bench.log.end)
    assert [(one.first_offset, one.last_offset) for one in aborted] == [(0, 1), (4, 5)]
    assert bench.log.producers.transactions.first_offset_of(ProducerId(3)) == 6
    state = bench.log.producers.get(ProducerId(3))
    assert state is not None
    assert state.epoch == 3


def test_a_gap_too_wide_for_one_segment_starts_the_next(bench: "Bench") -> None:
    append_replica(bench.log, replica_batch(0))

    append_replica(bench.log, replica_batch(2**32))
    bench.sync_now()
    bench.reopen(clean=False)

    assert bench.segment_bases() == [0, 2**32]
    assert bench.everything() == [0, 2**32]


@pytest.mark.parametrize(("offset", "epoch"), [(1, 5), (2, 3)])
def test_followers_refuse_steps_back_in_offset_or_epoch(bench: "Bench", offset: int, epoch: int) -> None:
    append_replica(bench.log, replica_batch(0, 2, epoch=4))

    with pytest.raises(OffsetsNotIncreasing):
        append_replica(bench.log, replica_batch(offset, epoch=epoch))

    assert bench.log.end == 2


def test_a_full_disk_leaves_the_log_where_it_was(bench: "Bench") -> None:
    bench.append()
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends=".log"))

    with pytest.raises(DiskFull):
        bench.append()

    assert (bench.log.end, bench.log.stopped) == (1, None)
    bench.append()
    assert bench.everything() == [0, 1]


def test_what_a_failed_append_left_behind_is_cut_off(bench: "Bench") -> None:
    bench.append()
    bench.disk.fail(FailureRule("append", errno.EIO, path_ends=".log", kept_bytes=30))

    with pytest.raises(StorageError):
        bench.append()
    bench.append()

    assert bench.everything() == [0, 1]
    assert bench.log.size_bytes == bench.crashable.size("logs/orders/0/00000000000000000000.log")


def test_a_log_that_cannot_be_cut_back_takes_no_more_writes(bench: "Bench") -> None:
    bench.append()
    bench.disk.fail(FailureRule("append", errno.EIO, path_ends=".log", kept_bytes=30))
    bench.disk.fail(FailureRule("truncate", errno.EIO, path_ends=".log", times=9))

    with pytest.raises(StorageError):
        bench.append()
    bench.disk.heal()

    with pytest.raises(LogStopped):
        bench.append()
    assert bench.bases() == [0]


def test_a_roll_that_fails_is_tried_again(bench: "Bench") -> None:
    bench.fill(4)
    bench.disk.fail(FailureRule("open", errno.ENOSPC, path_ends="00000000000000000008.log"))

    with pytest.raises(DiskFull):
        bench.log.roll()
    bench.log.roll()
    bench.fill(2)

    assert bench.segment_bases() == [0, 8]
    assert bench.everything() == list(range(0, 12, 2))


def test_an_append_is_timed_when_there_is_a_clock(bench: "Bench") -> None:
    ticks = iter(range(0, 10**9, 30_000))
    log = PartitionLog.create(bench.disk, "logs/orders/1", TOPIC, ticks=lambda: next(ticks))
    batch = write_batch([Record(0, 1, None, b"a", ())])

    log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))

    assert (log.stats.appends, log.stats.append_ns, sum(log.stats.append_buckets)) == (1, 30_000, 1)
    assert log.stats.append_buckets[2] == 1


def test_the_bounds_of_an_empty_log(bench: "Bench") -> None:
    log = bench.log

    assert (log.start, log.end, log.synced, log.high_watermark) == (0, 0, 0, 0)
    assert log.read(Offset(0), 100).to_bytes() == b""
    assert (log.size_bytes, log.max_timestamp) == (0, -1)
