"""The services of a node on real files: what a restart finds, and how much of it is read."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic, MetadataImage
from penstock.core.model import ApiError, NodeId
from penstock.core.records import Record, write_batch
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage, services
from penstock.runtime import Address, Callback, NodeIdentity, Runtime
from penstock.runtime.loop import RuntimeOptions, Supervisor, open_runtime
from penstock.server.kafka.backend import Backend
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import PosixDisk
from tests.support.recorded_events import recorded_events

NOBODY = NodeIdentity(UUID(int=0), NodeId(1), UUID(int=0))
Act = Callable[[Backend, Callback], None]


class Life:
    """One run of a node without listeners: it starts, acts, and stops, in order or as a crash does."""

    def __init__(self, data_dir: Path, act: Act, *, in_order: bool = True) -> None:
        self._act = act
        self._in_order = in_order
        self._disk = PosixDisk(str(data_dir))
        self._storage = NodeStorage(
            self._disk, PosixDisk(str(data_dir)), DataDirectory.open(self._disk, UUID(int=4))
        )
        self.clean_epoch = self._storage.directory.last_clean_epoch
        self.image: MetadataImage
        self.partitions: list[LeaderPartition]
        self._options = NodeOptions(str(data_dir), NodeId(1), (ListenerOptions(Address("here", 1)),))
        loop = asyncio.new_event_loop()
        self._supervisor = Supervisor(loop)
        loop.set_exception_handler(self._supervisor.loop_failed)
        try:
            runtime = open_runtime(loop, self._supervisor, NOBODY, RuntimeOptions())
            loop.call_soon(self._supervisor.deliver, self._start, runtime)
            loop.run_forever()
        finally:
            self._supervisor.close()
            loop.close()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _start(self, runtime: Runtime) -> None:
        self._backstage = NodeServices(runtime, self._storage, self._options, ())
        self._backstage.start(self._ready)

    def _ready(self, backend: Backend) -> None:
        self.image = backend.controller.image
        self._act(backend, self._done)

    def _done(self) -> None:
        self.partitions = self._backstage.partitions.led()
        if self._in_order:
            self._backstage.close()
        else:
            self._storage.directory.close()
        self._supervisor.stop()


def nothing(_backend: Backend, done: Callback) -> None:
    done()


def produce(backend: Backend, done: Callback) -> None:
    """Create a topic and write one acknowledged batch to it."""

    def created(answer: list[CreatedTopic | ApiError]) -> None:
        assert isinstance(answer[0], CreatedTopic)
        partition = backend.partitions.find("orders", 0)
        assert partition is not None
        batch = write_batch([Record(0, 1_790_000_000_000, b"k", b"v" * 500, ())] * 10)
        placed = backend.produce_service.append(partition, memoryview(batch))
        assert isinstance(placed, AppendResult)
        if partition.when_acknowledged(placed.end, lambda _: done()):
            done()

    backend.topics.create([NewTopic("orders", 2)], created)


def test_a_topic_and_its_records_are_there_after_a_clean_restart(tmp_path: Path) -> None:
    ends: list[int] = []

    def look(backend: Backend, done: Callback) -> None:
        ends.extend(partition.high_watermark for partition in backend.partitions.led())
        done()

    Life(tmp_path, produce)
    second = Life(tmp_path, look)

    assert second.clean_epoch == 0
    assert second.image.topic_names() == ["orders"]
    assert sorted(ends) == [0, 10]


def test_a_restart_after_a_clean_stop_reads_no_batch(tmp_path: Path) -> None:
    read: list[int] = []

    def look(backend: Backend, done: Callback) -> None:
        read.extend(partition.log.stats.checkpoints for partition in backend.partitions)
        done()

    Life(tmp_path, produce)
    Life(tmp_path, look)

    # A recovery that had to read anything ends with a checkpoint.
    assert read == [0, 0]


def test_a_run_without_writes_touches_no_log(tmp_path: Path) -> None:
    Life(tmp_path, produce)

    quiet = Life(tmp_path, nothing)

    assert [partition.log.stats.checkpoints for partition in quiet.partitions] == [0, 0]


def test_what_was_acknowledged_is_there_after_a_stop_that_was_none(tmp_path: Path) -> None:
    ends: list[int] = []

    def look(backend: Backend, done: Callback) -> None:
        ends.extend(partition.high_watermark for partition in backend.partitions.led())
        done()

    Life(tmp_path, produce, in_order=False)
    second = Life(tmp_path, look)

    assert second.clean_epoch is None
    assert sorted(ends) == [0, 10]


def test_leader_epochs_grow_with_every_start(tmp_path: Path) -> None:
    Life(tmp_path, produce)
    first = Life(tmp_path, nothing).image.partition("orders", 0)
    second = Life(tmp_path, nothing).image.partition("orders", 0)

    assert first is not None
    assert second is not None
    assert second.leader_epoch > first.leader_epoch


def test_an_older_copy_of_the_journal_is_noticed_by_the_next_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Life(data, produce, in_order=False)
    shutil.copytree(data / "meta/journal", tmp_path / "older")
    Life(data, nothing, in_order=False)
    shutil.rmtree(data / "meta/journal")
    shutil.copytree(tmp_path / "older", data / "meta/journal")

    with recorded_events() as events:
        Life(data, nothing)

    assert any("older copy" in str(event["reason"]) for event in events.named("journal.damaged"))


def test_clients_do_not_wait_for_hundreds_of_logs_that_a_crash_kept_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "LOGS_READY_MS", 1)
    partitions, made = 500, list[int]()

    def promise(backend: Backend, done: Callback) -> None:
        """Create a topic, and crash as soon as that is committed."""
        is_done = False

        def published(image: MetadataImage) -> None:
            nonlocal is_done
            if image.topic("wide") is not None and not is_done:
                is_done = True
                done()

        backend.controller.subscribe(published)
        backend.topics.create([NewTopic("wide", partitions)], lambda _: None)

    def look(backend: Backend, done: Callback) -> None:
        made.append(len(backend.partitions))

        def all_are_made() -> None:
            made.append(len(backend.partitions))
            done()

        backend.partitions.on_logs_ready(all_are_made)

    Life(tmp_path, promise, in_order=False)
    Life(tmp_path, look)

    assert made[0] < partitions
    assert made[1] == partitions
