"""Logs of new partitions are made a few at a time, with one callback for each request."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.broker.partitions.log_manager import AT_ONCE, LogCreation, LogCreator
from penstock.core.model import PartitionIndex, TopicId
from penstock.runtime import ExecutorKind, Job
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal import NO_POSITION
from penstock.storage.log import LogOptions


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


def order(number: int, told: list[str]) -> LogCreation:
    return LogCreation(
        f"logs/orders/{number}",
        TopicId(UUID(int=1)),
        PartitionIndex(number),
        LogOptions(),
        NO_POSITION,
        lambda: told.append(f"made {number}"),
        lambda error: told.append(f"failed {number}"),
    )


def test_however_many_logs_are_asked_for_only_some_are_under_way() -> None:
    spawn, told = HeldSpawn(), list[str]()
    maker = LogCreator(spawn, CrashableDisk())

    most = 0
    for number in range(3 * AT_ONCE):
        maker.create(order(number, told))
    while spawn.held:
        most = max(most, len(spawn.held))
        spawn.run_one()

    assert most == AT_ONCE
    assert told == [f"made {number}" for number in range(3 * AT_ONCE)]


def test_a_log_that_cannot_be_made_does_not_hold_up_the_others() -> None:
    spawn, told = HeldSpawn(), list[str]()
    maker = LogCreator(spawn, CrashableDisk())

    maker.create(order(1, told))
    maker.create(order(1, told))
    maker.create(order(2, told))
    while spawn.held:
        spawn.run_one()

    assert told == ["made 1", "failed 1", "made 2"]
