"""Damaged ranges come from other replicas, and nothing else does."""

from uuid import UUID

import pytest

from penstock.core.metadata import ElectReported
from penstock.core.model import NodeId, Offset, PartitionIndex, TopicId
from penstock.storage.disk import FailureRule
from penstock.storage.log import PartitionLog
from tests.unit.broker.replication.stage import Stage

TOPIC_ID = TopicId(UUID(int=ord("t")))
VALUES = [f"{number:03d}" + "x" * 60 for number in range(40)]


def filled() -> Stage:
    """Three replicas of a log of several segments, all in sync."""
    stage = Stage()
    stage.create(1, 2, 3, segment_bytes="1100")
    for value in VALUES:
        stage.append(value)
    stage.run(2_000)
    assert stage.isr() == [1, 2, 3]
    assert len(stage.log(1).segments()) > 3
    return stage


def rot(stage: Stage, node: int, offset: int) -> None:
    """Damage the batch at this offset; each has one record."""
    log = stage.log(node)
    (piece,) = log.read(Offset(offset), 1).ranges
    stage.world.nodes[f"n{node}"].disk.flip_bit(piece.file.path, 8 * (piece.position + 65))


def scrub(stage: Stage, node: int) -> None:
    for _ in stage.log(node).scrub():
        pass


def test_a_leader_hands_over_and_gets_back_the_damaged_batches_alone() -> None:
    stage = filled()
    rot(stage, 1, 3)
    rot(stage, 1, 20)
    sent = sum(broker.replication.metrics.bytes_sent.count for broker in stage.brokers.values())

    scrub(stage, 1)
    stage.run(8_000)

    assert stage.leader() is stage.brokers[NodeId(2)].partitions.find("t", 0)
    assert [stage.values(node) for node in (1, 2, 3)] == [VALUES] * 3
    assert stage.isr() == [1, 2, 3]
    assert stage.log(1).corruption == ()
    # No fetch of a follower was needed for it.
    assert sum(broker.replication.metrics.bytes_sent.count for broker in stage.brokers.values()) == sent
    kept = stage.world.nodes["n1"].disk.listdir("logs/t/0/quarantine")
    assert kept == [f"{3:020d}.cut", f"{20:020d}.cut"]


def test_a_follower_is_repaired_while_the_leader_goes_on() -> None:
    stage = filled()
    rot(stage, 3, 10)

    scrub(stage, 3)
    stage.run(8_000)
    stage.append("more")
    stage.run(1_000)

    assert stage.leader() is stage.brokers[NodeId(1)].partitions.find("t", 0)
    assert [stage.values(node) for node in (1, 2, 3)] == [[*VALUES, "more"]] * 3
    assert stage.isr() == [1, 2, 3]


def test_whoever_is_repaired_is_not_in_sync_before_it_is_whole() -> None:
    stage = filled()
    rot(stage, 3, 10)
    scrub(stage, 3)
    # Nobody else has what is missing: what they have there is rotten, too, and both are needed.
    stage.run(20)
    for node in (1, 2):
        rot(stage, node, 10)

    stage.run(20_000)

    assert NodeId(3) not in stage.isr()
    assert stage.log(3).end == len(VALUES)


def test_a_replica_that_is_not_the_leader_helps_out() -> None:
    stage = filled()
    # The second one will lead, and has lost the same.
    rot(stage, 1, 10)
    rot(stage, 2, 10)

    scrub(stage, 1)
    stage.run(20_000)

    assert [stage.values(node) for node in (1, 2, 3)] == [VALUES] * 3
    assert stage.isr() == [1, 2, 3]


def test_a_repair_goes_on_with_the_next_leader() -> None:
    stage = filled()
    rot(stage, 3, 10)
    scrub(stage, 3)
    stage.kill(1)
    stage.run(8_000)
    stage.start(1)
    stage.run(8_000)

    assert [stage.values(node) for node in (1, 2, 3)] == [VALUES] * 3
    assert stage.isr() == [1, 2, 3]


@pytest.mark.parametrize(
    "batches", [[], [[value] for value in VALUES], [VALUES]], ids=["none", "as many", "one large batch"]
)
def test_damage_in_records_that_the_leader_does_not_have_keeps_no_replica_out(
    batches: list[list[str]],
) -> None:
    """The first one led alone and wrote what was never committed; a part of that is damaged."""
    stage = Stage()
    stage.create(1, 2, 3, segment_bytes="1100", min_insync_replicas="2")
    for value in VALUES[:10]:
        stage.append(value)
    stage.run(2_000)
    stage.kill(2)
    stage.kill(3)
    for value in VALUES[10:]:
        stage.append(value)
    stage.run(1_000)
    log = stage.log(1)
    segment = log.segments()[-2]
    assert segment.base_offset > 10
    log.checkpoint()
    stage.run(100)
    stage.kill(1)
    stage.world.nodes["n1"].disk.remove(f"logs/t/0/{segment.base_offset:020d}.log")
    stage.start(2)
    stage.start(3)
    stage.run(1_000)
    stage.perform(ElectReported(((TOPIC_ID, PartitionIndex(0)),)))
    stage.run(1_000)
    for batch in batches:
        stage.append(*batch)

    stage.start(1)
    stage.run(20_000)

    assert stage.isr() == [1, 2, 3]
    assert [stage.values(node) for node in (1, 2, 3)] == [
        [*VALUES[:10], *(value for batch in batches for value in batch)]
    ] * 3


def restarted_without_its_growing_segment(stage: Stage) -> None:
    """The third one had taken no checkpoint for a while when it ended, and then a file was gone."""
    stage.append_as_producer(6, "before")
    stage.run(1_000)
    stage.log(3).checkpoint()
    stage.run(100)
    growing = stage.log(3).active_start
    for number, value in enumerate(VALUES):
        stage.append_as_producer(7 + number // 3, value)
    stage.run(1_000)
    assert stage.log(3).active_start > growing
    stage.kill(3)
    stage.world.nodes["n3"].disk.remove(f"logs/t/0/{growing:020d}.log")
    stage.start(3)


def producers(stage: Stage, node: int) -> list[tuple[object, ...]]:
    return [(number, one.epoch, list(one.batches)) for number, one in sorted(stage.log(node).producers)]


def test_producers_are_rebuilt_before_a_replica_is_in_sync_that_started_without_their_records() -> None:
    stage = filled()
    restarted_without_its_growing_segment(stage)
    stage.run(10)
    assert stage.log(3).is_unsure

    while 3 in stage.isr():
        stage.run(10)
    while 3 not in stage.isr():
        stage.run(10)

    assert not stage.log(3).is_unsure
    assert [stage.values(node) for node in (1, 2, 3)] == [[*VALUES, "before", *VALUES]] * 3
    assert producers(stage, 3) == producers(stage, 1) != []


def test_a_rebuild_of_producers_that_was_interrupted_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = filled()
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "begin_producer_rebuild", lambda *_: None)
        restarted_without_its_growing_segment(stage)
        stage.run(8_000)
        assert stage.log(3).corruption == ()
        assert stage.log(3).is_unsure
        stage.kill(3)
    stage.start(3)
    stage.run(10)
    assert stage.log(3).is_unsure

    stage.run(15_000)

    assert not stage.log(3).is_unsure
    assert stage.isr() == [1, 2, 3]
    assert producers(stage, 3) == producers(stage, 1)


@pytest.mark.parametrize(
    ("operation", "path_ends"),
    [("rename", ".cleaned"), ("rename", ".tmp"), ("open", ".log"), ("sync", ".tmp"), ("sync_directory", "")],
)
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_fails_in_a_repair_does_not_end_the_node(
    operation: str, path_ends: str, after: int
) -> None:
    stage = filled()
    rot(stage, 3, 10)
    scrub(stage, 3)
    stage.world.nodes["n3"].fail_disk(FailureRule(operation, path_ends=path_ends, after=after))

    stage.run(15_000)

    assert stage.world.nodes["n3"].is_up
    # The log goes on, or it failed and waits for the next start.
    assert (3 in stage.isr()) != (stage.log(3).stopped is not None)
