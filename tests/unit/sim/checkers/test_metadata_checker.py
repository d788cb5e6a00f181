"""An acknowledged change is in every image that is new enough to have it."""

from collections.abc import Hashable

from penstock.sim.checkers.metadata import MetadataChecker


def kinds(checker: MetadataChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def show(checker: MetadataChecker, life: str, version: int, content: dict[Hashable, Hashable]) -> None:
    checker.showed(life, version, content, content.get)


def test_images_that_are_too_old_need_not_have_a_change() -> None:
    checker = MetadataChecker()
    checker.done(checker.changing("x", 1), 7)

    show(checker, "n1/1", 6, {})
    show(checker, "n1/1", 7, {"x": 1})
    show(checker, "n2/1", 9, {"x": 1})

    assert checker.anomalies == []


def test_an_acknowledged_change_must_not_get_lost() -> None:
    checker = MetadataChecker()
    checker.done(checker.changing("x", 1), 7)

    show(checker, "n1/1", 8, {})

    assert kinds(checker) == ["lost change"]


def test_a_change_of_unknown_outcome_may_come_late_but_a_refused_one_never() -> None:
    checker = MetadataChecker()
    checker.changing("x", 1)
    refused = checker.changing("x", 2)
    checker.refused(refused)
    checker.done(checker.changing("x", 3), 7)

    show(checker, "n1/1", 8, {"x": 1})
    assert checker.anomalies == []
    show(checker, "n1/1", 9, {"x": 2})

    assert kinds(checker) == ["lost change"]


def test_images_of_one_version_are_the_same() -> None:
    checker = MetadataChecker()
    show(checker, "n1/1", 3, {"x": 1})

    show(checker, "n2/1", 3, {"x": 2})

    assert kinds(checker) == ["diverged"]


def test_a_node_does_not_go_back_within_an_incarnation() -> None:
    checker = MetadataChecker()
    show(checker, "n1/1", 3, {})
    show(checker, "n1/2", 2, {})

    show(checker, "n1/1", 2, {})

    assert kinds(checker) == ["version back"]
