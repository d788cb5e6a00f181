"""Giving and taking votes, on the leader: several steps of Raft for one wish."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId, Refused, Why
from penstock.core.raft import AddLearner, Change, Member, PromoteLearner, ProposalAccepted, RemoveMember
from penstock.observability import log as events
from penstock.runtime import Address, Runtime
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.raft import Outcome, RaftQuorum

Told: TypeAlias = Callable[[Refused | None], None]
PATIENCE_NS = 10 * SECOND
LOOK_MS = 20


class Changing:
    """Carries one wish after the other to its end, or to the end of its patience."""

    def __init__(self, runtime: Runtime, quorum: RaftQuorum, book: AddressBook) -> None:
        self._runtime = runtime
        self._quorum = quorum
        self._book = book

    def add_voter(self, member: Member, address: Address | None, told: Told) -> None:
        """Let a node vote; None is told when it does."""
        if any(voter.node_id == member.node_id for voter in self._quorum.raft.configuration.voters):
            told(Refused(Why.DUPLICATE_VOTER, f"node {member.node_id} votes already"))
            return
        if address is not None:
            self._book.heard_of(member.node_id, address)
        self._promote(member, self._deadline(), told)

    def _promote(self, member: Member, until: Instant, told: Told) -> None:
        members = self._quorum.raft.configuration
        if member in members.voters:
            told(None)
        elif member in members.learners:
            self._change(PromoteLearner(member), until, told, then=told)
        else:
            self._change(AddLearner(member), until, told, then=lambda _: self._promote(member, until, told))

    def remove_voter(self, member: Member, told: Told) -> None:
        """Take a vote away; None is told when that is committed."""
        voters = self._quorum.raft.configuration.voters
        if member not in voters:
            detail = f"node {member.node_id} with directory {member.directory_id} does not vote"
            told(Refused(Why.VOTER_NOT_FOUND, detail))
        elif voters == (member,):
            told(Refused(Why.INVALID_REQUEST, f"node {member.node_id} is the last voter"))
        else:
            self._change(RemoveMember(member), self._deadline(), told, then=told)

    def _deadline(self) -> Instant:
        return Instant(self._runtime.clock.now() + PATIENCE_NS)

    def _change(self, change: Change, until: Instant, told: Told, then: Told) -> None:
        """Ask Raft until it takes the change, and go on when it is committed."""

        def asked(outcome: Outcome) -> None:
            if isinstance(outcome, ProposalAccepted):
                node: NodeId = change.member.node_id
                events.info("quorum.members_changed", change=type(change).__name__, node=node)
                self._await_commit(outcome, until, told, then)
                return
            assert isinstance(outcome, Refused)
            if outcome.why is Why.QUORUM_BUSY and self._is_before(until):
                self._later(lambda: self._change(change, until, told, then))
            else:
                told(_about(change, outcome))

        self._quorum.change_members(change, asked)

    def _await_commit(self, accepted: ProposalAccepted, until: Instant, told: Told, then: Told) -> None:
        raft = self._quorum.raft
        if raft.commit >= accepted.start:
            then(None)
        elif raft.term != accepted.term or not self._is_before(until):
            told(Refused(Why.NOT_CONTROLLER, "the change is in the log, but may not be committed"))
        else:
            self._later(lambda: self._await_commit(accepted, until, told, then))

    def _is_before(self, until: Instant) -> bool:
        return self._runtime.clock.now() < until

    def _later(self, again: Callable[[], None]) -> None:
        self._runtime.timers.at(Instant(self._runtime.clock.now() + LOOK_MS * MILLISECOND), again)


def _about(change: Change, refused: Refused) -> Refused:
    """The same, naming the node; what did not pass in all this time is a timeout."""
    why = Why.TIMED_OUT if refused.why is Why.QUORUM_BUSY else refused.why
    return Refused(why, f"node {change.member.node_id}: {refused}")
