"""A quorum of one loses nothing that it acknowledged, wherever the power goes."""

from uuid import UUID

import pytest

from penstock.broker.cluster import Controller, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_host import RaftQuorum, RaftSetup
from penstock.core.metadata import CreatedTopic, CreateTopic, DeletedTopic, DeleteTopic, MetadataImage, Reply
from penstock.core.model import MICROSECOND, MILLISECOND, SECOND, BrokerEpoch, Instant, NodeId, TopicId
from penstock.core.raft import Configuration, Member
from penstock.runtime import Callback, Runtime
from penstock.sim import SimulatedNode, World
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from tests.support.lone_broker import LoneBroker

TOPICS = 20
PARTITIONS = 3
# Small enough that snapshots are taken, segments roll and the log is trimmed within one incarnation.
OPTIONS = QuorumOptions(snapshot_facts=8, segment_bytes=1_500)
DIRECTORY_ID = UUID(int=77)
ME = Member(NodeId(1), DIRECTORY_ID)


class Ledger:
    """What a client got acknowledged, and what it had asked for when the power went; outlives the node."""

    def __init__(self) -> None:
        self.created: dict[str, TopicId] = {}
        self.asked: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.asked_to_delete: dict[str, None] = {}
        self.epochs: list[BrokerEpoch] = []
        self.terms: list[int] = []


class LoneHost:
    """A node that keeps metadata alone, with a client that creates topics and deletes every third."""

    def __init__(self, runtime: Runtime, disk: Disk, state: Ledger, topics: int) -> None:
        self._runtime = runtime
        self._state = state
        self._left = [f"life-{len(state.terms)}-topic-{number}" for number in range(topics)]
        self._directory = DataDirectory.open(disk, DIRECTORY_ID)
        store = QuorumStore(disk, disk, GroupCommit(runtime.sync))
        joined = self._directory.cluster_id is not None
        setup = RaftSetup(ME, None, Configuration((ME,)))
        self.quorum = RaftQuorum(runtime, store, setup, joined=joined, options=OPTIONS)
        self.controller = Controller(runtime, self.quorum)
        self.membership = LoneBroker(runtime, self.controller, self._directory)
        self.controller.add_task(self)
        self.controller.start()

    def on_leadership_gained(self) -> None:
        assert self.quorum.leader_epoch is not None
        self._state.terms.append(self.quorum.leader_epoch)
        self.membership.join(self._joined)

    def on_leadership_lost(self) -> None:
        """Nobody else is there to lead."""

    def _joined(self, epoch: BrokerEpoch) -> None:
        self._state.epochs.append(epoch)
        # Several at a time and out of step: commands share appends, and come while a sync runs.
        for _ in range(3):
            self._later()

    def _later(self) -> None:
        think_ns = self._runtime.entropy.bytes(1)[0] * 10 * MICROSECOND
        self._runtime.timers.at(Instant(self._runtime.clock.now() + think_ns), self._next)

    def _next(self) -> None:
        if not self._left:
            return
        name = self._left.pop(0)
        self._state.asked[name] = None
        topic_id = TopicId(UUID(bytes=self._runtime.entropy.bytes(16), version=4))

        def done(reply: Reply) -> None:
            if isinstance(reply, CreatedTopic):
                self._state.created[name] = reply.id
                if int(name.rpartition("-")[2]) % 3 == 0:
                    self._delete(name)
                    return
            self._later()

        self.controller.submit(CreateTopic(name, topic_id, PARTITIONS, 1), done)

    def _delete(self, name: str) -> None:
        self._state.asked_to_delete[name] = None

        def done(reply: Reply) -> None:
            assert isinstance(reply, DeletedTopic)
            self._state.deleted[name] = None
            self._later()

        self.controller.submit(DeleteTopic(name), done)

    def stop(self, done: Callback) -> None:
        self.quorum.close()
        self._directory.close(self.membership.epoch)
        done()


def world_of(seed: int, state: Ledger, topics: int = TOPICS) -> tuple[World, SimulatedNode, list[LoneHost]]:
    hosts: list[LoneHost] = []

    def program(runtime: Runtime, disk: Disk) -> LoneHost:
        hosts.append(LoneHost(runtime, disk, state, topics))
        return hosts[-1]

    world = World(seed)
    node = world.add("host", program)
    node.pace.work_max_ns = MILLISECOND
    return world, node, hosts


def anomalies_of(image: MetadataImage, state: Ledger) -> list[str]:
    anomalies = []
    for name, topic_id in state.created.items():
        if name not in state.asked_to_delete and image.topic_id(name) != topic_id:
            anomalies.append(f"{name} was acknowledged and is lost")
    back = [name for name in state.deleted if image.topic(name) is not None]
    anomalies += [f"{name} was deleted and is back" for name in back]
    for topic in image.each_topic():
        if topic.name not in state.asked:
            anomalies.append(f"{topic.name} was invented")
        if len(topic.partitions) != PARTITIONS:
            anomalies.append(f"{topic.name} has {len(topic.partitions)} partitions")
    return anomalies


def operations_of_a_life() -> int:
    state = Ledger()
    world, node, _ = world_of(1, state)
    node.start()
    world.run(5 * SECOND)
    assert len(state.created) == TOPICS
    return node.disk.operations


OPERATIONS = operations_of_a_life()


def test_a_lone_controller_leads_without_waiting_for_anybody() -> None:
    state = Ledger()
    world, node, _ = world_of(1, state)

    node.start()
    world.run(50 * MILLISECOND)

    assert state.terms == [1]
    assert len(state.epochs) == 1


def test_a_controller_takes_snapshots_and_trims_the_log() -> None:
    state = Ledger()
    world, node, _ = world_of(1, state)

    node.start()
    world.run(5 * SECOND)

    files = node.disk.files()
    snapshots = [name for name in files if name.startswith("meta/raft/0")]
    assert len(snapshots) == 2
    assert snapshots[0] > f"meta/raft/{0:020d}.snapshot"
    assert f"meta/raft/log/{0:020d}.log" not in files


@pytest.mark.parametrize("tens", range(OPERATIONS // 10 + 1))
def test_a_power_cut_at_any_operation_loses_no_acknowledged_topic_and_invents_none(tens: int) -> None:
    for operation in range(10 * tens + 1, 10 * tens + 11):
        state = Ledger()
        world, node, hosts = world_of(1, state)
        node.cut_power_at(operation)
        node.start()
        world.run(5 * SECOND, lambda: not node.is_up)  # noqa: B023 - called within the turn
        node.cut_power()

        node.cut_power_at(None)
        node.start()
        world.run(5 * SECOND)

        image = hosts[-1].controller.image
        assert anomalies_of(image, state) == [], f"power cut at operation {operation}"
        assert state.terms == sorted(set(state.terms))
        assert state.epochs == sorted(set(state.epochs))
        assert world.failures == []


@pytest.mark.parametrize("seed", range(20))
def test_many_restarts_lose_nothing_that_the_client_was_told(seed: int) -> None:
    state = Ledger()
    world, node, hosts = world_of(seed, state)
    luck = world.random("lives")
    for _ in range(6):
        node.start()
        world.run(luck.randint(1, 60) * MILLISECOND, lambda: not node.is_up)
        luck.choice((node.kill, node.cut_power, node.stop))()
        world.run(10 * MILLISECOND)

    node.start()
    world.run(5 * SECOND)

    assert anomalies_of(hosts[-1].controller.image, state) == []
    assert state.terms == sorted(set(state.terms))
    assert world.failures == []
