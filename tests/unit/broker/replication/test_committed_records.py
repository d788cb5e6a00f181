"""What is committed is not cut: not by a leader that lost it, and not by one that came back empty."""

from uuid import UUID

import pytest

from penstock.core.metadata import ElectionType, ElectLeader, ElectReported, IncrementalAlterConfigs
from penstock.core.metadata.commands import ConfigChange, ConfigOperation
from penstock.core.metadata.image import ConfigResource, ConfigResourceType
from penstock.core.model import NodeId, Offset, PartitionIndex, TopicId
from penstock.core.records import read_records
from penstock.storage.disk import FailureRule
from penstock.storage.log import PartitionLog
from tests.support.recorded_events import recorded_events
from tests.unit.broker.replication.stage import Stage

RECORDS = ["a", "b", "c"]
TOPIC_ID = TopicId(UUID(int=ord("t")))


@pytest.fixture
def stage() -> Stage:
    """Three replicas of three records that every one of them knows to be committed."""
    stage = Stage()
    stage.create(1, 2, 3)
    for value in RECORDS:
        stage.append(value)
        stage.run(100)
    stage.run(1_000)
    assert [stage.log(node).high_watermark for node in (1, 2, 3)] == [3, 3, 3]
    return stage


def remove_logs(stage: Stage, node: int) -> None:
    stage.world.nodes[stage.name_of(NodeId(node))].disk.remove_tree("logs/t")


def stop_in_order(stage: Stage, node: int) -> None:
    """End a node, whose log then knows its high watermark."""
    stage.world.nodes[stage.name_of(NodeId(node))].stop()
    stage.run(1_000)
    stage.fence(node)


def restart_in_order(stage: Stage, node: int) -> None:
    """A new incarnation of a follower, which keeps its high watermark; its leader tracks it anew."""
    stop_in_order(stage, node)
    stage.start(node)
    stage.run(5_000)


def test_a_follower_does_not_cut_what_its_leader_has_lost(stage: Stage) -> None:
    # As if its files had been taken away from under it.
    stage.leader().log.truncate_to(Offset(1))

    with recorded_events() as events:
        restart_in_order(stage, 3)

    assert stage.values(3) == RECORDS
    refused = events.named("replica.truncation_refused")[0]
    assert (refused["partition"], refused["offset"], refused["high_watermark"]) == ("t/0", 1, 3)
    assert events.named("replica.truncated") == []
    assert 3 not in stage.isr()


def lose_tail_unnoticed(stage: Stage, node: int) -> None:
    """Cut the log of a node that is down between two batches, as if it had never been longer."""
    disk = stage.world.nodes[stage.name_of(NodeId(node))].disk
    log, _ = PartitionLog.open(disk, "logs/t/0", TOPIC_ID)
    log.truncate_to(Offset(1))
    log.close()


def test_a_leader_that_lacks_committed_records_is_deposed_for_one_that_has_them(stage: Stage) -> None:
    """Broker 3 is eligible and knows what is committed; broker 2 came back with less, and leads."""
    stage.kill(1)
    stop_in_order(stage, 3)
    stop_in_order(stage, 2)
    lose_tail_unnoticed(stage, 2)
    stage.start(2)
    stage.run(1_000)
    stage.perform(ElectReported(((TOPIC_ID, PartitionIndex(0)),)))
    stage.run(100)
    assert stage.leader().log.end == 1

    with recorded_events() as events:
        stage.start(3)
        stage.run(3_000)

    assert [stage.values(node) for node in (2, 3)] == [RECORDS] * 2
    assert sorted(stage.isr()) == [2, 3]
    (deposed,) = events.named("partition.leader_deposed")
    assert (deposed["leader"], deposed["offset"], deposed["high_watermark"]) == (2, 1, 3)
    assert events.named("partition.committed_records_truncated") == []


def test_a_leader_that_may_have_committed_since_is_not_deposed(stage: Stage) -> None:
    """Broker 3 left the ISR while the others could commit: they may have records that it lacks."""
    # As if its files had been taken away from under it.
    stage.leader().log.truncate_to(Offset(1))

    with recorded_events() as events:
        restart_in_order(stage, 3)

    assert stage.values(3) == RECORDS
    (kept,) = events.named("partition.leader_not_deposed")
    assert (kept["partition"], kept["leader"], kept["offset"]) == ("t/0", 1, 1)


def test_a_divergence_is_reported_until_a_controller_has_heard_of_it(stage: Stage) -> None:
    stage.leader().log.truncate_to(Offset(1))
    stop_in_order(stage, 3)
    stage.drop_commands = 3

    with recorded_events() as events:
        stage.start(3)
        stage.run(5_000)

    assert stage.drop_commands == 0
    assert len(events.named("partition.leader_not_deposed")) == 1


def test_a_leader_that_lost_its_log_is_filled_by_those_who_have_it(stage: Stage) -> None:
    for node in (1, 2, 3):
        stage.kill(node)
    remove_logs(stage, 1)

    stage.start_all()
    stage.run(10_000)

    assert [stage.values(node) for node in (1, 2, 3)] == [RECORDS] * 3
    assert stage.isr() == [1, 2, 3]


def test_a_lost_log_is_filled_even_where_its_replica_comes_back_alone_first(stage: Stage) -> None:
    for node in (3, 2, 1):
        stage.kill(node)
    assert stage.isr() == []
    remove_logs(stage, 1)

    stage.start(1)
    stage.run(2_000)
    assert stage.brokers[NodeId(1)].partitions.find("t", 0) is None
    stage.start(2)
    stage.start(3)
    stage.run(10_000)

    assert [stage.values(node) for node in (2, 3)] == [RECORDS] * 2


def test_an_unclean_election_that_was_asked_for_cuts_what_only_others_had() -> None:
    stage = Stage(2)
    stage.create(1, 2)
    stage.append("a")
    stage.run(100)
    stage.kill(2)
    stage.append("b", "c")
    stage.run(5_000)
    assert (stage.isr(), stage.log(1).high_watermark) == ([1], 3)
    stage.fence(1)
    stage.start(2)
    stage.run(100)

    with recorded_events() as events:
        stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.UNCLEAN))
        stage.run(100)
        stage.append("d")
        stage.unfence(1)
        stage.run(5_000)

    assert stage.values(1) == stage.values(2) == ["a", "d"]
    assert stage.isr() == [1, 2]
    (cut,) = events.named("partition.committed_records_truncated")
    assert (cut["offset"], cut["high_watermark"]) == (1, 3)
    kept = stage.world.nodes["n1"].disk.open(str(cut["kept"]), readonly=True)
    content = kept.pread(0, kept.size())
    assert [record.value for record in read_records(content)] == [b"b", b"c"]


@pytest.mark.parametrize(("failures", "is_kept"), [(2, True), (1_000, False)])
def test_nothing_is_cut_before_its_copy_is_kept_or_cannot_be(failures: int, is_kept: bool) -> None:
    stage = Stage(2)
    stage.create(1, 2)
    stage.append("a")
    stage.run(100)
    stage.kill(2)
    stage.append("b", "c")
    stage.run(5_000)
    stage.fence(1)
    stage.start(2)
    stage.run(100)
    stage.world.nodes["n1"].fail_disk(FailureRule("append", path_ends=".cut", times=failures))

    with recorded_events() as events:
        stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.UNCLEAN))
        stage.run(100)
        stage.append("d")
        stage.unfence(1)
        while len(events.named("partition.tail_not_kept")) < 2:
            assert stage.values(1) == ["a", "b", "c"]
            stage.run(10)
        stage.run(10_000)

    assert stage.values(1) == stage.values(2) == ["a", "d"]
    (cut,) = events.named("partition.committed_records_truncated")
    assert cut["lost_bytes"] > 0
    assert cut["kept_bytes"] == (cut["lost_bytes"] if is_kept else 0)


def test_an_unclean_election_that_the_topic_allows_cuts_what_only_others_had() -> None:
    stage = Stage(2)
    stage.create(1, 2)
    stage.append("a")
    stage.run(100)
    stage.kill(2)
    stage.append("b", "c")
    stage.run(5_000)
    stage.fence(1)
    stage.start(2)
    stage.run(100)

    change = ConfigChange(ConfigOperation.SET, "unclean.leader.election.enable", "true")
    stage.perform(IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "t"), (change,)))
    stage.run(100)
    stage.unfence(1)
    stage.run(5_000)

    assert stage.values(1) == stage.values(2) == ["a"]


def test_a_cut_is_refused_again_after_the_unclean_leader_has_written() -> None:
    stage = Stage(2)
    stage.create(1, 2)
    stage.append("a")
    stage.run(100)
    stage.kill(1)
    stage.kill(2)
    stage.start(2)
    stage.run(100)
    stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.UNCLEAN))
    stage.start(1)
    stage.run(1_000)
    stage.append("b")
    stage.run(5_000)
    assert stage.values(1) == stage.values(2) == ["a", "b"]
    assert stage.isr() == [1, 2]

    follower = 1 if stage.leader() is stage.brokers[NodeId(2)].partitions.find("t", 0) else 2
    stage.leader().log.truncate_to(Offset(1))
    with recorded_events() as events:
        restart_in_order(stage, follower)

    assert stage.values(follower) == ["a", "b"]
    assert events.named("replica.truncation_refused")
