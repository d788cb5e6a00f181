"""The leader's side of joining: one change of members per question."""

from penstock.core.model import SECOND, NodeId, Refused, Why
from penstock.core.raft import (
    AddLearner,
    Change,
    Configuration,
    Member,
    PromoteLearner,
    ProposalAccepted,
    RemoveMember,
)
from penstock.observability import log as events
from penstock.runtime import Clock
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import Admittance, Admitted, Elsewhere, Join
from penstock.services.cluster.raft import Outcome, RaftQuorum
from penstock.services.peering import Peer

# A node that is silent for so long does not run, or is of no use.
SILENT_NS = 1 * SECOND


class Admission:
    """Takes newcomers in, as learners first."""

    def __init__(self, desk: ControlDesk, clock: Clock, book: AddressBook, quorum: RaftQuorum) -> None:
        self._clock = clock
        self._book = book
        self._quorum = quorum
        desk.serve(Join, self._asked)

    def _asked(self, peer: Peer, question: Join, respond: Respond) -> None:
        raft = self._quorum.raft
        if self._quorum.leader_epoch is None:
            leader = None if raft.leader is None else raft.leader.node_id
            respond(Elsewhere(leader, None if leader is None else self._book.address_of(leader)))
            return
        newcomer, members = Member(peer.node_id, peer.directory_id), raft.configuration
        rival = _rival(newcomer, members)
        if rival is not None and self._is_there(rival):
            detail = f"node {rival.node_id} runs already, with another data directory"
            respond(Admitted(Admittance.REFUSED, detail))
            return
        change = _next_change(newcomer, members, rival, wants_vote=question.wants_vote)
        if change is None:
            is_voter = newcomer in members.voters
            respond(Admitted(Admittance.VOTER if is_voter else Admittance.LEARNER))
            return
        self._quorum.change_members(change, lambda outcome: _told(change, outcome, respond))

    def _is_there(self, member: Member) -> bool:
        """Whether a member answers our heartbeats; a link alone may lead to a machine without power."""
        peer = self._quorum.raft.followers.get(member)
        return peer is None or self._clock.now() - peer.heard_at < SILENT_NS


def _rival(newcomer: Member, members: Configuration) -> Member | None:
    """Who has the newcomer's node id, or its directory, but not both."""
    for member in members.members:
        same = (member.node_id == newcomer.node_id, member.directory_id == newcomer.directory_id)
        if any(same) and not all(same):
            return member
    return None


def _next_change(
    newcomer: Member, members: Configuration, rival: Member | None, *, wants_vote: bool
) -> Change | None:
    if rival is not None:
        return RemoveMember(rival)
    if newcomer not in members.members:
        return AddLearner(newcomer)
    if wants_vote and newcomer in members.learners:
        return PromoteLearner(newcomer)
    return None


def _told(change: Change, outcome: Outcome, respond: Respond) -> None:
    node: NodeId = change.member.node_id
    if isinstance(outcome, ProposalAccepted):
        events.info("quorum.members_changed", change=type(change).__name__, member=node)
        respond(Admitted(Admittance.LATER))
    elif isinstance(outcome, Refused) and outcome.why is Why.NOT_CONTROLLER:
        respond(Elsewhere(None, None))
    else:
        respond(Admitted(Admittance.LATER, str(outcome) if isinstance(outcome, Refused) else ""))
