"""Brokers need the log of the quorum, and members that will not come back need not be kept."""

from penstock.core.model import SECOND, Instant
from penstock.core.raft import AddLearner, Change, Member, RemoveMember
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.duties.rounds import Rounds
from penstock.services.cluster.raft import RaftQuorum
from penstock.services.peering import PeerHub

LOOK_MS = 500
# A learner that is no broker may be one that has just come: it joins before it registers.
STRANGE_NS = 10 * SECOND


class Learners(Rounds):
    """One change at a time: adds brokers that are no members, removes learners that are no brokers."""

    def __init__(self, runtime: Runtime, controller: Controller, quorum: RaftQuorum, hub: PeerHub) -> None:
        super().__init__(runtime, controller)
        self._quorum = quorum
        self._hub = hub
        self._strange: dict[Member, Instant] = {}

    def pause_ms(self) -> int:
        return LOOK_MS

    def began(self) -> None:
        self._strange.clear()
        super().began()

    def look(self) -> None:
        change = self._missing() or self._left_over()
        if change is not None:
            events.info("quorum.members_changed", change=type(change).__name__, member=change.member.node_id)
            self._quorum.change_members(change, lambda _: None)

    def _missing(self) -> Change | None:
        """A broker that runs without the log: its vote was taken, and it needs the metadata all the same."""
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
        identity = self._hub.identity_of(member.node_id)
        return identity is not None and identity.directory_id == member.directory_id
