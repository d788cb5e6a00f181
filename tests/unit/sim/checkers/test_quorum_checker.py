"""A member that restarts knows its term and its vote, and what it has acknowledged."""

from uuid import UUID

from penstock.core.model import NodeId
from penstock.core.raft import Entry, HardState, Index, Member, Term
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


def test_a_member_that_is_sure_of_its_log_has_the_committed_entries_that_it_acknowledged() -> None:
    checker, terms = QuorumChecker(), {Index(1): Term(1), Index(2): Term(1), Index(3): Term(1)}
    checker.was_committed(ONE, Entry(Index(2), Term(1), b""), Term(1))
    # Entry 3 was durable as well, but nobody has called it committed.
    checker.ended(TWO, Index(3), terms.get)

    checker.is_sure(TWO, terms.get, covered=Index(0))
    checker.is_sure(TWO, {Index(1): Term(1)}.get, covered=Index(2))
    checker.is_sure(ONE, lambda _: None, covered=Index(0))
    assert checker.anomalies == []

    checker.is_sure(TWO, {Index(1): Term(1)}.get, covered=Index(1))
    assert checker.anomalies == ["unnoticed loss: member 2 is sure of its log, and lost entry 2"]
