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


def test_an_offset_of_a_transaction_is_there_once_its_commit_was_asked_for() -> None:
    checker = GroupChecker()
    checker.adding("g", PLACE, 1, 5)
    checker.answered(checker.asking("g", PLACE), 5)
    assert kinds(checker) == ["offset out of air"]

    attempt = checker.adding("g", PLACE, 1, 7)
    checker.ending(attempt)
    checker.committed(attempt)
    checker.answered(checker.asking("g", PLACE), 7)

    assert kinds(checker) == ["offset out of air"]


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
    checker.established("g", 1, b"plan", now=0)
    in_time = checker.committing("g", PLACE, 1, 5)
    checker.established("g", 2, b"another plan", now=7)
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


def test_a_partition_has_one_owner_in_a_generation() -> None:
    checker = GroupChecker()
    checker.owns("g", 1, PLACE, "a")
    checker.owns("g", 1, PLACE, "a")
    checker.owns("g", 2, PLACE, "b")
    assert checker.anomalies == []

    checker.owns("g", 2, PLACE, "a")

    assert kinds(checker) == ["two owners"]


def test_a_heartbeat_of_an_old_generation_is_accepted_by_a_stale_coordinator_only() -> None:
    checker = GroupChecker(is_fresh=True)
    checker.established("g", 1, b"plan", now=0)
    in_time = checker.beating("g", 1)
    checker.established("g", 2, b"another plan", now=7)
    checker.beat(in_time)
    assert checker.anomalies == []

    checker.beat(checker.beating("g", 1))

    assert kinds(checker) == ["stale membership"]


def test_an_owner_of_an_old_generation_acts_no_longer_than_its_session() -> None:
    checker = GroupChecker(is_fresh=True)
    checker.established("g", 1, b"plan", now=0)
    checker.established("g", 2, b"another plan", now=100)
    checker.acts("g", 1, now=150, session_ns=50)
    checker.acts("g", 2, now=500, session_ns=50)
    assert checker.anomalies == []

    checker.acts("g", 1, now=151, session_ns=50)

    assert kinds(checker) == ["overlap"]
