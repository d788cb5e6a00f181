"""A whole node without listeners loses neither topics nor records.

Wherever the power goes, and wherever the disk is full when it starts.
"""

import errno
from uuid import UUID

import pytest

from penstock.broker.cluster import QuorumOptions
from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic, DeletedTopic
from penstock.core.model import MICROSECOND, MILLISECOND, SECOND, ApiError, Instant, NodeId, Offset
from penstock.core.records import Record, check_batches, read_records, write_batch
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Address, Callback, Runtime, Service
from penstock.server.kafka.backend import Backend
from penstock.sim import SimulatedNode, World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk, FailingDisk, FailureRule
from tests.support.recorded_events import recorded_events

CLIENTS = 3
FOR_EVER = 1 << 40
OPTIONS = NodeOptions(
    "data",
    NodeId(1),
    (ListenerOptions(Address("node", 9092)),),
    static={"log.segment.bytes": "2000"},
    quorum=QuorumOptions(snapshot_facts=15, segment_bytes=2_000),
)
TIMESTAMP = 1_790_000_000_000


class Ledger:
    """The responses that clients got."""

    def __init__(self) -> None:
        self.incarnations = 0
        self.created: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.asked_to_delete: dict[str, None] = {}
        self.acknowledged: dict[str, tuple[str, int, Offset]] = {}
        self.sent: dict[str, None] = {}


class NodeUnderTest:
    """A node, and clients that create a topic, write to it, and delete it again now and then."""

    def __init__(self, runtime: Runtime, disk: Disk, ledger: Ledger) -> None:
        self.ledger = ledger
        ledger.incarnations += 1
        self._incarnation = ledger.incarnations
        self._runtime = runtime
        self._topics = 0
        self._values = 0
        self.backend: Backend | None = None
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)))
        self.backstage = NodeServices(runtime, storage, OPTIONS, ())
        self.backstage.start(self._ready)

    def _ready(self, backend: Backend) -> None:
        self.backend = backend
        if self.ledger.incarnations:
            for _ in range(CLIENTS):
                self._later(self._create)

    def _later(self, act: Callback) -> None:
        think_ns = self._runtime.entropy.bytes(1)[0] * 20 * MICROSECOND
        self._runtime.timers.at(Instant(self._runtime.clock.now() + think_ns), act)

    def _create(self) -> None:
        assert self.backend is not None
        self._topics += 1
        name = f"life-{self._incarnation}-topic-{self._topics}"

        def done(answer: list[CreatedTopic | ApiError]) -> None:
            assert isinstance(answer[0], CreatedTopic)
            self.ledger.created[name] = None
            self._write(name, 4)

        self.backend.topics.create([NewTopic(name, 2)], done)

    def _write(self, name: str, left: int) -> None:
        assert self.backend is not None
        if left == 0:
            self._later(lambda: self._delete(name) if self._topics % 2 else self._create())
            return
        partition = self.backend.partitions.find(name, left % 2)
        assert partition is not None
        self._values += 1
        value = f"{self._incarnation}/{self._values}"
        self.ledger.sent[value] = None
        batch = write_batch([Record(0, TIMESTAMP, None, value.encode().ljust(300), ())])
        placed = self.backend.produce_service.append(partition, memoryview(batch))
        assert isinstance(placed, AppendResult)

        def acknowledged(error: object) -> None:
            assert error is None
            self.ledger.acknowledged[value] = (name, left % 2, placed.first_offset)
            self._later(lambda: self._write(name, left - 1))

        if partition.when_acknowledged(placed.end, acknowledged):
            acknowledged(None)

    def _delete(self, name: str) -> None:
        assert self.backend is not None
        self.ledger.asked_to_delete[name] = None

        def done(answer: list[DeletedTopic | ApiError]) -> None:
            assert isinstance(answer[0], DeletedTopic)
            self.ledger.deleted[name] = None
            self._later(self._create)

        self.backend.topics.delete([name], done)

    def stop(self, done: Callback) -> None:
        self.backstage.close()
        done()


class Watcher(NodeUnderTest):
    """A node that nobody writes to."""

    def _ready(self, backend: Backend) -> None:
        self.backend = backend


def world_of(seed: int, ledger: Ledger) -> tuple[World, SimulatedNode]:
    world = World(seed)
    node = world.add("node", lambda runtime, disk: NodeUnderTest(runtime, disk, ledger))
    node.pace.work_max_ns = 2 * MILLISECOND
    return world, node


def recovered(seed: int, node: SimulatedNode) -> Backend:
    world = World(seed)
    watchers: list[Watcher] = []

    def program(runtime: Runtime, disk: Disk) -> Service:
        watchers.append(Watcher(runtime, disk, Ledger()))
        return watchers[0]

    again = world.add("node", program)
    again._cache = node.disk.copy()
    again.start()
    world.run(5 * SECOND)
    assert world.failures == []
    assert watchers[0].backend is not None, "the node did not become ready"
    return watchers[0].backend


def values_of(partition: LeaderPartition) -> list[str]:
    log, values, start = partition.log, [], partition.log.start
    while start < partition.high_watermark:
        content = memoryview(log.read(start, 1 << 20).to_bytes())
        position = 0
        for header in check_batches(content):
            batch = content[position : position + header.size_bytes]
            values += [(record.value or b"").decode().strip() for record in read_records(batch)]
            position += header.size_bytes
            start = Offset(header.next_offset)
    return values


def judge(backend: Backend, ledger: Ledger) -> list[str]:
    image = backend.controller.image
    anomalies = [f"{name} is lost" for name in _kept(ledger) if image.topic(name) is None]
    anomalies += [f"{name} is back" for name in ledger.deleted if image.topic(name) is not None]
    found: dict[str, tuple[str, int, int]] = {}
    for topic in image.each_topic():
        for index in range(len(topic.partitions)):
            partition = backend.partitions.find(topic.name, index)
            if partition is None:
                anomalies.append(f"{topic.name}/{index} has no log")
                continue
            for offset, value in enumerate(values_of(partition)):
                if value in found or value not in ledger.sent:
                    anomalies.append(f"{value} is doubled or was never sent")
                found[value] = (topic.name, index, offset)
    for value, place in ledger.acknowledged.items():
        if place[0] not in ledger.asked_to_delete and found.get(value) != place:
            anomalies.append(f"{value} was acknowledged at {place} and is at {found.get(value)}")
    return anomalies


def _kept(ledger: Ledger) -> list[str]:
    return [name for name in ledger.created if name not in ledger.asked_to_delete]


@pytest.mark.parametrize("seed", range(60))
def test_many_restarts_lose_nothing_that_was_acknowledged(seed: int) -> None:
    ledger = Ledger()
    world, node = world_of(seed, ledger)
    luck = world.random("lives")

    for _ in range(4):
        node.cut_power_at(luck.randint(1, 400))
        node.start()
        world.run(luck.randint(20, 200) * MILLISECOND, lambda: not node.is_up)
        if node.is_up:
            luck.choice((node.kill, node.cut_power, node.stop))()
            world.run(SECOND, lambda: not node.is_up)

    assert world.failures == []
    node.cut_power()
    assert judge(recovered(seed, node), ledger) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_start_on_a_full_disk_loses_nothing_and_succeeds_once_there_is_room(seed: int) -> None:
    ledger = Ledger()
    world, watchers, full = World(seed), list[Watcher](), list[FailureRule]()

    def program(runtime: Runtime, disk: Disk) -> Service:
        if ledger.incarnations == 0:
            return NodeUnderTest(runtime, disk, ledger)
        assert isinstance(disk, FailingDisk)
        for rule in full:
            disk.fail(rule)
        watchers.append(Watcher(runtime, disk, Ledger()))
        return watchers[-1]

    node = world.add("node", program)
    node.start()
    world.run(150 * MILLISECOND)
    (node.kill if seed % 2 else node.cut_power)()
    # So many writes still fit; of the next one perhaps the beginning. Segments may be full alone: on a disk
    # that others write to, small files fit in now and then.
    for kept_bytes, room, path in (
        (0, 0, ".log"),
        (7, 2, ".log"),
        (0, 0, ""),
        (7, 1, ""),
        (0, 2, ""),
        (0, 5, ""),
        (7, 13, ""),
        (0, 30, ""),
    ):
        full[:] = [FailureRule("append", errno.ENOSPC, path, room, FOR_EVER, kept_bytes)]
        with recorded_events() as seen:
            node.start()
            world.run(300 * MILLISECOND, lambda: not node.is_up)
        # A leader that gave up what did not fit would write over it.
        assert seen.named("quorum.log_damaged") + seen.named("partition.records_lost") == []
        if node.is_up:
            node.heal_disk()
            world.run(5 * SECOND, lambda: watchers[-1].backend is not None or not node.is_up)
            assert watchers[-1].backend is not None, "the node did not become ready when there was room"
            (node.kill if room % 2 else node.cut_power)()
    full.clear()
    node.start()
    world.run(5 * SECOND)

    assert world.failures, "no start found the disk full: with room for everything this proves nothing"
    assert [one for one in world.failures if not one.startswith("node died of DiskFull: append '")] == []
    backend = watchers[-1].backend
    assert backend is not None, "the node did not become ready"
    assert judge(backend, ledger) == []


def test_the_runs_are_worth_looking_at() -> None:
    ledger = Ledger()
    world, node = world_of(1, ledger)

    node.start()
    world.run(SECOND)

    assert len(ledger.created) > 10
    assert len(ledger.deleted) > 3
    assert len(ledger.acknowledged) > 40
