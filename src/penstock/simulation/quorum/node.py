"""A node that only keeps metadata, with a client that asks it for producer ids."""

from dataclasses import dataclass, field
from uuid import UUID

from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    AllocateProducerIds,
    Command,
    FormCluster,
    MetadataImage,
    ProducerIdBlock,
    RegisterBroker,
    Reply,
)
from penstock.core.model import MILLISECOND, Instant, LeaderEpoch, NodeId
from penstock.core.raft import Entry, Index, Member, RaftOptions
from penstock.runtime import Callback, Runtime
from penstock.services.cluster import Controller, QuorumOptions, QuorumStore
from penstock.services.cluster.raft import RaftQuorum, RaftSetup
from penstock.simulation.checkers.quorum import QuorumChecker
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk

BROKER = NodeId(1)
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
RAFT = RaftOptions(election_ms=300, heartbeat_ms=50, append_bytes_max=2_000, chunk_bytes=300)
# Small enough that snapshots are taken, sent and installed within a run.
STORAGE = QuorumOptions(snapshot_facts=40, segment_bytes=4_000)


@dataclass(slots=True)
class Journal:
    """What clients were told, by whom, and what leaders there were; it outlives every node."""

    checker: QuorumChecker = field(default_factory=QuorumChecker)
    blocks: dict[int, int] = field(default_factory=dict)
    leaders: dict[LeaderEpoch, Member] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)
    asked: int = 0
    installed: int = 0

    def acknowledged(self, member: Member, block: ProducerIdBlock) -> None:
        if block.start in self.blocks:
            self.anomalies.append(f"block {block.start} was given out twice")
        self.blocks[block.start] = member.node_id

    def led(self, member: Member, epoch: LeaderEpoch) -> None:
        rival = self.leaders.setdefault(epoch, member)
        if rival != member:
            self.anomalies.append(f"two leaders in term {epoch}: {rival.node_id} and {member.node_id}")


class WatchedQuorum(RaftQuorum):
    """Tells the journal what becomes final."""

    journal: Journal

    def _note_commit(self, index: Index) -> None:
        for number in range(self._applied + 1, index + 1):
            entry: Entry = self._host.store.at(Index(number))
            self.journal.checker.was_committed(self._setup.me, entry, self.raft.term)
        super()._note_commit(index)


class WatchedController(Controller):
    """Tells the journal who leads."""

    journal: Journal
    member: Member

    def leadership_gained(self, epoch: LeaderEpoch) -> None:
        self.journal.led(self.member, epoch)
        super().leadership_gained(epoch)

    def restored(self, image: MetadataImage) -> None:
        self.journal.installed += 1
        super().restored(image)


class ControllerNode:
    """A controller and its client. The client asks only while its own controller leads."""

    def __init__(
        self,
        runtime: Runtime,
        disk: Disk,
        setup: RaftSetup,
        journal: Journal,
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._member = setup.me
        self._hub = setup.hub
        self._think_ms = 1 + runtime.entropy.bytes(1)[0] % 40
        disk.make_directory("meta")
        disk.sync_directory("")
        store = QuorumStore(disk, disk, GroupCommit(runtime.sync))
        self.quorum = WatchedQuorum(runtime, store, setup, joined=False, options=STORAGE)
        self.quorum.journal = journal
        self.controller = WatchedController(runtime, self.quorum)
        self.controller.journal, self.controller.member = journal, setup.me
        self.controller.start()
        if self._hub is not None:
            self._hub.open()
        self._later()

    def _later(self) -> None:
        deadline = Instant(self._runtime.clock.now() + self._think_ms * MILLISECOND)
        self._runtime.timers.at(deadline, self._ask)

    def _ask(self) -> None:
        controller = self.controller
        if not controller.is_leading:
            self._later()
            return
        controller.submit(self._next_command(controller.image), self._answered)

    def _next_command(self, image: MetadataImage) -> Command:
        if image.cluster_id is None:
            return FormCluster(CLUSTER)
        broker = image.broker(BROKER)
        if broker is None:
            return RegisterBroker(CLUSTER, BROKER, UUID(int=9), features=SUPPORTED_FEATURES)
        self._journal.asked += 1
        return AllocateProducerIds(BROKER, broker.epoch)

    def _answered(self, reply: Reply) -> None:
        if isinstance(reply, ProducerIdBlock):
            self._journal.acknowledged(self._member, reply)
        self._later()

    def stop(self, done: Callback) -> None:
        if self._hub is not None:
            self._hub.close()
        self.quorum.close()
        done()
