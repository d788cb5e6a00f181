"""Who votes is what was acknowledged last."""

from uuid import UUID

from penstock.sim.checkers.voters import VoterChecker

ONE, TWO = UUID(int=1), UUID(int=2)


def checker_without_a_voter() -> VoterChecker:
    checker = VoterChecker()
    checker.done(checker.changing(4, ONE, is_voter=False), term=3)
    return checker


def test_a_leader_that_counts_a_removed_voter_is_an_anomaly() -> None:
    checker = checker_without_a_voter()

    checker.described(checker.asking(), 3, {1: TWO, 2: TWO})
    assert checker.anomalies == []
    checker.described(checker.asking(), 3, {1: TWO, 2: TWO, 4: ONE})

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["lost voter change"]


def test_a_leader_that_does_not_count_an_added_voter_is_an_anomaly() -> None:
    checker = VoterChecker()
    checker.done(checker.changing(4, ONE, is_voter=True), term=3)

    checker.described(checker.asking(), 4, {1: TWO, 4: TWO})
    assert checker.anomalies == []
    checker.described(checker.asking(), 4, {1: TWO})

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["lost voter change"]


def test_a_leader_of_an_older_term_may_count_it() -> None:
    checker = checker_without_a_voter()

    checker.described(checker.asking(), 2, {4: ONE})

    assert checker.anomalies == []


def test_of_a_node_whose_change_has_an_unknown_outcome_nothing_is_known() -> None:
    checker = checker_without_a_voter()
    checker.changing(4, ONE, is_voter=True)

    checker.described(checker.asking(), 3, {4: ONE})

    assert checker.anomalies == []


def test_a_change_that_was_refused_changes_nothing() -> None:
    checker = checker_without_a_voter()
    checker.refused(checker.changing(4, ONE, is_voter=True))

    checker.described(checker.asking(), 3, {4: ONE})

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["lost voter change"]
