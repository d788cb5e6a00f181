"""Replicas that move to other brokers."""

import pytest

from penstock.core.metadata import (
    NO_LEADER,
    AlteredPartition,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreateTopic,
    DrainBroker,
    IncrementalAlterConfigs,
    MetadataMachine,
    ReassignPartition,
    ReplicaAssignment,
)
from penstock.core.metadata.effective_configs import topic_value
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex
from tests.unit.core.metadata.clusters import cluster, directory, fence, partition_of, perform
from tests.unit.core.metadata.test_metadata_brokers import FIRST, TOPIC, kind_of, proposal
from tests.unit.core.metadata.test_metadata_departures import stop

CALL_OFF = ReassignPartition("t", FIRST, None)


def on(*replicas: int, partitions: int = 1) -> MetadataMachine:
    """Six live brokers, and a topic "t" whose partitions are all on these replicas."""
    machine = cluster(6)
    nodes = tuple(map(NodeId, replicas))
    rows = tuple(ReplicaAssignment(PartitionIndex(index), nodes) for index in range(partitions))
    assert not isinstance(perform(machine, CreateTopic("t", TOPIC, assignments=rows)), ApiError)
    return machine


def move(*replicas: int, index: int = 0, resize: bool = True) -> ReassignPartition:
    return ReassignPartition("t", PartitionIndex(index), tuple(map(NodeId, replicas)), resize)


def minimum(machine: MetadataMachine) -> int:
    topic = machine.image.topic("t")
    assert topic is not None
    value = topic_value(machine.image, topic, "min.insync.replicas")
    assert isinstance(value, int)
    return value


def set_minimum(machine: MetadataMachine, value: int) -> None:
    change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", str(value))
    perform(machine, IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "t"), (change,)))


def test_a_move_starts_with_the_old_and_the_new_replicas() -> None:
    machine = on(1, 2, 3)

    reply = perform(machine, move(4, 2))

    moving = partition_of(machine, "t")
    assert reply == AlteredPartition(moving)
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 1, 3), (4,), (1, 3))
    assert (moving.target, moving.origin) == ((4, 2), (2, 1, 3))
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, (1, 2, 3), 0)
    assert moving.directories == tuple(map(directory, (4, 2, 1, 3)))


def test_a_move_ends_when_the_last_new_replica_is_in_sync() -> None:
    machine = on(1, 2, 3)
    perform(machine, move(4, 5, 6))

    perform(machine, proposal(machine, 1, 2, 3, 4))
    assert partition_of(machine, "t").is_moving
    perform(machine, proposal(machine, 1, 3, 4, 6))
    assert partition_of(machine, "t").is_moving
    reply = perform(machine, proposal(machine, 1, 3, 4, 5, 6))

    done = partition_of(machine, "t")
    assert reply == AlteredPartition(done)
    assert (done.replicas, done.isr, done.leader) == ((4, 5, 6), (4, 5, 6), 4)
    assert (done.adding, done.removing, done.leader_epoch) == ((), (), 1)
    assert done.directories == tuple(map(directory, (4, 5, 6)))


def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_are_taken_away() -> None:
    machine = on(1, 2, 3)
    perform(machine, move(1, 4, 5))

    perform(machine, proposal(machine, 1, 4, 5))

    done = partition_of(machine, "t")
    assert (done.replicas, done.leader, done.leader_epoch) == ((1, 4, 5), 1, 1)


def test_a_target_replica_that_is_down_does_not_hold_up_the_move() -> None:
    machine = on(1, 2, 3)
    fence(machine, 2)
    perform(machine, move(1, 2, 4))

    perform(machine, proposal(machine, 1, 3, 4))

    done = partition_of(machine, "t")
    assert (done.replicas, done.isr) == ((1, 2, 4), (1, 4))


def test_a_move_waits_until_those_who_stay_are_enough_to_write() -> None:
    machine = on(1, 2, 3)
    set_minimum(machine, 2)
    perform(machine, proposal(machine, 1, 3))

    perform(machine, move(2, 3))
    assert partition_of(machine, "t").is_moving
    perform(machine, proposal(machine, 1, 2, 3))

    done = partition_of(machine, "t")
    assert (done.replicas, done.isr, done.leader) == ((2, 3), (2, 3), 2)


def test_fewer_replicas_and_another_order_need_no_waiting() -> None:
    machine = on(1, 2, 3)

    perform(machine, move(3, 2))
    fewer = partition_of(machine, "t")
    perform(machine, move(2, 3))
    turned = partition_of(machine, "t")

    assert (fewer.replicas, fewer.isr, fewer.leader, fewer.is_moving) == ((3, 2), (2, 3), 3, False)
    assert (turned.replicas, turned.leader, turned.leader_epoch) == ((2, 3), 3, fewer.leader_epoch)
    assert turned.partition_epoch == fewer.partition_epoch + 1


def test_a_move_to_where_the_partition_is_changes_nothing() -> None:
    machine = on(1, 2)
    before = machine.image

    assert perform(machine, move(1, 2)) == AlteredPartition(partition_of(machine, "t"))

    assert machine.image == before


def test_a_new_move_replaces_one_that_is_under_way() -> None:
    machine = on(1, 2, 3)
    perform(machine, move(1, 2, 4))
    perform(machine, move(1, 4, 5))

    moving = partition_of(machine, "t")
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 4, 5, 2, 3), (4, 5), (2, 3))

    perform(machine, proposal(machine, 1, 2, 3, 5))
    assert partition_of(machine, "t").is_moving
    perform(machine, proposal(machine, 1, 2, 3, 4, 5))
    assert partition_of(machine, "t").replicas == (1, 4, 5)


def test_a_replica_that_only_a_replaced_move_wanted_goes_at_once() -> None:
    machine = on(1, 2, 3)
    perform(machine, move(4, 2, 6))
    perform(machine, proposal(machine, 2, 1, 4))

    perform(machine, move(1, 2, 5))

    moving = partition_of(machine, "t")
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 2, 5, 3), (5,), (3,))
    assert (moving.isr, moving.leader, moving.leader_epoch) == ((2, 1), 1, 1)


def test_a_move_can_be_called_off() -> None:
    machine = on(1, 2, 3)
    perform(machine, move(4, 5, 6))
    perform(machine, proposal(machine, 1, 2, 4))

    perform(machine, CALL_OFF)

    back = partition_of(machine, "t")
    assert (sorted(back.replicas), back.isr, back.leader) == ([1, 2, 3], (1, 2), 1)
    assert (back.is_moving, back.leader_epoch) == (False, 1)
    assert kind_of(machine, CALL_OFF) is ErrorKind.NO_REASSIGNMENT


def test_a_move_that_only_new_replicas_survived_cannot_be_called_off() -> None:
    machine = on(1)
    perform(machine, move(4, 5))
    perform(machine, proposal(machine, 1, 4))
    fence(machine, 1)
    assert partition_of(machine, "t").leader == 4

    assert kind_of(machine, CALL_OFF) is ErrorKind.INVALID_ASSIGNMENT
    assert kind_of(machine, move(1, 6)) is ErrorKind.INVALID_ASSIGNMENT


def test_a_move_is_called_off_in_favour_of_an_old_replica_that_is_complete_but_away() -> None:
    machine = on(1)
    set_minimum(machine, 2)
    perform(machine, move(1, 4, 5))
    perform(machine, proposal(machine, 1, 4))
    fence(machine, 1)
    assert (partition_of(machine, "t").leader, partition_of(machine, "t").elr) == (4, (1,))

    perform(machine, CALL_OFF)

    back = partition_of(machine, "t")
    assert (back.replicas, back.leader, back.isr, back.elr) == ((1,), NO_LEADER, (), (1,))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (move(), ErrorKind.INVALID_ASSIGNMENT),
        (move(1, 1), ErrorKind.INVALID_ASSIGNMENT),
        (move(1, 9), ErrorKind.INVALID_ASSIGNMENT),
        (move(1, -1), ErrorKind.INVALID_ASSIGNMENT),
        (move(1, 6), ErrorKind.INVALID_ASSIGNMENT),
        (move(1, 2, 3, resize=False), ErrorKind.INVALID_REPLICATION_FACTOR),
        (move(1, 2, index=1), ErrorKind.UNKNOWN_PARTITION),
        (ReassignPartition("u", FIRST, (NodeId(1),)), ErrorKind.UNKNOWN_PARTITION),
        (CALL_OFF, ErrorKind.NO_REASSIGNMENT),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(command: ReassignPartition, reason: ErrorKind) -> None:
    machine = on(1, 2)
    perform(machine, DrainBroker(NodeId(6)))

    assert kind_of(machine, command) is reason


def test_the_number_of_replicas_may_be_told_to_stay() -> None:
    machine = on(1, 2)

    perform(machine, move(3, 4, resize=False))
    assert kind_of(machine, move(5, resize=False)) is ErrorKind.INVALID_REPLICATION_FACTOR

    assert partition_of(machine, "t").target == (3, 4)


def test_more_replicas_raise_the_minimum_only_when_every_partition_has_them() -> None:
    machine = on(1, partitions=2)

    for index in (0, 1):
        perform(machine, move(1, 2, 3, index=index))
    assert minimum(machine) == 1
    perform(machine, proposal(machine, 1, 2, 3))
    assert not partition_of(machine, "t").is_moving
    assert minimum(machine) == 1
    perform(machine, proposal(machine, 1, 2, 3, index=1))

    assert minimum(machine) == 2


def test_fewer_replicas_lower_the_minimum_and_end_eligibility_in_the_whole_topic() -> None:
    machine = on(1, 2, 3, partitions=2)
    for index in (0, 1):
        perform(machine, proposal(machine, 1, index=index))
    assert partition_of(machine, "t", 1).elr == (2, 3)

    perform(machine, move(2))

    assert partition_of(machine, "t").is_moving
    assert minimum(machine) == 1
    assert (partition_of(machine, "t").elr, partition_of(machine, "t", 1).elr) == ((), ())


def test_a_move_waits_for_a_successor_that_does_not_stop() -> None:
    machine = on(1, 2)
    stop(machine, 2)
    assert partition_of(machine, "t").isr == (1,)
    perform(machine, move(3))
    stop(machine, 3)

    assert kind_of(machine, proposal(machine, 1, 3)) is ErrorKind.INELIGIBLE_REPLICA
    assert partition_of(machine, "t").leader == 1
