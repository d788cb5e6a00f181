"""Logs of new partitions are made a few at a time, with one callback for each request."""

from collections import Counter
from collections.abc import Callable
from random import Random  # noqa: TID251 - seeded: which unsynced writes survive
from typing import Any
from uuid import UUID

from penstock.broker.partitions.log_manager import (
    CREATIONS_AT_ONCE,
    LOGS_PER_CREATION,
    LogCreation,
    LogCreator,
)
from penstock.core.model import PartitionIndex, TopicId
from penstock.runtime import ExecutorKind, Job
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal import NO_POSITION
from penstock.storage.log import LogOptions, PartitionLog


class Nothing:
    def cancel(self) -> None:
        """Work that is held is never cancelled here."""


class HeldSpawn:
    """Runs work when the test says so."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Exception], None]]] = []

    def spawn(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> Job:
        self.held.append((work, done, failed))
        return Nothing()

    def run_one(self) -> None:
        work, done, failed = self.held.pop(0)
        try:
            result = work()
        except Exception as error:
            failed(error)
        else:
            done(result)


class SyncCountingDisk(CrashableDisk):
    """Counts how often each directory is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: Counter[str] = Counter()

    def sync_directory(self, path: str) -> None:
        self.synced[path] += 1
        super().sync_directory(path)


def order(number: int, told: list[str], topic: int = 1, *, is_wanted: bool = True) -> LogCreation:
    return LogCreation(
        f"logs/orders/{number}",
        TopicId(UUID(int=topic)),
        PartitionIndex(number),
        LogOptions(),
        NO_POSITION,
        lambda position: told.append(f"made {number}"),
        lambda error: told.append(f"failed {number}"),
        lambda: is_wanted,
    )


def test_however_many_logs_are_asked_for_only_some_are_under_way() -> None:
    spawn, told = HeldSpawn(), list[str]()
    maker = LogCreator(spawn, CrashableDisk())

    most, logs = 0, 5 * CREATIONS_AT_ONCE * LOGS_PER_CREATION
    for number in range(logs):
        maker.create(order(number, told))
    while spawn.held:
        most = max(most, len(spawn.held))
        spawn.run_one()

    assert most == CREATIONS_AT_ONCE
    assert told == [f"made {number}" for number in range(logs)]


def test_a_topic_with_one_partition_does_not_wait_for_another_with_hundreds() -> None:
    spawn, told = HeldSpawn(), list[str]()
    maker = LogCreator(spawn, CrashableDisk())

    for number in range(200):
        maker.create(order(number, told))
    maker.create(order(1_000, told, topic=2))
    while spawn.held:
        spawn.run_one()

    assert len(told) == 201
    # Behind what was under way.
    assert told.index("made 1000") <= 2 * CREATIONS_AT_ONCE * LOGS_PER_CREATION


def test_logs_of_topics_that_are_gone_are_not_made() -> None:
    spawn, told, disk = HeldSpawn(), list[str](), CrashableDisk()
    maker = LogCreator(spawn, disk)

    for number in range(200):
        maker.create(order(number, told, is_wanted=False))
    maker.create(order(1_000, told, topic=2))
    pieces = 0
    while spawn.held:
        spawn.run_one()
        pieces += 1

    assert sorted(told) == sorted([*(f"failed {number}" for number in range(200)), "made 1000"])
    assert disk.listdir("logs/orders") == ["1000"]
    assert pieces < 10


def test_logs_of_one_piece_of_work_share_the_syncs_of_the_directories_above() -> None:
    spawn, told, disk = HeldSpawn(), list[str](), SyncCountingDisk()
    maker = LogCreator(spawn, disk)

    # The first ones occupy the executor, one by one; what comes meanwhile is done together.
    logs = CREATIONS_AT_ONCE + LOGS_PER_CREATION
    for number in range(logs):
        maker.create(order(number, told))
    while spawn.held:
        spawn.run_one()

    assert len(told) == logs
    assert disk.synced["logs/orders"] == CREATIONS_AT_ONCE + 1
    assert disk.synced[f"logs/orders/{logs - 1}"] > 0


def test_logs_survive_a_power_cut_once_they_are_created() -> None:
    spawn, told, disk = HeldSpawn(), list[str](), CrashableDisk()
    maker = LogCreator(spawn, disk)

    for number in range(CREATIONS_AT_ONCE + LOGS_PER_CREATION):
        maker.create(order(number, told))
    while spawn.held:
        spawn.run_one()
    disk = disk.crash(Random(1))

    for number in range(CREATIONS_AT_ONCE + LOGS_PER_CREATION):
        log, report = PartitionLog.open(disk, f"logs/orders/{number}", TopicId(UUID(int=1)))
        assert (log.end, report.was_clean) == (0, True)


def test_a_log_that_cannot_be_made_does_not_hold_up_the_others() -> None:
    spawn, told = HeldSpawn(), list[str]()
    maker = LogCreator(spawn, CrashableDisk())

    maker.create(order(1, told))
    maker.create(order(1, told))
    maker.create(order(2, told))
    while spawn.held:
        spawn.run_one()

    assert told == ["made 1", "failed 1", "made 2"]
