"""Looks into the nodes of a cluster whenever something was promised, and asks if it could be lost.

Clients see a loss only if the right node is elected at the right time. The probe compares, at every
acknowledgement and every committed change of the metadata, what was promised with the logs of all who
may be elected, up or down.

A replica whose own files were damaged on purpose has an excuse until the metadata does not count on it
any more: whoever is in sync after that has everything again; nor has one that was asked, and says that
it lost nothing. A voter has none: one that lost something is in doubt, and its vote counts for less.
"""

from collections.abc import Iterable, Mapping

from penstock.core.metadata import MetadataImage, ReplicaLoss
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.topic_names import INTERNAL_TOPICS
from penstock.core.model import NodeId
from penstock.core.raft import Entry, Member
from penstock.sim.checkers.eligibility import VoterLog
from penstock.sim.cluster.journal import Journal, Place
from penstock.sim.cluster.node import ClusterNode
from penstock.sim.faults import JOURNAL, QUORUM
from penstock.sim.world import EVERYTHING, World
from penstock.storage.log import PartitionLog


class EligibilityProbe:
    """Compares the newest committed metadata with the logs that it speaks of."""

    def __init__(self, journal: Journal, world: World, nodes: Mapping[NodeId, ClusterNode]) -> None:
        self._checker = journal.eligibility
        self._quorum = journal.quorum
        self._log_starts = journal.log_starts
        self._coverage = journal.coverage
        self._world = world
        self._nodes = nodes
        self._places: tuple[Place, ...] = ()
        # The log of a replica that was looked at last, and how often it had been cut.
        self._cuts: dict[tuple[Place, int], tuple[PartitionLog, int]] = {}
        # The newest image that any node ever had: those who know it may be down now.
        self._version = -1
        self._image: MetadataImage | None = None
        # How many damages of a node a partition has got over, by node and partition.
        self._forgiven: dict[tuple[str, Place], int] = {}
        # The last entry of the quorum that was committed, and who voted then.
        self._committed: tuple[Entry, tuple[Member, ...]] | None = None

    def watch(self, places: Iterable[Place]) -> None:
        """These partitions are used by clients."""
        self._places = tuple(places)

    def has_lost_votes(self, node: ClusterNode) -> bool:
        """Whether what a member of the quorum has stored was damaged on purpose."""
        damages = self._world.damages.get(node.machine.name, ())
        return any(damage.what.startswith(QUORUM) for damage in damages)

    def has_new_disk(self, node: ClusterNode) -> bool:
        """Whether its disk was replaced: another member runs there since."""
        return any(damage.what == EVERYTHING for damage in self._world.damages.get(node.machine.name, ()))

    def started(self) -> None:
        """A node has read what is on its disk: if it has less than before, it must know that."""
        self._look_at_voters()

    def _is_excused(self, node: ClusterNode, place: Place, partition: PartitionState) -> bool:
        """Whether the log of a partition may lack what the cluster counts on: damaged, and not replaced."""
        name = node.machine.name
        damages = self._world.damages.get(name)
        if not damages:
            return False
        own = f"logs/{place[0]}/{place[1]}"
        present = self._says_it_is_whole(node, partition)
        for damage in damages[self._forgiven.get((name, place), 0) :]:
            what = damage.what
            if what.startswith(JOURNAL):
                # The last frame may be damaged: that cannot be told from a write that was never finished.
                return True
            is_concerned = what in (own, EVERYTHING) or what.startswith(f"{own}/")
            if is_concerned and not (present and damage.incarnation < node.machine.incarnations):
                return True
        return False

    @staticmethod
    def _says_it_is_whole(node: ClusterNode, partition: PartitionState) -> bool:
        """Whether the present incarnation of a node has reported that its replica lost nothing."""
        report = partition.report(node.node_id)
        epoch = None if node.backstage is None else node.backstage.member.membership.epoch
        return report is not None and report.broker_epoch == epoch and report.loss is ReplicaLoss.NOTHING

    def _forgive(self, place: Place, relied_on: Iterable[NodeId]) -> None:
        """Those who are not relied on now have no excuse when they are again."""
        relied_on = tuple(relied_on)
        for name, damages in self._world.damages.items():
            if not any(self._nodes[node_id].machine.name == name for node_id in relied_on):
                self._forgiven[name, place] = len(damages)

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
            # What several changes have made of it at once does not show what the ISR was when the move ended.
            if not new.is_moving and new.partition_epoch == old.partition_epoch + 1:
                added = [node_id for node_id in new.replicas if node_id not in old.origin]
                self._checker.moved(place, added, new.isr)

    def acknowledged(self, place: Place, key: str, end: int) -> None:
        """A producer was told that all in-sync replicas have what is below `end`."""
        self._checker.acknowledged(key, end)
        self.look(place)

    def deleted(self, place: Place, start: int) -> None:
        """A client was told that everything below `start` is deleted."""
        partition = None if self._image is None else self._image.partition(*place)
        starts = {} if partition is None else self._starts(place, partition)
        isr = () if partition is None else partition.isr
        in_sync = {int(node_id): starts[node_id] for node_id in isr if node_id in starts}
        self._log_starts.acknowledged(place, start, in_sync)

    def _starts(self, place: Place, partition: PartitionState) -> dict[int, int]:
        """Of the nodes that are up: one that is down may have fallen before its start was on disk.

        What it showed before that is on disk, and comes back with it, unless its files are damaged.
        """
        starts = {}
        for node_id, node in self._nodes.items():
            backstage = node.backstage
            replica = None if backstage is None else backstage.partitions.find_log(*place)
            if node_id not in partition.replicas:
                # It is removed, and begins anew should it be placed here again.
                self._log_starts.forget(place, node_id)
            elif replica is None:
                if node.machine.name in self._world.damages:
                    self._log_starts.forget(place, node_id)
            elif self._is_excused(node, place, partition):
                self._log_starts.forget(place, node_id)
            elif replica.log.start == replica.log.end and node_id not in partition.isr:
                # It begins anew, with the batch in the middle of which its leader's log starts.
                self._log_starts.forget(place, node_id)
            else:
                starts[int(node_id)] = int(replica.log.start)
                self._look_at_size(place, int(node_id), replica.log)
        return starts

    def _look_at_size(self, place: Place, node_id: int, log: PartitionLog) -> None:
        now, before = (log, log.stats.truncations), self._cuts.get((place, node_id))
        self._cuts[place, node_id] = now
        # It may have been longer when something was deleted.
        is_new = log.start > self._log_starts.deletable(place)
        size_bytes = (log.size_bytes if is_new else 0) if now == before else None
        self._log_starts.retained(place, node_id, int(log.start), int(log.high_watermark), size_bytes)

    def look(self, place: Place) -> None:
        """Compare the replicas of one partition that may be elected."""
        partition = None if self._image is None else self._image.partition(*place)
        topic_id = None if self._image is None else self._image.topic_id(place[0])
        if partition is None:
            return
        key = f"{place[0]}/{place[1]} of {topic_id}"
        self._forgive(place, partition.complete)
        leader = self._nodes.get(partition.leader)
        led = None if leader is None or leader.backend is None else leader.backend.partitions.find(*place)
        if led is not None and led.leader_epoch == partition.leader_epoch:
            self._checker.acknowledged(key, led.high_watermark)
            if led.stopped is None:
                self._checker.counted(key, partition.isr, led.isr.counting)
        if place[0] not in INTERNAL_TOPICS:
            # Its coordinator deletes what it has written anew.
            self._log_starts.started(place, self._starts(place, partition), partition.isr)
        self._checker.may_lead(key, "is in sync", self._synced(place, partition, partition.isr))
        self._checker.may_lead(key, "is eligible", self._synced(place, partition, partition.elr))

    def _synced(self, place: Place, partition: PartitionState, node_ids: Iterable[NodeId]) -> dict[int, int]:
        positions = {}
        for node_id in node_ids:
            node = self._nodes[node_id]
            durable_end = node.durable_end(place)
            if durable_end is not None and not self._is_excused(node, place, partition):
                positions[int(node_id)] = durable_end
        return positions

    def _look_at_quorum(self, leader: ClusterNode) -> None:
        """A leader has committed an entry: no voter without it may be electable."""
        raft = leader.raft
        term = None if raft is None else raft._state.log.term_at(raft.commit)
        if raft is None or term is None:
            return  # a snapshot has it
        assert leader.member is not None
        # What stands in it is compared with what clients were told; here it is known by index and term.
        entry = Entry(raft.commit, term, b"")
        self._quorum.was_committed(leader.member, entry, raft.term)
        if self._committed is None or entry.index > self._committed[0].index:
            self._committed = (entry, raft.configuration.voters)
        if raft.leader == leader.member:
            self._look_at_voters()

    def _look_at_voters(self) -> None:
        """Compare the logs of all voters with the last committed entry, of those that are down as well."""
        if self._committed is None:
            return
        entry, voters = self._committed
        logs = {}
        for member in voters:
            node = self._nodes[member.node_id]
            raft = node.last_raft
            if raft is None or raft._state.me != member:
                continue  # on another disk it is another member
            log = raft._state.log
            # What is in memory only goes with the process.
            last = log.last if node.raft is raft else log.persisted
            has_entry = log.snapshot.index >= entry.index or (
                last >= entry.index and log.term_at(entry.index) == entry.term
            )
            last_term = log.term_at(last) or log.snapshot.term
            if node.raft is raft and not raft.is_doubtful:
                self._quorum.is_sure(member, log.term_at, log.snapshot.index)
            logs[int(member.node_id)] = VoterLog(int(last_term), int(last), has_entry, raft.is_doubtful)
        self._checker.committed(entry.index, len(voters), logs)
