"""A node's groups on the in-memory disk, with time, syncs and spawned work in the test's hands."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.core.groups import (
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    GroupOptions,
    Heartbeat,
    Join,
    Joined,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    OffsetToCommit,
    Reply,
    Sync,
    TopicToFetch,
)
from penstock.core.metadata import (
    EMPTY_IMAGE,
    OFFSETS_TOPIC,
    CreatedTopic,
    Fact,
    MetadataImage,
    PartitionCreated,
    TopicCreated,
    replayed,
)
from penstock.core.metadata import (
    Partition as PlacedPartition,
)
from penstock.core.model import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    Refused,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.records import Record, check_batches, write_batch
from penstock.core.replica import Assignment
from penstock.services.coordinator import CoordinatorOptions
from penstock.services.groups import Groups, GroupsOptions
from penstock.services.partitions import Fsync, Partition, Replica, SyncPolicy, Term
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, FailingDisk
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.hands import HandSyncs, HandTimers, hand_runtime

NODE = NodeId(1)
OFFSETS_ID = TopicId(UUID(int=50))
READ_TOPIC = TopicName("orders")
READ_ID = TopicId(UUID(int=51))
GROUP = "readers"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
LOG_OPTIONS = LogOptions(retention_ms=-1)


def topic_facts(name: str, topic_id: TopicId, partitions: int, leader: int = NODE) -> list[Fact]:
    node = NodeId(leader)
    created: list[Fact] = [TopicCreated(TopicName(name), topic_id)]
    return created + [
        PartitionCreated(topic_id, PlacedPartition(PartitionIndex(index), (node,), (node,), node))
        for index in range(partitions)
    ]


class GroupsBench:
    """One node that leads some partitions of the offsets topic, and one partition that groups read."""

    def __init__(
        self, partitions: int = 1, options: GroupsOptions | None = None, disk: CrashableDisk | None = None
    ) -> None:
        self.crashable = disk or CrashableDisk()
        self.disk = FailingDisk(self.crashable)
        self.timers = HandTimers()
        self.syncs = HandSyncs()
        self.commit = GroupCommit(self.syncs)
        self.led: dict[tuple[str, int], Partition] = {}
        self.kept: dict[tuple[str, int], Replica] = {}
        # Others than this node are there in name only: what they have is what the test says.
        self.replicas: tuple[NodeId, ...] = (NODE,)
        self.asked_for: list[tuple[str, Callable[[CreatedTopic | Refused], None]]] = []
        self.partitions = partitions
        self.runtime = hand_runtime(self.timers, self.syncs)
        self.groups = Groups(NODE, self.runtime, self, self, options or brisk())
        self.image: MetadataImage = EMPTY_IMAGE

    def find(self, topic: str, index: int) -> Partition | None:
        return self.led.get((topic, index))

    def find_log(self, topic: str, index: int) -> Replica | None:
        return self.kept.get((topic, index))

    def when_settled(self, done: Callable[[], None]) -> None:
        done()

    def auto_create(self, name: str, done: Callable[[CreatedTopic | Refused], None]) -> None:
        self.asked_for.append((name, done))

    def start(self, epoch: int = 0) -> "GroupsBench":
        """Lead everything, and let the coordinators read their logs."""
        self.open_logs(epoch)
        return self.serve()

    def open_logs(self, epoch: int = 0) -> None:
        self.lead(OFFSETS_TOPIC, OFFSETS_ID, self.partitions, epoch)
        self.lead(READ_TOPIC, READ_ID, 1, epoch)

    def serve(self) -> "GroupsBench":
        self.follow(
            *topic_facts(OFFSETS_TOPIC, OFFSETS_ID, self.partitions), *topic_facts(READ_TOPIC, READ_ID, 1)
        )
        self.settle()
        return self

    def lead(self, topic: str, topic_id: TopicId, partitions: int, epoch: int = 0) -> None:
        for index in range(partitions):
            name = TopicPartition(TopicName(topic), PartitionIndex(index))
            log = self._log(f"logs/{topic}/{index}", topic_id)
            replica = Replica(name, topic_id, log, SyncPolicy(Fsync.EVERY))
            assignment = Assignment(self.replicas, self.replicas, 0, min(2, len(self.replicas)))
            term = Term(NODE, LeaderEpoch(epoch), assignment)
            self.kept[topic, index] = replica
            self.led[topic, index] = Partition(replica, term, self.runtime)

    def _log(self, path: str, topic_id: TopicId) -> PartitionLog:
        if self.disk.exists(path):
            return PartitionLog.open(self.disk, path, topic_id, LOG_OPTIONS, commit=self.commit)[0]
        return PartitionLog.create(self.disk, path, topic_id, LOG_OPTIONS, commit=self.commit)

    def follow(self, *facts: Fact) -> None:
        self.image = replayed(self.image, facts)
        self.groups.follow(self.image)

    def fetched(self, node: int, end: int) -> None:
        """Another replica has the coordinator's log up to `end`, on its disk."""
        partition = self.led[OFFSETS_TOPIC, 0]
        partition.follower_fetched(NodeId(node), BrokerEpoch(0), Offset(end), Offset(end))
        self.settle()

    def isr(self, *members: int) -> None:
        """The controller has committed another ISR."""
        partition = self.led[OFFSETS_TOPIC, 0]
        before = partition.insync.assignment
        partition.assignment_changed(
            before._replace(isr=tuple(map(NodeId, members)), partition_epoch=before.partition_epoch + 1)
        )

    def restarted(self, *, disk: CrashableDisk | None = None, epoch: int = 1) -> "GroupsBench":
        """A node that starts from what this one left on its disk."""
        return GroupsBench(self.partitions, disk=disk or self.crashable.copy()).start(epoch)

    def settle(self) -> None:
        """Let everything that is due happen, syncs too unless they are held."""
        while True:
            if self.timers.step():
                continue
            if self.syncs.waiting and not self.syncs.held:
                self.syncs.finish()
                continue
            return

    @property
    def log(self) -> PartitionLog:
        return self.led[OFFSETS_TOPIC, 0].log

    def produce(self, records: int, timestamp_ms: int) -> None:
        batch = write_batch([Record(0, timestamp_ms, None, b"v")] * records)
        self.led[READ_TOPIC, 0].append(batch, check_batches(batch), Timestamp(timestamp_ms))
        self.settle()

    def submit(self, command: type, **fields: Any) -> list[Reply]:
        """Submit without waiting; the list gets the reply when it is known."""
        replies: list[Reply] = []
        self.groups.submit(command(on_reply=replies.append, **{"group_id": GROUP, **fields}))
        return replies

    def ask(self, command: type, **fields: Any) -> Reply:
        replies = self.submit(command, **fields)
        self.settle()
        (reply,) = replies
        return reply

    def commit_offset(self, offset: int, **fields: Any) -> list[Reply]:
        position = OffsetToCommit(
            TopicPartition(READ_TOPIC, PartitionIndex(0)), Offset(offset), topic_id=READ_ID
        )
        return self.submit(CommitOffsets, offsets=(position,), **fields)

    def ask_to_commit(self, offset: int, **fields: Any) -> Reply:
        replies = self.commit_offset(offset, **fields)
        self.settle()
        (reply,) = replies
        return reply

    def committed(self, group_id: str = GROUP) -> int:
        topics = (TopicToFetch(READ_TOPIC, (PartitionIndex(0),), READ_ID),)
        reply = self.ask(FetchOffsets, group_id=group_id, topics=topics)
        assert isinstance(reply, FetchedOffsets), reply
        return reply.offsets[0].offset

    def join(self, member_id: str = "", **fields: Any) -> list[Reply]:
        return self.submit(
            Join,
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", SUBSCRIPTION),),
            random_id=self.groups.random_id(),
            **fields,
        )

    def new_member_id(self) -> str:
        replies = self.join()
        self.settle()
        assert isinstance(replies[0], MemberIdRequired), replies
        return replies[0].member_id

    def join_alone(self, **fields: Any) -> Joined:
        """One member that leads its group and has all it asked for."""
        replies = self.join(self.new_member_id(), **fields)
        self.timers.pass_ms(1_000)
        self.settle()
        joined = replies[0]
        assert isinstance(joined, Joined), replies
        self.ask(
            Sync,
            generation=joined.generation,
            member_id=joined.member_id,
            assignments=(MemberAssignment(joined.member_id, b"everything"),),
        )
        return joined

    def heartbeat(self, joined: Joined) -> list[Reply]:
        return self.submit(Heartbeat, generation=joined.generation, member_id=joined.member_id)


def brisk(rewrite_records_min: int = 20_000) -> GroupsOptions:
    return GroupsOptions(
        GroupOptions(initial_rebalance_delay_ms=100), CoordinatorOptions(rewrite_records_min)
    )
