"""Topics that the cluster keeps its own state in get more replicas as brokers join."""

from collections import Counter
from collections.abc import Mapping

from penstock.core.metadata import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    MetadataImage,
    ReassignPartition,
    Reply,
    Topic,
    broker_setting,
)
from penstock.core.model import NodeId, Refused
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.duties.rounds import Rounds

LOOK_MS = 2_000
REPLICAS = 3
# Each move copies a log: a few at a time.
MOVES_MAX = 20
_FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}


class InternalTopics(Rounds):
    """Brings internal topics to three replicas, unless somebody has set another number."""

    def __init__(self, runtime: Runtime, controller: Controller, static: Mapping[str, str]) -> None:
        super().__init__(runtime, controller)
        self._static = static

    def pause_ms(self) -> int:
        return LOOK_MS

    def look(self) -> None:
        image = self._controller.image
        for topic in image.each_topic():
            if topic.internal and self._is_by_default(image, topic):
                for move in moves(image, topic)[:MOVES_MAX]:
                    self._controller.submit(move, _told)

    def _is_by_default(self, image: MetadataImage, topic: Topic) -> bool:
        key = _FACTORS.get(topic.name)
        return key is None or broker_setting(image, key, static=self._static) == -1


def moves(image: MetadataImage, topic: Topic) -> list[ReassignPartition]:
    """What is missing: each partition keeps its replicas and gets those brokers that have fewest."""
    brokers = [broker.node_id for broker in image.live_brokers() if not image.is_leaving(broker.node_id)]
    wanted = min(REPLICAS, len(brokers))
    load: Counter[NodeId] = Counter(node for each in topic.partitions for node in each.replicas)
    found = []
    for partition in topic.partitions:
        missing = wanted - len(partition.replicas)
        if missing <= 0 or partition.is_moving:
            continue
        spare = sorted(
            (node for node in brokers if node not in partition.replicas), key=lambda node: load[node]
        )
        added = tuple(spare[:missing])
        load.update(added)
        found.append(ReassignPartition(topic.name, partition.index, (*partition.replicas, *added)))
    return found


def _told(reply: Reply) -> None:
    if isinstance(reply, Refused):
        events.debug("cluster.internal_topic_not_grown", reason=reply.detail or reply.why.value)
