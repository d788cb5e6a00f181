"""A leader, its followers and their controller, with everything between them late or lost."""

import random
from typing import NamedTuple

from penstock.core.model import SECOND, BrokerEpoch, Instant, NodeId, Offset
from penstock.core.replica import UNKNOWN_EPOCH, CommittedPartitionState, IsrTracker, ProposedIsrMember

ME = NodeId(1)
NODES = tuple(NodeId(number) for number in range(1, 5))
LAG_MAX_NS = 10 * SECOND


class Told(NamedTuple):
    """A proposal on its way, and the partition epoch that it is based on."""

    members: tuple[ProposedIsrMember, ...]
    epoch: int


class Replica:
    """What a node really has."""

    def __init__(self) -> None:
        self.broker_epoch = 1
        self.fetched = 0
        self.synced = 0


class Controller:
    """The metadata of one partition, as it really is."""

    def __init__(self, isr: tuple[NodeId, ...], minimum: int) -> None:
        self.isr = isr
        self.elr: tuple[NodeId, ...] = ()
        self.minimum = minimum
        self.epoch = 0
        self.broker_epochs: dict[NodeId, int] = dict.fromkeys(NODES, 1)

    @property
    def state(self) -> CommittedPartitionState:
        return CommittedPartitionState(NODES, self.isr, self.epoch, self.minimum)

    def change(self, isr: tuple[NodeId, ...]) -> None:
        had_it_all = (*self.isr, *self.elr)
        enough = len(isr) >= self.minimum
        self.elr = () if enough else tuple(n for n in NODES if n in had_it_all and n not in isr)
        self.isr = isr
        self.epoch += 1

    def decide(self, told: Told) -> bool:
        """Whether a proposal is accepted."""
        if told.epoch != self.epoch:
            return False
        for node, broker_epoch in told.members:
            if broker_epoch not in (UNKNOWN_EPOCH, self.broker_epochs[node]):
                return False
        self.change(tuple(node for node, _ in told.members))
        return True


class World:
    """Takes random steps, and compares the machine with a model that knows everything."""

    def __init__(self, seed: int) -> None:
        self.luck = luck = random.Random(seed)
        self.now = 0
        self.end = self.start = luck.randint(0, 20)
        self.replicas = {node: Replica() for node in NODES}
        self.controller = Controller(tuple(NODES[: luck.randint(1, 4)]), luck.randint(1, 3))
        self.log: list[CommittedPartitionState] = [self.controller.state]
        self.heard = 0
        for node in NODES:
            # All that was committed before is on all members of the ISR.
            replica = self.replicas[node]
            replica.synced = luck.randint(self.start // 2 if node in self.controller.isr else 0, self.start)
            replica.fetched = luck.randint(replica.synced, self.start)
        self.replicas[ME].synced = self.replicas[ME].fetched = self.start
        self.isr = IsrTracker(
            ME,
            self.controller.state,
            Offset(self.start),
            Offset(self.start),
            Offset(self.start // 2),
            Instant(0),
            LAG_MAX_NS,
        )
        # What the model remembers of it.
        self.watermark = self.start // 2
        self.known: dict[NodeId, tuple[int, int]] = {}
        self.said: dict[NodeId, list[tuple[int, int, int]]] = {node: [] for node in NODES}
        self.own = self.start
        self.in_flight: Told | None = None
        self.maybe: list[Told] = []
        self.on_the_way: list[Told] = []
        self.joined = 0
        self.left = 0
        self._recount()

    def step(self) -> None:
        actions = (self.append, self.sync, self.copy, self.copy, self.fetch, self.fetch, self.fetch)
        control = (self.propose, self.propose, self.deliver, self.answer, self.hear, self.restart, self.wait)
        self.luck.choice((*actions, *control))()
        self.check()

    def append(self) -> None:
        self.end += self.luck.randint(1, 5)

    def sync(self) -> None:
        """The leader's own disk."""
        me = self.replicas[ME]
        me.synced = self.own = self.luck.randint(self.own, self.end)
        self.isr.advance_own(Offset(self.own))
        self._recount()

    def copy(self) -> None:
        """A follower appends, or syncs, or both."""
        replica = self.replicas[self.luck.choice(NODES[1:])]
        replica.fetched = self.luck.choice(
            [replica.fetched, self.luck.randint(replica.fetched, self.end), self.end]
        )
        replica.synced = self.luck.choice([replica.synced, replica.fetched])

    def fetch(self) -> None:
        """A follower says where it is; perhaps something arrives from a former incarnation."""
        node = self.luck.choice(NODES[1:])
        replica = self.replicas[node]
        saying = (replica.broker_epoch, replica.fetched, replica.synced)
        late = [said for said in self.said[node] if said[0] < replica.broker_epoch]
        if late and self.luck.random() < 0.3:
            saying = self.luck.choice(late)
        self.said[node].append(saying)
        broker_epoch, fetched, synced = saying
        self.isr.follower_fetched(
            node,
            BrokerEpoch(broker_epoch),
            Offset(fetched),
            Offset(synced),
            Offset(self.end),
            Instant(self.now),
        )
        if broker_epoch >= self.known.get(node, (0, 0))[0]:
            self.known[node] = (broker_epoch, synced)
        self._recount()

    def propose(self) -> None:
        members = self.isr.proposal(Offset(self.end), Instant(self.now))
        if members is None:
            return
        assert self.in_flight is None, "two proposals at a time"
        for node, broker_epoch in members:
            if node not in self.log[self.heard].isr:
                known_epoch, known_synced = self.known[node]
                assert known_epoch == broker_epoch
                assert known_synced >= max(self.watermark, self.start), "it joins too early"
                self.joined += 1
        self.left += len([node for node in self.log[self.heard].isr if node not in dict(members)])
        self.in_flight = Told(members, self.log[self.heard].partition_epoch)
        # The network may make copies.
        self.on_the_way += [self.in_flight] * self.luck.choice([0, 1, 1, 1, 2])

    def deliver(self) -> None:
        """A proposal reaches the controller, in whatever order."""
        if self.on_the_way:
            told = self.on_the_way.pop(self.luck.randrange(len(self.on_the_way)))
            if self.controller.decide(told):
                self.log.append(self.controller.state)

    def answer(self) -> None:
        """The leader is notified what became of its proposal, or that nobody knows."""
        told = self.in_flight
        if told is None:
            return
        if told in self.on_the_way or self.luck.random() < 0.5:
            self.isr.proposal_ended(accepted=None)
            self.maybe.append(told)
        elif told.epoch == self.controller.epoch:
            # All copies have arrived, and none was accepted: an error that can be trusted.
            self.isr.proposal_ended(accepted=False)
        else:
            accepted = self.log[told.epoch + 1].isr == tuple(node for node, _ in told.members)
            self.isr.proposal_ended(accepted=True if accepted else None)
            self.maybe.append(told)
            if accepted:
                return
        self.in_flight = None
        self._recount()

    def hear(self) -> None:
        """Committed metadata reaches the leader, in its order; perhaps some of it twice."""
        self.heard = min(self.heard + self.luck.choice([0, 1, 1]), len(self.log) - 1)
        if self.log[self.heard].partition_epoch > self.isr.assignment.partition_epoch:
            self.in_flight = None
            self.maybe.clear()
        self.isr.assignment_changed(self.log[self.heard], Instant(self.now))
        self._recount()

    def restart(self) -> None:
        """A follower comes back with what it had synced; the controller knows its new epoch."""
        if self.luck.random() < 0.7:
            return
        node = self.luck.choice(NODES[1:])
        replica = self.replicas[node]
        replica.broker_epoch += 1
        replica.fetched = replica.synced
        self.controller.broker_epochs[node] = replica.broker_epoch
        if node in self.controller.isr and self.luck.random() < 0.7:
            self.controller.change(tuple(other for other in self.controller.isr if other != node))
            self.log.append(self.controller.state)

    def wait(self) -> None:
        self.now += self.luck.choice([SECOND, LAG_MAX_NS // 2, LAG_MAX_NS + 1])

    def _recount(self) -> None:
        """The high watermark, from the words of the rule."""
        state = self.log[self.heard]
        counting = dict.fromkeys(state.isr)
        for told in (*self.maybe, *([self.in_flight] if self.in_flight else [])):
            counting.update({node: None for node, _ in told.members})
        positions = [self.own if node == ME else self.known.get(node, (0, -1))[1] for node in counting]
        if len(state.isr) >= min(state.minimum, len(state.replicas)):
            self.watermark = max(self.watermark, min(positions))

    def check(self) -> None:
        assert self.isr.high_watermark == self.watermark
        # Whoever may be elected has all that was acknowledged: the purpose of the ISR.
        for node in (*self.controller.isr, *self.controller.elr):
            assert self.replicas[node].synced >= self.watermark, f"node {node} lacks committed records"
