"""A member that restarts knows its term and its vote."""

from uuid import UUID

from penstock.core.model import NodeId
from penstock.core.raft import HardState, Member, Term
from penstock.sim.checkers.quorum import QuorumChecker

ONE, TWO = Member(NodeId(1), UUID(int=1)), Member(NodeId(2), UUID(int=2))


def restarted(before: HardState, after: HardState) -> list[str]:
    checker = QuorumChecker()
    checker.restarted(ONE, before, after)
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_a_member_may_come_back_as_it_was_or_in_a_later_term() -> None:
    assert restarted(HardState(Term(3), TWO), HardState(Term(3), TWO)) == []
    assert restarted(HardState(Term(3), None), HardState(Term(3), TWO)) == []
    assert restarted(HardState(Term(3), TWO), HardState(Term(4), None)) == []


def test_a_member_that_forgets_its_term_or_its_vote_might_vote_twice() -> None:
    assert restarted(HardState(Term(3), TWO), HardState(Term(2), TWO)) == ["forgotten vote"]
    assert restarted(HardState(Term(3), TWO), HardState(Term(3), None)) == ["forgotten vote"]
    assert restarted(HardState(Term(3), TWO), HardState(Term(3), ONE)) == ["forgotten vote"]
