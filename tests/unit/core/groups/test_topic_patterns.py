"""Subscriptions by pattern: RE2's syntax, whole names, new topics, and bounded work."""

import pytest

from penstock.core.groups import PatternDeleted, PatternResolved, TopicRights
from penstock.core.groups.topic_patterns import RIGHTS_PER_STEP, WORK_PER_STEP, InvalidPattern, TopicPattern
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import (
    HEARTBEAT_MS,
    SESSION_MS,
    ConsumerDriver,
    Member,
    Topics,
)
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


def rights(*seen: str) -> TopicRights:
    """The rights to see these topics."""
    return TopicRights(seen, seen.__contains__)


def test_a_member_gets_the_topics_of_its_pattern_that_it_may_see() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=2, secret=2))

    few = driver.member("few", topics=None, pattern=".*", rights=rights("orders"))
    nothing = driver.member("nothing", topics=None, pattern=".*", rights=rights())
    everything = driver.member("all", topics=None, pattern=".*", rights=rights("bills", "orders", "secret"))
    driver.reconcile(few, nothing, everything)

    assert {name for name, _ in few.partitions} == {"orders"}
    assert nothing.partitions == []
    assert len(few.partitions + everything.partitions) == 5


def test_names_count_beside_a_pattern_whatever_is_seen_of_that() -> None:
    driver = ConsumerDriver(topics=Topics(t=1, u=1, v=1))

    member = driver.member("a", topics=("t",), pattern="u|v", rights=rights("u"))

    assert member.partitions == [("t", 0), ("u", 0)]


def test_a_member_that_may_see_other_topics_gets_them_with_its_next_heartbeat() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=1))
    member = driver.member("a", topics=None, pattern=".*", rights=rights("orders"))
    other = driver.member("b", topics=None, pattern=".*", rights=rights("orders"))

    for seen in (("bills", "orders"), ("bills",), ()):
        for each in (member, other):
            each.rights = rights(*seen)
        driver.reconcile(member, other)
        assert sorted(name for name, _ in member.partitions + other.partitions) == list(seen)


def test_rights_that_have_not_changed_are_looked_at_once() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=1))
    asked: list[str] = []

    def may_see(topic: str) -> bool:
        asked.append(topic)
        return True

    members = [
        driver.member(name, topics=None, pattern=".*", rights=TopicRights("alice", may_see))
        for name in ("a", "b", "c")
    ]
    driver.reconcile(*members)
    assert asked == ["bills", "orders"]
    epoch = driver.described().epoch
    for member in members:
        member.rights = TopicRights(("alice", "after a change"), may_see)
    driver.reconcile(*members)

    assert asked == ["bills", "orders"] * 2
    assert driver.described().epoch == epoch
    driver.change_topic("new", 1)
    driver.reconcile(*members)
    assert asked[4:] == ["bills", "new", "orders"]


def test_a_topic_that_is_created_later_is_for_those_who_may_see_it() -> None:
    driver = ConsumerDriver(topics=Topics(orders=1))
    few = driver.member("few", topics=None, pattern=".*", rights=rights("orders"))
    more = driver.member("more", topics=None, pattern=".*", rights=rights("orders", "secret"))
    driver.reconcile(few, more)

    driver.change_topic("secret", 4)
    driver.reconcile(few, more)

    assert {name for name, _ in few.partitions} <= {"orders"}
    assert [place for place in more.partitions if place[0] == "secret"] == [("secret", at) for at in range(4)]


def test_rights_to_many_topics_are_looked_at_over_several_turns() -> None:
    names = {f"t{number}": 1 for number in range(3 * RIGHTS_PER_STEP)}
    driver = ConsumerDriver(topics=Topics(**names))
    asked: list[str] = []

    def may_see(topic: str) -> bool:
        asked.append(topic)
        return topic != "t7"

    driver.beat("a", 0, topics=None, pattern="t.*", rights=TopicRights("alice", may_see))
    assert len(asked) == RIGHTS_PER_STEP
    driver.expire_once()
    assert len(asked) == 2 * RIGHTS_PER_STEP
    for _ in range(3):
        driver.expire_once()
    member = Member(driver, "a", topics=None, pattern="t.*", rights=TopicRights("alice", may_see))
    member.join()
    driver.reconcile(member)

    assert len(asked) == 3 * RIGHTS_PER_STEP
    assert {name for name, _ in member.partitions} == names.keys() - {"t7"}


def test_after_a_failover_nobody_gets_anything_new_until_all_rights_are_known() -> None:
    driver = ConsumerDriver(topics=Topics(bills=2, orders=2))
    few = driver.member("few", topics=None, pattern=".*", rights=rights("orders"))
    more = driver.member("more", topics=None, pattern=".*", rights=rights("bills", "orders"))
    driver.reconcile(few, more)
    before = few.partitions, more.partitions

    other = driver.failed_over()
    few.driver = more.driver = other
    other.change_topic("secret", 2)
    more.rights = rights("bills", "orders", "secret")
    for _ in range(3):
        more.beat()
    assert more.partitions == before[1]
    few.beat()
    other.reconcile(few, more)

    assert {name for name, _ in few.partitions} <= {"orders"}
    assert {name for name, _ in more.partitions} >= {"bills", "secret"}
    assert len(few.partitions + more.partitions) == 6


def test_after_a_failover_members_that_do_not_return_are_waited_for_until_their_sessions_end() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=1))
    gone = driver.member("gone", topics=None, pattern=".*", rights=rights("orders"))
    stays = driver.member("stays", topics=None, pattern=".*", rights=rights("bills", "orders"))
    driver.reconcile(gone, stays)

    other = driver.failed_over()
    stays.driver = other
    for _ in range(3 * SESSION_MS // HEARTBEAT_MS):
        other.advance(HEARTBEAT_MS)
        stays.beat()

    assert [name for name, _ in stays.partitions] == ["bills", "orders"]


def test_where_everyone_may_see_everything_nobody_is_waited_for_after_a_failover() -> None:
    driver = ConsumerDriver(topics=Topics(orders=1))
    members = [driver.member(name, topics=None, pattern=".*") for name in ("a", "b")]
    driver.reconcile(*members)

    other = driver.failed_over()
    members[0].driver = other
    other.change_topic("new", 2)
    for _ in range(2):
        members[0].beat()

    assert "new" in {name for name, _ in members[0].partitions}


def test_a_member_that_becomes_somebody_else_gets_what_that_one_may_see() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=1))
    member = driver.member("a", topics=None, pattern=".*", rights=rights("bills", "orders"))
    assert len(member.partitions) == 2

    member.rights = rights("bills")
    member.beat(pattern="bills|orders")
    driver.reconcile(member)

    assert member.partitions == [("bills", 0)]


def test_rights_that_were_given_during_a_failover_count() -> None:
    driver = ConsumerDriver(topics=Topics(bills=1, orders=1))
    one = driver.member("one", topics=None, pattern=".*", rights=rights("orders"))
    blind = driver.member("blind", topics=None, pattern=".*", rights=rights())
    driver.reconcile(one, blind)

    one.driver = blind.driver = driver.failed_over()
    one.rights = rights("bills", "orders")
    one.beat()
    blind.beat()
    one.driver.reconcile(one, blind)

    assert names_of(one) == {"bills", "orders"}
