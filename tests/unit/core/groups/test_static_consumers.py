"""Static members of consumer groups: they come back to what they had (KIP-345 in KIP-848)."""

from penstock.core.groups import ConsumerGroupOptions, GroupOptions, GroupState
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import (
    HEARTBEAT_MS,
    SESSION_MS,
    ConsumerDriver,
    Member,
    timeouts,
)


def two_members() -> tuple[ConsumerDriver, Member, Member]:
    driver = ConsumerDriver()
    static, other = driver.member("a", instance_id="i"), driver.member("b")
    driver.reconcile(static, other)
    return driver, static, other


def test_a_static_member_that_left_for_a_while_gets_its_partitions_back_without_a_rebalance() -> None:
    driver, static, other = two_members()
    before, epoch, kept = static.partitions, driver.described().epoch, other.partitions

    static.leave(-2)
    other.beat()
    back = driver.member("a2", instance_id="i")

    assert (back.partitions, back.epoch) == (before, epoch)
    assert (driver.described().epoch, other.partitions) == (epoch, kept)
    assert [member.member_id for member in driver.described().members] == ["b", "a2"]


def test_a_static_member_under_its_old_id_gets_its_place_back_too() -> None:
    driver, static, _ = two_members()
    before, epoch = static.partitions, driver.described().epoch

    static.leave(-2)
    static.join()

    assert (static.partitions, driver.described().epoch) == (before, epoch)


def test_nobody_takes_over_an_instance_id_whose_member_is_alive() -> None:
    driver, static, _ = two_members()

    assert driver.refused("a2", 0, instance_id="i") is ErrorKind.UNRELEASED_INSTANCE
    static.beat()


def test_a_static_member_whose_join_had_no_response_joins_again() -> None:
    _, static, _ = two_members()
    before, epoch = static.partitions, static.epoch

    static.join()

    assert (static.partitions, static.epoch) == (before, epoch)


def test_an_instance_id_that_nobody_has_removes_nobody() -> None:
    driver, _, other = two_members()

    for epoch in (-1, -2):
        assert driver.refused("b", epoch, instance_id="j") is ErrorKind.UNKNOWN_MEMBER

    other.beat()


def test_the_predecessor_is_fenced_once_its_successor_has_joined() -> None:
    driver, static, _ = two_members()
    static.leave(-2)
    driver.member("a2", instance_id="i")

    assert driver.refused("a", static.epoch, instance_id="i") is ErrorKind.FENCED_INSTANCE
    assert driver.refused("a", -1, instance_id="i") is ErrorKind.FENCED_INSTANCE
    assert driver.refused("a", static.epoch, instance_id="j") is ErrorKind.UNKNOWN_MEMBER


def test_a_static_member_that_does_not_come_back_loses_its_place_with_its_session() -> None:
    driver, static, other = two_members()
    static.leave(-2)

    for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
        other.beat()
        driver.advance(HEARTBEAT_MS)
    other.beat()

    assert len(other.partitions) == 4
    assert driver.member("a2", instance_id="i").partitions == []


def test_a_static_member_that_leaves_for_good_gives_up_its_place() -> None:
    _, static, other = two_members()

    static.leave(-1)
    other.beat()

    assert len(other.partitions) == 4


def test_partitions_that_a_static_member_was_to_give_up_are_free_once_it_has_left() -> None:
    driver = ConsumerDriver()
    static, other = driver.member("a", instance_id="i"), driver.member("b")
    driver.beat("a", static.epoch, owned=static.owned, instance_id="i")

    static.leave(-2)
    other.beat()

    assert other.partitions == [("t", 2), ("t", 3)]
    assert driver.member("a2", instance_id="i").partitions == [("t", 0), ("t", 1)]


def test_a_static_member_that_is_away_survives_a_failover() -> None:
    driver, static, other = two_members()
    before = static.partitions
    static.leave(-2)

    taken_over = driver.failed_over()
    back = taken_over.member("a2", instance_id="i")
    other.driver = taken_over
    other.beat()

    assert back.partitions == before
    taken_over.check_exclusive(back, other)


def test_a_static_member_that_comes_back_while_a_target_is_computed_is_in_it() -> None:
    small = GroupOptions(consumer=ConsumerGroupOptions(timeouts=timeouts, assigned_per_turn_max=1))
    driver = ConsumerDriver(small)
    driver.member("a", instance_id="i").leave(-2)
    other = driver.member("b")
    assert driver.described().state is GroupState.ASSIGNING

    back = driver.member("a2", instance_id="i")
    for _ in range(5):
        driver.advance(HEARTBEAT_MS)
        back.beat()
        other.beat()

    assert sorted(back.partitions + other.partitions) == [("t", index) for index in range(4)]


def test_a_static_member_cannot_come_back_under_the_id_of_another_member() -> None:
    driver = ConsumerDriver()
    static, other = driver.member("a", instance_id="i"), driver.member("b")
    driver.reconcile(static, other)
    static.leave(-2)

    assert driver.refused("b", 0, instance_id="i") is ErrorKind.INVALID_REQUEST

    last = driver.member("c")
    for _ in range(3 * SESSION_MS // HEARTBEAT_MS):
        driver.advance(HEARTBEAT_MS)
        last.beat()
    assert last.partitions == [("t", index) for index in range(4)]
