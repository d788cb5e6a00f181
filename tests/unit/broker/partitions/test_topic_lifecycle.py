"""Logs follow the metadata: topics that come, go, and come again under the same name."""

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic, DeletedTopic
from penstock.core.model import MILLISECOND, SECOND, ApiError, NodeId
from penstock.core.records import Record, check_batches, write_batch
from penstock.node import NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Callback, Executor, ExecutorFull, ExecutorKind, Job, Runtime, Service
from penstock.server.kafka.backend import Backend
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk, FailureRule
from tests.support.recorded_events import recorded_events

PARTITIONS = 20
T = TypeVar("T")


class LimitedExecutor:
    """An executor with room for so many jobs at a time."""

    def __init__(self, executor: Executor, soon: Callable[[Callback], object], jobs_max: int) -> None:
        self._executor = executor
        self._soon = soon
        self._room = jobs_max

    def spawn(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> Job | None:
        if not self._room:
            self._soon(lambda: failed(ExecutorFull("there is no room")))
            return None
        self._room -= 1

        def ended(tell: Callable[[Any], None], outcome: Any) -> None:
            self._room += 1
            tell(outcome)

        return self._executor.spawn(work, partial(ended, done), partial(ended, failed), lane)


class Bench:
    """One node without listeners, whose workers take long."""

    def __init__(self) -> None:
        self.world = World(3)
        self.backend: Backend
        self._runtime: Runtime
        self.node = self.world.add("node", self._program)
        self.node.start()
        self.world.run(5 * SECOND)

    def _program(self, runtime: Runtime, disk: Disk) -> Service:
        executor = LimitedExecutor(runtime.spawn, runtime.timers.soon, 40)
        self._runtime = runtime = replace(runtime, spawn=executor)  # type: ignore[arg-type]
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)))
        self._backstage = NodeServices(
            runtime, storage, NodeOptions("data", NodeId(1), (), retention_check_ms=1_000), ()
        )
        self._backstage.start(self._ready)
        return self

    def _ready(self, backend: Backend) -> None:
        self.backend = backend

    def stop(self, done: Callback) -> None:
        self._backstage.close()
        done()

    def run(self, duration_ns: int = 20 * SECOND) -> None:
        self.world.run(duration_ns)
        assert self.world.failures == []
        assert self.node.is_up

    def create(self, partitions: int = PARTITIONS, **configs: str) -> list[CreatedTopic | ApiError]:
        outcome: list[CreatedTopic | ApiError] = []
        values = tuple((key.replace("_", "."), value) for key, value in configs.items())
        self.backend.topics.create(
            [NewTopic("orders", partitions=partitions, configs=values)], outcome.extend
        )
        return outcome

    def delete(self) -> list[DeletedTopic | ApiError]:
        outcome: list[DeletedTopic | ApiError] = []
        self.backend.topics.delete(["orders"], outcome.extend)
        return outcome

    def partition(self, index: int = 0) -> LeaderPartition:
        partition = self.backend.partitions.find("orders", index)
        assert partition is not None
        return partition

    def append(self, partition: LeaderPartition) -> None:
        batch = write_batch([Record(0, self._runtime.clock.wall(), None, b"x" * 1_000)])
        partition.append(batch, check_batches(batch), self._runtime.clock.wall())


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("pause_ms", [0, 3, 10, 40])
def test_a_topic_that_is_deleted_while_it_is_created_does_not_block_the_next_of_its_name(
    bench: Bench, pause_ms: int
) -> None:
    bench.create()
    bench.run(pause_ms * MILLISECOND + 1)
    bench.delete()
    bench.run(pause_ms * MILLISECOND + 1)
    created = bench.create()
    bench.run()

    assert [type(reply) for reply in created] == [CreatedTopic]
    topic = bench.backend.controller.image.topic("orders")
    assert topic is not None
    for index in range(PARTITIONS):
        assert bench.partition(index).topic_id == topic.id
        bench.append(bench.partition(index))
    bench.run()
    assert bench.node.disk.listdir("logs/orders") == sorted(str(index) for index in range(PARTITIONS))


def test_what_a_stop_left_of_deleted_topics_is_removed_at_the_next_start(bench: Bench) -> None:
    disk = bench.node.disk
    disk.make_directory("logs/orders/0.0123.deleted")
    disk.open("logs/orders/0.0123.deleted/00000000000000000000.log", create=True).append(b"old")
    disk.make_directory("logs/bills")
    for index in range(200):
        disk.make_directory(f"deleted/bills.0123/{index}")
    disk.sync_directory("deleted/bills.0123")

    bench.node.kill()
    bench.node.start()
    bench.run()

    assert bench.node.disk.listdir("logs") == ["orders"]
    assert bench.node.disk.listdir("logs/orders") == []
    assert bench.node.disk.listdir("deleted") == []


def test_of_a_topic_with_many_partitions_nothing_stays_when_it_is_deleted(bench: Bench) -> None:
    bench.create(partitions=300)
    bench.run()
    assert len(bench.node.disk.listdir("logs/orders")) == 300
    bench.append(bench.partition(299))

    bench.delete()
    bench.run()

    assert bench.node.disk.listdir("logs") == []
    assert bench.node.disk.listdir("deleted") == []
    assert bench.node.disk.listdir("meta/replicas") == []
    assert len(bench.backend.partitions) == 0


def test_a_topic_whose_logs_are_being_let_go_is_made_again(bench: Bench) -> None:
    bench.create(partitions=300)
    bench.run()
    former = bench.partition(299).topic_id

    bench.delete()
    bench.create(partitions=300)
    bench.run()

    assert bench.partition(299).topic_id != former
    bench.append(bench.partition(299))
    bench.run()
    assert bench.partition(299).high_watermark == 1
    assert bench.node.disk.listdir("deleted") == []


def test_a_directory_that_cannot_be_removed_is_removed_later(bench: Bench) -> None:
    bench.create()
    bench.run()

    bench.node.fail_disk(FailureRule("remove_tree", errno.EMFILE, times=1))
    with recorded_events() as events:
        bench.delete()
        bench.run()
    left = bench.node.disk.listdir("deleted")
    bench.run()

    assert len(left) == 1
    assert len(events.named("partition.remove_failed")) == 1
    assert bench.node.disk.listdir("deleted") == []


def test_a_log_that_could_not_be_opened_after_it_was_made_is_made_again(bench: Bench) -> None:
    bench.node.fail_disk(FailureRule("open", errno.EMFILE, path_ends="orders/3/partition.metadata", times=3))
    bench.create()
    bench.run()

    bench.append(bench.partition(3))
    bench.run()

    assert bench.partition(3).high_watermark == 1


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_from_it(bench: Bench) -> None:
    bench.create()
    bench.run()
    for index in range(PARTITIONS):
        bench.append(bench.partition(index))
    bench.world.run(10 * MILLISECOND)

    bench.node.fail_disk(FailureRule("rename", errno.EISDIR, path_ends="orders/3/checkpoint.tmp"))
    with recorded_events() as events:
        bench.node.stop()

    assert bench.world.failures == []
    assert [event["partition"] for event in events.named("partition.close_failed")] == ["orders/3"]
    assert not bench.node.disk.exists("meta/clean")
    bench.node.heal_disk()
    bench.node.start()
    bench.run()
    assert [bench.partition(index).log.end for index in range(PARTITIONS)] == [1] * PARTITIONS


def test_old_records_go_when_the_topic_says_so_and_its_setting_may_change_later(bench: Bench) -> None:
    bench.create(retention_ms="60000", segment_bytes="4000")
    bench.run()
    partition = bench.partition()
    for _ in range(12):
        bench.append(partition)
    bench.run(30 * SECOND)
    assert partition.log.start == 0

    bench.run(60 * SECOND)

    assert partition.log.start == partition.log.end == 12


def test_retention_on_a_full_disk_is_tried_again_and_stops_nothing(bench: Bench) -> None:
    bench.create(retention_ms="5000", segment_bytes="4000")
    bench.run(3 * SECOND)
    partition = bench.partition()
    for _ in range(12):
        bench.append(partition)
    bench.run(1 * SECOND)
    bench.node.fail_disk(FailureRule("append", errno.ENOSPC, path_ends=".tmp", times=1_000))

    bench.run(20 * SECOND)
    assert (partition.stopped, partition.log.start) == (None, 0)
    bench.node.heal_disk()
    bench.run(20 * SECOND)

    assert partition.log.start == 12


def files_of(bench: Bench) -> list[str]:
    return [name for name in bench.node.disk.listdir("logs/orders/0") if ".log" in name]


def expire_all_but_one(bench: Bench) -> None:
    bench.create(retention_ms="60000", segment_bytes="4000")
    bench.run()
    for _ in range(12):
        bench.append(bench.partition())
    bench.run(30 * SECOND)
    bench.run(60 * SECOND)


def test_files_of_deleted_records_are_removed_off_the_loop(bench: Bench) -> None:
    expire_all_but_one(bench)
    expired = files_of(bench)
    bench.append(bench.partition())
    bench.partition().log.roll()
    bench.run()

    bench.partition().log.delete_records(bench.partition().log.end)
    at_once = files_of(bench)
    bench.run()

    assert expired == [numbered_log(12)]
    assert at_once == [numbered_log(12) + ".deleted", numbered_log(13)]
    assert files_of(bench) == [numbered_log(13)]


def test_files_whose_removal_a_crash_came_before_go_at_the_next_start(bench: Bench) -> None:
    bench.create()
    bench.run()
    bench.append(bench.partition())
    bench.partition().log.roll()
    bench.run()
    bench.partition().log.delete_records(bench.partition().log.end)
    doomed = files_of(bench)

    bench.node.kill()
    bench.node.start()
    bench.run()

    assert doomed == [numbered_log(0) + ".deleted", numbered_log(1)]
    assert files_of(bench) == [numbered_log(1)]
    assert bench.partition().log.start == 1


def numbered_log(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def test_files_of_deleted_records_stay_for_as_long_as_the_topic_says(bench: Bench) -> None:
    bench.create(file_delete_delay_ms="30000")
    bench.run()
    bench.append(bench.partition())
    bench.partition().log.roll()
    bench.run()

    bench.partition().log.delete_records(bench.partition().log.end)
    bench.run(29 * SECOND)
    before = files_of(bench)
    bench.run(2 * SECOND)

    assert before == [numbered_log(0) + ".deleted", numbered_log(1)]
    assert files_of(bench) == [numbered_log(1)]
