"""Brokers that are about to stop, and brokers that an operator wants empty."""

from penstock.core.metadata.commands import DrainBroker, StopBroker
from penstock.core.metadata.decisions.brokers import known_broker, reconsider
from penstock.core.metadata.decisions.draft import Draft, MetadataDecision, Surroundings, refused
from penstock.core.metadata.facts import BrokerDrained, BrokerStopping
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.replies import LeavingBroker
from penstock.core.model import NodeId, Refused, Why


def stop_broker(image: MetadataImage, command: StopBroker, around: Surroundings) -> MetadataDecision:
    """Controlled shutdown. A broker that asks again is told what it leads by now."""
    broker = known_broker(image, command.node_id, command.epoch)
    if isinstance(broker, Refused):
        return refused(broker.why, broker.detail)
    draft = Draft(image)
    if not broker.stopping:
        draft.add(BrokerStopping(broker.node_id, broker.epoch))
    reconsider(draft, broker.node_id, around)
    return draft.decision(_what_is_left(draft.image, broker.node_id))


def drain_broker(image: MetadataImage, command: DrainBroker, around: Surroundings) -> MetadataDecision:
    broker = image.broker(command.node_id)
    if broker is None:
        return refused(Why.UNKNOWN_BROKER, f"there is no broker {command.node_id}")
    draft = Draft(image)
    if broker.drained is command.undo:
        draft.add(BrokerDrained(broker.node_id, drained=not command.undo))
    reconsider(draft, broker.node_id, around)
    return draft.decision(_what_is_left(draft.image, broker.node_id))


def _what_is_left(image: MetadataImage, node_id: NodeId) -> LeavingBroker:
    leaders = [partition.leader for _, partition in image.partitions_of(node_id)]
    return LeavingBroker(leaders.count(node_id), len(leaders))
