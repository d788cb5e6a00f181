import pytest

from tests.compatibility.suites.outcomes import REASONS, Expected, Outcome, compare, read_list

EXPECTED = Expected(passed=("good", "better"), skipped={"left-out": "no broker"}, not_yet={"later": "ACLs"})


@pytest.mark.parametrize("suite", ["librdkafka", "kafka-python"])
def test_a_list_names_every_test_once_with_a_reason_that_is_allowed(suite: str) -> None:
    expected = read_list(suite)

    names = [*expected.passed, *expected.skipped, *expected.not_yet]

    assert expected.passed
    assert len(names) == len(set(names))
    assert [reason for reason in expected.not_yet.values() if not reason.startswith(REASONS)] == []


@pytest.mark.parametrize("suite", ["librdkafka", "kafka-python"])
def test_what_fails_on_several_brokers_passes_on_one(suite: str) -> None:
    alone, several = read_list(suite), read_list(suite, brokers=3)

    assert not alone.fails_too
    assert sorted([*several.passed, *several.fails_too]) == sorted(alone.passed)


@pytest.mark.parametrize("suite", ["librdkafka", "kafka-python"])
def test_what_runs_a_race_must_pass(suite: str) -> None:
    expected = read_list(suite)

    assert set(expected.races) <= set(expected.passed)


def test_a_test_that_fails_with_kafka_too_may_fail() -> None:
    expected = Expected(passed=("good",), skipped={}, not_yet={}, fails_too={"astray": "one replica"})

    comparison = compare({"good": Outcome.PASSED, "astray": Outcome.FAILED}, expected)

    assert not comparison.is_regression
    assert comparison.unlisted == ()


def test_what_is_as_listed_is_no_regression() -> None:
    outcomes = {"good": Outcome.PASSED, "better": Outcome.PASSED, "left-out": Outcome.SKIPPED}

    comparison = compare(outcomes | {"later": Outcome.FAILED}, EXPECTED)

    assert not comparison.is_regression
    assert (comparison.gained, comparison.unlisted) == ((), ())


@pytest.mark.parametrize("now", [{"good": Outcome.FAILED}, {"good": Outcome.SKIPPED}, {}])
def test_a_test_that_passed_before_must_pass(now: dict[str, Outcome]) -> None:
    comparison = compare(now | {"better": Outcome.PASSED}, EXPECTED)

    assert comparison.lost == ("good",)
    assert comparison.is_regression


def test_a_test_that_nobody_listed_must_not_fail() -> None:
    passing = {"good": Outcome.PASSED, "better": Outcome.PASSED}

    comparison = compare(passing | {"new": Outcome.FAILED, "newer": Outcome.PASSED}, EXPECTED)

    assert comparison.failed_unlisted == ("new",)
    assert comparison.unlisted == ("newer",)
    assert comparison.is_regression


def test_a_test_that_passes_earlier_than_listed_is_good_news() -> None:
    comparison = compare(
        {"good": Outcome.PASSED, "better": Outcome.PASSED, "later": Outcome.PASSED}, EXPECTED
    )

    assert comparison.gained == ("later",)
    assert not comparison.is_regression
