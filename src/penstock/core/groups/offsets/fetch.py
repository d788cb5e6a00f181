"""OffsetFetch: where a group stands."""

from penstock.core.groups.commands import FetchOffsets, TopicToFetch
from penstock.core.groups.facts import OffsetCommitted
from penstock.core.groups.image import GroupImage
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import FetchedOffset, FetchedOffsets
from penstock.core.model import TopicId, TopicPartition, Why


def fetch(image: GroupImage, command: FetchOffsets, turn: Turn) -> None:
    """A group nobody knows has committed nothing, and that is no error: clients start from there."""
    partitions: list[tuple[TopicPartition, TopicId | None]]
    if command.topics is None:
        partitions = [(partition, None) for partition in sorted(image.offsets_of(command.group_id))]
    else:
        partitions = [wanted for topic in command.topics for wanted in _partitions_of(topic)]
    offsets = (_fetch_one(image, command, partition, topic_id) for partition, topic_id in partitions)
    turn.answer(command.ticket, FetchedOffsets(tuple(offsets)))


def _partitions_of(topic: TopicToFetch) -> list[tuple[TopicPartition, TopicId | None]]:
    return [(TopicPartition(topic.topic, partition), topic.topic_id) for partition in topic.partitions]


def _fetch_one(
    image: GroupImage, command: FetchOffsets, partition: TopicPartition, topic_id: TopicId | None
) -> FetchedOffset:
    if command.require_stable and image.is_unstable(command.group_id, partition):
        return FetchedOffset(partition, why=Why.OFFSETS_UNSTABLE)
    committed = image.offsets_of(command.group_id).get(partition)
    if committed is None or _is_of_another_topic(committed, topic_id):
        return FetchedOffset(partition)
    return FetchedOffset(partition, committed.offset, committed.leader_epoch, committed.metadata)


def _is_of_another_topic(committed: OffsetCommitted, topic_id: TopicId | None) -> bool:
    # The topic was deleted and made again: the position says nothing about the new one.
    return topic_id is not None and committed.topic_id is not None and committed.topic_id != topic_id
