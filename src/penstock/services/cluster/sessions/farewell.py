"""Leaving so that nobody has to wait for us: leaderships first, then our place, then the quorum."""

from penstock.core.metadata import BeginControlledShutdown, FenceBroker, RemainingLeaderships, Reply
from penstock.core.model import MILLISECOND, BrokerEpoch, Instant, NodeId
from penstock.core.raft import Member
from penstock.observability import log as events
from penstock.runtime import Callback, Runtime, Timer
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.raft import RaftQuorum
from penstock.services.cluster.sessions.pulse import Pulse

# Everything together; what is not done by then happens to the others as if we had crashed.
FAREWELL_MS = 1_500
# Of that, how long replicas that are not in sync may take to take over.
HANDING_OVER_MS = 1_000
AGAIN_MS = 50


class Farewell:
    """Takes leave of the cluster, within a bounded time."""

    def __init__(
        self, runtime: Runtime, controller: Controller, quorum: RaftQuorum, pulse: Pulse, me: NodeId
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._quorum = quorum
        self._pulse = pulse
        self._me = me
        self._done: Callback | None = None
        self._timer: Timer | None = None
        self._patience = Instant(0)

    def begin(self, epoch: BrokerEpoch | None, done: Callback) -> None:
        """Leave; `done` is called once, not inside this call."""
        now = self._runtime.clock.now()
        self._done = done
        self._patience = Instant(now + HANDING_OVER_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(Instant(now + FAREWELL_MS * MILLISECOND), self._overdue)
        if epoch is None or not self._has_others():
            self._hand_over_quorum()
        else:
            self._hand_over_partitions(epoch)

    def _has_others(self) -> bool:
        return any(broker.node_id != self._me for broker in self._controller.image.live_brokers())

    def _overdue(self) -> None:
        if self._quorum.raft.leader is None:
            # The last nodes of a cluster that is stopped have nobody to hand over to: nothing is wrong.
            events.debug("node.farewell_overdue")
        else:
            events.warning("node.farewell_overdue")
        self._end()

    def _end(self) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        self._pulse.end()
        if done is not None:
            done()

    def _hand_over_partitions(self, epoch: BrokerEpoch) -> None:
        def told(reply: Reply) -> None:
            waits = (
                isinstance(reply, RemainingLeaderships) and reply.leading > 0 and self._could_be_taken_over()
            )
            if waits and self._runtime.clock.now() < self._patience:
                self._later(lambda: self._hand_over_partitions(epoch))
            else:
                self._leave_place(epoch)

        if self._done is not None:
            self._controller.submit(BeginControlledShutdown(self._me, epoch), told)

    def _could_be_taken_over(self) -> bool:
        """Whether somebody else who is there has a replica of what we still lead."""
        image = self._controller.image
        return any(
            partition.leader == self._me
            and any(node != self._me and image.may_lead(node) for node in partition.replicas)
            for _, partition in image.partitions_of(self._me)
        )

    def _leave_place(self, epoch: BrokerEpoch) -> None:
        """Out of every ISR before we stop fetching: no write waits for us then."""

        def told(_: Reply) -> None:
            self._hand_over_quorum()

        if self._done is not None:
            self._pulse.end()
            self._controller.submit(FenceBroker(self._me, epoch), told)

    def _hand_over_quorum(self) -> None:
        target = self._successor()
        if self._done is None:
            return
        if target is None:
            self._runtime.timers.soon(self._end)
        else:
            self._quorum.transfer(target, lambda _: self._await_successor())

    def _await_successor(self) -> None:
        leader = self._quorum.raft.leader
        if self._done is None:
            return
        if self._quorum.leader_epoch is None and leader is not None:
            self._end()
        else:
            self._later(self._await_successor)

    def _successor(self) -> Member | None:
        """The voter that has most of the log, if we lead and there are others."""
        raft = self._quorum.raft
        if self._quorum.leader_epoch is None:
            return None
        others = [voter for voter in raft.configuration.voters if voter in raft.followers]
        return max(others, key=lambda voter: raft.followers[voter].match, default=None)

    def _later(self, again: Callback) -> None:
        self._runtime.timers.at(Instant(self._runtime.clock.now() + AGAIN_MS * MILLISECOND), again)
