"""Runs controllers under a plan of faults and judges them."""

from collections.abc import Callable

from penstock.core.model import SECOND, NodeId
from penstock.core.raft import Configuration, Member, Raft
from penstock.runtime import Address, Runtime
from penstock.services.cluster.raft import RaftSetup
from penstock.services.peering import PeerHub
from penstock.simulation.faults import FaultPlan, Nemesis
from penstock.simulation.quorum.node import RAFT, ControllerNode, Journal
from penstock.simulation.verdict import Verdict
from penstock.simulation.world import World
from penstock.storage.disk import Disk

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
            hub = PeerHub(runtime, me.node_id, Address(name, PORT))
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
) -> Verdict:
    """One run: faults for a while, then repair, then the verdict."""
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
    return Verdict(
        seed=seed,
        anomalies=tuple(quorum.judge()),
        operations=len(journal.blocks),
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // 1_000_000,
        faults=dict(nemesis.counts),
        trace=world.trace.digest(),
    )
