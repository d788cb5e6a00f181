"""Brokers that come and go, and who leads afterwards."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.core.metadata import (
    NO_LEADER,
    AllocateProducerIds,
    AlteredPartition,
    AlterPartition,
    BootstrapCluster,
    BrokerFenced,
    BrokerUnregistered,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreateTopic,
    ElectionType,
    ElectLeader,
    FenceBroker,
    IncrementalAlterConfigs,
    IsrMember,
    MetadataMachine,
    Ok,
    ProducerIdBlock,
    RegisteredBroker,
    UnregisterBroker,
)
from penstock.core.metadata.commands import Command
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, LeaderEpoch, NodeId, PartitionIndex, TopicId
from tests.unit.core.metadata.clusters import (
    broker_of,
    cluster,
    directory,
    fence,
    partition_of,
    perform,
    registration,
    unfence,
)

TOPIC = TopicId(UUID(int=1))
FIRST = PartitionIndex(0)


def kind_of(machine: MetadataMachine, command: Command) -> ErrorKind:
    reply = perform(machine, command)
    assert isinstance(reply, ApiError), reply
    return reply.kind


def with_topic(brokers: int, replicas: int, **configs: str) -> MetadataMachine:
    machine = cluster(brokers)
    pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
    command = CreateTopic("t", TOPIC, partitions=1, replication_factor=replicas, configs=pairs)
    assert not isinstance(perform(machine, command), ApiError)
    return machine


def proposal(machine: MetadataMachine, *isr: int, index: int = 0) -> AlterPartition:
    """What the leader would send if it found these replicas in sync."""
    partition = partition_of(machine, "t", index)
    members = tuple(IsrMember(NodeId(n), broker_of(machine, n).epoch) for n in isr)
    leader = broker_of(machine, partition.leader)
    return AlterPartition(
        leader.node_id,
        leader.epoch,
        TOPIC,
        partition.index,
        partition.leader_epoch,
        partition.partition_epoch,
        members,
    )


def test_every_registration_is_a_new_epoch_even_after_the_broker_left_for_good() -> None:
    machine = cluster(brokers=2)
    last = broker_of(machine, 2).epoch

    fence(machine, 2)
    perform(machine, UnregisterBroker(NodeId(2)))
    reply = perform(machine, registration(2))

    assert reply == RegisteredBroker(BrokerEpoch(last + 1))


def test_a_registration_that_arrives_twice_is_one() -> None:
    machine = cluster(brokers=2)
    asked = replace(registration(2), incarnation=UUID(int=9), known_epoch=broker_of(machine, 2).epoch)

    first = perform(machine, asked)
    again = perform(machine, asked)

    assert first == again
    assert isinstance(first, RegisteredBroker)
    assert broker_of(machine, 2).epoch == first.epoch


def test_a_registration_of_an_earlier_incarnation_does_not_replace_that_of_a_later_one() -> None:
    machine = cluster(brokers=2)
    known = broker_of(machine, 2).epoch
    earlier = replace(registration(2), incarnation=UUID(int=8), known_epoch=known)
    later = replace(registration(2), incarnation=UUID(int=9), known_epoch=known)

    perform(machine, later)

    assert kind_of(machine, earlier) is ErrorKind.STALE_BROKER_EPOCH
    assert broker_of(machine, 2).incarnation == UUID(int=9)


def test_a_leader_that_restarts_writes_under_a_new_leader_epoch() -> None:
    machine = with_topic(1, 1)
    before = partition_of(machine, "t")

    perform(machine, registration(1))

    after = partition_of(machine, "t")
    assert after.leader == 1
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_a_broker_that_registers_fenced_leads_once_it_is_unfenced() -> None:
    machine = with_topic(1, 1)

    perform(machine, registration(1, fenced=True))
    waiting = partition_of(machine, "t")
    unfence(machine, 1)
    leading = partition_of(machine, "t")

    assert (waiting.leader, waiting.isr, waiting.elr) == (NO_LEADER, (), (1,))
    assert (leading.leader, leading.isr, leading.elr) == (1, (1,), ())
    assert leading.leader_epoch > waiting.leader_epoch > 0


def test_a_fenced_leader_hands_over_to_the_next_replica_in_sync() -> None:
    machine = with_topic(3, 3)
    before = partition_of(machine, "t")

    assert fence(machine, before.leader) == Ok()

    after = partition_of(machine, "t")
    assert after.leader == before.replicas[1]
    assert after.isr == before.replicas[1:]
    assert after.leader_epoch == before.leader_epoch + 1


def test_a_fenced_follower_leaves_the_isr_and_the_leader_keeps_its_epoch() -> None:
    machine = with_topic(3, 3)
    before = partition_of(machine, "t")

    fence(machine, before.replicas[2])

    after = partition_of(machine, "t")
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert after.isr == before.replicas[:2]
    assert after.partition_epoch == before.partition_epoch + 1


def test_below_the_minimum_the_replicas_that_leave_stay_eligible() -> None:
    machine = with_topic(3, 3)  # minimum ISR is 2
    first, second, third = partition_of(machine, "t").replicas

    fence(machine, third)
    assert partition_of(machine, "t").elr == ()
    fence(machine, second)
    assert (partition_of(machine, "t").isr, partition_of(machine, "t").elr) == ((first,), (second,))
    fence(machine, first)

    gone = partition_of(machine, "t")
    assert (gone.leader, gone.isr, gone.elr) == (NO_LEADER, (), (first, second))


def test_an_eligible_replica_leads_when_it_returns_and_another_one_does_not() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    for node_id in (third, second, first):
        fence(machine, node_id)

    unfence(machine, third)
    assert partition_of(machine, "t").leader == NO_LEADER
    unfence(machine, second)

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.elr) == (second, (second,), (first,))


def test_a_lower_minimum_ends_the_eligibility_of_replicas_that_will_miss_records() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)
    assert partition_of(machine, "t").elr == (second,)

    change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", "1")
    perform(machine, IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "t"), (change,)))

    assert partition_of(machine, "t").elr == ()
    fence(machine, first)
    unfence(machine, second)
    assert partition_of(machine, "t").leader == NO_LEADER


def test_an_unclean_stop_without_synced_writes_costs_the_place_in_isr_and_elr() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)

    perform(machine, registration(second, synced=False))

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.elr) == (first, (first,), ())
    assert after.last_known_elr == (second,)


@pytest.mark.parametrize("synced", [True, False])
def test_a_clean_stop_costs_nothing_whatever_the_fsync_mode(synced: bool) -> None:
    machine = with_topic(3, 3)
    _, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)
    stopped_at = broker_of(machine, second).epoch

    perform(machine, registration(second, previous_epoch=stopped_at, synced=synced))

    assert partition_of(machine, "t").elr == (second,)


def test_the_only_replica_leads_again_even_after_an_unclean_stop() -> None:
    machine = with_topic(1, 1)

    perform(machine, registration(1, synced=False))

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 1)
    assert after.last_known_elr == ()


def test_recovery_goes_by_the_fsync_mode_of_the_process_that_crashed() -> None:
    machine = with_topic(3, 3)
    _, second, _ = partition_of(machine, "t").replicas
    crashed_in = broker_of(machine, second).epoch
    perform(machine, registration(second, previous_epoch=crashed_in, synced=False))
    assert second in partition_of(machine, "t").isr

    perform(machine, registration(second, synced=True))

    assert second not in partition_of(machine, "t").isr


def test_a_new_disk_of_the_last_complete_replica_is_not_the_way_back() -> None:
    machine = with_topic(2, 2, min_insync_replicas="1")
    first, second = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first))
    fence(machine, first)

    perform(machine, replace(registration(first), directory_id=UUID(int=77)))

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (), ())
    perform(machine, ElectLeader("t", FIRST, ElectionType.UNCLEAN))
    assert partition_of(machine, "t").leader == second
    perform(machine, proposal(machine, second, first))
    assert partition_of(machine, "t").directories == (UUID(int=77), directory(second))


def test_a_replica_that_lost_its_tail_is_not_the_way_back_for_one_that_lost_everything() -> None:
    machine = with_topic(3, 3)  # minimum ISR is 2
    first, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)
    perform(machine, registration(second, synced=False))
    assert partition_of(machine, "t").last_known_elr == (second,)
    fence(machine, first)

    perform(machine, replace(registration(first), directory_id=UUID(int=77)))

    assert (partition_of(machine, "t").leader, partition_of(machine, "t").last_known_elr) == (NO_LEADER, ())


def test_two_that_lost_their_tails_wait_for_somebody_to_choose() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)
    for node_id in (second, first):
        perform(machine, registration(node_id, synced=False))
    unfence(machine, third)
    waiting = partition_of(machine, "t")
    assert (waiting.leader, waiting.last_known_elr) == (NO_LEADER, (first, second))

    perform(machine, ElectLeader("t", FIRST, ElectionType.UNCLEAN))

    assert partition_of(machine, "t").leader == first


def test_the_only_replica_leads_again_with_what_it_has_even_on_a_new_disk() -> None:
    machine = with_topic(1, 1)
    fence(machine, 1)

    perform(machine, replace(registration(1), directory_id=UUID(int=77)))

    assert (partition_of(machine, "t").leader, partition_of(machine, "t").isr) == (1, (1,))


def test_a_broker_that_was_forgotten_and_returns_leads_the_partitions_that_only_it_has() -> None:
    machine = with_topic(1, 1)
    fence(machine, 1)
    perform(machine, UnregisterBroker(NodeId(1)))
    assert partition_of(machine, "t").leader == NO_LEADER

    perform(machine, registration(1))

    assert partition_of(machine, "t").leader == 1


def test_a_replica_with_a_new_directory_has_lost_everything() -> None:
    machine = with_topic(3, 3)
    _, second, third = partition_of(machine, "t").replicas
    fence(machine, third)
    fence(machine, second)

    perform(machine, replace(registration(second), directory_id=UUID(int=77)))

    assert partition_of(machine, "t").elr == ()


def test_registrations_that_contradict_the_cluster_are_refused() -> None:
    machine = cluster(brokers=2)

    assert kind_of(machine, replace(registration(3), cluster_id="other")) is ErrorKind.INCONSISTENT_CLUSTER
    assert kind_of(machine, replace(registration(1), directory_id=UUID(int=9))) is ErrorKind.DUPLICATE_BROKER
    assert kind_of(machine, replace(registration(3), directory_id=directory(1))) is ErrorKind.DUPLICATE_BROKER
    assert kind_of(machine, replace(registration(3), features=())) is ErrorKind.INVALID_FEATURE_LEVEL
    assert kind_of(machine, registration(-1)) is ErrorKind.INVALID_REQUEST
    assert kind_of(MetadataMachine(), registration(1)) is ErrorKind.INCONSISTENT_CLUSTER
    assert kind_of(machine, BootstrapCluster("other")) is ErrorKind.INCONSISTENT_CLUSTER


def test_an_old_epoch_has_no_say_any_more() -> None:
    machine = cluster(brokers=1)
    old = broker_of(machine, 1).epoch
    perform(machine, registration(1))

    assert kind_of(machine, FenceBroker(NodeId(1), old)) is ErrorKind.STALE_BROKER_EPOCH
    assert kind_of(machine, AllocateProducerIds(NodeId(1), old)) is ErrorKind.STALE_BROKER_EPOCH
    assert kind_of(machine, AllocateProducerIds(NodeId(5), old)) is ErrorKind.UNKNOWN_BROKER
    assert not broker_of(machine, 1).fenced


def test_facts_about_a_former_incarnation_of_a_broker_change_nothing() -> None:
    machine = cluster(brokers=1)
    old = broker_of(machine, 1).epoch
    perform(machine, registration(1))
    before = machine.image

    machine.apply(BrokerFenced(NodeId(1), old))
    machine.apply(BrokerUnregistered(NodeId(1), old))
    machine.apply(BrokerFenced(NodeId(9), old))

    assert machine.image == before


def test_blocks_of_producer_ids_follow_each_other() -> None:
    machine = cluster(brokers=2)

    blocks = [
        perform(machine, AllocateProducerIds(NodeId(n), broker_of(machine, n).epoch)) for n in (1, 2, 1)
    ]

    assert [(b.start, b.count) for b in blocks if isinstance(b, ProducerIdBlock)] == [
        (0, 1_000),
        (1_000, 1_000),
        (2_000, 1_000),
    ]


def test_a_leader_shrinks_and_grows_its_isr() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    shrunk = perform(machine, proposal(machine, first))
    assert isinstance(shrunk, AlteredPartition)
    assert (shrunk.partition.isr, shrunk.partition.elr) == ((first,), (second, third))
    grown = perform(machine, proposal(machine, third, first))

    assert isinstance(grown, AlteredPartition)
    assert (grown.partition.isr, grown.partition.elr) == ((first, third), ())
    assert grown.partition.leader_epoch == 0
    assert grown.partition == partition_of(machine, "t")


def test_a_proposal_that_changes_nothing_still_ends_the_epoch_of_those_before_it() -> None:
    machine = with_topic(2, 2)
    first, second = partition_of(machine, "t").replicas
    lost_on_the_way = proposal(machine, first)

    confirmed = perform(machine, proposal(machine, first, second))

    assert isinstance(confirmed, AlteredPartition)
    assert (confirmed.partition.isr, confirmed.partition.partition_epoch) == ((first, second), 1)
    assert kind_of(machine, lost_on_the_way) is ErrorKind.STALE_PARTITION_EPOCH


def test_proposals_from_the_past_the_future_or_the_wrong_broker_are_refused() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first, second))
    good = proposal(machine, first, second, third)

    assert kind_of(machine, replace(good, leader_epoch=LeaderEpoch(-1))) is ErrorKind.FENCED_LEADER_EPOCH
    assert kind_of(machine, replace(good, leader_epoch=LeaderEpoch(9))) is ErrorKind.UNKNOWN_LEADER_EPOCH
    assert kind_of(machine, replace(good, partition_epoch=0)) is ErrorKind.STALE_PARTITION_EPOCH
    assert kind_of(machine, replace(good, partition_epoch=9)) is ErrorKind.UNKNOWN_LEADER_EPOCH
    assert kind_of(machine, replace(good, broker_epoch=BrokerEpoch(99))) is ErrorKind.STALE_BROKER_EPOCH
    assert kind_of(machine, replace(good, topic_id=TopicId(UUID(int=5)))) is ErrorKind.UNKNOWN_TOPIC_ID
    assert kind_of(machine, replace(good, index=PartitionIndex(1))) is ErrorKind.UNKNOWN_PARTITION
    follower = replace(good, node_id=second, broker_epoch=broker_of(machine, second).epoch)
    assert kind_of(machine, follower) is ErrorKind.INVALID_REQUEST
    assert kind_of(machine, replace(good, isr=good.isr[1:])) is ErrorKind.INVALID_REQUEST
    assert kind_of(machine, replace(good, isr=good.isr * 2)) is ErrorKind.INVALID_REQUEST


def test_a_replica_that_restarted_or_is_fenced_may_not_join_the_isr() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    perform(machine, proposal(machine, first, second))
    stale = proposal(machine, first, second, third)

    perform(machine, registration(third))
    assert kind_of(machine, stale) is ErrorKind.INELIGIBLE_REPLICA
    fence(machine, third)
    assert kind_of(machine, proposal(machine, first, second, third)) is ErrorKind.INELIGIBLE_REPLICA


def test_leadership_returns_to_the_preferred_replica_on_request() -> None:
    machine = with_topic(3, 3)
    first, second, _ = partition_of(machine, "t").replicas
    elect = ElectLeader("t", FIRST, ElectionType.PREFERRED)
    assert kind_of(machine, elect) is ErrorKind.ELECTION_NOT_NEEDED
    fence(machine, first)
    unfence(machine, first)
    assert partition_of(machine, "t").leader == second
    assert kind_of(machine, elect) is ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE
    perform(machine, proposal(machine, *partition_of(machine, "t").replicas))

    perform(machine, elect)

    assert partition_of(machine, "t").leader == first


def test_an_unclean_election_takes_whoever_is_alive() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas
    elect = ElectLeader("t", FIRST, ElectionType.UNCLEAN)
    assert kind_of(machine, elect) is ErrorKind.ELECTION_NOT_NEEDED
    for node_id in (third, second, first):
        fence(machine, node_id)
    assert kind_of(machine, elect) is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE
    unfence(machine, third)

    perform(machine, elect)

    after = partition_of(machine, "t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (third, (third,), (), ())
    assert after.unclean_epoch == after.leader_epoch
    unfence(machine, first)
    perform(machine, proposal(machine, first, third))
    fence(machine, third)
    clean = partition_of(machine, "t")
    assert (clean.leader, clean.unclean_epoch) == (first, after.unclean_epoch)
    assert clean.leader_epoch > clean.unclean_epoch


def test_followers_are_told_of_leaders_that_may_miss_records_and_of_no_others() -> None:
    machine = with_topic(3, 3)
    first, second, _ = partition_of(machine, "t").replicas

    fence(machine, first)
    assert (partition_of(machine, "t").leader, partition_of(machine, "t").unclean_epoch) == (second, -1)

    alone = with_topic(1, 1)
    perform(alone, registration(1, synced=False))
    assert partition_of(alone, "t").unclean_epoch == partition_of(alone, "t").leader_epoch == 1


def test_a_topic_that_allows_it_elects_uncleanly_by_itself() -> None:
    machine = with_topic(3, 3, unclean_leader_election_enable="true")
    first, second, third = partition_of(machine, "t").replicas
    for node_id in (third, second, first):
        fence(machine, node_id)

    unfence(machine, third)

    assert partition_of(machine, "t").leader == third


def test_a_broker_that_leaves_for_good_leads_nothing_any_more() -> None:
    machine = with_topic(3, 3)
    first, second, third = partition_of(machine, "t").replicas

    assert kind_of(machine, UnregisterBroker(first)) is ErrorKind.INVALID_REQUEST
    fence(machine, first)
    perform(machine, UnregisterBroker(first))

    after = partition_of(machine, "t")
    assert (after.leader, after.isr) == (second, (second, third))
    assert machine.image.broker(first) is None
    assert kind_of(machine, UnregisterBroker(first)) is ErrorKind.UNKNOWN_BROKER


@pytest.mark.parametrize("session_ms", [-1, 600_001, 1 << 62])
def test_no_broker_may_be_silent_for_ever(session_ms: int) -> None:
    machine = cluster(1)

    assert kind_of(machine, replace(registration(9), session_ms=session_ms)) is ErrorKind.INVALID_REQUEST
    assert machine.image.broker(NodeId(9)) is None
    assert isinstance(perform(machine, replace(registration(9), session_ms=600_000)), RegisteredBroker)
