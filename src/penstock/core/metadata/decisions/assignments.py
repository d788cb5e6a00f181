"""Replicas that somebody placed by hand, and more partitions for a topic."""

from collections.abc import Sequence

from penstock.core.metadata.commands import Assignment, CreatePartitions
from penstock.core.metadata.decisions.draft import Draft, MetadataDecision, Surroundings, refused
from penstock.core.metadata.decisions.placement import new_partition, place, places
from penstock.core.metadata.facts import PartitionCreated
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import CreatedPartitions
from penstock.core.metadata.state import Partition, Topic
from penstock.core.model import NodeId, PartitionIndex, Refused, Why


def partitions_by_hand(
    image: MetadataImage, assignments: Sequence[Assignment], start: int = 0, replicas: int | None = None
) -> list[Partition] | Refused:
    """Partitions with these replicas; their indexes must run from `start` without a gap."""
    ordered = sorted(assignments, key=lambda assignment: assignment.partition)
    if [assignment.partition for assignment in ordered] != list(range(start, start + len(ordered))):
        detail = f"partitions must be numbered from {start} on, each of them once"
        return Refused(Why.INVALID_ASSIGNMENT, detail)
    expected = len(ordered[0].replicas) if replicas is None else replicas
    for assignment in ordered:
        complaint = _problem_with_replicas(image, assignment.replicas, expected)
        if complaint is not None:
            return Refused(Why.INVALID_ASSIGNMENT, f"partition {assignment.partition}: {complaint}")
    return [new_partition(image, assignment.partition, assignment.replicas) for assignment in ordered]


def _problem_with_replicas(image: MetadataImage, replicas: tuple[NodeId, ...], expected: int) -> str | None:
    if not replicas:
        return "it needs a replica"
    for node_id in replicas:
        broker = image.broker(node_id)
        if broker is None:
            return f"there is no broker {node_id}"
        if broker.drained:
            return f"broker {node_id} is drained"
    if len(frozenset(replicas)) != len(replicas):
        return "a broker holds at most one replica"
    if len(replicas) != expected:
        return f"it has {len(replicas)} replicas, others have {expected}"
    if not any(image.may_lead(node_id) for node_id in replicas):
        return "none of its brokers can lead now"
    return None


def problem_with_count(image: MetadataImage, count: int, around: Surroundings) -> Refused | None:
    """Whether so many partitions more are too many."""
    if count > around.partitions_per_command_max:
        detail = f"{count} partitions at once are too many, the limit is {around.partitions_per_command_max}"
        return Refused(Why.INVALID_PARTITIONS, detail)
    if image.partition_count + count > around.partitions_max:
        detail = f"{count} more partitions would exceed the cluster's limit of {around.partitions_max}"
        return Refused(Why.INVALID_PARTITIONS, detail)
    return None


def problem_with_replication(image: MetadataImage, factor: int) -> Refused | None:
    """Whether so many replicas can be placed now."""
    most = places(image)
    if most == 0:
        return Refused(
            Why.INVALID_REPLICATION_FACTOR, "no broker is live, or those that are do not take more"
        )
    if factor > most:
        drained = len(image.brokers) - most
        note = f", besides {drained} drained" if drained else ""
        detail = f"{factor} replicas need as many brokers, there are {most}{note}"
        return Refused(Why.INVALID_REPLICATION_FACTOR, detail)
    return None


def create_partitions(
    image: MetadataImage, command: CreatePartitions, around: Surroundings
) -> MetadataDecision:
    topic = image.topic(command.name)
    if topic is None:
        return refused(Why.UNKNOWN_TOPIC, f"there is no topic '{command.name}'")
    present = len(topic.partitions)
    if topic.internal:
        detail = (
            f"keys of '{topic.name}' are hashed to its {present} partitions, so their number never changes"
        )
        return refused(Why.INVALID_PARTITIONS, detail)
    if command.count <= present:
        detail = f"topic '{topic.name}' has {present} partitions, {command.count} is no increase"
        return refused(Why.INVALID_PARTITIONS, detail)
    partitions = problem_with_count(image, command.count - present, around) or _more_partitions(
        image, topic, command
    )
    if isinstance(partitions, Refused):
        return refused(partitions.why, partitions.detail)
    draft = Draft(image)
    for partition in partitions:
        draft.add(PartitionCreated(topic.id, partition))
    reply = CreatedPartitions(topic.name, command.count)
    return draft.decision(reply, validate_only=command.validate_only)


def _more_partitions(
    image: MetadataImage, topic: Topic, command: CreatePartitions
) -> list[Partition] | Refused:
    start = len(topic.partitions)
    more = command.count - start
    if command.assignments is None:
        return problem_with_replication(image, topic.replication_factor) or place(
            image, start, more, topic.replication_factor
        )
    if len(command.assignments) != more:
        detail = f"{more} new partitions need {more} assignments, there are {len(command.assignments)}"
        return Refused(Why.INVALID_ASSIGNMENT, detail)
    numbered = [
        Assignment(PartitionIndex(start + number), replicas)
        for number, replicas in enumerate(command.assignments)
    ]
    return partitions_by_hand(image, numbered, start, topic.replication_factor)
