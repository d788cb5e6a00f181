"""Moving the replicas of a partition to other brokers.

    replicas 1 2 3                       wanted: 4 2
    replicas 4 2 1 3   adding 4   removing 1 3      until 4 is in the ISR
    replicas 4 2

While the move is under way the partition has the old and the new replicas, and each of them
may be in the ISR. It ends in the decision that takes the last new replica into the ISR.
"""

import msgspec

from penstock.core.metadata.commands import (
    AlteredPartition,
    ReassignPartition,
    StartedReassignments,
    WidenInternalTopics,
)
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.effective_configs import broker_setting
from penstock.core.metadata.elections import (
    ElectionRules,
    elected,
    follow_rules,
    settled,
    with_epochs,
    with_isr,
    with_replicas,
)
from penstock.core.metadata.image import NO_LEADER, MetadataImage, Partition, Topic
from penstock.core.metadata.placement import REPLICAS_BY_DEFAULT_MAX, ReplicaPlacer
from penstock.core.metadata.records import PartitionChanged
from penstock.core.metadata.topic_names import (
    DELAYED_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
)
from penstock.core.model import ApiError, ErrorKind, NodeId

_FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
    QUEUES_TOPIC: "offsets.topic.replication.factor",
    DELAYED_TOPIC: "offsets.topic.replication.factor",
}


def reassign_partition(
    image: MetadataImage, command: ReassignPartition, around: ControllerConfig
) -> MetadataDecision:
    topic = image.topic(command.topic)
    partition = None if topic is None else topic.partition(command.index)
    if topic is None or partition is None:
        return error_decision(
            ErrorKind.UNKNOWN_PARTITION, f"there is no partition {command.topic}/{command.index}"
        )
    if command.replicas is None:
        after = _called_off(image, partition)
    else:
        after = _problem_with_target(image, partition, command) or _towards(
            image, partition, command.replicas
        )
    if isinstance(after, ApiError):
        return error_decision(after.kind, after.detail)
    return _decided(image, topic, partition, after, around)


def _problem_with_target(
    image: MetadataImage, partition: Partition, command: ReassignPartition
) -> ApiError | None:
    wanted = command.replicas or ()
    if not wanted:
        return ApiError(ErrorKind.INVALID_ASSIGNMENT, "a partition needs a replica")
    if len(frozenset(wanted)) != len(wanted):
        return ApiError(ErrorKind.INVALID_ASSIGNMENT, "a broker holds at most one replica")
    for node_id in wanted:
        broker = image.broker(node_id)
        if broker is None and node_id not in partition.origin:
            return ApiError(ErrorKind.INVALID_ASSIGNMENT, f"there is no broker {node_id}")
        if broker is not None and broker.drained and node_id not in partition.replicas:
            return ApiError(ErrorKind.INVALID_ASSIGNMENT, f"broker {node_id} is drained")
    if not command.resize and len(wanted) != len(partition.origin):
        detail = f"there are {len(partition.origin)} replicas, which would become {len(wanted)}"
        return ApiError(ErrorKind.INVALID_REPLICATION_FACTOR, detail)
    return None


def _towards(image: MetadataImage, partition: Partition, wanted: tuple[NodeId, ...]) -> Partition | ApiError:
    """The partition on its way from its original replicas, whatever move is under way."""
    adding = tuple(node_id for node_id in wanted if node_id not in partition.origin)
    removing = tuple(node_id for node_id in partition.origin if node_id not in wanted)
    return _without_loss(partition, with_replicas(partition, image, (*wanted, *removing), adding, removing))


def _called_off(image: MetadataImage, partition: Partition) -> Partition | ApiError:
    if not partition.is_moving:
        return ApiError(ErrorKind.NO_REASSIGNMENT, "no reassignment of this partition is under way")
    return _without_loss(partition, with_replicas(partition, image, partition.origin))


def _without_loss(partition: Partition, after: Partition) -> Partition | ApiError:
    complete = (*partition.isr, *partition.elr)
    if complete and not any(node_id in after.replicas for node_id in complete):
        detail = "only replicas that would be removed are sure to hold every record"
        return ApiError(ErrorKind.INVALID_ASSIGNMENT, detail)
    return after


def _decided(
    image: MetadataImage, topic: Topic, partition: Partition, after: Partition, around: ControllerConfig
) -> MetadataDecision:
    """Apply the rules that come with the new replicas: fewer replicas, lower minimum."""
    before, _ = ElectionRules(image, around).of(topic)
    supposed = DecisionBuilder(image)
    supposed.add(PartitionChanged(topic.id, after))
    minimum, _ = ElectionRules(supposed.image, around).of(_found(supposed.image, topic))
    isr = tuple(node_id for node_id in after.isr if node_id in after.replicas)
    after = with_isr(after, isr, minimum)
    if after.leader not in isr:
        after = msgspec.structs.replace(after, leader=NO_LEADER)
    # New replicas are empty: where no complete replica is left, a move must not make them leaders.
    after = settled(elected(after, image, minimum, unclean=False), image, minimum)
    changed = with_epochs(partition, after)
    draft = DecisionBuilder(image)
    if changed is not None:
        draft.add(PartitionChanged(topic.id, changed))
        if minimum < before:
            follow_rules(draft, [_found(draft.image, topic)], around)
    return draft.decision(AlteredPartition(changed or partition))


def widen_internal_topics(
    image: MetadataImage, command: WidenInternalTopics, around: ControllerConfig
) -> MetadataDecision:
    """Start the moves that let internal topics have as many replicas as their settings say."""
    deal = ReplicaPlacer(image)
    draft = DecisionBuilder(image)
    topics = [topic for topic in map(image.topic, INTERNAL_TOPICS) if topic is not None]
    room = command.moves_max - sum(partition.is_moving for topic in topics for partition in topic.partitions)
    for topic in topics:
        wanted = _wanted_replicas(image, topic, around)
        for partition in topic.partitions:
            changed = _wider(image, partition, deal, wanted)
            if changed is not None and len(draft.facts) < room:
                draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(StartedReassignments(len(draft.facts)))


def _wider(image: MetadataImage, partition: Partition, deal: ReplicaPlacer, wanted: int) -> Partition | None:
    """The partition on its way to more replicas that are live; None if it can have no more now."""
    present = partition.replicas
    able = len(present) + sum(node_id not in present for node_id in deal.leaders)
    count = min(wanted, able)
    if partition.is_moving or partition.leader == NO_LEADER or count <= len(present):
        return None
    replicas = deal.replicas(present, count, partition.index)
    adding = tuple(replicas[len(present) :])
    # They were all created on one broker: it must not lead all of them for ever.
    ordered = sorted(replicas)
    first = partition.index % count
    target = (*ordered[first:], *ordered[:first])
    return with_epochs(partition, with_replicas(partition, image, target, adding))


def _wanted_replicas(image: MetadataImage, topic: Topic, around: ControllerConfig) -> int:
    setting = _FACTORS.get(topic.name, "default.replication.factor")
    factor = broker_setting(image, setting, static=around.static)
    assert isinstance(factor, int)
    return factor if factor > 0 else REPLICAS_BY_DEFAULT_MAX


def _found(image: MetadataImage, topic: Topic) -> Topic:
    found = image.topic_by_id(topic.id)
    assert found is not None
    return found
