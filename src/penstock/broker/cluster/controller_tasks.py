"""Periodic tasks of the leading controller.

    LeaderBalancer          gives leaderships back to preferred replicas
    InternalTopicExpander   adds replicas to internal topics as brokers join
    LearnerReconciler       adds brokers as learners, removes learners that will not come back
    ReportGracePeriod       ends the wait for reports of replicas that do not come back

Each checks the committed image and submits what is missing as commands, so that a deposed leader
can do no harm. Their timers start again with every leader.

Left out: moving replicas between brokers by load; cancelling reassignments that take long.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.raft_host import RaftQuorum
from penstock.core.metadata import (
    EMPTY_IMAGE,
    NO_LEADER,
    BalancedLeaders,
    BalanceLeaders,
    ElectReported,
    MetadataImage,
    Partition,
    Reply,
    StartedReassignments,
    WidenInternalTopics,
    broker_setting,
)
from penstock.core.model import MILLISECOND, SECOND, ApiError, Instant, PartitionIndex, TopicId
from penstock.core.raft import AddLearner, Change, Member, RemoveMember
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

INTERNAL_TOPICS_CHECK_MS = 2_000
LEARNER_CHECK_MS = 500
ELECTIONS_PER_COMMAND = 1_000
PartitionKey: TypeAlias = tuple[TopicId, PartitionIndex]
# A learner that is no broker may be new: it joins before it registers.
STRANGE_NS = 10 * SECOND


class PeriodicTask:
    """Calls `check` after each `pause_ms`, while this node leads."""

    def __init__(self, runtime: Runtime, controller: Controller) -> None:
        self._runtime = runtime
        self._timer: Timer | None = None
        self._controller = controller
        controller.add_task(self)

    def pause_ms(self) -> int:
        """How long to wait before the next check."""
        raise NotImplementedError

    def check(self) -> None:
        """Find what is missing, and submit it."""
        raise NotImplementedError

    def on_leadership_gained(self) -> None:
        self._wait()

    def on_leadership_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        deadline = Instant(self._runtime.clock.now() + self.pause_ms() * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._due)

    def _due(self) -> None:
        if self._controller.is_leading:
            self.check()
            self._wait()


class LeaderBalancer(PeriodicTask):
    """Submits a leader balance every `leader.imbalance.check.interval.seconds`."""

    def __init__(self, runtime: Runtime, controller: Controller, static: Mapping[str, str]) -> None:
        super().__init__(runtime, controller)
        self._static = static

    def pause_ms(self) -> int:
        key = "leader.imbalance.check.interval.seconds"
        seconds = broker_setting(self._controller.image, key, static=self._static)
        assert isinstance(seconds, int)
        return seconds * 1_000

    def check(self) -> None:
        self._controller.submit(BalanceLeaders(), _on_balance_reply)


def _on_balance_reply(reply: Reply) -> None:
    if isinstance(reply, BalancedLeaders) and reply.moved:
        events.info("cluster.leaders_balanced", moved=reply.moved, left=reply.left)


class InternalTopicExpander(PeriodicTask):
    """Brings internal topics to three replicas, unless another number is configured."""

    def pause_ms(self) -> int:
        return INTERNAL_TOPICS_CHECK_MS

    def check(self) -> None:
        self._controller.submit(WidenInternalTopics(), _on_expand_reply)


def _on_expand_reply(reply: Reply) -> None:
    if isinstance(reply, StartedReassignments) and reply.partitions:
        events.info("cluster.internal_topics_expanded", partitions=reply.partitions)


class LearnerReconciler(PeriodicTask):
    """One change at a time: adds brokers that are no members, removes learners that are no brokers."""

    def __init__(
        self, runtime: Runtime, controller: Controller, quorum: RaftQuorum, hub: PeerManager
    ) -> None:
        super().__init__(runtime, controller)
        self._quorum = quorum
        self._peers = hub
        self._strange: dict[Member, Instant] = {}

    def pause_ms(self) -> int:
        return LEARNER_CHECK_MS

    def on_leadership_gained(self) -> None:
        self._strange.clear()
        super().on_leadership_gained()

    def check(self) -> None:
        change = self._missing() or self._left_over()
        if change is not None:
            events.info("quorum.members_changed", change=type(change).__name__, member=change.member.node_id)
            self._quorum.change_members(change, lambda _: None)

    def _missing(self) -> Change | None:
        """Add a broker that is no member: its vote was removed, but it still needs the metadata."""
        members = self._quorum.raft.configuration.members
        taken = {member.node_id: None for member in members}
        for broker in self._controller.image.each_broker():
            member = Member(broker.node_id, broker.directory_id)
            if broker.node_id not in taken and self._is_there(member):
                return AddLearner(member)
        return None

    def _left_over(self) -> Change | None:
        now, image = self._runtime.clock.now(), self._controller.image
        strange: dict[Member, Instant] = {}
        for learner in self._quorum.raft.configuration.learners:
            broker = image.broker(learner.node_id)
            is_broker = broker is not None and broker.directory_id == learner.directory_id
            if not is_broker and not self._is_there(learner):
                strange[learner] = self._strange.get(learner, now)
        self._strange = strange
        return next((RemoveMember(m) for m, since in strange.items() if now - since >= STRANGE_NS), None)

    def _is_there(self, member: Member) -> bool:
        identity = self._peers.identity_of(member.node_id)
        return identity is not None and identity.directory_id == member.directory_id


class ReportGracePeriod:
    """Gives the replicas of a partition without a leader some time to report, from the first report on.

    Afterwards it asks for an election, and again whenever the partition or the brokers change.
    """

    def __init__(self, runtime: Runtime, controller: Controller, grace_ms: int) -> None:
        self._runtime = runtime
        self._controller = controller
        self._grace_ns = grace_ms * MILLISECOND
        self._image = EMPTY_IMAGE
        self._until: dict[PartitionKey, Instant] = {}
        self._over: dict[PartitionKey, None] = {}
        self._timer: Timer | None = None
        controller.add_task(self)
        controller.subscribe(self._follow)

    def on_leadership_gained(self) -> None:
        # Whole periods again: a new leader cannot know how long the last one has waited.
        self._image = EMPTY_IMAGE
        self._until.clear()
        self._over.clear()
        self._follow(self._controller.image)

    def on_leadership_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow(self, image: MetadataImage) -> None:
        before = self._image
        if not self._controller.is_leading or (
            image.topics is before.topics and image.brokers is before.brokers
        ):
            return
        self._image = image
        if image.brokers is not before.brokers and self._over:
            # One that has reported may be able to lead only now.
            self._ask(list(self._over))
        for topic_id in before.topics.keys_missing_in(image.topics):
            gone = before.topic_by_id(topic_id)
            assert gone is not None
            for state in gone.partitions:
                self._forget((topic_id, state.index))
        changed: list[PartitionKey] = []
        for topic_id in image.topics.keys_changed_since(before.topics):
            topic, former = image.topic_by_id(topic_id), before.topic_by_id(topic_id)
            assert topic is not None
            for state in topic.partitions:
                if former is None or former.partition(state.index) is not state:
                    self._note((topic_id, state.index), state, changed)
        self._ask(changed)
        self._arm()

    def _note(self, key: PartitionKey, state: Partition, changed: list[PartitionKey]) -> None:
        if state.leader != NO_LEADER or not state.reports:
            self._forget(key)
        elif key in self._over:
            changed.append(key)
        elif key not in self._until:
            self._until[key] = Instant(self._runtime.clock.now() + self._grace_ns)

    def _forget(self, key: PartitionKey) -> None:
        self._until.pop(key, None)
        self._over.pop(key, None)

    def _arm(self) -> None:
        if self._timer is None and self._until:
            self._timer = self._runtime.timers.at(min(self._until.values()), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._runtime.clock.now()
        over = [key for key, until in self._until.items() if until <= now]
        for key in over:
            del self._until[key]
            self._over[key] = None
        self._ask(over)
        self._arm()

    def _ask(self, keys: list[PartitionKey]) -> None:
        for at in range(0, len(keys), ELECTIONS_PER_COMMAND):
            some = tuple(keys[at : at + ELECTIONS_PER_COMMAND])
            self._controller.submit(ElectReported(some), partial(self._answered, some))

    def _answered(self, keys: tuple[PartitionKey, ...], reply: Reply) -> None:
        if isinstance(reply, ApiError) and self._controller.is_leading:
            for key in keys:
                if self._over.pop(key, True) is None:
                    self._until[key] = Instant(self._runtime.clock.now() + self._grace_ns)
            self._arm()
