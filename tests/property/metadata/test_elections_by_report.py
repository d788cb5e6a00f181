"""Replicas with logs of their own that append, copy, fall, lose records and come back, in any order.

Whoever is elected must have every committed record, as long as one copy that could be asked has them.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.metadata import (
    NO_LEADER,
    AlterPartition,
    BootstrapCluster,
    Command,
    CreateTopic,
    DeposeLeader,
    ElectReported,
    FenceBroker,
    IsrMember,
    MetadataMachine,
    Partition,
    PartitionReport,
    RegisteredBroker,
    ReplicaAssignment,
    ReplicaLoss,
    Reply,
    ReportReplicas,
    UnfenceBroker,
)
from penstock.core.model import (
    BrokerEpoch,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)
from tests.property.metadata.metadata_worlds import CLUSTER, registration

STEPS = 30
NODES = tuple(map(NodeId, (1, 2, 3)))
TOPIC_ID = TopicId(UUID(int=1))
KEY = (TOPIC_ID, PartitionIndex(0))
# An entry of a log: the epoch that wrote it, and a number that no other entry has.
Entry = tuple[int, int]


@dataclass
class Replica:
    """One node: its log, and whether its process runs."""

    log: list[Entry] = field(default_factory=list)
    epoch: BrokerEpoch = BrokerEpoch(-1)  # noqa: RUF009 - a NewType is the value itself
    up: bool = True
    live: bool = True
    loss: ReplicaLoss = ReplicaLoss.NOTHING
    high_watermark: int = 0

    def has(self, committed: list[Entry]) -> bool:
        return self.log[: len(committed)] == committed


class World:
    """A controller and three replicas of one partition."""

    def __init__(self, minimum: int, *, detected: bool) -> None:
        # Whether replicas know what they have lost.
        self.detected = detected
        self.machine = MetadataMachine()
        self.minimum = minimum
        self.replicas = {node: Replica() for node in NODES}
        self.committed: list[Entry] = []
        self.epoch_start = 0
        self.written = 0
        self.perform(BootstrapCluster(CLUSTER))
        for node in NODES:
            self.register(node, fenced=False)
        placed = ReplicaAssignment(PartitionIndex(0), NODES)
        configs = (("min.insync.replicas", str(minimum)),)
        self.perform(CreateTopic("a", TOPIC_ID, assignments=(placed,), configs=configs))

    @property
    def state(self) -> Partition:
        state = self.machine.image.partition("a", 0)
        assert state is not None
        return state

    @property
    def leader(self) -> Replica | None:
        """The leader, if its process is the one that the controller knows."""
        replica = self.replicas.get(self.state.leader)
        return replica if replica is not None and replica.up and replica.live else None

    def perform(self, command: Command) -> Reply:
        before = self.machine.image.partition("a", 0)
        decision = self.machine.decide(command, Instant(0))
        self.machine.replay(decision.facts)
        if before is not None:
            self.check(before)
        return decision.reply

    def check(self, before: Partition) -> None:
        after, leader = self.state, self.leader
        if after.leader_epoch != before.leader_epoch and leader is not None:
            self.epoch_start = len(leader.log)
            self.check_leader(before, leader)
        if self.detected:
            self.check_eligible()

    def check_leader(self, before: Partition, leader: Replica) -> None:
        """A new leader has every committed record, if a copy that the cluster relied on has them."""
        if leader.has(self.committed):
            return
        assert self.state.unclean_epoch == self.state.leader_epoch or not self.detected, (
            "committed records lost"
        )
        relied_on = (self.replicas[node] for node in before.complete)
        assert not any(one.has(self.committed) for one in relied_on), "an eligible whole copy was passed over"
        asked = (self.replicas[report.node_id] for report in self.state.reports)
        assert not any(one.live and one.has(self.committed) for one in asked), "a whole copy was passed over"
        self.committed = common(self.committed, leader.log)
        for replica in self.replicas.values():
            replica.high_watermark = min(replica.high_watermark, len(self.committed))

    def check_eligible(self) -> None:
        """Who has said that it lost something is not eligible, unless nobody else is."""
        state = self.state
        for node in state.elr:
            replica = self.replicas[node]
            last = len(state.complete) == 1 and state.leader == NO_LEADER
            assert last or not replica.live or replica.has(self.committed), "eligible, but not whole"

    def register(self, node: NodeId, *, fenced: bool = True) -> None:
        reply = self.perform(registration(node, fenced=fenced))
        assert isinstance(reply, RegisteredBroker)
        self.replicas[node].epoch = reply.epoch

    def append(self) -> None:
        leader = self.leader
        if leader is not None:
            self.written += 1
            leader.log.append((self.state.leader_epoch, self.written))

    def copy(self, node: NodeId, count: int) -> None:
        """Follow the leader as far as `count` entries behind what both have."""
        replica, leader = self.replicas[node], self.leader
        if leader is None or replica is leader or not replica.up:
            return
        shared = common(replica.log, leader.log)
        if len(shared) < replica.high_watermark:
            self.diverge(node, len(shared))
            return
        replica.log = leader.log[: len(shared) + count]
        replica.high_watermark = max(replica.high_watermark, min(len(replica.log), leader.high_watermark))

    def diverge(self, node: NodeId, offset: int) -> None:
        replica, epoch = self.replicas[node], self.state.leader_epoch
        mark = Offset(replica.high_watermark)
        assert not self.detected, "a follower was asked to cut committed records"
        self.perform(DeposeLeader(node, replica.epoch, *KEY, epoch, Offset(offset), mark))

    def commit(self) -> None:
        """Move the high watermark, as far as all of the ISR have what the leader has."""
        leader, isr = self.leader, self.state.isr
        if leader is None or len(isr) < self.minimum:
            return
        reached = min(len(self.replicas[node].log) if self.follows(node) else 0 for node in isr)
        if reached > len(self.committed):
            self.committed = leader.log[:reached]
        leader.high_watermark = max(leader.high_watermark, min(reached, len(self.committed)))

    def follows(self, node: NodeId) -> bool:
        """Whether the log of a running replica is a beginning of its leader's."""
        replica, leader = self.replicas[node], self.leader
        assert leader is not None
        return replica.up and replica.log == leader.log[: len(replica.log)]

    def propose(self, members: tuple[NodeId, ...]) -> None:
        """What an honest leader proposes: only those that have everything join."""
        leader, state = self.leader, self.state
        if leader is None:
            return
        needed = max(len(self.committed), self.epoch_start)
        isr = tuple(
            node
            for node in NODES
            if node == state.leader
            or (
                node in members
                and (node in state.isr or (self.follows(node) and len(self.replicas[node].log) >= needed))
            )
        )
        rows = tuple(IsrMember(node, self.replicas[node].epoch) for node in isr)
        place = (state.leader, leader.epoch, *KEY, state.leader_epoch, state.partition_epoch)
        self.perform(AlterPartition(*place, rows))
        for node in self.state.isr:
            if self.replicas[node].live:
                self.replicas[node].loss = ReplicaLoss.NOTHING

    def fall(self, node: NodeId, *, noticed: bool) -> None:
        replica = self.replicas[node]
        replica.up = replica.live = False
        if noticed:
            self.perform(FenceBroker(node, replica.epoch))

    def lose(self, node: NodeId, left: int) -> None:
        """Damage the disk of a node that is down."""
        replica = self.replicas[node]
        if replica.up or left >= len(replica.log):
            return
        del replica.log[left:]
        replica.high_watermark = min(replica.high_watermark, left)
        if self.detected:
            replica.loss = ReplicaLoss.TAIL if left else ReplicaLoss.EVERYTHING

    def start(self, node: NodeId) -> None:
        replica = self.replicas[node]
        if not replica.up:
            replica.up = True
            self.register(node)

    def go_live(self, node: NodeId) -> None:
        replica = self.replicas[node]
        if replica.up and not replica.live:
            self.report(node)
            replica.live = True
            self.perform(UnfenceBroker(node, replica.epoch))

    def report(self, node: NodeId) -> None:
        replica = self.replicas[node]
        last = LeaderEpoch(replica.log[-1][0]) if replica.log else LeaderEpoch(-1)
        # A leader may have filled again what was lost altogether.
        refilled = replica.loss is ReplicaLoss.EVERYTHING and bool(replica.log)
        loss = ReplicaLoss.TAIL if refilled else replica.loss
        row = PartitionReport(*KEY, last, Offset(len(replica.log)), self.state.leader_epoch, loss)
        self.perform(ReportReplicas(node, replica.epoch, (row,)))

    def report_all(self) -> None:
        """What live brokers do where nobody leads."""
        for node, replica in self.replicas.items():
            if replica.up and replica.live and self.state.leader == NO_LEADER:
                self.report(node)

    def stop_waiting(self) -> None:
        self.perform(ElectReported((KEY,)))


def common(ours: list[Entry], theirs: list[Entry]) -> list[Entry]:
    count = 0
    while count < min(len(ours), len(theirs)) and ours[count] == theirs[count]:
        count += 1
    return ours[:count]


def copy_all(world: World) -> None:
    for node in NODES:
        world.copy(node, 99)


def append_everywhere(world: World) -> None:
    world.append()
    copy_all(world)
    world.commit()
    copy_all(world)


def catch_up(world: World) -> None:
    copy_all(world)
    world.propose(NODES)


def come_back(world: World, node: NodeId) -> None:
    world.start(node)
    world.go_live(node)
    world.report_all()


def stop_waiting(world: World) -> None:
    # A loss that nobody knows of shows only when all are asked.
    if world.detected:
        world.stop_waiting()


ALONE = (World.append, append_everywhere, append_everywhere, World.commit, catch_up, stop_waiting)


@st.composite
def disasters(draw: st.DrawFn, world: World) -> None:
    """All fall, some lose records, and they come back in any order."""
    for _ in range(draw(st.integers(1, 3))):
        append_everywhere(world)
    for node in draw(st.permutations(NODES)):
        world.fall(node, noticed=draw(st.booleans()))
    for node in NODES:
        if draw(st.booleans()):
            world.lose(node, draw(st.integers(0, 4)))
    for node in draw(st.permutations(NODES)):
        come_back(world, node)
        if draw(st.booleans()):
            stop_waiting(world)


@st.composite
def steps(draw: st.DrawFn, world: World) -> None:
    """Do one thing that can happen."""
    node = draw(st.sampled_from(NODES))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            draw(st.sampled_from(ALONE))(world)
        case 2:
            world.copy(node, draw(st.integers(0, 4)))
        case 3:
            world.propose(tuple(draw(st.lists(st.sampled_from(NODES), unique=True))))
        case 4 | 5:
            for one in draw(st.sampled_from([(node,), NODES])):
                world.fall(one, noticed=draw(st.booleans()))
        case 6:
            world.lose(node, draw(st.integers(0, 4)))
        case 7:
            draw(disasters(world))
        case _:
            come_back(world, node)


@given(st.data(), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_a_leader_has_every_committed_record_if_replicas_know_what_they_lost(
    data: st.DataObject, minimum: int
) -> None:
    world = World(minimum, detected=True)

    for _ in range(STEPS):
        data.draw(steps(world))


@given(st.data(), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_an_eligible_whole_copy_wins_although_nobody_knows_what_the_others_lost(
    data: st.DataObject, minimum: int
) -> None:
    world = World(minimum, detected=False)

    for _ in range(STEPS):
        data.draw(steps(world))
