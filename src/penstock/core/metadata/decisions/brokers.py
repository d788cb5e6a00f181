"""Brokers that come, fall silent, return, stop and leave, and what that does to partitions."""

from penstock.core.metadata.commands import (
    DrainBroker,
    FenceBroker,
    RegisterBroker,
    StopBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from penstock.core.metadata.decisions.draft import Draft, MetadataDecision, Surroundings, refused
from penstock.core.metadata.decisions.leadership import Loss, reconsidered, with_epochs
from penstock.core.metadata.decisions.rules import ElectionRules
from penstock.core.metadata.facts import (
    BrokerDrained,
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ConfigRemoved,
    ConfigSet,
    PartitionChanged,
)
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import Done, LeavingBroker, RegisteredBroker
from penstock.core.metadata.state import NO_INCARNATION, Broker, ResourceKind
from penstock.core.model import BrokerEpoch, NodeId, Refused, Why

# The key under which operators drain a broker; what a broker's state says follows it.
DRAINED = "broker.drained"


def register_broker(image: MetadataImage, command: RegisterBroker, around: Surroundings) -> MetadataDecision:
    former = image.broker(command.node_id)
    if former is not None and former.incarnation == command.incarnation != NO_INCARNATION:
        # Asked again, because the answer was lost or the question came twice.
        return Draft(image).decision(RegisteredBroker(former.epoch))
    refusal = _late_registration(former, command) or _problem_with_registration(image, command)
    if refusal is not None:
        return refused(refusal.why, refusal.detail)
    epoch = BrokerEpoch(image.last_broker_epoch + 1)
    broker = Broker(
        command.node_id,
        epoch,
        command.directory_id,
        command.listeners,
        command.rack,
        command.features,
        command.previous_epoch,
        command.fenced,
        drained=_is_drained(image, command.node_id),
        synced=command.synced,
        incarnation=command.incarnation,
    )
    draft = Draft(image)
    draft.add(BrokerRegistered(broker))
    _reconsider(draft, command.node_id, around, restarted=True, loss=_loss(former, command))
    return draft.decision(RegisteredBroker(epoch))


def _loss(former: Broker | None, command: RegisterBroker) -> Loss:
    """What a broker may have lost since its last life, whose way of syncing counts as well."""
    if former is None:
        return Loss.NOTHING
    if command.directory_id != former.directory_id:
        return Loss.EVERYTHING
    stopped_cleanly = command.previous_epoch == former.epoch
    return Loss.NOTHING if stopped_cleanly or (command.synced and former.synced) else Loss.TAIL


def _late_registration(former: Broker | None, command: RegisterBroker) -> Refused | None:
    known = command.known_epoch
    if former is None or known is None or former.epoch <= known:
        return None
    detail = f"broker {command.node_id} is at epoch {former.epoch}, and knew of {known}"
    return Refused(Why.STALE_BROKER_EPOCH, detail)


def _problem_with_registration(image: MetadataImage, command: RegisterBroker) -> Refused | None:
    if image.cluster_id != command.cluster_id:
        detail = f"this is cluster {image.cluster_id}, the broker belongs to {command.cluster_id}"
        return Refused(Why.INCONSISTENT_CLUSTER, detail)
    if command.node_id < 0:
        return Refused(Why.INVALID_REQUEST, f"{command.node_id} is no node id")
    former = image.broker(command.node_id)
    if former is not None and not former.fenced and former.directory_id != command.directory_id:
        detail = f"broker {command.node_id} is live with another data directory"
        return Refused(Why.DUPLICATE_BROKER, detail)
    for other in image.each_broker():
        if other.directory_id == command.directory_id and other.node_id != command.node_id:
            detail = f"the data directory belongs to broker {other.node_id}"
            return Refused(Why.DUPLICATE_BROKER, detail)
    broker = Broker(command.node_id, BrokerEpoch(0), command.directory_id, features=command.features)
    for feature, level in image.features.items():
        if not broker.supports(feature, level):
            detail = f"the cluster uses {feature} at level {level}, which the broker does not support"
            return Refused(Why.INVALID_FEATURE_LEVEL, detail)
    return None


def fence_broker(image: MetadataImage, command: FenceBroker, around: Surroundings) -> MetadataDecision:
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, Refused):
        return refused(broker.why, broker.detail)
    draft = Draft(image)
    if not broker.fenced:
        draft.add(BrokerFenced(broker.node_id, broker.epoch))
        _reconsider(draft, broker.node_id, around)
    return draft.decision(Done())


def unfence_broker(image: MetadataImage, command: UnfenceBroker, around: Surroundings) -> MetadataDecision:
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, Refused):
        return refused(broker.why, broker.detail)
    draft = Draft(image)
    if broker.fenced:
        draft.add(BrokerUnfenced(broker.node_id, broker.epoch))
        _reconsider(draft, broker.node_id, around)
    return draft.decision(Done())


def stop_broker(image: MetadataImage, command: StopBroker, around: Surroundings) -> MetadataDecision:
    """Controlled shutdown. A broker that asks again is told what it leads by now."""
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, Refused):
        return refused(broker.why, broker.detail)
    draft = Draft(image)
    if not broker.stopping:
        draft.add(BrokerStopping(broker.node_id, broker.epoch))
    return draft.decision(_reconsider(draft, broker.node_id, around))


def drain_broker(image: MetadataImage, command: DrainBroker, around: Surroundings) -> MetadataDecision:
    broker = image.broker(command.node_id)
    if broker is None:
        return refused(Why.UNKNOWN_BROKER, f"there is no broker {command.node_id}")
    draft = Draft(image)
    name = str(broker.node_id)
    if command.undo:
        draft.add(ConfigRemoved(ResourceKind.BROKER, name, DRAINED))
    else:
        draft.add(ConfigSet(ResourceKind.BROKER, name, DRAINED, "true"))
    return draft.decision(follow_drain(draft, broker.node_id, around))


def follow_drain(draft: Draft, node_id: NodeId, around: Surroundings) -> LeavingBroker:
    """Let a broker be drained or not, as its configuration says by now."""
    broker = draft.image.broker(node_id)
    drained = _is_drained(draft.image, node_id)
    if broker is not None and broker.drained is not drained:
        draft.add(BrokerDrained(node_id, drained=drained))
    return _reconsider(draft, node_id, around)


def _is_drained(image: MetadataImage, node_id: NodeId) -> bool:
    return image.config(ResourceKind.BROKER, str(node_id)).get(DRAINED, "false").lower() == "true"


def unregister_broker(
    image: MetadataImage, command: UnregisterBroker, around: Surroundings
) -> MetadataDecision:
    broker = image.broker(command.node_id)
    if broker is None:
        return refused(Why.UNKNOWN_BROKER, f"there is no broker {command.node_id}")
    if not broker.fenced:
        detail = f"broker {command.node_id} is live: it must be stopped before it can be forgotten"
        return refused(Why.INVALID_REQUEST, detail)
    draft = Draft(image)
    draft.add(BrokerUnregistered(broker.node_id, broker.epoch))
    _reconsider(draft, broker.node_id, around, loss=Loss.EVERYTHING)
    return draft.decision(Done())


def known_broker(image: MetadataImage, node_id: NodeId, epoch: BrokerEpoch) -> Broker | Refused:
    """The broker, if it speaks under its present epoch."""
    broker = image.broker(node_id)
    if broker is None:
        return Refused(Why.UNKNOWN_BROKER, f"there is no broker {node_id}")
    if broker.epoch != epoch:
        return Refused(Why.STALE_BROKER_EPOCH, f"broker {node_id} is at epoch {broker.epoch}, not {epoch}")
    return broker


def _reconsider(
    draft: Draft,
    node_id: NodeId,
    around: Surroundings,
    *,
    restarted: bool = False,
    loss: Loss = Loss.NOTHING,
) -> LeavingBroker:
    """Look again at every partition with a replica on the broker; answers what it has then."""
    rules = ElectionRules(draft.image, around)
    leading = replicas = 0
    for topic, partition in draft.image.partitions_of(node_id):
        minimum, unclean = rules.of(topic)
        after = reconsidered(partition, draft.image, node_id, minimum, unclean=unclean, loss=loss)
        # A leader that restarted must not write under the epoch of its former life.
        renew = restarted and partition.leader == node_id
        changed = with_epochs(partition, after, renew=renew)
        if changed is not None:
            # A broker has thousands of partitions, and none of them is about another.
            draft.note(PartitionChanged(topic.id, changed))
        replicas += node_id in after.replicas
        leading += after.leader == node_id
    return LeavingBroker(leading, replicas)
