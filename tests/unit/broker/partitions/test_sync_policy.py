"""When records are acknowledged, and when they reach the device, by node mode and topic setting."""

from collections.abc import Callable
from typing import cast
from uuid import UUID

import pytest

from penstock.broker.partitions import FsyncMode, LeaderPartition, Leadership, Replica, SyncPolicy
from penstock.core.model import (
    ApiError,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    PenstockError,
    StorageError,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime import Callback, Runtime, Timer
from penstock.storage.commit import FileSync, SyncRequest
from penstock.storage.disk import CrashableDisk, File
from penstock.storage.log import PartitionLog

TOPIC_ID = TopicId(UUID(int=1))
NAME = TopicPartition(TopicName("orders"), PartitionIndex(0))
NOW = Timestamp(1_700_000_000_000)


class HeldCommit:
    """Group commit whose rounds end when the test says so."""

    def __init__(self) -> None:
        self.requests: list[SyncRequest] = []
        self._to_begin: list[SyncRequest] = []

    def request(self, file: File, done: Callable[[StorageError | None], None]) -> None:
        self.join(FileSync(file, done))

    def join(self, request: SyncRequest) -> None:
        self.requests.append(request)
        self._to_begin.append(request)

    def begin(self) -> None:
        to_begin, self._to_begin = self._to_begin, []
        for request in to_begin:
            request.begin(None)

    def finish(self) -> None:
        self.begin()
        requests, self.requests = self.requests, []
        for request in requests:
            request.file.sync()
            request.finish(None)


class Soon:
    """Timers of which only `soon` is used; it runs when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[Callback] = []

    def soon(self, fire: Callback) -> Timer:
        self._waiting.append(fire)
        return self

    def when_idle(self, fire: Callback) -> None:
        self.soon(fire)

    def at(self, deadline: int, fire: Callback) -> Timer:
        raise AssertionError("nothing here waits for a moment")

    def cancel(self) -> None: ...

    def now(self) -> Instant:
        return Instant(0)

    def turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fire in waiting:
            fire()


class Bench:
    def __init__(self, policy: SyncPolicy) -> None:
        self.commit, self.timers = HeldCommit(), Soon()
        self.clock = self.timers
        log = PartitionLog.create(CrashableDisk(), "log", TOPIC_ID, commit=self.commit)
        replica = Replica(NAME, TOPIC_ID, log, policy)
        runtime = cast(Runtime, self)
        self.partition = LeaderPartition(replica, Leadership.alone(NodeId(1), LeaderEpoch(0)), runtime)
        self.acknowledged: list[int] = []

    def append(self, count: int = 1) -> None:
        batch = write_batch([Record(0, NOW, None, b"x")] * count)
        appended = self.partition.append(batch, check_batches(batch), NOW)
        end = Offset(appended.last_offset + 1)

        def done(error: ApiError | None) -> None:
            if error is None:
                self.acknowledged.append(end)

        if self.partition.when_acknowledged(end, done):
            self.acknowledged.append(end)


def test_mode_every_acknowledges_when_the_sync_has_ended() -> None:
    bench = Bench(SyncPolicy(FsyncMode.EVERY))
    bench.append()
    bench.append()

    assert bench.acknowledged == []
    assert bench.partition.high_watermark == 0

    bench.commit.finish()

    assert bench.acknowledged == [1, 2]
    assert bench.partition.high_watermark == 2


def test_a_round_covers_what_was_appended_until_it_began_and_nothing_later() -> None:
    bench = Bench(SyncPolicy(FsyncMode.EVERY))
    bench.append()
    bench.append()

    assert len(bench.commit.requests) == 1

    bench.commit.begin()
    bench.append()
    bench.commit.requests.pop(0).finish(None)

    assert bench.acknowledged == [1, 2]

    bench.commit.finish()

    assert bench.acknowledged == [1, 2, 3]


def test_a_segment_that_is_rolled_before_the_round_begins_counts_up_to_its_own_end() -> None:
    bench = Bench(SyncPolicy(FsyncMode.EVERY))
    bench.append()

    bench.partition.log.roll()
    bench.append()
    bench.commit.begin()
    bench.commit.requests.pop(0).finish(None)

    assert bench.acknowledged == [1]

    bench.commit.finish()

    assert bench.acknowledged == [1, 2]


@pytest.mark.parametrize("mode", [FsyncMode.INTERVAL, FsyncMode.NONE])
def test_the_other_modes_acknowledge_at_once_and_sync_nothing_by_themselves(mode: FsyncMode) -> None:
    bench = Bench(SyncPolicy(mode))

    bench.append()

    assert bench.acknowledged == [1]
    assert bench.commit.requests == []


def test_a_topic_that_flushes_every_message_waits_for_the_sync_whatever_the_mode() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE, flush_messages=1))
    bench.append()

    assert bench.acknowledged == []

    bench.commit.finish()

    assert bench.acknowledged == [1]


def test_a_topic_that_flushes_every_so_many_messages_syncs_behind_its_acknowledgements() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE, flush_messages=10))

    for _ in range(4):
        bench.append(3)

    assert bench.acknowledged == [3, 6, 9, 12]
    assert len(bench.commit.requests) == 1

    bench.commit.finish()

    assert bench.partition.log.synced == 12


def test_a_sync_behind_is_asked_for_once_per_end() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE))
    bench.append()

    bench.partition.sync_behind()
    bench.partition.sync_behind()

    assert len(bench.commit.requests) == 1


def test_the_high_watermark_does_not_go_back_when_the_policy_becomes_stricter() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE))
    bench.append()

    bench.partition.configure(SyncPolicy(FsyncMode.NONE, flush_messages=1))
    bench.append()

    assert bench.partition.high_watermark == 1
    assert bench.acknowledged == [1]


def test_what_waits_for_a_sync_is_released_when_the_policy_no_longer_asks_for_one() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE, flush_messages=1))
    bench.append()

    bench.partition.configure(SyncPolicy(FsyncMode.NONE))

    assert bench.acknowledged == [1]


def test_watchers_are_notified_once_per_turn_however_much_became_visible() -> None:
    bench = Bench(SyncPolicy(FsyncMode.NONE))
    heard: list[int] = []
    bench.partition.watch(lambda _: heard.append(bench.partition.high_watermark))

    bench.append()
    bench.append()
    bench.timers.turn()

    assert heard == [2]


def test_everyone_who_waits_is_notified_that_a_partition_stopped_and_nothing_is_taken_any_more() -> None:
    bench = Bench(SyncPolicy(FsyncMode.EVERY))
    errors: list[ApiError | None] = []
    bench.append()
    bench.partition.when_acknowledged(Offset(1), errors.append)

    bench.partition.stop("the disk failed")

    assert [str(error) for error in errors] == ["orders/0: the disk failed"]
    with pytest.raises(PenstockError, match="the disk failed"):
        bench.append()
