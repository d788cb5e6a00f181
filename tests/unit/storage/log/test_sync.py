"""What is called durable, and when."""

import errno
import os
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.model import Instant, LeaderEpoch, Offset, StorageError, TopicId
from penstock.core.replica import EpochStart
from penstock.storage.disk import FailureRule
from penstock.storage.log import LogStopped, PartitionLog

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

SECOND_NS = 1_000_000_000
TOPIC = TopicId(UUID(int=7))


def test_synced_moves_when_the_sync_that_began_after_the_append_is_done(bench: "Bench") -> None:
    bench.append()
    bench.sync()
    bench.append()

    assert bench.log.synced == 0
    bench.rounds.finish()

    assert (bench.log.synced, bench.answers) == (1, [None])


def test_requests_that_wait_share_a_round(bench: "Bench") -> None:
    bench.append()
    bench.sync()
    for _ in range(3):
        bench.append()
        bench.sync()

    bench.rounds.finish()
    bench.rounds.finish()

    assert (bench.log.synced, bench.answers, bench.rounds.waiting) == (4, [None] * 4, [])


def test_a_failed_sync_stops_the_log_for_good(bench: "Bench") -> None:
    bench.append()
    bench.sync()

    bench.rounds.finish(OSError(errno.EIO, os.strerror(errno.EIO)))

    assert bench.log.synced == 0
    assert isinstance(bench.answers[0], LogStopped)
    with pytest.raises(LogStopped):
        bench.append()
    bench.sync()
    assert isinstance(bench.answers[1], LogStopped)


def test_the_full_segment_is_synced_before_the_next_one_counts(bench: "Bench") -> None:
    bench.append()
    bench.log.roll()
    bench.append()
    bench.sync()

    bench.rounds.finish_all()

    assert bench.log.synced == 2
    survivor = bench.crashable.crash(_NothingUnsynced())
    log, report = PartitionLog.open(survivor, bench.log.directory, TOPIC, bench.options)
    assert (log.end, report.corruption) == (2, ())


def test_a_full_segment_that_cannot_be_synced_stops_the_log(bench: "Bench") -> None:
    bench.append()
    bench.log.roll()
    bench.append()
    bench.sync()

    bench.rounds.finish(OSError(errno.EIO, os.strerror(errno.EIO)))
    bench.rounds.finish_all()

    assert bench.log.synced == 0
    assert bench.log.stopped is not None
    assert isinstance(bench.answers[0], LogStopped)


def test_a_sync_that_was_asked_for_before_a_truncation_says_nothing_about_what_came_after(
    bench: "Bench",
) -> None:
    bench.fill(3)
    bench.sync()
    bench.log.truncate_to(Offset(2))
    bench.fill(3)

    bench.rounds.finish()

    assert (bench.log.synced, bench.log.end) == (2, 8)


def test_a_log_may_be_removed_while_a_round_that_it_shares_is_gathering(bench: "Bench") -> None:
    bench.append()
    bench.log.sync_shared(bench.answers.append)
    bench.append()
    bench.log.sync_shared(bench.answers.append)

    bench.log.abandon()
    bench.rounds.finish_all()

    assert [type(answer) for answer in bench.answers] == [LogStopped, LogStopped]


def test_a_log_that_is_removed_is_not_synced_for_that(bench: "Bench") -> None:
    bench.append()
    bench.log.sync(bench.answers.append)
    bench.log.abandon()

    asked_before, synced = list(bench.rounds.waiting[0][0]), list[object]()
    while bench.rounds.waiting:
        synced += bench.rounds.waiting[0][0]
        bench.rounds.finish()

    # Until the sync that was asked for before has ended, its file is open.
    assert [type(answer) for answer in bench.answers] == [LogStopped]
    assert synced == asked_before


def test_a_checkpoint_is_due_after_enough_bytes_or_enough_time(bench: "Bench") -> None:
    now = Instant(5 * SECOND_NS)
    assert not bench.log.maybe_checkpoint(now)

    bench.append()
    assert not bench.log.maybe_checkpoint(now)
    assert not bench.log.maybe_checkpoint(Instant(now + 7 * SECOND_NS))
    assert bench.log.maybe_checkpoint(Instant(now + 10 * SECOND_NS))
    bench.rounds.finish_all()

    assert bench.log.stats.checkpoints == 2
    assert not bench.log.maybe_checkpoint(Instant(now + 60 * SECOND_NS))


def test_a_checkpoint_is_in_place_only_after_what_it_speaks_of_is_durable(bench: "Bench") -> None:
    bench.fill(2)
    bench.log.checkpoint()

    assert bench.log.synced == 0
    bench.reopen(clean=False)

    assert bench.report.recovery_point == 0


def test_what_follows_a_checkpoint_is_all_that_a_start_reads(bench: "Bench") -> None:
    bench.fill(20)
    bench.checkpoint()
    before = bench.log.size_bytes
    bench.fill(2)
    tail = bench.log.size_bytes - before

    report = bench.reopen(clean=False)

    assert (report.recovery_point, report.end) == (40, 44)
    assert (report.bytes_read, report.batches_read) == (tail, 2)


def test_a_checkpoint_that_is_overtaken_by_a_truncation_leaves_no_trace(bench: "Bench") -> None:
    bench.fill(6)
    bench.log.checkpoint(bench.answers.append)

    bench.log.truncate_to(Offset(4))
    bench.rounds.finish_all()
    report = bench.reopen(clean=False)

    assert (report.recovery_point, report.end) == (4, 4)
    assert bench.files(".tmp") == []


def test_a_full_disk_delays_a_checkpoint_and_nothing_else(bench: "Bench") -> None:
    bench.fill(2)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends=".tmp"))

    bench.checkpoint()
    bench.fill(1)
    bench.checkpoint()

    assert [answer is None for answer in bench.answers] == [False, True]
    assert bench.log.stopped is None


def test_epochs_and_their_ends_survive_a_restart(bench: "Bench") -> None:
    bench.append(epoch=1)
    bench.append(epoch=1)
    bench.append(epoch=4)

    bench.reopen(clean=False)

    assert bench.log.epochs.entries() == ((1, 0), (4, 2))
    assert bench.log.end_offset_for(LeaderEpoch(2)) == EpochStart(LeaderEpoch(1), Offset(2))


class _NothingUnsynced(Random):
    """The worst luck: of what was not synced, nothing arrives."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


def test_a_shared_sync_is_reported_though_somebody_else_asked_for_a_sync_before(bench: "Bench") -> None:
    others: list[StorageError | None] = []
    bench.log.checkpoint()
    bench.append()
    bench.log.sync(others.append)
    bench.log.sync_shared(bench.answers.append)

    bench.rounds.finish_all()

    assert others == bench.answers == [None]


def test_a_checkpoint_under_way_does_not_touch_a_log_that_is_made_in_place_of_a_removed_one(
    bench: "Bench",
) -> None:
    bench.append()
    bench.log.checkpoint()
    for _ in range(2):
        bench.rounds.finish()
    bench.log.abandon()
    bench.disk.remove_tree(bench.log.directory)
    PartitionLog.create(bench.disk, bench.log.directory, TOPIC, bench.options)

    bench.rounds.finish_all()

    log, report = PartitionLog.open(bench.disk, bench.log.directory, TOPIC, bench.options)
    assert (report.recovery_point, log.end) == (0, 0)
