"""A history that is replayed at once leads where its facts lead one by one."""

from functools import reduce
from uuid import UUID

from penstock.core.metadata import EMPTY_IMAGE, replay
from penstock.core.metadata.apply import apply
from penstock.core.metadata.image import Partition
from penstock.core.metadata.records import Fact, PartitionChanged, PartitionCreated, TopicCreated
from penstock.core.model import LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName

ONE, OTHER, UNKNOWN = (TopicId(UUID(int=number)) for number in (1, 2, 3))
PARTITIONS = 3


def partition(index: int, replicas: int = 1, epoch: int = 0) -> Partition:
    nodes = tuple(NodeId(node) for node in range(1, replicas + 1))
    return Partition(PartitionIndex(index), nodes, nodes, nodes[0], LeaderEpoch(epoch))


def topics() -> list[Fact]:
    facts: list[Fact] = [TopicCreated(TopicName("one"), ONE), TopicCreated(TopicName("other"), OTHER)]
    for topic in (ONE, OTHER):
        facts += [PartitionCreated(topic, partition(index)) for index in range(PARTITIONS)]
    return facts


def test_changes_of_several_topics_are_replayed_as_they_are_applied() -> None:
    history: list[Fact] = [
        *topics(),
        PartitionChanged(ONE, partition(0, epoch=1)),
        PartitionChanged(ONE, partition(1, replicas=3, epoch=1)),
        PartitionChanged(ONE, partition(0, replicas=2, epoch=2)),
        PartitionChanged(OTHER, partition(2, epoch=1)),
        PartitionChanged(ONE, partition(2, epoch=1)),
        PartitionChanged(ONE, partition(PARTITIONS, epoch=1)),
        PartitionChanged(UNKNOWN, partition(0, epoch=1)),
        PartitionCreated(ONE, partition(PARTITIONS)),
        PartitionChanged(ONE, partition(PARTITIONS, epoch=5)),
    ]

    image = replay(EMPTY_IMAGE, history)

    assert image == reduce(apply, history, EMPTY_IMAGE)
    one = image.topics.get(ONE)
    assert one is not None
    assert [found.leader_epoch for found in one.partitions] == [2, 1, 1, 5]
    assert one.factors == ((1, 2), (2, 1), (3, 1))


def test_a_history_that_changes_nothing_leaves_the_image_alone() -> None:
    image = replay(EMPTY_IMAGE, topics())

    assert (
        replay(image, [PartitionChanged(UNKNOWN, partition(0)), PartitionChanged(ONE, partition(9))]) is image
    )
