"""A member of a consumer group: joins, reads what it is given, commits, and leaves or crashes.

    locate ─▶ join ─▶ sync ─▶ ask for offsets ─▶ read, commit, heartbeat …
      ▲                                                  │
      └──────── told that its place is gone ◀────────────┘

When the coordinator cannot be reached, or is another node now, the member looks for it and goes
on in its generation. One that does not know what became of a commit gives up its place: the
commit may still be on its way, and only a newer generation keeps it from undoing a later one. Now
and then a member sleeps for longer than its session lasts, and goes on as if nothing had happened.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.core.groups import (
    CommitOffsets,
    CommitResults,
    Done,
    FetchedOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    OffsetToCommit,
    Sync,
    Synced,
    TopicToFetch,
)
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    NodeId,
    Offset,
    PartitionIndex,
    Refused,
    TopicName,
    TopicPartition,
    Why,
)
from penstock.simulation.checkers.groups import Attempt, Question
from penstock.simulation.cluster.clients.client import PATIENCE_NS, Client, Nodes
from penstock.simulation.cluster.door import Answer, Door, Polled
from penstock.simulation.cluster.journal import Place
from penstock.simulation.values import values_of

SESSION_MS = 900
HEARTBEAT_MS = 250
STEP_MS = 40
# A join waits for the others, as long as the rebalance may take.
JOIN_PATIENCE_NS = 3 * SECOND
CRASHES, LEAVES, NAPS = 0.01, 0.01, 0.02
NAP_MS = 1_400
PROTOCOLS = (MemberProtocol("turns", b""),)
ELSEWHERE = (Why.NOT_COORDINATOR, Why.COORDINATOR_LOADING, Why.COORDINATOR_NOT_AVAILABLE)


class Member(Client):
    """One process of a group. What it was is forgotten when it begins again as somebody new."""

    def __init__(self, nodes: Nodes, host: str, group: str, places: list[Place]) -> None:
        super().__init__(nodes, host)
        self._group = group
        self._places = places
        self._stopped = False
        # Answers to what it asked in an earlier turn are of no interest.
        self._turn = 0
        self._plans = 0
        self._coordinator: NodeId | None = None
        self._member_id = ""
        self._generation = -1
        self._positions: dict[Place, int] = {}
        self._asleep_until = 0

    def start(self) -> None:
        self._begin(forget=True)

    def stop(self) -> None:
        """Do nothing more, and say nothing to anybody."""
        self._stopped = True
        self._turn += 1

    def _begin(self, *, forget: bool) -> None:
        """Join (again): as somebody new, or under the id it has."""
        self._turn += 1
        self._generation = -1
        self._positions = {}
        if forget:
            self._member_id = ""
        if not self._stopped:
            self._locate(self._join)

    def _now(self, act: Callable[..., None]) -> Callable[..., None]:
        """`act`, unless the member has begun anew by then."""
        turn = self._turn

        def guarded(*arguments: Any) -> None:
            if turn == self._turn:
                act(*arguments)

        return guarded

    def _locate(self, then: Callable[[], None]) -> None:
        def locate(door: Door, answer: Answer) -> None:
            door.backend.groups.locate(self._group, answer)

        def located(reply: object) -> None:
            if isinstance(reply, int):
                self._coordinator = NodeId(reply)
                then()
            else:
                self._locate(then)

        ask = self._now(lambda: self.ask(self.any_node(), locate, self._now(located)))
        self.after_ms(self.backoff_ms(), ask)

    def _submit(
        self, kind: type, then: Callable[..., None], patience_ns: int = PATIENCE_NS, **fields: Any
    ) -> None:
        assert self._coordinator is not None
        request = partial(Door.group, kind=kind, fields={"group_id": self._group, **fields})
        self.ask(self._coordinator, request, self._now(then), patience_ns)

    def _join(self) -> None:
        self._submit(
            Join,
            self._joined,
            JOIN_PATIENCE_NS,
            member_id=self._member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=PROTOCOLS,
        )

    def _joined(self, reply: object) -> None:
        if isinstance(reply, MemberIdRequired):
            self._member_id = reply.member_id
            self._join()
        elif isinstance(reply, Joined):
            self._member_id, self._generation = reply.member_id, reply.generation
            self._sync(reply)
        else:
            self._begin(forget=_is(reply, Why.UNKNOWN_MEMBER))

    def _sync(self, joined: Joined) -> None:
        assignments: tuple[MemberAssignment, ...] = ()
        if joined.leader == joined.member_id:
            # Everybody is given the whole plan, so that a mixture of two plans cannot go unnoticed.
            self._plans += 1
            members = [member.member_id for member in joined.members]
            plan = f"{self.host}/{self._plans};{','.join(members)}".encode()
            assignments = tuple(MemberAssignment(member, plan) for member in members)
        self._submit(
            Sync,
            self._synced,
            JOIN_PATIENCE_NS,
            generation=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )

    def _synced(self, reply: object) -> None:
        if not isinstance(reply, Synced):
            self._begin(forget=_is(reply, Why.UNKNOWN_MEMBER))
            return
        self.journal.groups.assigned(self._group, self._generation, reply.assignment)
        members = reply.assignment.partition(b";")[2].decode().split(",")
        if self._member_id not in members:
            self.journal.failures.append(f"not assigned: {self.host} has no part in {reply.assignment!r}")
            return
        mine = self._places[members.index(self._member_id) :: len(members)]
        self._beat()
        if mine:
            self._ask_offsets(mine)

    def _ask_offsets(self, mine: list[Place]) -> None:
        topics = tuple(TopicToFetch(TopicName(topic), (PartitionIndex(index),)) for topic, index in mine)
        questions = [self.journal.groups.asking(self._group, place) for place in mine]
        self._submit(FetchOffsets, lambda reply: self._told_offsets(mine, questions, reply), topics=topics)

    def _told_offsets(self, mine: list[Place], questions: list[Question], reply: object) -> None:
        if not isinstance(reply, FetchedOffsets):
            self._locate(lambda: self._ask_offsets(mine))
            return
        for question, found in zip(questions, reply.offsets, strict=True):
            self.journal.groups.answered(question, found.offset)
            self._positions[found.partition.topic, found.partition.partition] = max(found.offset, 0)
        self._step()

    def _beat(self) -> None:
        if self.now < self._asleep_until:
            self.after_ms(HEARTBEAT_MS, self._now(self._beat))
            return
        self._submit(Heartbeat, self._heard, generation=self._generation, member_id=self._member_id)

    def _heard(self, reply: object) -> None:
        if isinstance(reply, Done):
            self.after_ms(HEARTBEAT_MS, self._now(self._beat))
        elif not isinstance(reply, Refused) or reply.why in ELSEWHERE:
            self._locate(self._beat)
        else:
            self._begin(forget=reply.why is Why.UNKNOWN_MEMBER)

    def _step(self) -> None:
        """Read from one partition, and then commit, or do something rash."""
        luck = self.luck.random()
        if luck < CRASHES:
            self.hang_up()
            self._begin(forget=True)
        elif luck < CRASHES + LEAVES:
            self._submit(Leave, lambda _: self._begin(forget=True), members=(LeavingMember(self._member_id),))
        elif luck < CRASHES + LEAVES + NAPS:
            self._asleep_until = self.now + NAP_MS * MILLISECOND
            self.after_ms(NAP_MS, self._now(self._commit), self.luck.choice(list(self._positions)))
        else:
            self._read(self.luck.choice(list(self._positions)))

    def _read(self, place: Place) -> None:
        leader = self.leader(place)
        if leader is None:
            self.look_around(self._now(self._rest))
            return
        request = partial(
            Door.fetch, place=place, offset=self._positions[place], leader_epoch=leader.epoch, wait_ms=0
        )
        self.ask(leader.node_id, request, self._now(lambda reply: self._got(place, reply)))

    def _got(self, place: Place, reply: object) -> None:
        if not isinstance(reply, Polled):
            self.look_around(self._now(self._rest))
            return
        position = self._positions[place]
        records = [pair for pair in values_of(reply.content) if pair[0] >= position]
        for offset, value in records:
            self.journal.log(*place).saw(offset, value)
        if records:
            self._positions[place] = records[-1][0] + 1
            self._commit(place)
        else:
            self._rest()

    def _rest(self) -> None:
        self.after_ms(STEP_MS, self._now(self._step))

    def _commit(self, place: Place) -> None:
        offset = self._positions[place]
        attempt = self.journal.groups.committing(self._group, place, self._generation, offset)
        partition = TopicPartition(TopicName(place[0]), PartitionIndex(place[1]))
        self._submit(
            CommitOffsets,
            lambda reply: self._committed(place, attempt, reply),
            generation=self._generation,
            member_id=self._member_id,
            offsets=(OffsetToCommit(partition, Offset(offset)),),
        )

    def _committed(self, place: Place, attempt: Attempt, reply: object) -> None:
        if isinstance(reply, CommitResults):
            if reply.partitions[0].why is None:
                self.journal.groups.committed(attempt)
                self._rest()
            else:
                # Not stored, so it is tried again: there may be no later record to commit behind.
                self.after_ms(self.backoff_ms(), self._now(lambda: self._commit(place)))
        elif _is(reply, *ELSEWHERE):
            self._locate(lambda: self._commit(place))
        else:
            # Lost, or the place is gone; a rebalance is told with the heartbeat as well.
            self._begin(forget=not _is(reply, Why.REBALANCE_IN_PROGRESS))


def _is(reply: object, *reasons: Why) -> bool:
    return isinstance(reply, Refused) and reply.why in reasons
