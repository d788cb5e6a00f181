"""What is done for logs by timers: the syncs of mode `interval`, and of topics that set `flush.ms`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest

from penstock.broker.partitions import (
    FsyncMode,
    LeaderPartition,
    Leadership,
    LogMaintenanceOptions,
    PartitionStopped,
    Replica,
    SyncPolicy,
)
from penstock.broker.partitions.log_maintenance import LogMaintenance
from penstock.core.model import (
    MILLISECOND,
    Instant,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    StorageError,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime import Callback, Runtime, Timer
from penstock.storage.commit import Begins
from penstock.storage.disk import CrashableDisk, DiskFailed, File
from penstock.storage.log import LogOptions, PartitionLog

NOW = Timestamp(1_700_000_000_000)
TOPIC_ID = TopicId(UUID(int=1))
NAME = TopicPartition(TopicName("orders"), PartitionIndex(0))


@dataclass
class Alarm:
    deadline: int
    fire: Callback
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Time:
    """A clock and timers that go on when the test says so."""

    moment: int = 0
    alarms: list[Alarm] = field(default_factory=list)

    def now(self) -> Instant:
        return Instant(self.moment)

    def wall(self) -> Timestamp:
        return NOW

    def at(self, deadline: Instant, fire: Callback) -> Timer:
        self.alarms.append(Alarm(deadline, fire))
        return self.alarms[-1]

    def soon(self, fire: Callback) -> Timer:
        return self.at(Instant(self.moment), fire)

    def when_idle(self, fire: Callback) -> None:
        self.soon(fire)

    def pass_ms(self, milliseconds: int) -> None:
        end = self.moment + milliseconds * MILLISECOND
        while due := [a for a in self.alarms if a.deadline <= end and not a.cancelled]:
            first = min(due, key=lambda alarm: alarm.deadline)
            self.alarms.remove(first)
            self.moment = max(self.moment, first.deadline)
            first.fire()
        self.moment = end


class Commit:
    """Group commit whose rounds end at once, well or badly."""

    def __init__(self) -> None:
        self.failure: StorageError | None = None
        self.requests = 0

    def request(
        self, file: File, done: Callable[[StorageError | None], None], begins: Begins | None = None
    ) -> None:
        self.requests += 1
        if begins is not None:
            begins(None)
        done(self.failure)


class Bench:
    def __init__(self, options: LogMaintenanceOptions, policy: SyncPolicy) -> None:
        self.time, self.commit = Time(), Commit()
        self.runtime = cast(Runtime, _Clocks(self.time, self.time))
        log = PartitionLog.create(CrashableDisk(), "log", TOPIC_ID, commit=self.commit)
        self.replicas: list[Replica] = []
        self.partition = self.lead(NAME, log, policy)
        self.maintenance = LogMaintenance(self.runtime, lambda: self.replicas, options)
        self.maintenance.start()

    def lead(self, name: TopicPartition, log: PartitionLog, policy: SyncPolicy) -> LeaderPartition:
        replica = Replica(name, TOPIC_ID, log, policy)
        partition = LeaderPartition(replica, Leadership.alone(NodeId(1), LeaderEpoch(0)), self.runtime)
        replica.role = partition
        self.replicas.append(replica)
        return partition

    def append(self) -> None:
        batch = write_batch([Record(0, NOW, None, b"x")])
        self.partition.append(batch, check_batches(batch), NOW)


@dataclass(frozen=True)
class _Clocks:
    """As much of a runtime as housekeeping uses."""

    clock: Time
    timers: Time


INTERVAL = LogMaintenanceOptions(FsyncMode.INTERVAL, fsync_interval_ms=300)


def test_mode_interval_syncs_what_was_appended_once_per_interval() -> None:
    bench = Bench(INTERVAL, SyncPolicy(FsyncMode.INTERVAL))
    bench.append()
    bench.append()

    bench.time.pass_ms(299)
    assert bench.partition.log.synced == 0

    bench.time.pass_ms(1)
    assert bench.partition.log.synced == 2

    bench.time.pass_ms(600)
    assert bench.commit.requests == 1


def test_a_sync_that_fails_in_the_background_stops_the_partition() -> None:
    bench = Bench(INTERVAL, SyncPolicy(FsyncMode.INTERVAL))
    bench.append()
    bench.commit.failure = DiskFailed("sync", "log", 5)

    bench.time.pass_ms(300)

    assert bench.partition.stopped is not None
    with pytest.raises(PartitionStopped):
        bench.append()


def test_a_topic_with_flush_ms_is_synced_although_the_node_does_not() -> None:
    bench = Bench(LogMaintenanceOptions(FsyncMode.NONE), SyncPolicy(FsyncMode.NONE, flush_ms=2_000))
    bench.append()

    bench.time.pass_ms(2_000)
    assert bench.partition.log.synced == 0

    bench.time.pass_ms(2_000)
    assert bench.partition.log.synced == 1


def test_a_stopped_housekeeping_does_nothing_more() -> None:
    bench = Bench(INTERVAL, SyncPolicy(FsyncMode.INTERVAL))
    bench.append()

    bench.maintenance.stop()
    bench.time.pass_ms(10_000)

    assert bench.partition.log.synced == 0


def test_logs_are_expired_one_per_turn_of_the_loop() -> None:
    bench = Bench(LogMaintenanceOptions(FsyncMode.NONE), SyncPolicy(FsyncMode.NONE))
    options = LogOptions(retention_ms=1_000)
    for index in range(3):
        name = TopicPartition(TopicName("old"), PartitionIndex(index))
        log = PartitionLog.create(CrashableDisk(), "log", TOPIC_ID, options, commit=bench.commit)
        old = bench.lead(name, log, SyncPolicy(FsyncMode.NONE))
        batch = write_batch([Record(0, NOW - 60_000, None, b"x")])
        old.append(batch, check_batches(batch), NOW)

    bench.maintenance.enforce_retention()
    at_once = [partition.log.start for partition in bench.replicas]
    bench.time.pass_ms(0)

    assert at_once == [0, 1, 0, 0]
    assert [partition.log.start for partition in bench.replicas] == [0, 1, 1, 1]
