"""Changes that replicas propose: another ISR, a damaged replica that resigns, a leader that lacks records."""

import msgspec

from penstock.core.metadata.commands import AlteredPartition, AlterPartition, DeposeLeader, ResignReplica
from penstock.core.metadata.decide_brokers import known_broker
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.elections import (
    ElectionRules,
    after_loss,
    elected,
    settled,
    with_epochs,
    with_isr,
    without,
)
from penstock.core.metadata.image import NO_LEADER, MetadataImage, Partition, ReplicaLoss, Topic
from penstock.core.metadata.records import PartitionChanged
from penstock.core.model import ApiError, ErrorKind


def change_partition(
    image: MetadataImage, command: AlterPartition, around: ControllerConfig
) -> MetadataDecision:
    found = _found(image, command)
    if isinstance(found, ApiError):
        return error_decision(found.kind, found.detail)
    topic, partition = found
    error = _problem_with_epochs(partition, command) or _problem_with_isr(image, partition, command)
    if error is not None:
        return error_decision(error.kind, error.detail)
    minimum, _ = ElectionRules(image, around).of(topic)
    members = [member.node_id for member in command.isr]
    isr = tuple(node_id for node_id in partition.replicas if node_id in members)
    after = settled(with_isr(partition, isr, minimum), image, minimum)
    # A leader that lost the response to an earlier proposal proposes again, perhaps what is there
    # already. It needs the new partition epoch: nothing older can be accepted any more.
    changed = with_epochs(partition, after) or msgspec.structs.replace(
        partition, partition_epoch=partition.partition_epoch + 1
    )
    draft = DecisionBuilder(image)
    draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(AlteredPartition(changed))


def _found(
    image: MetadataImage, command: AlterPartition | ResignReplica | DeposeLeader
) -> tuple[Topic, Partition] | ApiError:
    """The partition of a broker's command, if the broker uses its present epoch."""
    broker = known_broker(image, command.node_id, command.broker_epoch)
    if isinstance(broker, ApiError):
        return broker
    topic = image.topic_by_id(command.topic_id)
    if topic is None:
        return ApiError(ErrorKind.UNKNOWN_TOPIC_ID, f"no topic has the id {command.topic_id}")
    partition = topic.partition(command.index)
    if partition is None:
        return ApiError(ErrorKind.UNKNOWN_PARTITION, f"topic '{topic.name}' has no partition {command.index}")
    return topic, partition


def _problem_with_epochs(partition: Partition, command: AlterPartition) -> ApiError | None:
    if command.leader_epoch > partition.leader_epoch or command.partition_epoch > partition.partition_epoch:
        # The leader has seen newer metadata than this controller: another node must be the controller.
        return ApiError(
            ErrorKind.UNKNOWN_LEADER_EPOCH, f"the partition is at leader epoch {partition.leader_epoch}"
        )
    if command.leader_epoch < partition.leader_epoch:
        return ApiError(ErrorKind.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}")
    if command.node_id != partition.leader:
        return ApiError(ErrorKind.INVALID_REQUEST, f"broker {command.node_id} is not the leader")
    if command.partition_epoch < partition.partition_epoch:
        return ApiError(
            ErrorKind.STALE_PARTITION_EPOCH, f"the partition epoch is {partition.partition_epoch}"
        )
    return None


def _problem_with_isr(image: MetadataImage, partition: Partition, command: AlterPartition) -> ApiError | None:
    members = [member.node_id for member in command.isr]
    if len(frozenset(members)) != len(members) or any(node not in partition.replicas for node in members):
        return ApiError(ErrorKind.INVALID_REQUEST, f"{members} is not a subset of the replicas")
    if partition.leader not in members:
        return ApiError(ErrorKind.INVALID_REQUEST, "a leader is always in sync with itself")
    for node_id, epoch in command.isr:
        broker = image.broker(node_id)
        # A replica that restarted since may have lost what made it in sync (KIP-903).
        if broker is None or broker.fenced or broker.epoch != epoch:
            return ApiError(ErrorKind.INELIGIBLE_REPLICA, f"replica {node_id} is fenced or has restarted")
        if broker.stopping and node_id not in partition.isr:
            return ApiError(ErrorKind.INELIGIBLE_REPLICA, f"replica {node_id} is about to stop")
    return None


def resign_replica(
    image: MetadataImage, command: ResignReplica, around: ControllerConfig
) -> MetadataDecision:
    """Take a damaged replica out of ISR, ELR and leadership, unless it is the last that counts."""
    found = _found(image, command)
    if isinstance(found, ApiError):
        return error_decision(found.kind, found.detail)
    topic, partition = found
    node_id = command.node_id
    if node_id not in partition.replicas:
        return error_decision(
            ErrorKind.INVALID_REQUEST, f"broker {node_id} keeps no replica of {topic.name}/{command.index}"
        )
    complete = (*partition.isr, *partition.elr)
    if node_id in complete and not without(complete, node_id):
        detail = f"only broker {node_id} is sure to have the records of {topic.name}/{command.index}"
        return error_decision(ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE, detail)
    minimum, _ = ElectionRules(image, around).of(topic)
    after = after_loss(partition, node_id, minimum, ReplicaLoss.EVERYTHING)
    if after.leader == node_id:
        after = elected(msgspec.structs.replace(after, leader=NO_LEADER), image, minimum, unclean=False)
    # The leader may know the replica as caught up, from a fetch of before the damage was found.
    # Under a new leader epoch it must forget that, and cannot take the replica back unasked.
    changed = with_epochs(partition, after, renew=True)
    assert changed is not None
    draft = DecisionBuilder(image)
    draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(AlteredPartition(changed))


def depose_leader(image: MetadataImage, command: DeposeLeader, around: ControllerConfig) -> MetadataDecision:
    """Let the replica lead that has the committed records which its leader lacks.

    Only an eligible replica may: it is sure to have whatever this leader has committed. If it is not
    eligible, the leader may have committed other records at the same offsets since.
    """
    found = _found(image, command)
    if isinstance(found, ApiError):
        return error_decision(found.kind, found.detail)
    topic, partition = found
    if command.leader_epoch != partition.leader_epoch or partition.leader == NO_LEADER:
        return error_decision(ErrorKind.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}")
    node_id, leader = command.node_id, partition.leader
    if not image.may_lead(node_id):
        return error_decision(ErrorKind.INELIGIBLE_REPLICA, f"broker {node_id} cannot lead now")
    if node_id == leader or node_id not in partition.complete:
        detail = (
            f"leader {leader} lacks offsets {command.offset} to {command.high_watermark} of "
            f"{topic.name}/{command.index}, but broker {node_id} may lack what it has committed since"
        )
        return error_decision(ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE, detail)
    minimum, _ = ElectionRules(image, around).of(topic)
    after = after_loss(partition, leader, minimum, ReplicaLoss.TAIL)
    after = msgspec.structs.replace(with_isr(after, (node_id,), minimum), leader=node_id)
    changed = with_epochs(partition, settled(after, image, minimum))
    assert changed is not None
    draft = DecisionBuilder(image)
    draft.add(PartitionChanged(topic.id, changed))
    return draft.decision(AlteredPartition(changed))
