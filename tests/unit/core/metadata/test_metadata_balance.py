"""Leadership that returns to preferred replicas by itself."""

from penstock.core.metadata import (
    BalancedLeaders,
    BalanceLeaders,
    ControllerConfig,
    CreateTopic,
    DrainBroker,
    MetadataMachine,
    ReassignPartition,
    ReplicaAssignment,
)
from penstock.core.model import ApiError, NodeId, PartitionIndex
from tests.unit.core.metadata.clusters import cluster, fence, partition_of, perform, unfence
from tests.unit.core.metadata.test_metadata_brokers import TOPIC, proposal
from tests.unit.core.metadata.test_metadata_departures import stop


def misled(partitions: int = 4, around: ControllerConfig | None = None) -> MetadataMachine:
    """All partitions prefer broker 1, which was away; broker 2 leads them and 1 is back in sync."""
    machine = cluster(3, around)
    nodes = (NodeId(1), NodeId(2))
    rows = tuple(ReplicaAssignment(PartitionIndex(index), nodes) for index in range(partitions))
    assert not isinstance(perform(machine, CreateTopic("t", TOPIC, assignments=rows)), ApiError)
    fence(machine, 1)
    unfence(machine, 1)
    for index in range(partitions):
        perform(machine, proposal(machine, 2, 1, index=index))
    assert leaders(machine) == [2] * partitions
    return machine


def leaders(machine: MetadataMachine) -> list[int]:
    topic = machine.image.topic("t")
    assert topic is not None
    return [partition.leader for partition in topic.partitions]


def test_leadership_returns_to_a_broker_that_misses_too_much_of_it() -> None:
    machine = misled(4)
    before = partition_of(machine, "t")

    assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=4, left=0)

    assert leaders(machine) == [1, 1, 1, 1]
    assert partition_of(machine, "t").leader_epoch == before.leader_epoch + 1
    assert partition_of(machine, "t").isr == (1, 2)
    assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=0, left=0)


def test_leadership_returns_a_bounded_number_at_a_time() -> None:
    machine = misled(4)

    assert perform(machine, BalanceLeaders(moves_max=3)) == BalancedLeaders(moved=3, left=1)

    assert leaders(machine) == [1, 1, 1, 2]


def test_a_broker_that_misses_less_than_its_percentage_is_left_alone() -> None:
    machine = misled(4)
    around = ControllerConfig({"leader.imbalance.per.broker.percentage": "25"})
    machine = MetadataMachine(machine.image, around)
    perform(machine, BalanceLeaders(moves_max=3))

    assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=0, left=0)

    assert leaders(machine) == [1, 1, 1, 2]


def test_leadership_does_not_return_to_a_replica_that_cannot_or_should_not_lead() -> None:
    drained, stopping, out = misled(1), misled(1), misled(1)
    perform(drained, DrainBroker(NodeId(1)))
    stop(stopping, 1)
    perform(out, proposal(out, 2))

    for machine in (drained, stopping, out):
        assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=0, left=0)
        assert leaders(machine) == [2]


def test_partitions_that_move_are_left_alone_until_they_have_arrived() -> None:
    machine = misled(1)
    perform(machine, ReassignPartition("t", PartitionIndex(0), (NodeId(1), NodeId(3))))
    assert partition_of(machine, "t").is_moving

    assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=0, left=0)


def test_balance_can_be_switched_off() -> None:
    machine = misled(2, ControllerConfig({"auto.leader.rebalance.enable": "false"}))

    assert perform(machine, BalanceLeaders()) == BalancedLeaders(moved=0, left=0)

    assert leaders(machine) == [2, 2]
