"""Looks into the nodes of a cluster whenever something was promised, and asks if it could be lost.

Clients see a loss only if the right node is elected at the right time. The probe compares, at every
acknowledgement and every committed change of the metadata, what was promised with the logs of all who
may be elected, up or down; those whose files were damaged on purpose have an excuse.
"""

from collections.abc import Iterable, Mapping

from penstock.core.metadata import OFFSETS_TOPIC, MetadataImage
from penstock.core.model import NodeId
from penstock.sim.checkers.eligibility import VoterLog
from penstock.sim.cluster.journal import Journal, Place
from penstock.sim.cluster.node import ClusterNode
from penstock.sim.world import World


class EligibilityProbe:
    """Compares the newest committed metadata with the logs that it speaks of."""

    def __init__(self, journal: Journal, world: World, nodes: Mapping[NodeId, ClusterNode]) -> None:
        self._checker = journal.eligibility
        self._coverage = journal.coverage
        self._world = world
        self._nodes = nodes
        self._places: tuple[Place, ...] = ()
        # The newest image that any node ever had: those who know it may be down now.
        self._version = -1
        self._image: MetadataImage | None = None

    def watch(self, places: Iterable[Place]) -> None:
        """These partitions are used by clients."""
        self._places = (*places, (OFFSETS_TOPIC, 0))

    def is_damaged(self, node: ClusterNode) -> bool:
        """Whether files of it were damaged on purpose."""
        return node.machine.name in self._world.damaged

    def metadata_committed(self, node: ClusterNode, version: int, image: MetadataImage) -> None:
        """A node has a new image of committed metadata."""
        if version > self._version:
            before, self._version, self._image = self._image, version, image
            for place in self._places:
                self._compare(before, image, place)
                self.look(place)
        self._look_at_quorum(node)

    def _compare(self, before: MetadataImage | None, after: MetadataImage, place: Place) -> None:
        old = None if before is None else before.partition(*place)
        new = after.partition(*place)
        if old is not None and new is not None and new is not old:
            self._coverage.partition_changed(old, new)

    def acknowledged(self, place: Place, key: str, end: int) -> None:
        """A producer was told that all in-sync replicas have what is below `end`."""
        self._checker.acknowledged(key, end)
        self.look(place)

    def look(self, place: Place) -> None:
        """Compare the replicas of one partition that may be elected."""
        partition = None if self._image is None else self._image.partition(*place)
        topic_id = None if self._image is None else self._image.topic_id(place[0])
        if partition is None:
            return
        key = f"{place[0]}/{place[1]} of {topic_id}"
        leader = self._nodes.get(partition.leader)
        led = None if leader is None or leader.backend is None else leader.backend.partitions.find(*place)
        if led is not None and led.leader_epoch == partition.leader_epoch:
            self._checker.acknowledged(key, led.high_watermark)
            if led.stopped is None:
                self._checker.counted(key, partition.isr, led.isr.counting)
        self._checker.may_lead(key, "is in sync", self._synced(place, partition.isr))
        self._checker.may_lead(key, "is eligible", self._synced(place, partition.elr))

    def _synced(self, place: Place, node_ids: Iterable[NodeId]) -> dict[int, int]:
        positions = {}
        for node_id in node_ids:
            node = self._nodes[node_id]
            replica = node.last_replica(place)
            if replica is not None and not self.is_damaged(node):
                positions[int(node_id)] = int(replica.log.synced)
        return positions

    def _look_at_quorum(self, leader: ClusterNode) -> None:
        """A leader has committed an entry: no voter without it may be electable."""
        raft = leader.raft
        if raft is None or raft.leader != leader.member:
            return
        term = raft._state.log.term_at(raft.commit)
        if term is None:
            return  # a snapshot has it
        voters = [member.node_id for member in raft.configuration.voters]
        logs = {}
        for node_id in voters:
            node = self._nodes[node_id]
            if node.raft is not None and not self.is_damaged(node):
                log = node.raft._state.log
                has_entry = log.snapshot.index >= raft.commit or log.term_at(raft.commit) == term
                logs[int(node_id)] = VoterLog(int(log.last_term), int(log.last), has_entry)
        self._checker.committed(raft.commit, len(voters), logs)
