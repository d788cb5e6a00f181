"""Elections that operators ask for, and leadership that returns to where it belongs."""

import msgspec

from penstock.core.metadata.commands import BalanceLeaders, Election, ElectLeader
from penstock.core.metadata.decisions.draft import Draft, MetadataDecision, Surroundings, refused
from penstock.core.metadata.decisions.leadership import elected, settled, with_epochs
from penstock.core.metadata.decisions.rules import ElectionRules
from penstock.core.metadata.effective import broker_setting
from penstock.core.metadata.facts import PartitionChanged
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import BalancedLeaders, ChangedPartition
from penstock.core.metadata.state import NO_LEADER, Partition, Topic
from penstock.core.model import NodeId, Refused, Why


def elect_leader(image: MetadataImage, command: ElectLeader, around: Surroundings) -> MetadataDecision:
    topic = image.topic(command.topic)
    partition = None if topic is None else topic.partition(command.index)
    if topic is None or partition is None:
        return refused(Why.UNKNOWN_PARTITION, f"there is no partition {command.topic}/{command.index}")
    minimum, _ = ElectionRules(image, around).of(topic)
    if command.election is Election.PREFERRED:
        after = _preferred(image, partition)
    else:
        after = _anyone(image, partition, minimum)
    if isinstance(after, Refused):
        return refused(after.why, after.detail)
    changed = with_epochs(partition, after)
    assert changed is not None, "an election that changes nothing is refused"
    draft = Draft(image)
    draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(ChangedPartition(changed))


def _preferred(image: MetadataImage, partition: Partition) -> Partition | Refused:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return Refused(Why.ELECTION_NOT_NEEDED, f"broker {preferred} leads already")
    if preferred not in partition.isr or not image.may_lead(preferred):
        return Refused(Why.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync")
    if image.is_leaving(preferred):
        return Refused(Why.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is drained")
    return msgspec.structs.replace(partition, leader=preferred)


def _anyone(image: MetadataImage, partition: Partition, minimum: int) -> Partition | Refused:
    if partition.leader != NO_LEADER:
        return Refused(Why.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads")
    after = elected(partition, image, minimum, unclean=True)
    if after.leader == NO_LEADER:
        return Refused(Why.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of the replicas is live")
    return settled(after, image, minimum)


def balance_leaders(image: MetadataImage, command: BalanceLeaders, around: Surroundings) -> MetadataDecision:
    """Give leadership back to preferred replicas, where a broker misses too much of what it should lead.

    Only so many at a time: each move is a short pause for the clients of a partition.
    """
    draft = Draft(image)
    if not broker_setting(image, "auto.leader.rebalance.enable", static=around.static):
        return draft.decision(BalancedLeaders(0, 0))
    percentage = broker_setting(image, "leader.imbalance.per.broker.percentage", static=around.static)
    assert isinstance(percentage, int)
    movable = _movable(image, percentage)
    for topic, partition in movable[: command.moves_max]:
        after = msgspec.structs.replace(partition, leader=partition.replicas[0])
        changed = with_epochs(partition, after)
        assert changed is not None
        draft.add(PartitionChanged(topic.id, changed))
    moved = min(len(movable), command.moves_max)
    return draft.decision(BalancedLeaders(moved, len(movable) - moved))


def _movable(image: MetadataImage, percentage: int) -> list[tuple[Topic, Partition]]:
    """Partitions whose preferred replica could lead, of brokers that are out of balance."""
    preferred: dict[NodeId, int] = {}
    elsewhere: dict[NodeId, int] = {}
    misled = []
    for topic in image.each_topic():
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if partition.leader not in (first, NO_LEADER):
                elsewhere[first] = elsewhere.get(first, 0) + 1
                misled.append((topic, partition))
    unbalanced = {node for node, count in elsewhere.items() if 100 * count > percentage * preferred[node]}
    return [
        (topic, partition)
        for topic, partition in misled
        if partition.replicas[0] in unbalanced and _can_return(image, partition)
    ]


def _can_return(image: MetadataImage, partition: Partition) -> bool:
    return not partition.is_moving and not isinstance(_preferred(image, partition), Refused)
