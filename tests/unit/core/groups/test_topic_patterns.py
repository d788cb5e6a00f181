"""Subscriptions by pattern: RE2's syntax, whole names, new topics, and bounded work."""

import pytest

from penstock.core.groups import PatternDeleted, PatternResolved
from penstock.core.groups.topic_patterns import WORK_PER_STEP, InvalidPattern, TopicPattern
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import ConsumerDriver, Member, Topics
from tests.unit.core.groups.group_driver import GROUP


def names_of(member: Member) -> set[str]:
    return {name for name, _ in member.partitions}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders|bills", "bills", True),
        ("(?i)ORDERS-.*", "orders-eu", True),
        (r"orders-\d{4}", "orders-2026", True),
        ("[^o].*", "orders", False),
        ("", "", True),
    ],
)
def test_a_name_matches_as_a_whole(pattern: str, name: str, matches: bool) -> None:
    assert TopicPattern(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", ["(a", "(?=a)b", r"(a)\1", "a" * 2_000, "x{1000}" * 20, "*"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)

    assert ConsumerDriver().refused("a", 0, topics=None, pattern=pattern) is (
        ErrorKind.INVALID_REGULAR_EXPRESSION
    )


def test_a_search_pauses_by_the_work_it_did_however_slow_the_pattern_is() -> None:
    names = [f"{'xyz' * 80}-{number}" for number in range(200)]

    simple, nested = (
        sum(1 for _ in TopicPattern(pattern).search(names))
        for pattern in ("x.*", "(x|y|z)*x" + "(x|y|z)" * 99)
    )

    assert simple < nested
    assert nested >= len(names) * 240 * 100 // WORK_PER_STEP


def test_a_member_gets_the_topics_that_its_pattern_matches() -> None:
    driver = ConsumerDriver(topics=Topics(orders=2, bills=1, other=3))

    member = driver.member("a", topics=None, pattern="orders|bills")
    driver.reconcile(member)

    assert names_of(member) == {"orders", "bills"}
    assert [fact.topics for fact in driver.facts if isinstance(fact, PatternResolved)] == [
        ("bills", "orders")
    ]


def test_a_topic_that_is_created_later_is_found_by_the_pattern() -> None:
    driver = ConsumerDriver(topics=Topics(**{"orders-1": 1}))
    member = driver.member("a", topics=None, pattern="orders-.*")

    driver.change_topic("orders-2", 2)
    driver.reconcile(member)

    assert names_of(member) == {"orders-1", "orders-2"}


def test_many_patterns_are_searched_for_over_several_turns_and_raise_the_epoch_once_in_each() -> None:
    driver = ConsumerDriver(topics=Topics(orders=1))
    for number in range(25):
        driver.beat(f"m{number}", 0, topics=None, pattern=f"o.*|x{number}")
        driver.advance(0)
    before = driver.described()

    driver.change_topic("offers", 25)
    driver.beat("m0", before.members[0].epoch)
    assert driver.described().epoch == before.epoch + 1
    driver.advance(0)

    found = [pattern.topics for pattern in driver.coordinator.image.consumers[GROUP].patterns.values()]
    assert found == [("offers", "orders")] * 25
    assert driver.described().epoch == before.epoch + 3


def test_names_and_a_pattern_add_up() -> None:
    driver = ConsumerDriver(topics=Topics(t=1, u=1, v=1))
    member = driver.member("a", topics=("t",), pattern="u")

    driver.reconcile(member)

    assert names_of(member) == {"t", "u"}


def test_an_empty_pattern_ends_the_subscription_and_the_pattern_is_forgotten() -> None:
    driver = ConsumerDriver(topics=Topics(t=1, u=1))
    member = driver.member("a", topics=("t",), pattern="u")

    member.beat(pattern="")
    driver.reconcile(member)

    assert names_of(member) == {"t"}
    assert driver.facts.count(PatternDeleted("orders", "u")) == 1
    assert driver.described_member("a").pattern is None


def test_a_pattern_survives_a_failover_and_is_searched_for_again() -> None:
    driver = ConsumerDriver(topics=Topics(u=1))
    member = driver.member("a", topics=None, pattern="u.*")
    driver.cluster.put("uu", 1)

    member.driver = driver.failed_over()
    member.driver.reconcile(member)

    assert names_of(member) == {"u", "uu"}


def test_a_search_through_many_topics_takes_several_turns() -> None:
    many = {f"{'orders-of-a-long-name-' * 10}{number}": 1 for number in range(300)}
    driver = ConsumerDriver(topics=Topics(**many))

    member = driver.member("a", topics=None, pattern=".*7")
    assert member.partitions == []
    driver.advance(0)
    driver.reconcile(member)

    assert len(member.partitions) == 30


def test_more_topics_than_a_record_holds_are_not_stored_and_searched_for_again() -> None:
    many = {f"{'x' * 240}{number:04}": 1 for number in range(1_000)}
    driver = ConsumerDriver(topics=Topics(**many))
    member = driver.member("a", topics=None, pattern="x.*")
    driver.advance(0)
    driver.reconcile(member)
    assert driver.coordinator.image.consumers["orders"].patterns == {}

    member.driver = driver.failed_over()
    for _ in range(3):
        member.beat()
        assert len(member.partitions) == 1_000
        member.driver.advance(0)

    member.driver.reconcile(member)
    assert len(member.partitions) == 1_000
