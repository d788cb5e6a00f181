"""Drives a group coordinator as its host does: applies facts, collects responses, moves time."""

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from penstock.core.groups import (
    ClusterTopics,
    Command,
    CommitOffsets,
    DescribedGroup,
    DescribeGroup,
    Event,
    Fact,
    FetchedOffsets,
    FetchOffsets,
    GroupCoordinator,
    GroupOptions,
    GroupOutcome,
    GroupState,
    Heartbeat,
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
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Now,
    Offset,
    PartitionIndex,
    Timestamp,
    TopicName,
    TopicPartition,
)

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
WALL_START_MS = 1_700_000_000_000
OPTIONS = GroupOptions(initial_rebalance_delay_ms=DELAY_MS)


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


def protocols(*names: str, topics: Iterable[str] = ("t",)) -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, subscription(*topics)) for name in names)


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def position(offset: int, topic: str = "t", partition: int = 0, metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(at(topic, partition), Offset(offset), metadata=metadata)


def ignore(_: Reply) -> None:
    """In the place of the callback that the driver gives every command."""


class Driver:
    """A host with a log that never fails."""

    def __init__(
        self,
        options: GroupOptions = OPTIONS,
        facts: Iterable[Fact] = (),
        now_ms: int = 0,
        topics: ClusterTopics | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.topics = topics
        self.options = options
        self.facts: list[Fact] = []
        self.answers: dict[int, Reply] = {}
        self.events: list[Event] = []
        self.tickets = 0
        self.coordinator = GroupCoordinator(options, topics)
        for fact in facts:
            self.coordinator.apply(fact)
            self.facts.append(fact)
        self._take(self.coordinator.resume(self.now))

    @property
    def now(self) -> Now:
        return Now(Instant(self.now_ms * MILLISECOND), Timestamp(WALL_START_MS + self.now_ms))

    def failed_over(self) -> Self:
        """Another coordinator takes over with the log of this one."""
        return type(self)(self.options, self.facts, self.now_ms + 1_000_000, self.topics)

    def _take(self, outcome: GroupOutcome) -> None:
        for fact in outcome.facts:
            self.coordinator.apply(fact)
            self.facts.append(fact)
        for on_reply, reply in outcome.responses:
            on_reply(reply)
        self.events.extend(outcome.events)

    def send(self, command: Command) -> int:
        """Hand the command in under a new number."""
        self.tickets += 1
        ticket = self.tickets

        def on_reply(reply: Reply) -> None:
            assert ticket not in self.answers, "a command was replied to twice"
            self.answers[ticket] = reply

        self._take(self.coordinator.decide(replace(command, on_reply=on_reply), self.now))
        return ticket

    def ask(self, command: Command) -> Reply:
        return self.answers[self.send(command)]

    def advance(self, ms: int) -> None:
        """Let time pass, with `expire` called exactly when it asks to be."""
        end_ms = self.now_ms + ms
        for _ in range(100_000):
            deadline = self.coordinator.next_deadline()
            if deadline is None or deadline > end_ms * MILLISECOND:
                break
            self.now_ms = max(self.now_ms, -(-deadline // MILLISECOND))
            self._take(self.coordinator.expire(self.now))
        else:
            raise AssertionError("time does not move on")
        self.now_ms = end_ms

    # Requests, with what tests rarely care about filled in.

    def join(self, member_id: str = "", **fields: Any) -> int:
        given: dict[str, Any] = {
            "on_reply": ignore,
            "group_id": GROUP,
            "member_id": member_id,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
            "random_id": str(self.tickets + 1),
        }
        return self.send(JoinGroup(**given | fields))

    def join_new(self, **fields: Any) -> tuple[str, int]:
        """Ask for a member id and join with it; returns the id and the reply of the second request."""
        given = self.answers[self.join(**fields)]
        assert isinstance(given, MemberIdRequired)
        return given.member_id, self.join(given.member_id, **fields)

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> int:
        pairs = tuple(MemberAssignment(*pair) for pair in (assignments or {}).items())
        given: dict[str, Any] = {"on_reply": ignore, "group_id": GROUP, "assignments": pairs}
        return self.send(SyncGroup(**given | {"member_id": member_id, "generation": generation} | fields))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> Reply:
        return self.ask(
            Heartbeat(
                on_reply=ignore,
                group_id=GROUP,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
            )
        )

    def leave(self, *members: LeavingMember, group_id: str = GROUP) -> Reply:
        return self.ask(LeaveGroup(on_reply=ignore, group_id=group_id, members=members))

    def commit(self, *offsets: OffsetToCommit, group_id: str = GROUP, **fields: Any) -> Reply:
        return self.ask(CommitOffsets(on_reply=ignore, group_id=group_id, offsets=offsets, **fields))

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = GROUP) -> int:
        wanted = (TopicToFetch(TopicName(topic), (PartitionIndex(partition),)),)
        reply = self.ask(FetchOffsets(on_reply=ignore, group_id=group_id, topics=wanted))
        assert isinstance(reply, FetchedOffsets)
        return reply.offsets[0].offset

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        reply = self.ask(DescribeGroup(on_reply=ignore, group_id=group_id))
        assert isinstance(reply, DescribedGroup)
        return reply

    def state(self) -> GroupState:
        return self.describe().state

    # Answers, narrowed.

    def joined(self, ticket: int) -> JoinGroupResult:
        reply = self.answers[ticket]
        assert isinstance(reply, JoinGroupResult), reply
        return reply

    def synced(self, ticket: int) -> SyncGroupResult:
        reply = self.answers[ticket]
        assert isinstance(reply, SyncGroupResult), reply
        return reply

    def kind_of(self, ticket: int) -> ErrorKind:
        return kind_of(self.answers[ticket])

    def stable_group(self, count: int = 2, **fields: Any) -> list[str]:
        """A stable group of `count` dynamic members; the first leads, each is assigned its own id."""
        joins = [self.join_new(**fields) for _ in range(count)]
        self.settle([ticket for _, ticket in joins])
        return [member_id for member_id, _ in joins]

    def settle(self, tickets: list[int]) -> None:
        """Let the join phase end and every member sync, the leader last."""
        while tickets[0] not in self.answers:
            self.advance(1_000)
        answers = [self.joined(ticket) for ticket in tickets]
        leader = next(a for a in answers if a.members)
        assignments = {m.member_id: m.member_id.encode() for m in leader.members}
        for answer in sorted(answers, key=lambda a: a is leader):
            self.sync(answer.member_id, answer.generation, assignments if answer is leader else None)


def kind_of(reply: Reply) -> ErrorKind:
    assert isinstance(reply, ApiError), reply
    return reply.kind
