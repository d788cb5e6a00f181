"""An answer is judged by what clients had been told when it was asked for."""

from penstock.sim.checkers.freshness import FreshnessChecker


def kinds(checker: FreshnessChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_answers_that_are_as_new_as_what_was_known_are_fresh() -> None:
    checker = FreshnessChecker(is_active=True)
    early = checker.asking("p")
    checker.received("p", 5, 17)

    checker.answered("p", early, 1, 4, 12)
    checker.answered("p", checker.asking("p"), 2, 5, 17)
    checker.answered("another", checker.asking("another"), 1, 0, 0)

    assert checker.anomalies == []
    assert checker.answers == 3


def test_a_leader_of_old_is_stale_whatever_it_says() -> None:
    checker = FreshnessChecker(is_active=True)
    checker.received("p", 5, 17)

    checker.answered("p", checker.asking("p"), 1, 4)

    assert kinds(checker) == ["stale leader"]


def test_an_end_below_what_was_acknowledged_is_stale() -> None:
    checker = FreshnessChecker(is_active=True)
    checker.received("p", 5, 17)
    checker.received("p", 5, 12)

    checker.answered("p", checker.asking("p"), 1, 5, 16)

    assert kinds(checker) == ["stale end"]


def test_a_checker_that_is_not_active_counts_only() -> None:
    checker = FreshnessChecker()
    checker.received("p", 5, 17)

    checker.answered("p", checker.asking("p"), 1, 4, 12)

    assert checker.anomalies == []
    assert checker.answers == 1
