"""Fetching from followers (KIP-392): which replica a consumer reads from.

    consumer in rack b ── Fetch, rack b ──► leader in rack a ── "read from broker 2" ──► consumer
             └──────────── Fetch, rack b ──► broker 2, in rack b: records up to its high watermark

Only consumers that name their rack are sent to a follower or served by one. A follower knows of a high
watermark from its leader, so that what it serves is committed; it may be a moment behind. It serves while
it is in sync, as far as it knows, and has its broker's lease: otherwise consumers go back to the leader.

Left out: replicas that are chosen by load. The most advanced one in the rack is taken.
"""

from collections.abc import Mapping
from typing import Protocol

from penstock.broker.partitions import FollowerPartition, LeaderPartition, ReplicaManager
from penstock.core.metadata import MetadataImage, broker_setting
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.metadata.configs.broker import RACK_AWARE_SELECTOR
from penstock.core.model import NodeId


class ImageSource(Protocol):
    """Where the committed metadata is found."""

    @property
    def image(self) -> MetadataImage: ...


class ReadReplicaSelector:
    """Finds the replica that is nearest to a consumer, and the followers that may serve one."""

    def __init__(
        self,
        metadata: ImageSource,
        partitions: ReplicaManager,
        node_id: NodeId,
        static: Mapping[str, str] = NO_CONFIGS,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._node_id = node_id
        self._static = static
        self._configs: object = None
        self._is_rack_aware = True

    def nearest(self, partition: LeaderPartition, offset: int, rack: str) -> NodeId | None:
        """The follower in the consumer's rack that it should read from; None if that is this node."""
        image, log = self._metadata.image, partition.log
        if self._configs is not image.configs:
            self._configs = image.configs
            name = broker_setting(image, "replica.selector.class", self._node_id, self._static)
            self._is_rack_aware = name == RACK_AWARE_SELECTOR
        me = image.broker(self._node_id)
        if not self._is_rack_aware or me is None or me.rack == rack or not log.start <= offset <= log.end:
            return None
        best: NodeId | None = None
        reached = offset - 1
        for node in partition.isr.assignment.isr:
            broker = image.broker(node)
            follower = partition.isr.follower(node)
            if broker is None or broker.fenced or broker.rack != rack or follower is None:
                continue
            if follower.fetched > reached:
                best, reached = node, follower.fetched
        return best

    def followed(self, topic: str, index: int) -> FollowerPartition | None:
        """The partition, if this node follows it and is in sync as far as it knows."""
        state = self._metadata.image.partition(topic, index)
        replica = self._partitions.find_log(topic, index)
        if state is None or replica is None or self._node_id not in state.isr:
            return None
        role = replica.role
        return role if isinstance(role, FollowerPartition) and not role.needs_refill else None
