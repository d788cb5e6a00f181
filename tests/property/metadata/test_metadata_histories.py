"""Random histories of a cluster: replay, snapshots, and what must hold after every command."""

from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.metadata import (
    EMPTY_IMAGE,
    NO_LEADER,
    AlterPartition,
    BootstrapCluster,
    Command,
    ConfigResourceType,
    ElectLeader,
    Fact,
    MetadataImage,
    MetadataMachine,
    Partition,
    RegisterBroker,
    ResignReplica,
    decode_fact,
    encode_fact,
    replay,
    snapshot,
)
from penstock.core.metadata.effective_configs import topic_value
from penstock.core.model import ApiError, Instant, LeaderEpoch, NodeId, TopicId
from tests.property.metadata.metadata_worlds import (
    CLUSTER,
    commands,
    replica_commands,
    running_cluster,
    starting_points,
)

STEPS = 30
NOW = Instant(0)
Place = tuple[TopicId, int]


def partitions_in(image: MetadataImage) -> dict[Place, Partition]:
    return {(t.id, p.index): p for t in image.each_topic() for p in t.partitions}


class Holders:
    """Which replicas hold every committed record, worked out from first principles.

    A leader commits with its whole ISR, and only while the ISR has its minimum size. From
    then on exactly the ISR is sure to be complete. Below the minimum nothing is committed,
    so whoever was complete stays so. A replica that lost writes is not complete any more;
    if it was the last one, what it has left is the best there is (`remains`).
    """

    def __init__(self) -> None:
        self.complete: dict[Place, frozenset[NodeId]] = {}
        self.remains: dict[Place, frozenset[NodeId]] = {}
        self.leaders: dict[tuple[Place, LeaderEpoch], NodeId] = {}

    def observe(self, before: MetadataImage, command: Command, after: MetadataImage) -> None:
        old = partitions_in(before)
        self.complete = {place: known for place, known in self.complete.items() if place in old}
        self.remains = {place: known for place, known in self.remains.items() if place in old}
        self.leaders = {led: leader for led, leader in self.leaders.items() if led[0] in old}
        self._lose(before, command, after)
        if isinstance(command, AlterPartition) and after is not before:
            # The leader commits nothing beyond a replica from the moment it proposes it.
            place = (command.topic_id, int(command.index))
            self.complete[place] |= frozenset(member.node_id for member in command.isr)
        for place, partition in partitions_in(after).items():
            self._judge(place, partition, old.get(place), command, after)

    def _judge(
        self,
        place: Place,
        partition: Partition,
        was: Partition | None,
        command: Command,
        image: MetadataImage,
    ) -> None:
        topic = image.topic_by_id(place[0])
        assert topic is not None
        known = self.complete.get(place, frozenset(partition.isr))
        new_epoch = was is not None and partition.leader_epoch != was.leader_epoch
        elected = new_epoch and partition.leader != NO_LEADER
        if elected and not isinstance(command, ElectLeader):
            best = known or self.remains.get(place, frozenset())
            assert partition.leader in best or len(partition.replicas) == 1, "a leader that misses records"
        assert frozenset(partition.elr) <= known, "eligible, but not complete"
        if partition.leader != NO_LEADER:
            led_by = self.leaders.setdefault((place, partition.leader_epoch), partition.leader)
            assert led_by == partition.leader, "two leaders in one epoch"
        needed = topic_value(image, topic, "min.insync.replicas")
        assert isinstance(needed, int)
        minimum = min(needed, len(partition.replicas))
        committing = partition.leader != NO_LEADER and len(partition.isr) >= minimum
        # Nobody was complete, or an operator did not mind: the new leader's log is the truth.
        started_over = elected and partition.leader not in known
        joined = frozenset(partition.isr) - known - ({partition.leader} if started_over else frozenset())
        assert was is None or not joined, "in sync, but not complete"
        if committing or started_over:
            known = frozenset()
        self.complete[place] = known | frozenset(partition.isr)

    def _lose(self, before: MetadataImage, command: Command, after: MetadataImage) -> None:
        if after is before:
            return
        if isinstance(command, ResignReplica):
            self._lost((command.topic_id, int(command.index)), command.node_id, everything=True)
        former = before.broker(command.node_id) if isinstance(command, RegisterBroker) else None
        if former is None or not isinstance(command, RegisterBroker):
            return
        moved = former.directory_id != command.directory_id
        clean = former.epoch == command.previous_epoch or (former.synced and command.synced)
        if moved or not clean:
            for place in list(self.complete):
                self._lost(place, command.node_id, everything=moved)

    def _lost(self, place: Place, node_id: NodeId, *, everything: bool) -> None:
        lost = frozenset((node_id,))
        known = self.complete.get(place, frozenset())
        self.complete[place] = known - lost
        if everything:
            self.remains[place] = self.remains.get(place, frozenset()) - lost
        elif known == lost:
            self.remains[place] = lost


def check_shape(image: MetadataImage) -> None:
    count, replicas = 0, Counter[NodeId]()
    for topic in image.each_topic():
        assert image.topic_id(topic.name) == topic.id
        assert topic.partitions, "a topic has partitions"
        for index, partition in enumerate(topic.partitions):
            count += 1
            replicas.update(partition.replicas)
            check_partition(image, index, partition)
    for broker in image.each_broker():
        drained = image.config(ConfigResourceType.BROKER, str(broker.node_id)).get("broker.drained") == "true"
        assert broker.drained is drained
    assert count == image.partition_count
    assert replicas == image.replica_counts
    assert len(image.topics) == len(image.topic_ids)


def check_partition(image: MetadataImage, index: int, partition: Partition) -> None:
    isr, elr, last = map(frozenset, (partition.isr, partition.elr, partition.last_known_elr))
    assert partition.index == index
    assert isr | elr | last <= frozenset(partition.replicas)
    adding, removing = frozenset(partition.adding), frozenset(partition.removing)
    assert adding | removing <= frozenset(partition.replicas)
    assert not adding & removing
    assert partition.target
    assert partition.origin
    assert len(frozenset(partition.replicas)) == len(partition.replicas) == len(partition.directories)
    assert len(isr) + len(elr) + len(last) == len(isr | elr | last), "one role each"
    if partition.leader == NO_LEADER:
        assert not any(image.may_lead(node_id) for node_id in (*partition.isr, *partition.elr))
    else:
        assert partition.leader in isr
        assert image.is_live(partition.leader)


def check_epochs(before: MetadataImage, after: MetadataImage) -> None:
    old = partitions_in(before)
    for place, partition in partitions_in(after).items():
        was = old.get(place)
        if was is None or was == partition:
            continue
        assert partition.partition_epoch == was.partition_epoch + 1
        assert partition.leader_epoch - was.leader_epoch in (0, 1)
        if partition.leader != was.leader:
            assert partition.leader_epoch == was.leader_epoch + 1
    assert after.last_broker_epoch >= before.last_broker_epoch
    assert after.next_producer_id >= before.next_producer_id


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_must_hold_holds_after_every_command(data: st.DataObject) -> None:
    live_through(data, data.draw(starting_points()), commands)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_must_hold_holds_while_brokers_come_and_go_and_replicas_move(data: st.DataObject) -> None:
    live_through(data, running_cluster(), replica_commands)


def live_through(
    data: st.DataObject,
    machine: MetadataMachine,
    strategy: Callable[[MetadataImage], st.SearchStrategy[Command]],
) -> None:
    holders = Holders()
    holders.observe(EMPTY_IMAGE, BootstrapCluster(CLUSTER), machine.image)

    for _ in range(data.draw(st.integers(1, STEPS))):
        before = machine.image
        command = data.draw(strategy(before))
        decision = machine.decide(command, NOW)

        assert machine.image is before
        if isinstance(decision.reply, ApiError):
            assert decision.facts == ()
        machine.replay(decision.facts)
        check_shape(machine.image)
        check_epochs(before, machine.image)
        holders.observe(before, command, machine.image)


def history(data: st.DataObject) -> tuple[list[Fact], MetadataImage]:
    machine = data.draw(starting_points())
    facts: list[Fact] = list(snapshot(machine.image))
    for _ in range(data.draw(st.integers(1, STEPS))):
        decided = machine.decide(data.draw(commands(machine.image)), NOW).facts
        for fact in decided:
            machine.apply(fact)
        facts.extend(decided)
    return facts, machine.image


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_replaying_the_facts_rebuilds_the_same_image(data: st.DataObject) -> None:
    facts, image = history(data)

    rebuilt = replay(EMPTY_IMAGE, (decode_fact(encode_fact(fact)) for fact in facts))

    assert rebuilt == image
    assert list(snapshot(rebuilt)) == list(snapshot(image))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_snapshot_and_the_rest_are_as_good_as_the_whole_history(data: st.DataObject) -> None:
    facts, image = history(data)
    cut = data.draw(st.integers(0, len(facts)))
    at_cut = replay(EMPTY_IMAGE, facts[:cut])

    stored = [encode_fact(fact) for fact in snapshot(at_cut)]
    restored = replay(EMPTY_IMAGE, map(decode_fact, stored))

    assert restored == at_cut
    assert replay(restored, facts[cut:]) == image


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_facts_in_any_order_never_fail_to_apply(data: st.DataObject) -> None:
    facts, _ = history(data)
    shuffled = data.draw(st.permutations(facts))

    image = replay(EMPTY_IMAGE, shuffled)

    assert replay(EMPTY_IMAGE, snapshot(image)) == image
