"""Brokers that stop, brokers that are drained, and replicas that resign."""

from dataclasses import replace

from penstock.core.metadata import (
    ALL_BROKERS,
    NO_LEADER,
    AlterConfigs,
    AlteredPartition,
    BeginControlledShutdown,
    ConfigResource,
    ConfigResourceType,
    DrainBroker,
    ElectionType,
    ElectLeader,
    MetadataMachine,
    Ok,
    RemainingLeaderships,
    Reply,
    ResignReplica,
)
from penstock.core.model import BrokerEpoch, ErrorKind, NodeId, PartitionIndex
from tests.unit.core.metadata.clusters import broker_of, fence, partition_of, perform, registration, unfence
from tests.unit.core.metadata.test_metadata_brokers import FIRST, TOPIC, kind_of, proposal, with_topic


def stop(machine: MetadataMachine, node_id: int) -> Reply:
    return perform(machine, BeginControlledShutdown(NodeId(node_id), broker_of(machine, node_id).epoch))


def resignation(machine: MetadataMachine, node_id: int) -> ResignReplica:
    return ResignReplica(NodeId(node_id), broker_of(machine, node_id).epoch, TOPIC, FIRST)


def test_a_leader_that_stops_hands_over_and_leaves_the_isr_at_once() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    assert stop(machine, first) == RemainingLeaderships(leading=0, replicas=1)

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.leader_epoch) == (second, (second, third), 1)
    assert broker_of(machine, first).stopping
    assert not broker_of(machine, first).fenced


def test_a_follower_that_stops_leaves_the_isr_and_stays_eligible_below_the_minimum() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    stop(machine, third)

    stop(machine, second)

    after = partition_of(machine, "t")
    assert (after.leader, after.leader_epoch) == (first, 0)
    assert (after.isr, after.elr) == ((first,), (second,))


def test_a_stopping_leader_keeps_what_nobody_else_can_lead_and_says_so() -> None:
    machine = with_topic(3, 3)
    first, _, third = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first))

    assert stop(machine, first) == RemainingLeaderships(leading=1, replicas=1)
    kept = partition_of(machine, "t")
    assert (kept.leader, kept.isr, kept.leader_epoch) == (first, (first,), 0)
    assert stop(machine, first) == RemainingLeaderships(leading=1, replicas=1)

    perform(machine, proposal(machine, first, third))

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.leader_epoch) == (third, (third,), 1)
    assert after.elr == (first,)
    assert stop(machine, first) == RemainingLeaderships(leading=0, replicas=1)


def test_when_everybody_stops_the_last_one_keeps_the_leadership() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    stop(machine, first)
    stop(machine, second)
    stop(machine, third)

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.elr) == (third, (third,), (second,))


def test_a_stopping_broker_is_not_elected_and_its_next_start_ends_that() -> None:
    machine = with_topic(2, 2)
    first, second = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first))
    stop(machine, first)
    fence(machine, first)
    unfence(machine, first)
    assert partition_of(machine, "t").leader == NO_LEADER

    perform(machine, registration(first, previous_epoch=broker_of(machine, first).epoch))

    assert not broker_of(machine, first).stopping
    assert partition_of(machine, "t").leader == first
    assert second not in partition_of(machine, "t").isr


def test_a_stopping_follower_may_not_come_back_into_the_isr() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    stop(machine, third)

    assert kind_of(machine, proposal(machine, first, second, third)) is ErrorKind.INELIGIBLE_REPLICA
    assert kind_of(machine, BeginControlledShutdown(third, BrokerEpoch(99))) is ErrorKind.STALE_BROKER_EPOCH


def test_a_drained_broker_loses_its_leaderships_and_stays_in_sync() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    assert perform(machine, DrainBroker(first)) == RemainingLeaderships(leading=0, replicas=1)

    after = partition_of(machine, "t")
    assert (after.leader, after.isr) == (second, (first, second, third))
    assert (
        kind_of(machine, ElectLeader("t", FIRST, ElectionType.PREFERRED))
        is ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE
    )
    assert kind_of(machine, DrainBroker(NodeId(9))) is ErrorKind.UNKNOWN_BROKER


def test_a_drained_broker_leads_only_while_nobody_else_can() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    perform(machine, DrainBroker(first))
    fence(machine, third)

    fence(machine, second)
    assert partition_of(machine, "t").leader == first
    unfence(machine, second)
    perform(machine, proposal(machine, first, second))

    assert partition_of(machine, "t").leader == second


def test_drain_outlives_a_restart_and_is_undone_by_command() -> None:
    machine = with_topic(3, 3)
    first = partition_of(machine, "t").leader
    perform(machine, DrainBroker(first))

    perform(machine, registration(first))
    assert broker_of(machine, first).drained
    assert machine.image.config(ConfigResourceType.BROKER, str(first)) == {"broker.drained": "true"}
    perform(machine, DrainBroker(first, undo=True))
    perform(machine, ElectLeader("t", FIRST, ElectionType.PREFERRED))

    assert not broker_of(machine, first).drained
    assert partition_of(machine, "t").leader == first


def test_a_broker_can_be_drained_by_its_configuration() -> None:
    machine = with_topic(3, 3)
    first, second, _ = partition_of(machine, "t").replicas
    resource = ConfigResource(ConfigResourceType.BROKER, str(first))

    perform(machine, AlterConfigs(resource, (("broker.drained", "true"),)))
    drained = partition_of(machine, "t")
    perform(machine, DrainBroker(first, undo=True))

    assert drained.leader == second
    assert not broker_of(machine, first).drained
    assert machine.image.config(*resource) == {}
    everyone = ConfigResource(ConfigResourceType.BROKER, ALL_BROKERS)
    assert (
        kind_of(machine, AlterConfigs(everyone, (("broker.drained", "true"),))) is ErrorKind.INVALID_REQUEST
    )


def test_a_leader_that_stops_hands_over_to_a_drained_broker_rather_than_to_nobody() -> None:
    machine = with_topic(2, 2)
    first, second = partition_of(machine, "t").replicas
    perform(machine, DrainBroker(second))
    perform(machine, DrainBroker(first))
    assert partition_of(machine, "t").leader == first

    stop(machine, first)

    assert partition_of(machine, "t").leader == second


def test_a_damaged_leader_resigns_in_favour_of_a_replica_in_sync() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    reply = perform(machine, resignation(machine, first))

    after = partition_of(machine, "t")
    assert reply == AlteredPartition(after)
    assert (after.leader, after.isr, after.leader_epoch) == (second, (second, third), 1)


def test_a_damaged_follower_leaves_isr_and_elr_and_the_leader_forgets_what_it_knew_of_it() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first))
    assert partition_of(machine, "t").elr == (second, third)

    perform(machine, resignation(machine, third))

    after = partition_of(machine, "t")
    assert (after.isr, after.elr, after.last_known_elr) == ((first,), (second,), ())
    assert (after.leader, after.leader_epoch) == (first, 1)


def test_a_leader_resigns_to_a_replica_that_is_away_but_complete() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)

    perform(machine, resignation(machine, first))

    assert (partition_of(machine, "t").leader, partition_of(machine, "t").elr) == (NO_LEADER, (second,))
    unfence(machine, second)
    assert partition_of(machine, "t").leader == second


def test_the_last_complete_replica_may_not_resign() -> None:
    machine = with_topic(2, 2, min_insync_replicas="1")
    first, second = partition_of(machine, "t").replicas
    fence(machine, second)
    last = resignation(machine, first)

    assert kind_of(machine, last) is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert kind_of(machine, replace(last, broker_epoch=BrokerEpoch(9))) is ErrorKind.STALE_BROKER_EPOCH
    assert kind_of(machine, replace(last, index=PartitionIndex(7))) is ErrorKind.UNKNOWN_PARTITION


def test_only_a_replica_can_resign() -> None:
    machine = with_topic(2, 1)
    other = next(n for n in (1, 2) if n not in partition_of(machine, "t").replicas)

    assert kind_of(machine, resignation(machine, other)) is ErrorKind.INVALID_REQUEST
    assert fence(machine, other) == Ok()
