"""Where the replicas of new partitions go: racks, and brokers that take nothing new."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from penstock.core.metadata import (
    OFFSETS_TOPIC,
    BootstrapCluster,
    ControllerConfig,
    CreatedTopic,
    CreatePartitions,
    CreateTopic,
    DrainBroker,
    MetadataMachine,
    Partition,
    ReplicaAssignment,
    StartedReassignments,
    WidenInternalTopics,
)
from penstock.core.model import ErrorKind, NodeId, PartitionIndex, TopicId
from tests.unit.core.metadata.clusters import CLUSTER, cluster, fence, partition_of, perform, registration
from tests.unit.core.metadata.test_metadata_brokers import TOPIC, kind_of
from tests.unit.core.metadata.test_metadata_departures import stop


def racked(racks: Sequence[str | None], around: ControllerConfig | None = None) -> MetadataMachine:
    """A cluster whose brokers, numbered from 1 on, stand in these racks."""
    machine = MetadataMachine(around=around or ControllerConfig())
    perform(machine, BootstrapCluster(CLUSTER))
    for number, rack in enumerate(racks, start=1):
        perform(machine, replace(registration(number), rack=rack))
    return machine


def placed(machine: MetadataMachine, partitions: int, replicas: int) -> list[Partition]:
    assert isinstance(perform(machine, CreateTopic("t", TOPIC, partitions, replicas)), CreatedTopic)
    return partitions_of(machine)


def partitions_of(machine: MetadataMachine, name: str = "t") -> list[Partition]:
    topic = machine.image.topic(name)
    assert topic is not None
    return list(topic.partitions)


def spread(partition: Partition, racks: Sequence[str | None]) -> list[int]:
    """How many replicas there are per rack, the fewest first."""
    return sorted(Counter(racks[node_id - 1] for node_id in partition.replicas).values())


@pytest.mark.parametrize(
    ("racks", "replicas", "expected"),
    [
        ("aabbcc", 3, [1, 1, 1]),
        ("aabbcc", 2, [1, 1]),
        ("aaabbc", 3, [1, 1, 1]),
        ("aabb", 3, [1, 2]),
        ("aaabbb", 5, [2, 3]),
        ("aaaab", 4, [1, 3]),
    ],
)
def test_replicas_are_spread_over_racks_as_evenly_as_can_be(
    racks: str, replicas: int, expected: list[int]
) -> None:
    partitions = placed(racked(racks), 60, replicas)

    assert all(spread(partition, racks) == expected for partition in partitions)


@pytest.mark.parametrize("racks", ["aabbcc", "abcdef", [None] * 6])
def test_brokers_get_the_same_number_of_leaders_and_of_replicas(racks: Sequence[str | None]) -> None:
    partitions = placed(racked(racks), 60, 3)

    assert Counter(partition.leader for partition in partitions) == dict.fromkeys(range(1, 7), 10)
    assert Counter(node for p in partitions for node in p.replicas) == dict.fromkeys(range(1, 7), 30)


def test_racks_are_ignored_where_a_broker_has_none() -> None:
    partitions = placed(racked(["a", "a", "b", None]), 12, 2)

    assert Counter(node for p in partitions for node in p.replicas) == dict.fromkeys(range(1, 5), 6)
    assert any({1, 2} == frozenset(partition.replicas) for partition in partitions)


def test_partitions_that_a_topic_gets_later_are_spread_over_racks_too() -> None:
    machine = racked("aabb")
    placed(machine, 2, 2)

    perform(machine, CreatePartitions("t", 20))

    assert all(spread(partition, "aabb") == [1, 1] for partition in partitions_of(machine))


def test_brokers_that_are_drained_get_nothing_new() -> None:
    machine = cluster(4)
    perform(machine, DrainBroker(NodeId(2)))

    partitions = placed(machine, 12, 3)

    assert all(2 not in partition.replicas for partition in partitions)
    assert (
        kind_of(machine, CreateTopic("u", TopicId(UUID(int=2)), 1, 4)) is ErrorKind.INVALID_REPLICATION_FACTOR
    )
    by_hand = (ReplicaAssignment(PartitionIndex(0), (NodeId(1), NodeId(2))),)
    refused = CreateTopic("u", TopicId(UUID(int=2)), assignments=by_hand)
    assert kind_of(machine, refused) is ErrorKind.INVALID_ASSIGNMENT


def test_automatic_replication_counts_only_brokers_that_take_replicas() -> None:
    machine = cluster(3)
    perform(machine, DrainBroker(NodeId(3)))

    reply = perform(machine, CreateTopic("t", TOPIC))

    assert isinstance(reply, CreatedTopic)
    assert reply.replication_factor == 2


def test_brokers_that_are_away_or_stop_get_replicas_only_where_others_are_too_few() -> None:
    machine = cluster(4)
    fence(machine, 1)
    stop(machine, 2)

    two = placed(machine, 8, 2)
    perform(machine, CreateTopic("u", TopicId(UUID(int=2)), 8, 3))

    assert all(frozenset(partition.replicas) == {3, 4} for partition in two)
    for partition in partitions_of(machine, "u"):
        assert partition.leader in (3, 4)
        assert frozenset(partition.isr) == {3, 4}


def test_nothing_is_placed_where_nobody_could_lead() -> None:
    machine = cluster(2)
    stop(machine, 1)
    perform(machine, DrainBroker(NodeId(2)))

    assert kind_of(machine, CreateTopic("t", TOPIC, 1, 1)) is ErrorKind.INVALID_REPLICATION_FACTOR
    by_hand = (ReplicaAssignment(PartitionIndex(0), (NodeId(1),)),)
    assert kind_of(machine, CreateTopic("t", TOPIC, assignments=by_hand)) is ErrorKind.INVALID_ASSIGNMENT


def test_internal_topics_get_more_replicas_when_brokers_join() -> None:
    machine = racked("ab")
    perform(machine, CreateTopic(OFFSETS_TOPIC, TOPIC, 4, 1))

    assert perform(machine, WidenInternalTopics()) == StartedReassignments(4)
    for number, rack in ((3, "a"), (4, "c")):
        perform(machine, replace(registration(number), rack=rack))
    moving = partition_of(machine, OFFSETS_TOPIC)
    assert (sorted(moving.replicas), moving.adding, moving.removing) == ([1, 2], (2,), ())
    assert perform(machine, WidenInternalTopics()) == StartedReassignments(0)


def test_internal_topics_are_spread_over_racks_as_they_grow() -> None:
    machine = racked("aabbcc")
    perform(machine, CreateTopic(OFFSETS_TOPIC, TOPIC, 12, 1))

    perform(machine, WidenInternalTopics())

    partitions = partitions_of(machine, OFFSETS_TOPIC)
    assert all(spread(partition, "aabbcc") == [1, 1, 1] for partition in partitions)


def test_internal_topics_that_one_broker_made_are_preferred_by_all_as_they_grow() -> None:
    machine = racked("abc")
    rows = tuple(ReplicaAssignment(PartitionIndex(index), (NodeId(1),)) for index in range(6))
    perform(machine, CreateTopic(OFFSETS_TOPIC, TOPIC, assignments=rows))

    perform(machine, WidenInternalTopics())

    partitions = partitions_of(machine, OFFSETS_TOPIC)
    assert [partition.leader for partition in partitions] == [1] * 6
    assert Counter(partition.replicas[0] for partition in partitions) == {1: 2, 2: 2, 3: 2}
    assert all(sorted(partition.adding) == [2, 3] for partition in partitions)


def test_internal_topics_grow_a_few_partitions_at_a_time() -> None:
    machine = racked("ab")
    perform(machine, CreateTopic(OFFSETS_TOPIC, TOPIC, 4, 1))

    assert perform(machine, WidenInternalTopics(moves_max=3)) == StartedReassignments(3)
    assert perform(machine, WidenInternalTopics(moves_max=3)) == StartedReassignments(0)


def test_internal_topics_stay_as_their_setting_says_and_wait_for_live_brokers() -> None:
    one = racked("abc", ControllerConfig({"offsets.topic.replication.factor": "1"}))
    alone = racked("abc")
    for machine in (one, alone):
        perform(machine, CreateTopic(OFFSETS_TOPIC, TOPIC, 4, 1))
    fence(alone, 2)
    fence(alone, 3)

    assert perform(one, WidenInternalTopics()) == StartedReassignments(0)
    assert perform(alone, WidenInternalTopics()) == StartedReassignments(0)
