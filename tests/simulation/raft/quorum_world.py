"""Several controllers that keep the cluster's metadata by Raft, under every fault there is.

The production controller, quorum, storage and codec run on the simulated runtime. Clients on
every node form the cluster, register a broker and then ask for blocks of producer ids, which
no two responses may share. What was acknowledged must be in every image at the end.

Whole clusters run the same quorum; here it is alone, so that every committed entry can be compared
and members can be changed at will.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from penstock.broker.cluster import Controller, QuorumOptions, QuorumStore
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.raft_host import RaftQuorum, RaftSetup
from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    AllocateProducerIds,
    BootstrapCluster,
    Command,
    MetadataImage,
    ProducerIdBlock,
    RegisterBroker,
    Reply,
)
from penstock.core.model import MILLISECOND, SECOND, Instant, LeaderEpoch, NodeId
from penstock.core.raft import Configuration, Entry, Index, Member, Raft, RaftOptions
from penstock.runtime import Address, Callback, Runtime
from penstock.sim import FaultPlan, Nemesis, RunResult, World
from penstock.sim.checkers.quorum import QuorumChecker
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk

BROKER = NodeId(1)
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
RAFT = RaftOptions(election_ms=300, heartbeat_ms=50, append_bytes_max=2_000, chunk_bytes=300)
# Small enough that snapshots are taken, sent and installed within a run.
STORAGE = QuorumOptions(snapshot_facts=40, segment_bytes=4_000)


@dataclass(slots=True)
class Journal:
    """Which responses clients got, from whom, and what leaders there were; it outlives every node."""

    checker: QuorumChecker = field(default_factory=QuorumChecker)
    blocks: dict[int, int] = field(default_factory=dict)
    leaders: dict[LeaderEpoch, Member] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    asked: int = 0
    installed: int = 0

    def acknowledged(self, member: Member, block: ProducerIdBlock) -> None:
        if block.start in self.blocks:
            self.anomalies.append(f"block {block.start} was given out twice")
        self.blocks[block.start] = member.node_id

    def led(self, member: Member, epoch: LeaderEpoch) -> None:
        rival = self.leaders.setdefault(epoch, member)
        if rival != member:
            self.anomalies.append(f"two leaders in term {epoch}: {rival.node_id} and {member.node_id}")


class WatchedQuorum(RaftQuorum):
    """Tells the journal what becomes final."""

    journal: Journal

    def _note_commit(self, index: Index) -> None:
        for number in range(self._applied + 1, index + 1):
            entry: Entry = self._host.store.at(Index(number))
            self.journal.checker.was_committed(self._setup.me, entry, self.raft.term)
        super()._note_commit(index)


class WatchedController(Controller):
    """Tells the journal who leads."""

    journal: Journal
    member: Member

    def leadership_gained(self, epoch: LeaderEpoch) -> None:
        self.journal.led(self.member, epoch)
        super().leadership_gained(epoch)

    def restored(self, image: MetadataImage) -> None:
        self.journal.installed += 1
        super().restored(image)


class ControllerNode:
    """A controller and its client. The client asks only while its own controller leads."""

    def __init__(
        self,
        runtime: Runtime,
        disk: Disk,
        setup: RaftSetup,
        journal: Journal,
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._member = setup.me
        self._peers = setup.peers
        self._think_ms = 1 + runtime.entropy.bytes(1)[0] % 40
        disk.make_directory("meta")
        disk.sync_directory("")
        store = QuorumStore(disk, disk, GroupCommit(runtime.sync))
        self.quorum = WatchedQuorum(runtime, store, setup, joined=False, options=STORAGE)
        self.quorum.journal = journal
        self.controller = WatchedController(runtime, self.quorum)
        self.controller.journal, self.controller.member = journal, setup.me
        self.controller.start()
        if self._peers is not None:
            self._peers.open()
        self._later()

    def _later(self) -> None:
        deadline = Instant(self._runtime.clock.now() + self._think_ms * MILLISECOND)
        self._runtime.timers.at(deadline, self._ask)

    def _ask(self) -> None:
        controller = self.controller
        if not controller.is_leading:
            self._later()
            return
        controller.submit(self._next_command(controller.image), self._answered)

    def _next_command(self, image: MetadataImage) -> Command:
        if image.cluster_id is None:
            return BootstrapCluster(CLUSTER)
        broker = image.broker(BROKER)
        if broker is None:
            return RegisterBroker(CLUSTER, BROKER, UUID(int=9), features=SUPPORTED_FEATURES)
        self._journal.asked += 1
        return AllocateProducerIds(BROKER, broker.epoch)

    def _answered(self, reply: Reply) -> None:
        if isinstance(reply, ProducerIdBlock):
            self._journal.acknowledged(self._member, reply)
        self._later()

    def stop(self, done: Callback) -> None:
        if self._peers is not None:
            self._peers.close()
        self.quorum.close()
        done()


PORT = 7000
FAULTS_NS = 4 * SECOND
HEALING_NS = 15 * SECOND


class QuorumWorld:
    """Controllers `c1` to `cN`; the first of them found the quorum, the others wait to be let in."""

    def __init__(
        self, seed: int, count: int = 3, raft_type: type[Raft] = Raft, founders: int | None = None
    ) -> None:
        self.world = World(seed)
        self.journal = Journal()
        self.controllers: dict[str, ControllerNode] = {}
        self._raft_type = raft_type
        names = [f"c{number}" for number in range(1, count + 1)]
        for name in names:
            self.world.add(name, self._program(name))
        nodes = self.world.nodes
        self._addresses = {nodes[name].identity.node_id: Address(name, PORT) for name in names}
        self._founders = Configuration(tuple(self.member(name) for name in names[:founders]))

    def member(self, name: str) -> Member:
        identity = self.world.nodes[name].identity
        return Member(NodeId(identity.node_id), identity.directory_id)

    def _program(self, name: str) -> Callable[[Runtime, Disk], ControllerNode]:
        def program(runtime: Runtime, disk: Disk) -> ControllerNode:
            me = self.member(name)
            hub = PeerManager(runtime, me.node_id, Address(name, PORT))
            hub.keep("quorum", self._addresses)
            setup = RaftSetup(me, hub, self._founders, RAFT, self._raft_type)
            node = ControllerNode(runtime, disk, setup, self.journal)
            self.controllers[name] = node
            return node

        return program

    def leaders(self) -> list[str]:
        """Who leads, as far as they know themselves."""
        return [
            name
            for name, node in self.controllers.items()
            if self.world.nodes[name].is_up and node.controller.is_leading
        ]

    def is_settled(self) -> bool:
        """Whether one leads and all have the same."""
        ends = {node.controller.committed for node in self.controllers.values()}
        all_up = all(node.is_up for node in self.world.nodes.values())
        return all_up and len(self.leaders()) == 1 and len(ends) == 1

    def judge(self) -> list[str]:
        """What is wrong, after everything was repaired and time has passed."""
        anomalies = [*self.journal.anomalies, *self.journal.checker.anomalies, *self.world.failures]
        down = [name for name, node in self.world.nodes.items() if not node.is_up]
        if down or len(self.leaders()) != 1:
            anomalies.append(f"no recovery: down {down}, leading {self.leaders()}")
        for name, node in self.controllers.items():
            beyond = node.controller.image.next_producer_id
            lost = [start for start in self.journal.blocks if start >= beyond]
            if lost:
                anomalies.append(f"{name} has lost {len(lost)} acknowledged blocks, the first {min(lost)}")
        return anomalies


def run_quorum(
    seed: int,
    *,
    count: int = 3,
    plan: FaultPlan | None = None,
    raft_type: type[Raft] = Raft,
    sync_max_ns: int | None = None,
) -> RunResult:
    """One run: faults for a while, then repair, then the result."""
    quorum = QuorumWorld(seed, count, raft_type)
    world, journal = quorum.world, quorum.journal
    for node in world.nodes.values():
        node.pace.sync_max_ns = sync_max_ns or node.pace.sync_max_ns
    nemesis = Nemesis(world, plan or FaultPlan.draw(world.random("plan")))
    world.start_all()
    world.run(SECOND)
    nemesis.begin()
    world.run(FAULTS_NS)
    nemesis.end()
    told = len(journal.blocks)
    # A sync that failed before the repair may end a node after it: it is started once more.
    world.run(SECOND)
    world.start_all()
    world.run(HEALING_NS, lambda: len(journal.blocks) > told + 20 and quorum.is_settled())
    # Whatever is in memory only, the last power cut takes.
    for node in world.nodes.values():
        node.cut_power()
    world.start_all()
    world.run(SECOND)
    world.run(HEALING_NS, quorum.is_settled)
    return RunResult(
        seed=seed,
        anomalies=tuple(quorum.judge()),
        operations=journal.asked,
        acknowledged=len(journal.blocks),
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // 1_000_000,
        faults=dict(nemesis.counts),
        trace=world.trace.digest(),
    )
