"""Groups under power cuts: what was acknowledged is there afterwards, and nothing goes back."""

import random  # noqa: TID251 - the type of a world's generators
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.broker.coordinator import Coordinator, CoordinatorOptions
from penstock.broker.coordinator.groups import GroupService, GroupServiceOptions
from penstock.broker.lease import FOREVER, BrokerLease
from penstock.broker.partitions import FsyncMode, LeaderPartition, Leadership, Replica, SyncPolicy
from penstock.core.groups import (
    CommitOffsets,
    CommitResults,
    FetchedOffsets,
    FetchOffsets,
    GroupOptions,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    OffsetToCommit,
    Reply,
    SyncGroup,
    SyncGroupResult,
    TopicToFetch,
)
from penstock.core.metadata import EMPTY_IMAGE, OFFSETS_TOPIC, CreatedTopic, replay
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    Instant,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicName,
    TopicPartition,
)
from penstock.runtime import Callback, Runtime
from penstock.sim import World
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.log import IncompleteLog, LogOptions, PartitionLog
from tests.unit.broker.coordinator.leader_bench import NODE, topic_facts
from tests.unit.broker.groups.groups_bench import OFFSETS_ID, READ_ID, READ_TOPIC

SEEDS = range(1, 31)
CRASHES = 17
# Within so many seeds the planted bug must be found.
SEEDS_TO_FIND_A_BUG = 10

PARTITIONS = 2
READERS = 5
AT = TopicPartition(READ_TOPIC, PartitionIndex(0))
OPTIONS = GroupServiceOptions(
    GroupOptions(initial_rebalance_delay_ms=5), CoordinatorOptions(rewrite_records_min=60)
)
LOG_OPTIONS = LogOptions(segment_bytes=4_000, retention_ms=-1)
IMAGE = replay(
    EMPTY_IMAGE,
    (*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, PARTITIONS), *topic_facts(READ_TOPIC, READ_ID, 1)),
)


@dataclass
class Ledger:
    """Requests and responses of clients, over all incarnations of the node."""

    attempted: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    # The assignment that a member got, until it asks to leave.
    assigned: dict[str, tuple[str, int, bytes]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    answers: int = 0
    rewrites: int = 0
    incarnations: int = 0


class Node:
    """One incarnation of a node with its groups and their clients."""

    def __init__(self, runtime: Runtime, disk: Disk, ledger: Ledger, luck: random.Random) -> None:
        self.runtime = runtime
        self.ledger = ledger
        self.luck = luck
        ledger.incarnations += 1
        self._commit = GroupCommit(runtime.sync)
        self.lease = BrokerLease(FOREVER)
        self._led = {index: self._lead(disk, index) for index in range(PARTITIONS)}
        self.groups = GroupService(NODE, runtime, self, self, OPTIONS)
        self.groups.on_metadata(IMAGE)
        for number in range(READERS):
            Reader(self, f"reader-{number}").soon()
        Member(self, "members").soon()

    def _lead(self, disk: Disk, index: int) -> LeaderPartition:
        path = f"logs/{OFFSETS_TOPIC}/{index}"
        try:
            log = PartitionLog.open(disk, path, OFFSETS_ID, LOG_OPTIONS, commit=self._commit)[0]
        except IncompleteLog:
            log = PartitionLog.create(disk, path, OFFSETS_ID, LOG_OPTIONS, commit=self._commit)
        self.ledger.rewrites += log.start > 0
        name = TopicPartition(TopicName(OFFSETS_TOPIC), PartitionIndex(index))
        replica = Replica(name, OFFSETS_ID, log, SyncPolicy(FsyncMode.EVERY))
        return LeaderPartition(
            replica, Leadership.alone(NODE, LeaderEpoch(self.ledger.incarnations)), self.runtime
        )

    def find(self, topic: str, index: int) -> LeaderPartition | None:
        return self._led.get(index) if topic == OFFSETS_TOPIC else None

    def find_log(self, topic: str, index: int) -> Replica | None:
        """Nobody asks for lag here."""

    def on_logs_ready(self, done: Callable[[], None]) -> None:
        done()

    def auto_create(self, name: str, done: Callable[[CreatedTopic | ApiError], None]) -> None:
        raise AssertionError("the offsets topic is there")

    def stop(self, done: Callback) -> None:
        self.groups.stop()
        done()

    def later(self, then: Callable[[], None]) -> None:
        delay = self.luck.randint(0, 4) * MILLISECOND
        self.runtime.timers.at(Instant(self.runtime.clock.now() + delay), then)

    def submit(self, command: type, then: Callable[[Reply], None], **fields: Any) -> None:
        def answered(reply: Reply) -> None:
            self.ledger.answers += 1
            then(reply)

        self.groups.submit(command(on_reply=answered, **fields))


class Reader:
    """Commits ever larger offsets, and looks what became of them."""

    def __init__(self, node: Node, group_id: str) -> None:
        self._node = node
        self._ledger = node.ledger
        self._group_id = group_id

    def soon(self) -> None:
        self._node.later(self._commit if self._node.luck.random() < 0.7 else self._fetch)

    def _commit(self) -> None:
        offset = self._ledger.attempted.get(self._group_id, 0) + 1
        self._ledger.attempted[self._group_id] = offset

        def done(reply: Reply) -> None:
            if isinstance(reply, CommitResults):
                self._ledger.acknowledged[self._group_id] = offset
            self.soon()

        position = OffsetToCommit(AT, Offset(offset), topic_id=READ_ID)
        self._node.submit(CommitOffsets, done, group_id=self._group_id, offsets=(position,))

    def _fetch(self) -> None:
        ledger, group_id = self._ledger, self._group_id
        least = max(ledger.acknowledged.get(group_id, -1), ledger.seen.get(group_id, -1))

        def done(reply: Reply) -> None:
            if isinstance(reply, FetchedOffsets):
                found = reply.offsets[0].offset
                ledger.seen[group_id] = found
                if not least <= found <= ledger.attempted.get(group_id, -1):
                    ledger.violations.append(f"{group_id} was at {least} and is at {found}")
            self.soon()

        topics = (TopicToFetch(READ_TOPIC, (PartitionIndex(0),), READ_ID),)
        self._node.submit(FetchOffsets, done, group_id=group_id, topics=topics)


class Member:
    """The only member of a group: joins, asks for its assignment again and again, leaves."""

    def __init__(self, node: Node, group_id: str) -> None:
        self._node = node
        self._ledger = node.ledger
        self._group_id = group_id

    def soon(self) -> None:
        self._node.later(self._act)

    def _act(self) -> None:
        known = self._ledger.assigned.get(self._group_id)
        if known is None:
            self._join("")
        elif self._node.luck.random() < 0.2:
            self._leave(known[0])
        else:
            self._ask_again(*known)

    def _join(self, member_id: str) -> None:
        self._node.submit(
            JoinGroup,
            self._joined,
            group_id=self._group_id,
            member_id=member_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", b""),),
            random_id=self._node.groups.random_id(),
        )

    def _joined(self, reply: Reply) -> None:
        if isinstance(reply, MemberIdRequired):
            self._join(reply.member_id)
        elif isinstance(reply, JoinGroupResult):
            self._sync(reply)
        else:
            self.soon()

    def _sync(self, joined: JoinGroupResult) -> None:
        assignment = b"%d" % joined.generation

        def done(reply: Reply) -> None:
            if isinstance(reply, SyncGroupResult):
                told = (joined.member_id, joined.generation, assignment)
                self._ledger.assigned[self._group_id] = told
            self.soon()

        self._node.submit(
            SyncGroup,
            done,
            group_id=self._group_id,
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=(MemberAssignment(joined.member_id, assignment),),
        )

    def _ask_again(self, member_id: str, generation: int, assignment: bytes) -> None:
        def done(reply: Reply) -> None:
            serving = not isinstance(reply, ApiError) or not reply.kind.name.startswith(
                ("COORDINATOR", "NOT_COO")
            )
            if serving and not (isinstance(reply, SyncGroupResult) and reply.assignment == assignment):
                self._ledger.violations.append(f"generation {generation} is lost: {reply}")
            self.soon()

        self._node.submit(
            SyncGroup, done, group_id=self._group_id, member_id=member_id, generation=generation
        )

    def _leave(self, member_id: str) -> None:
        # From here on nobody may count on the assignment, whatever becomes of the request.
        del self._ledger.assigned[self._group_id]
        members = (LeavingMember(member_id),)
        self._node.submit(LeaveGroup, lambda _: self.soon(), group_id=self._group_id, members=members)


def live_and_crash(seed: int, crashes: int = CRASHES) -> Ledger:
    world, ledger = World(seed), Ledger()
    luck = world.random("crashes")
    node = world.add("one", lambda runtime, disk: Node(runtime, disk, ledger, world.random("clients")))
    for _ in range(crashes):
        world.start_all()
        if luck.random() < 0.5:
            node.cut_power_at(luck.randint(1, 200))
        world.run(luck.randint(5, 150) * MILLISECOND, lambda: not node.is_up)
        if node.is_up:
            (node.kill if luck.random() < 0.3 else node.cut_power)()
    world.start_all()
    world.run(SECOND // 4)
    assert world.failures == []
    return ledger


@pytest.mark.parametrize("seed", SEEDS)
def test_what_groups_were_told_survives_power_cuts(seed: int) -> None:
    ledger = live_and_crash(seed)

    assert ledger.violations == []
    assert ledger.answers > 100
    assert all(ledger.seen.get(f"reader-{number}", -1) > 0 for number in range(READERS))


def test_the_seeds_meet_logs_that_were_written_anew() -> None:
    assert any(live_and_crash(seed).rewrites for seed in SEEDS[:3])


class RepliesBeforeTheSync(Coordinator[Any, Any, Any]):
    def _release_when_committed(self, end: Offset, replies: Sequence[Any]) -> None:
        self._release(replies)


def test_a_coordinator_that_replies_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.coordinator.coordinators.Coordinator", RepliesBeforeTheSync)

    assert any(live_and_crash(seed).violations for seed in range(1, SEEDS_TO_FIND_A_BUG + 1))
