"""Elections among replicas that have restarted: each says first what it found in its log."""

from uuid import UUID

import msgspec
import pytest

from penstock.core.metadata import (
    NO_LEADER,
    AlteredPartition,
    CreateTopic,
    DeposeLeader,
    ElectionType,
    ElectLeader,
    ElectReported,
    IncrementalAlterConfigs,
    MetadataMachine,
    Partition,
    PartitionChanged,
    PartitionReport,
    ReplicaAssignment,
    ReplicaLoss,
    Reply,
    ReportReplicas,
    decode_fact,
    encode_fact,
    replay,
    snapshot,
)
from penstock.core.metadata.commands import ConfigChange, ConfigOperation
from penstock.core.metadata.image import EMPTY_IMAGE, ConfigResource, ConfigResourceType
from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId
from tests.unit.core.metadata.clusters import (
    broker_of,
    cluster,
    fence,
    partition_of,
    perform,
    registration,
    unfence,
)

TOPIC_ID = TopicId(UUID(int=7))
KEY = (TOPIC_ID, PartitionIndex(0))


def started(replicas: int = 3, minimum: int = 2) -> MetadataMachine:
    """A partition `orders` whose replicas are all in sync."""
    machine = cluster(3)
    nodes = tuple(NodeId(number) for number in range(1, replicas + 1))
    placed = ReplicaAssignment(PartitionIndex(0), nodes)
    configs = (("min.insync.replicas", str(minimum)),)
    perform(machine, CreateTopic("orders", TOPIC_ID, assignments=(placed,), configs=configs))
    return machine


def restart(machine: MetadataMachine, *numbers: int, synced: bool = True, power_cut: bool = False) -> None:
    """All of them fell at once, and come back one after the other, still fenced."""
    for number in numbers:
        survived = -1 if power_cut or not synced else broker_of(machine, number).epoch
        perform(machine, registration(number, fenced=True, synced=synced, previous_epoch=survived))


def report(
    machine: MetadataMachine,
    number: int,
    end: int,
    loss: ReplicaLoss = ReplicaLoss.NOTHING,
    *,
    epoch: int = 0,
    former_end: int = -1,
) -> None:
    at = orders(machine).leader_epoch
    row = PartitionReport(*KEY, LeaderEpoch(epoch), Offset(end), at, loss, Offset(former_end))
    perform(machine, ReportReplicas(NodeId(number), broker_of(machine, number).epoch, (row,)))


def come_back(
    machine: MetadataMachine,
    number: int,
    end: int,
    loss: ReplicaLoss = ReplicaLoss.NOTHING,
    *,
    epoch: int = 0,
    former_end: int = -1,
) -> None:
    report(machine, number, end, loss, epoch=epoch, former_end=former_end)
    unfence(machine, number)


def grace_is_over(machine: MetadataMachine) -> None:
    perform(machine, ElectReported((KEY,)))


def orders(machine: MetadataMachine) -> Partition:
    return partition_of(machine, "orders")


@pytest.mark.parametrize("first", [2, 3])
def test_all_that_are_eligible_are_asked_before_one_leads(first: int) -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    assert orders(machine).elr == (2, 3)

    come_back(machine, first, 50)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 5 - first, 100)

    assert orders(machine).leader == 5 - first
    assert orders(machine).elr == (first,)


@pytest.mark.parametrize(
    "loss", [ReplicaLoss.DOUBTFUL, ReplicaLoss.TAIL, ReplicaLoss.RANGE, ReplicaLoss.EVERYTHING]
)
def test_a_replica_that_lost_records_is_not_eligible_any_more(loss: ReplicaLoss) -> None:
    machine = started()
    restart(machine, 1, 2, 3)

    come_back(machine, 2, 50, loss)
    assert (orders(machine).leader, orders(machine).elr) == (NO_LEADER, (3,))
    come_back(machine, 3, 100)

    assert (orders(machine).leader, orders(machine).elr) == (3, ())
    assert orders(machine).unclean_epoch == -1


def test_a_later_epoch_counts_more_than_a_further_end() -> None:
    machine = started()
    restart(machine, 1, 2, 3)

    come_back(machine, 2, 100, epoch=1)
    come_back(machine, 3, 90, epoch=2)

    assert orders(machine).leader == 3


def test_a_log_that_claims_records_of_an_epoch_that_never_began_is_damaged() -> None:
    """The epoch of a batch is not covered by its CRC: one bit must not win an election."""
    machine = started()
    restart(machine, 1, 2, 3)

    come_back(machine, 2, 50, epoch=1 << 20)
    come_back(machine, 3, 100)

    assert (orders(machine).leader, orders(machine).elr) == (3, ())


def test_the_longest_log_leads_also_if_it_is_not_eligible() -> None:
    """Replica 1 fell first, as far as the controller could see, yet it has what the others lost."""
    machine = started()
    restart(machine, 1, 2, 3)

    come_back(machine, 2, 50, ReplicaLoss.TAIL, former_end=100)
    come_back(machine, 3, 60, ReplicaLoss.TAIL, former_end=100)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 1, 100)

    assert orders(machine).leader == 1


def test_with_two_replicas_the_one_that_fell_first_helps_the_one_that_lost_its_log() -> None:
    machine = started(2, 1)
    restart(machine, 1, 2)
    assert orders(machine).elr == (2,)

    come_back(machine, 2, 0, ReplicaLoss.EVERYTHING)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 1, 100)

    assert orders(machine).leader == 1
    assert orders(machine).isr == (1,)


def test_a_replica_that_was_eligible_alone_is_compared_with_the_others_after_a_power_cut() -> None:
    """Its disk may have kept less than it noticed, and the other one fell a moment before."""
    machine = started(2, 1)
    restart(machine, 1, 2, power_cut=True)
    assert orders(machine).elr == (2,)

    come_back(machine, 2, 50)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 1, 100)

    assert (orders(machine).leader, orders(machine).isr) == (1, (1,))


def test_a_replica_that_was_eligible_alone_leads_after_the_grace_period() -> None:
    machine = started(2, 1)
    restart(machine, 1, 2, power_cut=True)
    come_back(machine, 2, 50)
    assert orders(machine).leader == NO_LEADER

    grace_is_over(machine)

    assert (orders(machine).leader, orders(machine).unclean_epoch) == (2, -1)


def test_a_replica_that_was_eligible_alone_leads_at_once_if_its_machine_went_on() -> None:
    machine = started(2, 1)
    restart(machine, 1, 2)

    come_back(machine, 2, 50)

    assert orders(machine).leader == 2


def test_after_the_grace_period_a_replica_that_lost_nothing_is_enough() -> None:
    machine = started()
    restart(machine, 1, 2, 3)

    come_back(machine, 2, 100)
    assert orders(machine).leader == NO_LEADER
    grace_is_over(machine)

    assert orders(machine).leader == 2
    assert orders(machine).unclean_epoch == -1


@pytest.mark.parametrize("loss", [ReplicaLoss.DOUBTFUL, ReplicaLoss.TAIL, ReplicaLoss.EVERYTHING])
def test_a_replica_that_lost_records_does_not_lead_while_a_whole_one_may_come(loss: ReplicaLoss) -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 50, loss)
    come_back(machine, 1, 100)

    grace_is_over(machine)

    assert orders(machine).leader == NO_LEADER


def test_when_each_copy_lost_records_the_longest_leads_and_says_what_is_lost() -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 50, ReplicaLoss.TAIL, former_end=100)
    come_back(machine, 3, 60, ReplicaLoss.TAIL, former_end=90)

    grace_is_over(machine)

    state = orders(machine)
    assert (state.leader, state.isr, state.elr) == (3, (3,), ())
    assert state.unclean_epoch == state.leader_epoch
    assert [(one.node_id, one.end, one.former_end) for one in state.reports] == [(2, 50, 100), (3, 60, 90)]


def test_a_copy_that_is_known_to_be_longer_is_waited_for_when_each_has_lost_something() -> None:
    """Replica 2 has more than replica 3, and is down again: what it has is lost only if somebody says so."""
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 90, ReplicaLoss.TAIL, former_end=100)
    report(machine, 3, 60, ReplicaLoss.TAIL, former_end=100)
    fence(machine, 2)
    unfence(machine, 3)

    grace_is_over(machine)
    assert orders(machine).leader == NO_LEADER
    unfence(machine, 2)
    grace_is_over(machine)

    assert orders(machine).leader == 2


def test_a_log_with_a_hole_leads_only_if_there_is_no_other() -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 100, ReplicaLoss.RANGE)
    come_back(machine, 3, 60, ReplicaLoss.TAIL)
    come_back(machine, 1, 0, ReplicaLoss.EVERYTHING)

    assert orders(machine).leader == 3


def test_a_log_with_a_hole_does_not_lead_while_a_whole_one_is_known() -> None:
    """It would hand over at once, to a replica that is down, and be elected again after the next period."""
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 100)
    fence(machine, 2)
    come_back(machine, 3, 100, ReplicaLoss.RANGE)

    grace_is_over(machine)
    assert orders(machine).leader == NO_LEADER
    unfence(machine, 2)
    grace_is_over(machine)

    assert orders(machine).leader == 2


def test_the_only_replica_leads_with_what_it_has() -> None:
    machine = started(1, 1)
    restart(machine, 1)

    come_back(machine, 1, 50, ReplicaLoss.TAIL, former_end=60)

    state = orders(machine)
    assert (state.leader, state.unclean_epoch) == (1, state.leader_epoch)


def test_replicas_that_may_have_lost_what_was_not_synced_are_all_asked() -> None:
    machine = started()
    restart(machine, 1, 2, 3, synced=False)
    assert (orders(machine).isr, orders(machine).elr) == ((), ())

    come_back(machine, 2, 50)
    come_back(machine, 1, 90)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 3, 80)

    state = orders(machine)
    assert (state.leader, state.unclean_epoch) == (1, state.leader_epoch)


def test_a_report_of_an_earlier_start_does_not_count() -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 100)
    restart(machine, 2)
    assert orders(machine).reports == ()

    come_back(machine, 3, 100)
    assert orders(machine).leader == NO_LEADER
    come_back(machine, 2, 50, ReplicaLoss.TAIL)

    assert orders(machine).leader == 3


def test_a_report_under_an_old_broker_epoch_is_refused() -> None:
    machine = started()
    old = broker_of(machine, 2).epoch
    restart(machine, 1, 2, 3)

    reply = perform(machine, ReportReplicas(NodeId(2), old, ()))

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.STALE_BROKER_EPOCH


def test_a_replica_that_never_restarted_is_elected_at_once() -> None:
    """It was cut off for a while; a process that goes on has lost nothing."""
    machine = started()
    for number in (1, 2, 3):
        fence(machine, number)
    assert orders(machine).elr == (2, 3)

    unfence(machine, 2)

    assert orders(machine).leader == 2


def test_under_a_leader_only_an_eligible_replica_is_listened_to() -> None:
    machine = started()
    fence(machine, 3)
    fence(machine, 2)
    assert (orders(machine).isr, orders(machine).elr) == ((1,), (2,))
    restart(machine, 2, 3)

    come_back(machine, 3, 10, ReplicaLoss.TAIL)
    assert orders(machine).reports == ()
    come_back(machine, 2, 100)
    assert [one.node_id for one in orders(machine).reports] == [2]

    # Its leader falls: the replica restarted since it was in sync, so the leader is waited for.
    fence(machine, 1)
    assert orders(machine).leader == NO_LEADER
    # What it said under that leader says nothing about now.
    grace_is_over(machine)
    assert orders(machine).leader == NO_LEADER
    report(machine, 2, 110)
    grace_is_over(machine)
    assert orders(machine).leader == 2


def test_an_operator_gets_the_longest_log_that_is_there() -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 1, 80)
    come_back(machine, 2, 50, ReplicaLoss.TAIL)
    assert orders(machine).leader == NO_LEADER

    perform(machine, ElectLeader("orders", PartitionIndex(0), ElectionType.UNCLEAN))

    state = orders(machine)
    assert (state.leader, state.unclean_epoch) == (1, state.leader_epoch)


def test_a_lower_minimum_ends_eligibility_and_reports_with_it() -> None:
    machine = started()
    fence(machine, 3)
    fence(machine, 2)
    restart(machine, 2)
    come_back(machine, 2, 100)
    assert orders(machine).reports

    change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", "1")
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    perform(machine, IncrementalAlterConfigs(resource, (change,)))

    assert (orders(machine).elr, orders(machine).reports) == ((), ())


def test_reports_are_part_of_the_log_and_of_snapshots() -> None:
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 50, ReplicaLoss.TAIL, former_end=100)

    facts = [decode_fact(encode_fact(fact)) for fact in snapshot(machine.image)]

    assert replay(EMPTY_IMAGE, facts) == machine.image
    assert orders(machine).reports[0].loss is ReplicaLoss.TAIL


def diverged(machine: MetadataMachine, number: int, leader_epoch: int | None = None) -> Reply:
    """A follower was asked to cut at 50 what it knows to be committed up to 100."""
    epoch = orders(machine).leader_epoch if leader_epoch is None else LeaderEpoch(leader_epoch)
    broker = broker_of(machine, number)
    return perform(machine, DeposeLeader(broker.node_id, broker.epoch, *KEY, epoch, Offset(50), Offset(100)))


def led_by_a_shortened_log() -> MetadataMachine:
    """Replica 2 lost records without noticing, and leads alone; replica 3 is eligible."""
    machine = started()
    restart(machine, 1, 2, 3)
    come_back(machine, 2, 50)
    grace_is_over(machine)
    assert (orders(machine).leader, orders(machine).elr) == (2, (3,))
    return machine


def test_a_leader_that_lacks_committed_records_is_deposed_for_an_eligible_replica() -> None:
    machine = led_by_a_shortened_log()
    come_back(machine, 3, 100)
    before = orders(machine)

    reply = diverged(machine, 3)

    state = orders(machine)
    assert reply == AlteredPartition(state)
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (3, (3,), (), (2,))
    assert state.leader_epoch == before.leader_epoch + 1
    assert state.unclean_epoch == -1


def kind_of(reply: Reply) -> ErrorKind | None:
    return reply.kind if isinstance(reply, ApiError) else None


def test_a_leader_is_not_deposed_for_a_replica_that_may_lack_what_it_committed() -> None:
    machine = led_by_a_shortened_log()
    come_back(machine, 1, 100)
    before = orders(machine)

    assert kind_of(diverged(machine, 1)) is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert orders(machine) == before


def test_only_the_present_leader_is_deposed_and_only_for_a_live_replica() -> None:
    machine = led_by_a_shortened_log()
    assert kind_of(diverged(machine, 3)) is ErrorKind.INELIGIBLE_REPLICA
    come_back(machine, 3, 100)

    assert kind_of(diverged(machine, 3, orders(machine).leader_epoch - 1)) is ErrorKind.FENCED_LEADER_EPOCH
    assert kind_of(diverged(machine, 2)) is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE
    fence(machine, 2)
    fence(machine, 3)
    assert kind_of(diverged(machine, 3)) is ErrorKind.FENCED_LEADER_EPOCH


def test_partitions_of_older_logs_have_no_reports() -> None:
    machine = started()
    fact = PartitionChanged(TOPIC_ID, orders(machine))
    content = encode_fact(fact)
    tag, topic_id, row = msgspec.msgpack.decode(content[1:])

    older = content[:1] + msgspec.msgpack.encode([tag, topic_id, row[:-1]])

    assert len(older) < len(content)
    assert decode_fact(older) == fact
