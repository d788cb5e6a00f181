"""Periodic tasks of the leading controller.

    LeaderBalancer          gives leaderships back to preferred replicas
    InternalTopicExpander   adds replicas to internal topics as brokers join
    LearnerReconciler       adds brokers as learners, removes learners that will not come back

Each checks the committed image and submits what is missing as commands, so that a deposed leader
can do no harm. Their timers start again with every leader.

Left out: moving replicas between brokers by load; cancelling reassignments that take long.
"""

from collections.abc import Mapping

from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.raft_host import RaftQuorum
from penstock.core.metadata import (
    BalancedLeaders,
    BalanceLeaders,
    Reply,
    StartedReassignments,
    WidenInternalTopics,
    broker_setting,
)
from penstock.core.model import MILLISECOND, SECOND, Instant
from penstock.core.raft import AddLearner, Change, Member, RemoveMember
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

INTERNAL_TOPICS_CHECK_MS = 2_000
LEARNER_CHECK_MS = 500
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
