"""Groups move forward, and only the newest generation moves them."""

from penstock.sim.checkers.groups import GroupChecker

PLACE = ("orders", 0)


def kinds(checker: GroupChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_a_group_that_goes_on_where_it_was_is_in_order() -> None:
    checker = GroupChecker()

    checker.assigned("g", 1, b"plan")
    checker.assigned("g", 1, b"plan")
    checker.committed(checker.committing("g", PLACE, 1, 5))
    checker.committing("g", PLACE, 1, 9)  # nobody knows what became of it
    checker.answered(checker.asking("g", PLACE), 9)
    checker.assigned("g", 2, b"another plan")
    checker.answered(checker.asking("g", ("orders", 1)), -1)

    assert checker.anomalies == []
    assert checker.commits == 1


def test_an_acknowledged_commit_must_not_be_forgotten() -> None:
    checker = GroupChecker()
    checker.committing("g", PLACE, 1, 3)
    checker.committed(checker.committing("g", PLACE, 1, 5))

    checker.answered(checker.asking("g", PLACE), 3)

    assert kinds(checker) == ["offset went back"]


def test_a_question_is_judged_by_what_was_known_when_it_was_asked() -> None:
    checker = GroupChecker()
    checker.committed(checker.committing("g", PLACE, 1, 3))
    question = checker.asking("g", PLACE)
    checker.committed(checker.committing("g", PLACE, 1, 5))

    checker.answered(question, 3)

    assert checker.anomalies == []


def test_an_offset_that_nobody_committed_comes_out_of_the_air() -> None:
    checker = GroupChecker()

    checker.answered(checker.asking("g", PLACE), 4)

    assert kinds(checker) == ["offset out of air"]


def test_an_old_generation_changes_nothing_once_a_newer_one_is_known() -> None:
    checker = GroupChecker()
    checker.assigned("g", 1, b"plan")
    in_time = checker.committing("g", PLACE, 1, 5)
    checker.assigned("g", 2, b"another plan")
    late = checker.committing("g", PLACE, 1, 6)

    checker.committed(in_time)
    assert checker.anomalies == []
    checker.committed(late)

    assert kinds(checker) == ["fenced member"]


def test_a_generation_has_one_plan() -> None:
    checker = GroupChecker()
    checker.assigned("g", 1, b"plan")

    checker.assigned("g", 1, b"another plan")

    assert kinds(checker) == ["split generation"]
