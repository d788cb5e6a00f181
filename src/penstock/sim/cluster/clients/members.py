"""A member of a consumer group: joins, reads what it is given, commits, and leaves or crashes.

    locate ─▶ join ─▶ sync ─▶ ask for offsets ─▶ read, commit, heartbeat …
      ▲                                                  │
      └──────── removed from the group ◀─────────────────┘

When the coordinator cannot be reached, or is another node now, the member looks for it and goes
on in its generation. One that does not know what became of a commit leaves the group: the
commit may still be on its way, and only a newer generation keeps it from undoing a later one. Now
and then a member sleeps for longer than its session lasts, and goes on as if nothing had happened.
"""

from collections.abc import Callable
from typing import Any

from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponsePartition,
)
from penstock.core.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.sim.checkers.groups import CommitAttempt, MemberHeartbeat, OffsetQuery
from penstock.sim.cluster.clients.client import PATIENCE_NS, ClusterNodes, VersionPolicy
from penstock.sim.cluster.clients.connection import Observe
from penstock.sim.cluster.clients.consumers import (
    FETCH_BYTES,
    NO_SESSION,
    SESSIONLESS_EPOCH,
    FetchClient,
    rows_of,
)
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import TOPIC

SESSION_MS = 900
HEARTBEAT_MS = 250
STEP_MS = 20
# A join waits for the others, as long as the rebalance may take.
JOIN_PATIENCE_NS = 1_500 * MILLISECOND
CRASHES, LEAVES, NAPS, GHOSTS = 0.01, 0.01, 0.02, 0.02
NAP_MS = 1_400
PROTOCOL_TYPE, PROTOCOL = "consumer", "turns"
ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
# A commit that fails for these reasons says nothing of the member's place in the group.
NOT_STORED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
)
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
COORDINATOR_BATCHES_SINCE = 4
LEAVE_BATCHES_SINCE = 3
OFFSET_FETCH_BATCHES_SINCE = 8
TOPIC_IDS_SINCE = 10
# Before, a commit names neither generation nor member, and nobody can be fenced by it.
COMMIT_GENERATIONS_SINCE = 1


class GroupClient(FetchClient):
    """One that knows a group: finds its coordinator, and ignores responses to what it was before."""

    def __init__(
        self, nodes: ClusterNodes, host: str, group: str, policy: VersionPolicy | None = None
    ) -> None:
        super().__init__(nodes, host, policy)
        self._group = group
        self._stopped = False
        # Responses to requests of an earlier turn are ignored.
        self._turn = 0
        self._coordinator: int | None = None

    def stop(self) -> None:
        """Do nothing more, and say nothing to anybody."""
        self._stopped = True
        self._turn += 1

    def _now(self, act: Callable[..., None]) -> Callable[..., None]:
        """`act`, unless the member has begun anew by then."""
        turn = self._turn

        def guarded(*arguments: Any) -> None:
            if turn == self._turn:
                act(*arguments)

        return guarded

    def _locate(self, then: Callable[[], None]) -> None:
        version = self.versions.of(FindCoordinatorRequest)
        request = (
            FindCoordinatorRequest(coordinator_keys=(self._group,))
            if version >= COORDINATOR_BATCHES_SINCE
            else FindCoordinatorRequest(key=self._group)
        )

        def located(reply: object) -> None:
            if isinstance(reply, FindCoordinatorResponse):
                found = reply.coordinators[0] if version >= COORDINATOR_BATCHES_SINCE else reply
                if found.error_code == ErrorCode.NONE:
                    self.reached_at(found.node_id, found.host, found.port)
                    self._coordinator = found.node_id
                    then()
                    return
            self._locate(then)

        ask = self._now(lambda: self.ask(self.any_node(), request, version, self._now(located)))
        self.after_ms(self.backoff_ms(), ask)

    def _submit(
        self,
        message: Message,
        then: Callable[..., None],
        patience_ns: int = PATIENCE_NS,
        version: int | None = None,
        observe: Observe | None = None,
    ) -> None:
        assert self._coordinator is not None
        version = self.versions.of(type(message)) if version is None else version
        self.ask(self._coordinator, message, version, self._now(then), observe, patience_ns)


class SimulatedMember(GroupClient):
    """One process of a group. What it was is forgotten when it begins again as somebody new."""

    # Whether offsets are asked for that no open transaction can change.
    requires_stable = False

    def __init__(
        self,
        nodes: ClusterNodes,
        host: str,
        group: str,
        places: list[Place],
        *,
        static: bool = False,
        policy: VersionPolicy | None = None,
    ) -> None:
        super().__init__(nodes, host, group, VersionPolicy.NEWEST if static else policy)
        # The name under which it comes back after a crash (KIP-345); old protocols have none.
        self._instance_id = host if static else None
        self._places = places
        self._plans = 0
        self._member_id = ""
        self._generation = -1
        self._positions: dict[Place, int] = {}
        self._asleep_until = 0
        # When the last heartbeat was sent that was answered.
        self._heard_at = 0
        # What it owned before the last rebalance, and the generation of that time.
        self._before: tuple[int, dict[Place, int]] | None = None
        # The id of a static member before it came back: nobody may go on under it.
        self._former_id = ""
        # A request that comes late comes on another connection.
        self._ghost = FetchClient(nodes, host)

    def start(self) -> None:
        self._begin(forget=True)

    def _begin(self, *, forget: bool) -> None:
        """Join (again): as somebody new, or under the id it has."""
        self._turn += 1
        if self._positions and not forget:
            self._before = (self._generation, self._positions)
        self._generation = -1
        self._positions = {}
        if forget:
            self._before = None
            self._former_id, self._member_id = self._member_id, ""
        if not self._stopped:
            self._locate(self._join)

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=b""),),
        )
        self._submit(request, self._joined, JOIN_PATIENCE_NS)

    def _joined(self, reply: object) -> None:
        if not isinstance(reply, JoinGroupResponse):
            self._begin(forget=False)
        elif reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            self._join()
        elif reply.error_code == ErrorCode.NONE:
            self._member_id, self._generation = reply.member_id, reply.generation_id
            self._sync(reply)
        else:
            self._begin(forget=reply.error_code in REMOVED)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            # Everybody is given the whole plan, so that a mixture of two plans cannot go unnoticed.
            self._plans += 1
            names = [member.group_instance_id or member.member_id for member in joined.members]
            plan = f"{self.host}/{self._plans};{','.join(names)}".encode()
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=plan)
                for member in joined.members
            )
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        generation = self._generation

        def observe(response: SyncGroupResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                plan = bytes(response.assignment)
                self.journal.groups.established(self._group, generation, plan, self.now)

        self._heard_at = self.now
        self._submit(request, self._synced, JOIN_PATIENCE_NS, observe=observe)

    def _synced(self, reply: object) -> None:
        if not isinstance(reply, SyncGroupResponse) or reply.error_code:
            self._begin(forget=_code(reply) in REMOVED)
            return
        plan = bytes(reply.assignment)
        members = plan.partition(b";")[2].decode().split(",")
        name = self._instance_id or self._member_id
        if name not in members:
            self.journal.failures.append(f"not assigned: {self.host} has no part in {plan!r}")
            return
        mine = self._places[members.index(name) :: len(members)]
        for place in mine:
            self.journal.groups.owns(self._group, self._generation, place, name)
        self._beat()
        if self._instance_id is not None and self._former_id not in ("", self._member_id):
            self._beat_as_former()
        if mine:
            self._ask_offsets(mine)

    def _ask_offsets(self, mine: list[Place]) -> None:
        questions = [self.journal.groups.asking(self._group, place) for place in mine]
        topic_id = self.topic_id(TOPIC)
        version = self.versions.of(OffsetFetchRequest, until=None if topic_id else TOPIC_IDS_SINCE - 1)
        indexes = tuple(index for _, index in mine)
        if version >= OFFSET_FETCH_BATCHES_SINCE:
            topic = OffsetFetchRequestGroupTopic(
                topic_id=topic_id or ZERO_UUID, name=TOPIC, partition_indexes=indexes
            )
            request = OffsetFetchRequest(
                groups=(OffsetFetchRequestGroup(group_id=self._group, topics=(topic,)),),
                require_stable=self.requires_stable,
            )
        else:
            topics = (OffsetFetchRequestTopic(name=TOPIC, partition_indexes=indexes),)
            request = OffsetFetchRequest(
                group_id=self._group, topics=topics, require_stable=self.requires_stable
            )
        self._submit(request, lambda reply: self._told_offsets(mine, questions, reply), version=version)

    def _told_offsets(self, mine: list[Place], questions: list[OffsetQuery], reply: object) -> None:
        rows = _positions(reply) if isinstance(reply, OffsetFetchResponse) else None
        if rows is None:
            self._locate(lambda: self._ask_offsets(mine))
            return
        for question, row in zip(questions, rows, strict=True):
            self.journal.groups.answered(question, row.committed_offset)
            self._positions[TOPIC, row.partition_index] = max(row.committed_offset, 0)
        self._step()

    def _beat(self) -> None:
        if self.now < self._asleep_until:
            self.after_ms(HEARTBEAT_MS, self._now(self._beat))
            return
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        heartbeat, sent_at = self.journal.groups.beating(self._group, self._generation), self.now
        self._submit(request, lambda reply: self._heard(heartbeat, sent_at, reply))

    def _beat_as_former(self) -> None:
        """What the process of before would send if it were still there: it must be fenced (KIP-345)."""
        assert self._coordinator is not None
        former, present, generation = self._former_id, self._member_id, self._generation
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=former,
            group_instance_id=self._instance_id,
        )

        def answered(reply: object) -> None:
            if isinstance(reply, HeartbeatResponse) and reply.error_code == ErrorCode.NONE:
                self.journal.failures.append(
                    f"two owners: {former} and {present} are both {self._instance_id} "
                    f"in generation {generation} of {self._group}"
                )

        self._ghost.ask(self._coordinator, request, self.versions.of(HeartbeatRequest), answered)

    def _heard(self, heartbeat: MemberHeartbeat, sent_at: int, reply: object) -> None:
        if not isinstance(reply, HeartbeatResponse) or reply.error_code in ELSEWHERE:
            self._locate(self._beat)
        elif reply.error_code == ErrorCode.NONE:
            self._heard_at = sent_at
            self.journal.groups.beat(heartbeat)
            self.after_ms(HEARTBEAT_MS, self._now(self._beat))
        else:
            self._begin(forget=reply.error_code in REMOVED)

    def _step(self) -> None:
        """Read from one partition, and then commit, or do something rash."""
        if self.now - self._heard_at > SESSION_MS * MILLISECOND:
            # As a consumer does: nobody has confirmed for so long that it is a member.
            self._begin(forget=False)
            return
        self.journal.groups.acts(self._group, self._generation, self.now, SESSION_MS * MILLISECOND)
        luck = self.luck.random()
        if luck < CRASHES:
            self.close()
            self._begin(forget=True)
        elif luck < CRASHES + LEAVES:
            self._leave()
        elif luck < CRASHES + LEAVES + NAPS:
            self._asleep_until = self.now + NAP_MS * MILLISECOND
            self.after_ms(NAP_MS, self._now(self._commit), self.luck.choice(list(self._positions)))
        elif luck < CRASHES + LEAVES + NAPS + GHOSTS and self._before is not None:
            self._commit_as_before()
            self._rest()
        else:
            self._read(self.luck.choice(list(self._positions)))

    def _leave(self) -> None:
        if self._instance_id is not None:
            # A static member does not leave when it stops: it goes, and comes back.
            self._begin(forget=True)
            return
        version = self.versions.of(LeaveGroupRequest)
        request = (
            LeaveGroupRequest(
                group_id=self._group, members=(LeaveGroupRequestMember(member_id=self._member_id),)
            )
            if version >= LEAVE_BATCHES_SINCE
            else LeaveGroupRequest(group_id=self._group, member_id=self._member_id)
        )
        self._submit(request, lambda _: self._begin(forget=True))

    def _read(self, place: Place) -> None:
        leader = self.leader(place)
        if leader is None:
            self.refresh_metadata(self._now(self._rest))
            return
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=NO_SESSION,
            session_epoch=SESSIONLESS_EPOCH,
            topics=self.fetch_topics([(place, self._positions[place], leader.epoch)]),
        )
        self.ask(
            leader.node_id,
            request,
            self.fetch_version(),
            self._now(lambda reply: self._got(place, reply)),
            self.observing_fetch(leader.node_id, [place]),
        )

    def _got(self, place: Place, reply: object) -> None:
        row = rows_of(reply)[0] if isinstance(reply, FetchResponse) and not reply.error_code else None
        if row is not None and row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._seek_start(place)
            return
        if row is None or row.error_code:
            self.refresh_metadata(self._now(self._rest))
            return
        records, position = self.records_of(row, self._positions[place])
        for offset, value in records:
            self.journal.log(*place).saw(offset, value)
        if position > self._positions[place]:
            self._consume(place, records, position)
        else:
            self._rest()

    def _consume(self, place: Place, _: list[tuple[int, bytes]], position: int) -> None:
        """Be done with records, the last of which is in front of `position`."""
        self._positions[place] = position
        self._commit(place)

    def _seek_start(self, place: Place) -> None:
        """Go on where the log starts: the position is not in it any more."""
        leader = self.leader(place)
        assert leader is not None

        def told(start: int | None) -> None:
            if start is None or start <= self._positions[place]:
                self.refresh_metadata(self._now(self._rest))
                return
            self._positions[place] = start
            # There may be no record behind it.
            self._commit(place)

        self.ask_start(leader.node_id, place, leader.epoch, self._now(told))

    def _rest(self) -> None:
        self.after_ms(STEP_MS, self._now(self._step))

    def _commit(self, place: Place) -> None:
        attempt = self.journal.groups.committing(self._group, place, self._generation, self._positions[place])
        request, version = self._commit_request(attempt, place)
        self._submit(request, lambda reply: self._committed(place, attempt, reply), version=version)

    def _commit_as_before(self) -> None:
        """A commit of the generation before, which was on its way for long: it must be refused."""
        assert self._before is not None
        assert self._coordinator is not None
        (generation, positions), self._before = self._before, None
        if generation == self._generation:
            return  # a static member came back without a rebalance
        place = self.luck.choice(list(positions))
        attempt = self.journal.groups.committing(self._group, place, generation, positions[place])
        request, version = self._commit_request(attempt, place)

        def answered(reply: object) -> None:
            if isinstance(reply, OffsetCommitResponse) and _commit_code(reply) == ErrorCode.NONE:
                self.journal.groups.committed(attempt)

        self._ghost.ask(self._coordinator, request, version, answered)

    def _commit_request(self, attempt: CommitAttempt, place: Place) -> tuple[OffsetCommitRequest, int]:
        topic_id = self.topic_id(TOPIC)
        version = self.versions.of(OffsetCommitRequest, until=None if topic_id else TOPIC_IDS_SINCE - 1)
        # Without a generation, a commit of old could not be distinguished from one of now.
        version = max(version, COMMIT_GENERATIONS_SINCE)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=attempt.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=(
                OffsetCommitRequestTopic(
                    topic_id=topic_id or ZERO_UUID,
                    name=place[0],
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=place[1], committed_offset=attempt.offset, committed_metadata=""
                        ),
                    ),
                ),
            ),
        )
        return request, version

    def _committed(self, place: Place, attempt: CommitAttempt, reply: object) -> None:
        code = _commit_code(reply) if isinstance(reply, OffsetCommitResponse) else None
        if code == ErrorCode.NONE:
            self.journal.groups.committed(attempt)
            self._rest()
        elif code in ELSEWHERE:
            self._locate(lambda: self._commit(place))
        elif code in NOT_STORED:
            # Tried again: there may be no later record to commit behind.
            self.after_ms(self.backoff_ms(), self._now(lambda: self._commit(place)))
        else:
            # Lost, or the place is gone; a rebalance is reported by the heartbeat as well.
            self._begin(forget=code != ErrorCode.REBALANCE_IN_PROGRESS)


def _code(reply: object) -> int | None:
    return getattr(reply, "error_code", None)


def _commit_code(response: OffsetCommitResponse) -> int:
    ((row,),) = (topic.partitions for topic in response.topics)
    return row.error_code


def _positions(
    response: OffsetFetchResponse,
) -> list[OffsetFetchResponseGroupPartition | OffsetFetchResponsePartition] | None:
    """The rows of a response, unless anything in it is an error."""
    group = response.groups[0] if response.groups else response
    rows: list[Any] = [row for topic in group.topics for row in topic.partitions]
    refused = group.error_code or any(row.error_code for row in rows)
    return None if refused or not rows else rows
