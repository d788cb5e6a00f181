"""What the usual events cost to decide, and how many facts they are."""

from benchmarks.scale.shape import CLUSTER, RACKS, Journal, Shape, cpu_ms
from penstock.core.metadata import (
    AlterPartition,
    BalanceLeaders,
    BeginControlledShutdown,
    Command,
    Fact,
    FenceBroker,
    IsrMember,
    MetadataImage,
    MetadataMachine,
    Partition,
    ReassignPartition,
    Topic,
    UnfenceBroker,
    encode_fact,
)
from penstock.core.metadata.decision import MetadataDecision
from penstock.core.model import Instant, NodeId, PartitionIndex

NODE = NodeId(7)
TOPIC = "topic-00000"
# Calls of what takes microseconds, so that they can be told from nothing.
FEW = 500


def run(shape: Shape) -> dict[str, float]:
    journal = Journal()
    journal.register(shape)
    journal.create(shape)
    machine = journal.machine
    broker = machine.image.broker(NODE)
    assert broker is not None
    results: dict[str, float] = {}

    def measure(name: str, command: Command, calls: int = 1) -> MetadataDecision:
        def decide() -> MetadataDecision:
            for _ in range(calls - 1):
                machine.decide(command, Instant(0))
            return machine.decide(command, Instant(0))

        taken_ms, decision = cpu_ms(decide, 5)
        taken_ms /= calls
        size = sum(len(encode_fact(fact)) for fact in decision.facts)
        results[f"{name}_ms"] = taken_ms
        results[f"{name}_facts"] = float(len(decision.facts))
        results[f"{name}_kb"] = size / 1e3
        return decision

    whole = machine.image
    lost = measure("broker_lost", FenceBroker(NODE, broker.epoch))
    results["broker_lost_applied_ms"], _ = cpu_ms(lambda: machine.copy().replay(lost.facts), 5)
    machine.replay(lost.facts)
    back = measure("broker_back", UnfenceBroker(NODE, broker.epoch))
    machine.replay(back.facts)
    _rejoin(machine, NODE)
    measure("leaders_balanced", BalanceLeaders())
    machine.image = whole
    measure("broker_stops", BeginControlledShutdown(NODE, broker.epoch))
    measure("broker_restarted", shape.registration(NODE, CLUSTER))
    measure("isr_changed", _shrink(machine), FEW)
    measure("partition_moved", ReassignPartition(TOPIC, PartitionIndex(0), (NODE, NodeId(8), NodeId(9))), FEW)
    results |= _lose_rack(machine)
    results["walk_of_one_broker_ms"], _ = cpu_ms(lambda: list(machine.image.partitions_of(NODE)), 5)
    return results


def _shrink(machine: MetadataMachine) -> AlterPartition:
    """A leader has lost one of its followers."""
    topic = machine.image.topic(TOPIC)
    assert topic is not None
    partition = topic.partitions[0]
    return _proposal(machine.image, topic, partition, partition.isr[:2])


def _proposal(
    image: MetadataImage, topic: Topic, partition: Partition, isr: tuple[NodeId, ...]
) -> AlterPartition:
    epochs = {broker.node_id: broker.epoch for broker in image.each_broker()}
    return AlterPartition(
        partition.leader,
        epochs[partition.leader],
        topic.id,
        partition.index,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(IsrMember(node_id, epochs[node_id]) for node_id in isr),
    )


def _rejoin(machine: MetadataMachine, node_id: NodeId) -> None:
    """Every replica of the broker is in sync again."""
    for topic, partition in list(machine.image.partitions_of(node_id)):
        command = _proposal(machine.image, topic, partition, (*partition.isr, node_id))
        machine.replay(machine.decide(command, Instant(0)).facts)


def _lose_rack(machine: MetadataMachine) -> dict[str, float]:
    """A third of the brokers at once: decided one after the other, as their sessions end."""
    trial = machine.copy()
    lost = [broker for broker in trial.image.each_broker() if broker.rack == RACKS[0]]
    facts: list[Fact] = []

    def lose() -> None:
        for broker in lost:
            decided = trial.decide(FenceBroker(broker.node_id, broker.epoch), Instant(0)).facts
            trial.replay(decided)
            facts.extend(decided)

    taken_ms, _ = cpu_ms(lose)
    return {
        "rack_lost_brokers": float(len(lost)),
        "rack_lost_ms": taken_ms,
        "rack_lost_facts": float(len(facts)),
        "rack_lost_mb": sum(len(encode_fact(fact)) for fact in facts) / 1e6,
    }
