"""A quorum of one on a disk: recovery, snapshots, and what it refuses to start from."""

from uuid import UUID

import pytest

from penstock.broker.cluster import Controller, MetadataLost, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_host import RaftQuorum, RaftSetup
from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BootstrapCluster,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    RegisteredBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.model import SECOND, CorruptionError, NodeId, TopicId
from penstock.core.raft import Configuration, Member
from penstock.runtime import Callback, Runtime, Service
from penstock.sim import SimulatedNode, World
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, Disk, FailureRule

META = "meta"
ME = Member(NodeId(1), UUID(int=9))
FOUNDING = f"meta/raft/{0:020d}.snapshot"


class Host:
    """One incarnation of a controller on a quorum of one."""

    def __init__(self, runtime: Runtime, disk: Disk, options: QuorumOptions, *, joined: bool) -> None:
        disk.make_directory(META)
        store = QuorumStore(disk, disk, GroupCommit(runtime.sync))
        setup = RaftSetup(ME, None, Configuration((ME,)))
        self.quorum = RaftQuorum(runtime, store, setup, joined=joined, options=options)
        self.controller = Controller(runtime, self.quorum)
        self.controller.start()
        self.responses: list[Reply] = []

    def stop(self, done: Callback) -> None:
        self.quorum.close()
        done()


class Machine:
    """A disk and the incarnations on it."""

    def __init__(self, options: QuorumOptions | None = None) -> None:
        self.world = World(3)
        self.options = options or QuorumOptions()
        self.joined = False
        self.failure: Exception | None = None
        self.node: SimulatedNode = self.world.add("node", self._program)
        self.host: Host

    def _program(self, runtime: Runtime, disk: Disk) -> Service:
        try:
            self.host = Host(runtime, disk, self.options, joined=self.joined)
        except CorruptionError as failure:
            self.failure = failure
            raise
        return self.host

    @property
    def disk(self) -> CrashableDisk:
        return self.node.disk

    def start(self) -> Host:
        self.node.start()
        self.run()
        return self.host

    def run(self) -> None:
        self.world.run(2 * SECOND)

    def restart(self) -> Host:
        self.node.stop()
        self.run()
        return self.start()

    def submit(self, *commands: object) -> list[Reply]:
        replies: list[Reply] = []
        for command in commands:
            self.host.controller.submit(command, replies.append)  # type: ignore[arg-type]
        self.run()
        return replies

    def with_topics(self, count: int, start: int = 1) -> None:
        for number in range(start, start + count):
            self.submit(CreateTopic(f"topic-{number}", TopicId(UUID(int=number)), 2, 1))

    def with_a_broker(self) -> "Machine":
        self.start()
        register = RegisterBroker("cluster", NodeId(1), UUID(int=9), features=SUPPORTED_FEATURES)
        _, registered = self.submit(BootstrapCluster("cluster"), register)
        assert isinstance(registered, RegisteredBroker)
        self.submit(UnfenceBroker(NodeId(1), registered.epoch))
        return self

    def snapshots(self) -> list[str]:
        return [path for path in self.disk.files() if path.startswith("meta/raft/0")]


EAGER = QuorumOptions(snapshot_facts=10, segment_bytes=1_000)


def test_a_restart_rebuilds_the_same_image_from_the_log() -> None:
    machine = Machine().with_a_broker()
    machine.with_topics(5)
    machine.submit(DeleteTopic("topic-2"))
    before = machine.host.controller.image

    after = machine.restart().controller.image

    assert after == before
    assert machine.snapshots() == [FOUNDING]


def test_a_snapshot_and_the_log_behind_it_rebuild_the_same_image() -> None:
    machine = Machine(EAGER).with_a_broker()
    machine.with_topics(12)
    machine.submit(DeleteTopic("topic-2"))
    before = machine.host.controller.image

    after = machine.restart().controller.image

    assert after == before
    assert len(machine.snapshots()) == 2


def test_the_log_is_cut_behind_the_older_of_two_snapshots() -> None:
    machine = Machine(EAGER).with_a_broker()

    machine.with_topics(12)

    logs = [path for path in machine.disk.files() if path.endswith(".log")]
    older = int(machine.snapshots()[0].removeprefix("meta/raft/").removesuffix(".snapshot"))
    assert "meta/raft/log/00000000000000000000.log" not in logs
    assert int(logs[0].rpartition("/")[2].removesuffix(".log")) <= older


@pytest.mark.parametrize("bit", [0, 64, 200, 1_000])
def test_a_damaged_newest_snapshot_falls_back_to_the_older_one(bit: int) -> None:
    machine = Machine(EAGER).with_a_broker()
    machine.with_topics(12)
    before = machine.host.controller.image
    machine.node.stop()
    machine.run()
    machine.disk.flip_bit(machine.snapshots()[-1], bit)

    after = machine.start().controller.image

    assert after == before


def test_two_damaged_snapshots_are_a_loss_and_no_new_beginning() -> None:
    machine = Machine(EAGER).with_a_broker()
    machine.with_topics(12)
    machine.node.stop()
    machine.run()
    for path in machine.snapshots():
        machine.disk.flip_bit(path, 300)

    machine.node.start()
    machine.run()

    assert isinstance(machine.failure, MetadataLost)


def test_a_directory_that_has_joined_a_cluster_does_not_start_without_its_metadata() -> None:
    machine = Machine()
    machine.joined = True

    machine.node.start()
    machine.run()

    assert isinstance(machine.failure, MetadataLost)


def test_every_start_takes_a_higher_term_also_when_nothing_was_written() -> None:
    machine = Machine()

    terms = [machine.start().quorum.leader_epoch]
    for _ in range(3):
        machine.node.cut_power()
        terms.append(machine.start().quorum.leader_epoch)

    assert terms == [1, 2, 3, 4]


def test_a_sync_that_fails_ends_the_node() -> None:
    machine = Machine().with_a_broker()
    machine.node.fail_disk(FailureRule("sync", errno=5))

    replies = machine.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))

    assert replies == []
    assert not machine.node.is_up
    assert machine.world.failures == []


def test_a_snapshot_that_cannot_be_written_is_tried_again_later() -> None:
    machine = Machine(EAGER).with_a_broker()
    machine.node.fail_disk(FailureRule("open", errno=28, path_ends=".snapshot.tmp", times=100))
    machine.with_topics(6)
    without = machine.snapshots()
    machine.node.heal_disk()

    machine.with_topics(8, start=7)

    assert without == [FOUNDING]
    assert machine.snapshots()[-1] > FOUNDING
    assert machine.node.is_up
