"""Whether to give one's vote; the same in every role."""

from penstock.core.raft.identity import Ballot, Member
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import VoteAnswer, VoteRequest


def is_up_to_date(ledger: Ledger, request: VoteRequest) -> bool:
    """Whether the candidate's log holds everything that may be committed, as far as we know.

    A committed entry is on a majority, a winner has a majority's votes, and the voter in
    both of them refuses whoever lacks it.
    """
    log = ledger.log
    return (request.last_term, request.last_index) >= (log.last_term, log.last)


def vote(ledger: Ledger, candidate: Member, request: VoteRequest, *, is_leased: bool) -> bool:
    """Answer a request of the present term, or a trial for a later one; says if a vote was given."""
    if request.is_trial:
        granted = request.term > ledger.term and not is_leased and is_up_to_date(ledger, request)
        term = request.term if granted else ledger.term
        ledger.send(candidate, VoteAnswer(term, granted, is_trial=True))
        return False
    assert request.term == ledger.term
    granted = ledger.ballot.voted_for in (None, candidate) and is_up_to_date(ledger, request)
    if granted:
        ledger.promise(Ballot(request.term, candidate))
    ledger.send(candidate, VoteAnswer(ledger.term, granted))
    return granted
