"""A node that leads partitions on the in-memory disk, with time, syncs and workers in the test's hands."""

from collections.abc import Callable

from penstock.broker.lease import FOREVER, BrokerLease
from penstock.broker.partitions import FsyncMode, LeaderPartition, Leadership, Replica, SyncPolicy
from penstock.core.metadata import (
    EMPTY_IMAGE,
    CreatedTopic,
    Fact,
    MetadataImage,
    PartitionCreated,
    TopicCreated,
)
from penstock.core.metadata import Partition as PlacedPartition
from penstock.core.model import (
    ApiError,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.replica import CommittedPartitionState
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, FailingDisk
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

NODE = NodeId(1)
LOG_OPTIONS = LogOptions(retention_ms=-1)


def topic_facts(name: str, topic_id: TopicId, partitions: int, leader: int = NODE) -> list[Fact]:
    node = NodeId(leader)
    created: list[Fact] = [TopicCreated(TopicName(name), topic_id)]
    return created + [
        PartitionCreated(topic_id, PlacedPartition(PartitionIndex(index), (node,), (node,), node))
        for index in range(partitions)
    ]


class LeaderBench:
    """Partitions that a node leads, for coordinators to live on."""

    def __init__(self, disk: CrashableDisk | None = None) -> None:
        self.crashable = disk or CrashableDisk()
        self.disk = FailingDisk(self.crashable)
        self.timers = HandTimers()
        self.syncs = HandSyncs()
        self.commit = GroupCommit(self.syncs)
        self.led: dict[tuple[str, int], LeaderPartition] = {}
        self.kept: dict[tuple[str, int], Replica] = {}
        # Others than this node are there in name only: what they have is what the test says.
        self.replicas: tuple[NodeId, ...] = (NODE,)
        self.asked_for: list[tuple[str, Callable[[CreatedTopic | ApiError], None]]] = []
        self.runtime = hand_runtime(self.timers, self.syncs)
        self.lease = BrokerLease(FOREVER)
        self.image: MetadataImage = EMPTY_IMAGE

    def find(self, topic: str, index: int) -> LeaderPartition | None:
        return self.led.get((topic, index))

    def find_log(self, topic: str, index: int) -> Replica | None:
        return self.kept.get((topic, index))

    def on_logs_ready(self, done: Callable[[], None]) -> None:
        done()

    def auto_create(self, name: str, done: Callable[[CreatedTopic | ApiError], None]) -> None:
        self.asked_for.append((name, done))

    def lead(self, topic: str, topic_id: TopicId, partitions: int, epoch: int = 0) -> None:
        for index in range(partitions):
            name = TopicPartition(TopicName(topic), PartitionIndex(index))
            log = self._log(f"logs/{topic}/{index}", topic_id)
            replica = Replica(name, topic_id, log, SyncPolicy(FsyncMode.EVERY))
            assignment = CommittedPartitionState(self.replicas, self.replicas, 0, min(2, len(self.replicas)))
            term = Leadership(NODE, LeaderEpoch(epoch), assignment)
            self.kept[topic, index] = replica
            self.led[topic, index] = LeaderPartition(replica, term, self.runtime)

    def _log(self, path: str, topic_id: TopicId) -> PartitionLog:
        if self.disk.exists(path):
            return PartitionLog.open(self.disk, path, topic_id, LOG_OPTIONS, commit=self.commit)[0]
        return PartitionLog.create(self.disk, path, topic_id, LOG_OPTIONS, commit=self.commit)

    def replicate(self, topic: str, node: int, end: int) -> None:
        """Another replica has the log of partition 0 up to `end`, on its disk."""
        partition = self.led[topic, 0]
        partition.follower_fetched(NodeId(node), BrokerEpoch(0), Offset(end), Offset(end))
        self.settle()

    def change_isr(self, topic: str, *members: int) -> None:
        """The controller has committed another ISR."""
        partition = self.led[topic, 0]
        before = partition.isr.assignment
        partition.assignment_changed(
            before._replace(isr=tuple(map(NodeId, members)), partition_epoch=before.partition_epoch + 1)
        )

    def settle(self) -> None:
        """Let everything that is due happen, syncs too unless they are held."""
        while True:
            if self.timers.step():
                continue
            if self.syncs.waiting and not self.syncs.held:
                self.syncs.finish()
                continue
            return
