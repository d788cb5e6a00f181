"""A node that stops leaves nothing for others to find out."""

from uuid import UUID

import pytest

from penstock.broker.cluster.broker_lifecycle import FAREWELL_MS
from penstock.core.metadata import CreateTopic
from penstock.core.model import MILLISECOND, NodeId, TopicId
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of, member_options

TOPIC = TopicId(UUID(int=5))


def number_of(name: str) -> NodeId:
    return NodeId(int(name[1:]))


def stop(stage: ClusterStage, name: str) -> int:
    """Stop a node in order; returns how many milliseconds it took."""
    node, began = stage.world.nodes[name], stage.world.scheduler.now
    node.stop()
    stage.until(lambda: not node.is_up)
    return (stage.world.scheduler.now - began) // MILLISECOND


@pytest.mark.parametrize("seed", range(5))
def test_leaderships_and_the_quorum_are_handed_over_before_a_leader_stops(seed: int) -> None:
    stage = cluster_of(3, seed)
    stage.submit("n1", CreateTopic("t", TOPIC, partitions=6, replication_factor=3))
    leader = stage.leader()
    others = stage.followers()
    term = stage.member(leader).quorum.raft.term

    stop(stage, leader)

    # Without another election: whoever leads now was asked to.
    assert stage.leader() in others
    assert not stage.image(stage.leader()).is_live(number_of(leader))
    assert stage.member(stage.leader()).quorum.raft.term == term + 1
    for name in others:
        topic = stage.image(name).topic("t")
        assert topic is not None
        assert all(partition.leader != number_of(leader) for partition in topic.partitions)
        assert all(number_of(leader) not in partition.isr for partition in topic.partitions)


def test_what_nobody_else_can_lead_does_not_hold_a_stop_up() -> None:
    stage = cluster_of(3)
    stage.submit("n1", CreateTopic("t", TOPIC, partitions=6, replication_factor=1))

    took_ms = stop(stage, stage.followers()[0])

    assert took_ms < FAREWELL_MS // 2


def test_a_stop_without_a_controller_is_bounded() -> None:
    stage = cluster_of(3)
    leader, follower = stage.leader(), stage.followers()[0]
    third = next(name for name in stage.options if name not in (leader, follower))
    for name in (leader, third):
        stage.world.nodes[name].cut_power()
    stage.run_ms(3_000)

    took_ms = stop(stage, follower)

    assert took_ms <= FAREWELL_MS + 100


def test_a_lone_node_leaves_at_once() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start()
    stage.until(stage.is_live)

    assert stop(stage, "n1") < 100


def test_nodes_that_are_restarted_one_after_the_other_are_never_without_a_leader_for_long() -> None:
    stage = cluster_of(3)
    stage.submit("n1", CreateTopic("t", TOPIC, partitions=3, replication_factor=3))

    for name in ("n1", "n2", "n3"):
        stop(stage, name)
        watcher = next(other for other in stage.options if other != name)
        topic = stage.image(watcher).topic("t")
        assert topic is not None
        assert all(partition.leader > 0 for partition in topic.partitions)
        stage.start(name)
        stage.until(stage.is_live)
        stage.run_ms(500)
