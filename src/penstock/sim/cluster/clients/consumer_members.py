"""A member of a consumer group (KIP-848): one kind of heartbeat joins, stays, gives up and leaves.

    locate ─▶ join (epoch 0) ─▶ heartbeat, ask for offsets, commit … ─▶ leave (-1, static: -2), or die
                 ▲                         │                                        │
                 └──── fenced, unknown ◀───┘          comes back as another process ◀┘

It reads nothing: its positions are numbers that grow, so that any commit that is taken out of turn shows.
Heartbeats go on while it works, one at a time. What is taken from it, it gives up a while later, and says
so in the next heartbeat; a few never do, and are removed. A heartbeat without a response is followed by one
that says everything, as clients do: the coordinator does not repeat an assignment by itself. One that does
not know what became of a commit dies: it may be on its way, and must not undo a later one of its own.

Now and then a member sleeps for longer than its session, changes what it subscribes to, or something that
it sent long ago arrives late. A static member has a twin that tries to take its place.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)
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
    OffsetFetchResponse,
)
from penstock.sim.checkers.consumer_groups import EpochAttempt, JoinAttempt
from penstock.sim.checkers.groups import CommitAttempt, OffsetQuery
from penstock.sim.cluster.clients.admin import FIRST_ADMIN
from penstock.sim.cluster.clients.client import ClusterNodes, VersionPolicy
from penstock.sim.cluster.clients.consumers import FetchClient
from penstock.sim.cluster.clients.members import ELSEWHERE, GroupClient
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import CONSUMER_SESSION_MS, RETURNS, TOPIC

# Clocks of nodes drift by less.
SURE_SESSION_NS = CONSUMER_SESSION_MS * MILLISECOND * 99 // 100
# Longer than two heartbeats, the slowest revocation and a commit: a member that means to gives up in time.
REBALANCE_MS = 2_000
SURE_REBALANCE_NS = REBALANCE_MS * MILLISECOND * 99 // 100
SLOW_REVOCATION_MS = 300
STEP_MS = 30
SOON_MS = 5
DOWN_MS = 1_500
NAP_MS = 1_600
CRASHES, LEAVES, NAPS, LAPSES, SUBSCRIPTIONS, GHOSTS, TWINS = 0.004, 0.006, 0.006, 0.003, 0.015, 0.06, 0.02
SLOW, STUBBORN = 0.5, 0.1
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
# Since then there are patterns, and members make their own ids.
PATTERNS_SINCE = 1
MEMBER_EPOCHS_SINCE = 9
TOPIC_IDS_SINCE = 10
REMEMBERED_MAX = 20
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Subscription(NamedTuple):
    """What a member says that it wants, and the topics that it means by it."""

    names: tuple[str, ...]
    pattern: str | None
    topics: tuple[str, ...]


# One that grows while others read, and is there a while after the start only.
GROWING = f"{FIRST_ADMIN}-settled"
BY_NAME = tuple(
    Subscription(names, None, names) for names in ((TOPIC,), (RETURNS,), (TOPIC, RETURNS), (TOPIC, GROWING))
)
BY_PATTERN = Subscription((), f"{TOPIC}|{RETURNS}", (TOPIC, RETURNS))


class PastCommit(NamedTuple):
    """A commit that was accepted some time ago."""

    name: str
    member_id: str
    epoch: int
    place: Place
    offset: int


class ConsumerGroupMember(GroupClient):
    """One process after the other, on one host."""

    def __init__(self, nodes: ClusterNodes, host: str, group: str, *, static: bool = False) -> None:
        super().__init__(nodes, host, group, VersionPolicy.NEWEST)
        self.topics = (TOPIC, RETURNS, GROWING)
        self._instance_id = host if static else None
        self._version = self.luck.choice((PATTERNS_SINCE, PATTERNS_SINCE, 0))
        self._is_calm = False
        self._processes = 0
        self._name = ""
        self._member_id = ""
        self._epoch = JOIN_EPOCH
        self.subscription = BY_NAME[2]
        # What it has, and how far it has come there; None: it has not asked yet.
        self.owned: dict[Place, int | None] = {}
        self._revoking: dict[Place, None] = {}
        # What it works on no more, but does not give up either.
        self._withheld: dict[Place, None] = {}
        # The coordinator waits since then for what it has to give up, and removes who takes too long.
        self._revoking_since: int | None = None
        # What the last heartbeat said that it has, and whether the next one has to say everything.
        self._reported: list[Place] | None = None
        self._says_all = True
        self._working_at: Place | None = None
        self._is_beating = False
        self._beats = 0
        self._asleep_until = 0
        self._past: list[PastCommit] = []
        # A request that comes late comes on another connection.
        self._ghost = FetchClient(nodes, host, VersionPolicy.NEWEST)

    def start(self) -> None:
        self._come_back()

    def settle(self) -> None:
        """Do nothing rash any more."""
        self._is_calm = True

    def _come_back(self) -> None:
        """Begin as a new process."""
        self._turn += 1
        if self._stopped:
            return
        self._processes += 1
        self._name = f"{self.host}/{self._processes}"
        self._member_id = "" if self._version < PATTERNS_SINCE else str(UUID(int=self.luck.getrandbits(128)))
        self.subscription = self._any_subscription()
        self._join()

    def _join(self) -> None:
        """Join, as somebody new or under the id it has."""
        self._turn += 1
        self._epoch = JOIN_EPOCH
        self.owned, self._revoking, self._withheld = {}, {}, {}
        self._working_at, self._is_beating = None, False
        self._revoking_since = None
        self._says_all = True
        self._locate(self._beat)
        self.after_ms(STEP_MS, self._now(self._step))

    def _die(self) -> None:
        """End without a word, and come back after a while."""
        self._end()
        self.close()

    def _end(self) -> None:
        self._turn += 1
        self.journal.consumer_groups.gone(self._group, self._name)
        self.owned, self._revoking, self._withheld = {}, {}, {}
        if not self._stopped:
            self.after_ms(DOWN_MS * self.luck.random(), self._now(self._come_back))

    def _any_subscription(self) -> Subscription:
        choices = BY_NAME if self._version < PATTERNS_SINCE else (*BY_NAME, BY_PATTERN)
        return self.luck.choice(choices)

    def _beat_soon(self, delay_ms: float = SOON_MS) -> None:
        """Send the next heartbeat then, and no earlier one."""
        self._beats += 1
        beats = self._beats
        if not self._is_beating:
            self.after_ms(delay_ms, self._now(lambda: self._beat() if beats == self._beats else None))

    def _beat(self) -> None:
        if self.now < self._asleep_until:
            self._beat_soon((self._asleep_until - self.now) / MILLISECOND)
            return
        if self._is_beating or self._coordinator is None:
            return
        checker, joins = self.journal.consumer_groups, self._epoch == JOIN_EPOCH
        request = self._heartbeat()
        if request.topic_partitions is not None:
            self._reported = list(self.owned)
            checker.keeps(self._group, self._name, self._reported)
        join = checker.joining(self._group, self._name) if joins else None
        self._is_beating, self._says_all = True, False
        sent_at, name = self.now, self._name

        def observe(response: ConsumerGroupHeartbeatResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                checker.told(self._group, name, response.member_epoch)

        self._submit(
            request, lambda reply: self._heard(sent_at, join, reply), version=self._version, observe=observe
        )

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        says_owned = self._says_all or self._reported != list(self.owned)
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
            rebalance_timeout_ms=REBALANCE_MS if self._says_all else -1,
            subscribed_topic_names=self.subscription.names if self._says_all else None,
            # An empty pattern takes back the one before.
            subscribed_topic_regex=(self.subscription.pattern or "")
            if self._says_all and self._version >= PATTERNS_SINCE
            else None,
            topic_partitions=self._rows(list(self.owned)) if says_owned else None,
        )

    def _rows(self, places: Sequence[Place]) -> tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...]:
        indexes: dict[str, list[int]] = {}
        for topic, index in places:
            indexes.setdefault(topic, []).append(index)
        return tuple(
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self._topic_ids[topic], partitions=tuple(sorted(found))
            )
            for topic, found in indexes.items()
        )

    def _heard(self, sent_at: int, join: JoinAttempt | None, reply: object) -> None:
        self._is_beating = False
        if not isinstance(reply, ConsumerGroupHeartbeatResponse) or reply.error_code in ELSEWHERE:
            self._says_all = True
            self._locate(self._beat)
        elif reply.error_code == ErrorCode.NONE:
            self._go_on(sent_at, join, reply)
        elif reply.error_code in REMOVED and join is None:
            self.journal.consumer_groups.removed(self._group, self._name)
            self._join()
        elif reply.error_code in (*REMOVED, ErrorCode.FENCED_INSTANCE_ID):
            # Its former self is a member still: as somebody else it need not wait for the end of a session.
            self._die()
        elif reply.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._says_all = True
            self.after_ms(self.backoff_ms(), self._now(self._beat))
        else:
            code = ErrorCode(reply.error_code).name
            self.journal.failures.append(f"refused: {self._name} got {code}, {reply.error_message}")

    def _go_on(self, sent_at: int, join: JoinAttempt | None, reply: ConsumerGroupHeartbeatResponse) -> None:
        checker = self.journal.consumer_groups
        checker.heard(self._group, self._name, reply.member_epoch)
        if join is not None:
            checker.joined(join, reply.member_epoch)
            self._member_id = reply.member_id or self._member_id
        self._epoch = reply.member_epoch
        if reply.assignment is not None:
            self._take(reply.assignment)
        has = [place for place in self.owned if place not in self._withheld]
        checker.has(self._group, self._name, has, now=self.now, until=self._member_until(sent_at))
        is_changed = self._says_all or self._reported != list(self.owned)
        self._beat_soon(SOON_MS if is_changed else reply.heartbeat_interval_ms)

    def _member_until(self, sent_at: int) -> int:
        """How long it is surely a member, after the response to a heartbeat of that time."""
        if self._revoking:
            self._revoking_since = sent_at if self._revoking_since is None else self._revoking_since
        elif self._reported == list(self.owned):
            self._revoking_since = None
        session_end = sent_at + SURE_SESSION_NS
        if self._revoking_since is None:
            return session_end
        return min(session_end, self._revoking_since + SURE_REBALANCE_NS)

    def _take(self, assignment: ConsumerGroupHeartbeatResponseAssignment) -> None:
        """Have what is given, and give up what is not."""
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        given: dict[Place, None] = {}
        for row in assignment.topic_partitions:
            name = names.get(row.topic_id)
            if name is None:
                # Said again when the name is known.
                self._says_all = True
                self.refresh_metadata(self._now(self._beat_soon))
                continue
            given |= dict.fromkeys((name, index) for index in row.partitions)
        for place in given:
            self._revoking.pop(place, None)
            if place not in self.owned:
                self.journal.consumer_groups.assignments += 1
                self.owned[place] = None
        for place in list(self.owned):
            if place not in given and place not in self._revoking:
                self._revoking[place] = None
                if self.luck.random() < STUBBORN:
                    self._withheld[place] = None
                    continue
                slow_ms = SLOW_REVOCATION_MS * self.luck.random() if self.luck.random() < SLOW else 0
                self.after_ms(slow_ms, self._now(self._give_up), place)

    def _give_up(self, place: Place) -> None:
        if place not in self._revoking:
            return
        if place == self._working_at:
            # A commit is on its way: it would be refused in the next epoch.
            self.after_ms(STEP_MS, self._now(self._give_up), place)
            return
        del self._revoking[place], self.owned[place]
        self._beat_soon()

    def _step(self) -> None:
        """Work on one partition, or do something rash."""
        luck = 1.0 if self._is_calm else self.luck.random()
        for share, act in (
            (CRASHES, self._die),
            (LEAVES, self._leave),
            (NAPS, self._nap),
            (LAPSES, self._forget),
            (SUBSCRIPTIONS, self._subscribe),
            (GHOSTS, self._send_late),
            (TWINS, self._send_as_twin),
        ):
            if luck < share:
                act()
                return
            luck -= share
        self._work()

    def _rest(self) -> None:
        self._working_at = None
        self.after_ms(STEP_MS * (0.5 + self.luck.random()), self._now(self._step))

    def _leave(self) -> None:
        if self._epoch == JOIN_EPOCH or self._coordinator is None:
            self._rest()
            return
        is_static = self._instance_id is not None and self.luck.random() < 0.5
        epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            topic_partitions=None,
        )
        checker, group, name = self.journal.consumer_groups, self._group, self._name

        def observe(response: ConsumerGroupHeartbeatResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                checker.removed(group, name)

        self.ask(self._coordinator, request, self._version, lambda _: None, observe)
        self._end()

    def _nap(self) -> None:
        """Sleep, and go on as if nothing had happened."""
        self._asleep_until = self.now + NAP_MS * MILLISECOND
        self.after_ms(NAP_MS, self._now(self._work))

    def _forget(self) -> None:
        """Forget its epoch, and join under an id that the group has: it may have to take another one."""
        self.journal.consumer_groups.gone(self._group, self._name)
        self._join()

    def _subscribe(self) -> None:
        self.subscription = self._any_subscription()
        self._says_all = True
        self._beat_soon()
        self._rest()

    def _work(self) -> None:
        places = [place for place in self.owned if place not in self._withheld]
        if not places or self._epoch == JOIN_EPOCH:
            self._rest()
            return
        place = self._working_at = self.luck.choice(places)
        position = self.owned[place]
        if position is None:
            self._ask_offset(place)
        else:
            self.owned[place] = position + self.luck.randint(1, 5)
            self._commit(place)

    def _ask_offset(self, place: Place) -> None:
        question = self.journal.groups.asking(self._group, place)
        topic = OffsetFetchRequestGroupTopic(
            topic_id=self._topic_ids[place[0]], name=place[0], partition_indexes=(place[1],)
        )
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=self._group,
                    member_id=self._member_id,
                    member_epoch=self._epoch,
                    topics=(topic,),
                ),
            ),
            require_stable=True,
        )
        version = self.luck.choice((MEMBER_EPOCHS_SINCE, TOPIC_IDS_SINCE))
        self._submit(request, lambda reply: self._told_offset(place, question, reply), version=version)

    def _told_offset(self, place: Place, question: OffsetQuery, reply: object) -> None:
        group = reply.groups[0] if isinstance(reply, OffsetFetchResponse) else None
        if group is not None and not group.error_code and not group.topics[0].partitions[0].error_code:
            offset = group.topics[0].partitions[0].committed_offset
            self.journal.groups.answered(question, offset)
            self.owned[place] = max(offset, 0)
            self._rest()
        elif group is None or group.error_code in ELSEWHERE:
            self._locate(self._rest)
        else:
            # The heartbeat says what is wrong.
            self._rest()

    def _commit(self, place: Place) -> None:
        position = self.owned[place]
        assert position is not None
        attempt = self.journal.groups.committing(self._group, place, self._epoch, position)
        sending = self.journal.consumer_groups.sending(self._group, self._name, self._epoch)
        past = PastCommit(self._name, self._member_id, self._epoch, place, position)
        self._submit(
            self._commit_request(past),
            lambda reply: self._committed(past, attempt, sending, reply),
            version=self._commit_version(),
        )

    def _commit_version(self) -> int:
        return self.luck.choice((MEMBER_EPOCHS_SINCE, TOPIC_IDS_SINCE))

    def _commit_request(self, commit: PastCommit) -> OffsetCommitRequest:
        row = OffsetCommitRequestPartition(
            partition_index=commit.place[1], committed_offset=commit.offset, committed_metadata=""
        )
        topic = commit.place[0]
        return OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=commit.epoch,
            member_id=commit.member_id,
            group_instance_id=self._instance_id,
            topics=(
                OffsetCommitRequestTopic(topic_id=self._topic_ids[topic], name=topic, partitions=(row,)),
            ),
        )

    def _committed(
        self, past: PastCommit, attempt: CommitAttempt, sending: EpochAttempt, reply: object
    ) -> None:
        code = _commit_code(reply)
        if code == ErrorCode.NONE:
            self.journal.groups.committed(attempt)
            self.journal.consumer_groups.committed(sending)
            self._past = [*self._past, past][-REMEMBERED_MAX:]
            self._rest()
        elif code is None:
            # Lost: it may still be on its way.
            self._die()
        elif code in ELSEWHERE:
            self._locate(lambda: self._commit(past.place) if past.place in self.owned else self._rest())
        else:
            # In another epoch it is tried again; whoever was removed is told so by its heartbeat.
            self._beat_soon()
            self._rest()

    def _send_late(self) -> None:
        """Something that was on its way for long arrives: it must be refused."""
        checker, coordinator = self.journal.consumer_groups, self._coordinator
        late = [
            (past, attempt)
            for past in self._past
            if (attempt := checker.sending(self._group, past.name, past.epoch)).is_stale_commit
        ]
        if late and coordinator is not None:
            past, attempt = self.luck.choice(late)
            if attempt.is_stale_heartbeat and self.luck.random() < 0.5:
                self._send_late_heartbeat(coordinator, past, attempt)
            else:
                self._send_late_commit(coordinator, past, attempt)
        self._rest()

    def _send_late_commit(self, coordinator: int, past: PastCommit, attempt: EpochAttempt) -> None:
        def answered(reply: object) -> None:
            if _commit_code(reply) == ErrorCode.NONE:
                self.journal.consumer_groups.committed(attempt)

        self._ghost.ask(coordinator, self._commit_request(past), self._commit_version(), answered)

    def _send_late_heartbeat(self, coordinator: int, past: PastCommit, attempt: EpochAttempt) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=past.member_id,
            member_epoch=past.epoch,
            instance_id=self._instance_id,
            topic_partitions=(),
        )

        def answered(reply: object) -> None:
            if isinstance(reply, ConsumerGroupHeartbeatResponse) and reply.error_code == ErrorCode.NONE:
                self.journal.consumer_groups.beat(attempt)

        self._ghost.ask(coordinator, request, self._version, answered)

    def _send_as_twin(self) -> None:
        """What a second process with the same instance id would send: it must wait for the first to leave."""
        if self._instance_id is not None and self._coordinator is not None:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=str(UUID(int=self.luck.getrandbits(128))),
                member_epoch=JOIN_EPOCH,
                instance_id=self._instance_id,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=self.subscription.topics,
                topic_partitions=(),
            )
            name = self._name

            def observe(response: ConsumerGroupHeartbeatResponse) -> None:
                if response.error_code == ErrorCode.NONE:
                    self.journal.consumer_groups.replaced(self._group, name, self.now)

            self._ghost.ask(self._coordinator, request, self._version, lambda _: None, observe)
        self._rest()


def _commit_code(reply: object) -> int | None:
    """The error of the one partition of a commit; None if there is no response."""
    if not isinstance(reply, OffsetCommitResponse):
        return None
    ((row,),) = (topic.partitions for topic in reply.topics)
    return row.error_code
