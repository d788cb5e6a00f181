"""A node's groups on the in-memory disk, with time, syncs and executor jobs driven by the test."""

from typing import Any
from uuid import UUID

from penstock.broker.coordinator import CoordinatorOptions
from penstock.broker.coordinator.groups import GroupService, GroupServiceOptions
from penstock.core.groups import (
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    GroupOptions,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    OffsetToCommit,
    Reply,
    SyncGroup,
    TopicToFetch,
)
from penstock.core.metadata import OFFSETS_TOPIC, Fact, replay
from penstock.core.model import Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import PartitionLog
from tests.unit.broker.coordinator.leader_bench import NODE, LeaderBench, topic_facts

OFFSETS_ID = TopicId(UUID(int=50))
READ_TOPIC = TopicName("orders")
READ_ID = TopicId(UUID(int=51))
GROUP = "readers"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


class GroupsBench(LeaderBench):
    """One node that leads some partitions of the offsets topic, and one partition that groups read."""

    def __init__(
        self,
        partitions: int = 1,
        options: GroupServiceOptions | None = None,
        disk: CrashableDisk | None = None,
    ) -> None:
        super().__init__(disk)
        self.partitions = partitions
        self.groups = GroupService(NODE, self.runtime, self, self, options or brisk())

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

    def follow(self, *facts: Fact) -> None:
        self.image = replay(self.image, facts)
        self.groups.on_metadata(self.image)

    def fetched(self, node: int, end: int) -> None:
        """Another replica has the coordinator's log up to `end`, on its disk."""
        self.replicate(OFFSETS_TOPIC, node, end)

    def isr(self, *members: int) -> None:
        """The controller has committed another ISR."""
        self.change_isr(OFFSETS_TOPIC, *members)

    def restarted(self, *, disk: CrashableDisk | None = None, epoch: int = 1) -> "GroupsBench":
        """A node that starts from what this one left on its disk."""
        return GroupsBench(self.partitions, disk=disk or self.crashable.copy()).start(epoch)

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
            JoinGroup,
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

    def join_alone(self, **fields: Any) -> JoinGroupResult:
        """One member that leads its group and has all it asked for."""
        replies = self.join(self.new_member_id(), **fields)
        self.timers.pass_ms(1_000)
        self.settle()
        joined = replies[0]
        assert isinstance(joined, JoinGroupResult), replies
        self.ask(
            SyncGroup,
            generation=joined.generation,
            member_id=joined.member_id,
            assignments=(MemberAssignment(joined.member_id, b"everything"),),
        )
        return joined

    def heartbeat(self, joined: JoinGroupResult) -> list[Reply]:
        return self.submit(Heartbeat, generation=joined.generation, member_id=joined.member_id)


def brisk(rewrite_records_min: int = 20_000) -> GroupServiceOptions:
    return GroupServiceOptions(
        GroupOptions(initial_rebalance_delay_ms=100), CoordinatorOptions(rewrite_records_min)
    )
