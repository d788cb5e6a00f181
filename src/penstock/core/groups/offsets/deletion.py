"""OffsetDelete, and offsets in topics that are gone."""

from penstock.core.groups.classic import ClassicGroup
from penstock.core.groups.commands import DeleteOffsets, ForgetTopic
from penstock.core.groups.facts import OffsetDeleted
from penstock.core.groups.image import GroupImage
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import DeletionResults, Done, PartitionResult
from penstock.core.model import Why


def delete(group: ClassicGroup | None, image: GroupImage, command: DeleteOffsets, turn: Turn) -> None:
    """Drop positions that nobody relies on: the group must not be reading those topics."""
    if group is None:
        turn.refuse(command.ticket, Why.UNKNOWN_GROUP)
        return
    if not group.is_empty and not group.is_consumer_group:
        # What such members read is not for us to know.
        turn.refuse(command.ticket, Why.GROUP_NOT_EMPTY)
        return
    committed = image.offsets_of(command.group_id)
    results: list[PartitionResult] = []
    for partition in command.partitions:
        if group.is_subscribed_to(partition.topic):
            results.append(PartitionResult(partition, Why.GROUP_SUBSCRIBED))
            continue
        if partition in committed:
            turn.record(OffsetDeleted(command.group_id, partition))
        results.append(PartitionResult(partition))
    turn.answer(command.ticket, DeletionResults(tuple(results)))


def forget_topic(image: GroupImage, command: ForgetTopic, turn: Turn) -> None:
    for group_id, offsets in image.offsets.items():
        for partition in offsets:
            if partition.topic == command.topic:
                turn.record(OffsetDeleted(group_id, partition))
    turn.answer(command.ticket, Done())
