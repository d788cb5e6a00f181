"""Asks for votes: first whether it would get them, then for real."""

from penstock.core.model import Instant
from penstock.core.raft.identity import Ballot, Member, Term
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import Message, VoteAnswer, VoteRequest
from penstock.core.raft.roles.role import Role, ToCandidate, ToLeader


class Candidate(Role):
    """Campaigns in the term after the last.

    The trial keeps a member that was cut off from raising the term again and again, and
    from deposing a leader that everybody else hears when it comes back.
    """

    def __init__(self, ledger: Ledger, campaign: ToCandidate) -> None:
        super().__init__(ledger)
        self._is_trial = campaign.is_trial
        self._is_transfer = campaign.is_transfer
        self._term = Term(ledger.term + 1)
        self._deadline = ledger.retry_deadline()
        self._votes: dict[Member, None] = {}

    @property
    def deadline(self) -> Instant | None:
        return self._deadline

    def begin(self) -> None:
        ledger, log = self._ledger, self._ledger.log
        if not self._is_trial:
            ledger.promise(Ballot(self._term, ledger.me))
        ledger.follow(None)
        request = VoteRequest(self._term, log.last, log.last_term, self._is_trial, self._is_transfer)
        for voter in ledger.configuration.voters:
            if voter == ledger.me:
                self._votes[voter] = None
            else:
                ledger.send(voter, request)
        self._count()

    def time_passed(self) -> None:
        self.next = ToCandidate(is_trial=True)

    def voted(self) -> None:
        assert self._is_trial, "a candidate has voted for itself"
        self._deadline = self._ledger.election_deadline()

    def received(self, sender: Member, message: Message) -> None:
        if not isinstance(message, VoteAnswer) or not message.is_granted:
            return
        if message.is_trial == self._is_trial and message.term == self._term:
            self._votes[sender] = None
            self._count()

    def _count(self) -> None:
        configuration = self._ledger.configuration
        # Only voters count, and a voter is a node with the directory that we know.
        granted = sum(voter in self._votes for voter in configuration.voters)
        if granted >= configuration.majority:
            self.next = ToCandidate(is_trial=False) if self._is_trial else ToLeader()
