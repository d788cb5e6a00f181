"""The door: compares terms, hands events to the role, and changes roles."""

from collections.abc import Callable, Mapping
from typing import assert_never

from penstock.core.model import Instant
from penstock.core.raft.configuration import Configuration
from penstock.core.raft.effects import Effect
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.events import (
    ChangeMembers,
    Event,
    LeaderGone,
    Persisted,
    Propose,
    Received,
    RequestRead,
    SnapshotInstalled,
    TimePassed,
    TransferLeadership,
)
from penstock.core.raft.identity import Ballot, Index, Member, Term
from penstock.core.raft.leading import Leader, Progress
from penstock.core.raft.ledger import Ledger, Recovered
from penstock.core.raft.log import LogView
from penstock.core.raft.messages import (
    AppendRequest,
    CampaignNow,
    Heartbeat,
    Message,
    SnapshotChunk,
    TermIsOver,
    VoteAnswer,
    VoteRequest,
)
from penstock.core.raft.options import RaftOptions
from penstock.core.raft.roles import (
    Candidate,
    Follower,
    Receiving,
    Role,
    ToCandidate,
    ToFollower,
    ToLeader,
    Transition,
    vote,
)


class Raft:
    """One member of a quorum.

    `draw(n)` gives a random number below n. Whoever hosts it carries out the effects of
    each step, in order, before the next step; if that fails, this machine is dropped and a
    new one is made from what is on disk.
    """

    ledger_type = Ledger
    follower_type = Follower
    leader_type = Leader

    def __init__(
        self,
        me: Member,
        view: LogView,
        recovered: Recovered,
        draw: Callable[[int], int],
        now: Instant,
        options: RaftOptions | None = None,
    ) -> None:
        self._ledger = self.ledger_type(me, view, recovered, options or RaftOptions(), draw)
        self._ledger.now = now
        self._receiving = Receiving(self._ledger)
        follower = self.follower_type(self._ledger, self._receiving, None)
        if self._ledger.configuration.voters == (me,):
            # Nobody else could lead: there is nothing to wait for.
            follower.campaign_now()
        self._role: Role = follower

    @property
    def term(self) -> Term:
        return self._ledger.term

    @property
    def leader(self) -> Member | None:
        """Who leads the present term, as far as we know."""
        return self._role.leader

    @property
    def commit(self) -> Index:
        return self._ledger.commit

    @property
    def configuration(self) -> Configuration:
        return self._ledger.configuration

    @property
    def founders(self) -> Configuration | None:
        """The founding members, as long as they are the members still; None after any change."""
        return self._ledger.configuration if self._ledger.configuration_index == 0 else None

    @property
    def followers(self) -> Mapping[Member, Progress]:
        """What a leader knows of the others; empty for everybody else."""
        return self._role.followers

    @property
    def last(self) -> Index:
        """Where the log ends here, durable or not."""
        return self._ledger.log.last

    @property
    def persisted(self) -> Index:
        """How far the log is durable here."""
        return self._ledger.log.persisted

    def describe_snapshot(self, index: Index) -> SnapshotMeta:
        """What the host must keep with a snapshot of everything up to and including `index`."""
        return self._ledger.describe(index)

    def next_deadline(self) -> Instant | None:
        """When `TimePassed` is due unless something else happens before."""
        return self._role.deadline

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Take an event; answers what to do about it, in order."""
        ledger = self._ledger
        ledger.log.settle()
        ledger.effects = []
        ledger.now = now
        match event:
            case Received():
                self._receive(event.sender, event.recipient, event.message)
            case TimePassed():
                self._pass_time()
            case Persisted():
                ledger.log.synced(event.write)
                self._role.persisted()
            case SnapshotInstalled():
                self._receiving.finish(event.snapshot)
                ledger.restart(event.snapshot)
                self._role.installed(event.snapshot)
            case LeaderGone(leader):
                self._role.leader_gone(leader)
            case Propose() | RequestRead() | ChangeMembers() | TransferLeadership():
                self._role.asked(event)
            case _:
                assert_never(event)
        while self._role.next is not None:
            self._become(self._role.next)
        return ledger.effects

    def _pass_time(self) -> None:
        deadline = self._role.deadline
        if deadline is not None and self._ledger.now >= deadline:
            self._role.time_passed()

    def _receive(self, sender: Member, recipient: Member, message: Message) -> None:
        ledger = self._ledger
        if recipient != ledger.me:
            return  # for the one who had this node id before us, and made promises we do not know
        if isinstance(message, VoteRequest):
            self._vote(sender, message)
            return
        is_from_leader = isinstance(message, AppendRequest | Heartbeat | SnapshotChunk | CampaignNow)
        is_promise = isinstance(message, VoteAnswer) and message.is_trial and message.is_granted
        if message.term > ledger.term and not is_promise:
            self._become(ToFollower(message.term, sender if is_from_leader else None))
        elif message.term < ledger.term:
            if is_from_leader:
                ledger.send(sender, TermIsOver(ledger.term))
            return
        if is_from_leader and not isinstance(self._role, Follower):
            assert not isinstance(self._role, Leader), "one term, one leader"
            self._become(ToFollower(ledger.term, sender))
        self._role.received(sender, message)

    def _vote(self, candidate: Member, request: VoteRequest) -> None:
        ledger = self._ledger
        is_leased = self._role.is_leased() and not request.is_transfer
        if not request.is_trial and (request.term < ledger.term or is_leased):
            ledger.send(candidate, VoteAnswer(ledger.term, is_granted=False))
            return
        if not request.is_trial and request.term > ledger.term:
            self._become(ToFollower(request.term))
        if vote(ledger, candidate, request, is_leased=is_leased):
            self._role.voted()

    def _become(self, transition: Transition) -> None:
        ledger = self._ledger
        self._role.end()
        match transition:
            case ToFollower(term, leader):
                if term > ledger.term:
                    ledger.promise(Ballot(term, None))
                self._role = self.follower_type(ledger, self._receiving, leader)
            case ToCandidate():
                self._role = Candidate(ledger, transition)
            case ToLeader():
                self._role = self.leader_type(ledger)
            case _:
                assert_never(transition)
        self._role.begin()
