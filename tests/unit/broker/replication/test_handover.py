"""A leadership is taken from a live broker: the new leader acknowledges nothing before the old one knows."""

import pytest

from penstock.core.metadata import BeginControlledShutdown, ElectionType, ElectLeader, ReassignPartition
from penstock.core.model import ApiError, NodeId, Offset, PartitionIndex
from tests.unit.broker.replication.stage import Stage

FIRST, SECOND = NodeId(1), NodeId(2)
SESSION_MS = 2_000


@pytest.fixture
def stage() -> Stage:
    """Broker 1 leads, and hears of new metadata half a second late."""
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(100)
    stage.news_ms[FIRST] = 500
    return stage


def stop_first(stage: Stage) -> None:
    """It leaves the ISR with its leadership, so that nobody would have to wait for it."""
    stage.perform(BeginControlledShutdown(FIRST, stage.brokers[FIRST].broker_epoch))
    stage.run(10)
    assert stage.leader().leader_epoch == 1
    assert stage.isr() == [2, 3]


def test_nothing_is_committed_before_the_former_leader_has_heard(stage: Stage) -> None:
    stop_first(stage)
    stage.append("b")

    stage.run(400)
    assert stage.brokers[FIRST].partitions.find("t", 0) is not None, "it still leads, as far as it knows"
    assert stage.leader().high_watermark <= 1

    stage.run(150)
    assert stage.leader().high_watermark == 2


def test_the_successor_of_a_new_leader_waits_for_the_leader_before(stage: Stage) -> None:
    stop_first(stage)
    stage.perform(ReassignPartition("t", PartitionIndex(0), (NodeId(3), SECOND, FIRST)))
    stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.PREFERRED))
    stage.run(10)
    assert stage.leader().leader_epoch == 2
    stage.append("b")

    stage.run(400)
    assert stage.brokers[FIRST].partitions.find("t", 0) is not None, "it still leads, as far as it knows"
    assert stage.leader().high_watermark <= 1

    stage.run(150)
    assert stage.leader().high_watermark == 2


def test_nor_is_anything_acknowledged_to_those_who_wait_for_the_leader_alone(stage: Stage) -> None:
    stop_first(stage)
    stage.append("b")
    synced: list[ApiError | None] = []
    assert not stage.leader().when_synced(Offset(2), synced.append)

    stage.run(400)
    assert stage.leader().log.synced == 2
    assert synced == []

    stage.run(150)
    assert synced == [None]


def test_the_wait_is_over_when_the_former_leaders_lease_must_be(stage: Stage) -> None:
    stage.news_ms[FIRST] = 10 * SESSION_MS
    stop_first(stage)
    stage.append("b")

    stage.run(SESSION_MS - 100)
    assert stage.leader().high_watermark <= 1

    stage.run(200)
    assert stage.leader().high_watermark == 2


def test_the_wait_is_over_when_the_former_leader_is_fenced(stage: Stage) -> None:
    stage.news_ms[FIRST] = 10 * SESSION_MS
    stop_first(stage)
    stage.append("b")

    stage.fence(FIRST)
    stage.run(50)

    assert stage.leader().high_watermark == 2


def test_a_leader_after_a_failure_does_not_wait(stage: Stage) -> None:
    stage.fence(FIRST)
    stage.run(10)

    assert stage.leader().former_leaders == {}


def test_a_move_that_everybody_hears_of_takes_a_moment(stage: Stage) -> None:
    del stage.news_ms[FIRST]
    stage.perform(ReassignPartition("t", PartitionIndex(0), (SECOND, FIRST, NodeId(3))))
    stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.PREFERRED))
    stage.run(5)
    stage.append("b")

    stage.run(30)

    assert stage.leader().leader_epoch == 1
    assert stage.leader().high_watermark == 2


@pytest.mark.parametrize(("late", "waited_for"), [(FIRST, [FIRST]), (SECOND, [])])
def test_a_former_leader_that_keeps_no_replica_says_that_it_knows(
    late: NodeId, waited_for: list[NodeId]
) -> None:
    """Whichever of the two hears of the move first."""
    stage = Stage()
    stage.create(1)
    stage.append("a")
    stage.run(100)
    stage.perform(ReassignPartition("t", PartitionIndex(0), (SECOND,)))
    stage.run(4)
    stage.news_ms[late] = 200
    while stage.isr() != [2]:
        stage.run(1)

    stage.run(100 if late == FIRST else 210)
    assert list(stage.leader().former_leaders) == waited_for
    stage.append("b")
    stage.run(130)

    assert stage.leader().former_leaders == {}
    assert stage.leader().high_watermark == 2
