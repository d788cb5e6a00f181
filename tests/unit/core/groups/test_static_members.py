"""Static members: an instance id outlives the member ids it goes by."""

from dataclasses import replace
from typing import Any

from penstock.core.groups import GroupState, GroupStored, LeaveGroupResult, LeavingMember, LeftMember
from penstock.core.model import ErrorKind
from tests.unit.core.groups.group_driver import (
    DELAY_MS,
    OPTIONS,
    REBALANCE_MS,
    SESSION_MS,
    Driver,
    kind_of,
    position,
    protocols,
)


def static_group(driver: Driver, *instance_ids: str, **fields: Any) -> list[str]:
    tickets = [driver.join(instance_id=instance_id, **fields) for instance_id in instance_ids]
    driver.settle(tickets)
    return [driver.joined(ticket).member_id for ticket in tickets]


def test_a_static_member_joins_without_the_detour_for_an_id() -> None:
    driver = Driver()

    ticket = driver.join(instance_id="pod-0", random_id="x")
    driver.advance(DELAY_MS)

    assert driver.joined(ticket).member_id == "pod-0-x"
    assert driver.joined(ticket).members[0].instance_id == "pod-0"


def test_a_restarted_static_member_gets_its_old_assignment_without_a_rebalance() -> None:
    driver = Driver()
    leader, old = static_group(driver, "pod-0", "pod-1")

    ticket = driver.join(instance_id="pod-1")
    new = driver.joined(ticket).member_id

    assert driver.state() is GroupState.STABLE
    assert new != old
    assert (driver.joined(ticket).generation, driver.joined(ticket).leader) == (1, leader)
    assert driver.synced(driver.sync(new, 1, instance_id="pod-1")).assignment == old.encode()
    fact = driver.facts[-1]
    assert isinstance(fact, GroupStored)
    assert [m.member_id for m in fact.members] == [leader, new]


def test_the_old_member_id_is_fenced_and_changes_nothing() -> None:
    driver = Driver()
    _, old = static_group(driver, "pod-0", "pod-1")
    driver.join(instance_id="pod-1")
    facts = list(driver.facts)

    refusals = [
        driver.heartbeat(old, 1, "pod-1"),
        driver.answers[driver.sync(old, 1, instance_id="pod-1")],
        driver.answers[driver.join(old, instance_id="pod-1")],
        driver.commit(position(7), generation=1, member_id=old, instance_id="pod-1"),
    ]

    assert [kind_of(refusal) for refusal in refusals] == [ErrorKind.FENCED_INSTANCE] * 4
    assert driver.leave(LeavingMember(old, "pod-1")) == LeaveGroupResult(
        (LeftMember(old, "pod-1", ErrorKind.FENCED_INSTANCE),)
    )
    assert kind_of(driver.heartbeat(old, 1)) is ErrorKind.UNKNOWN_MEMBER
    assert driver.facts == facts
    assert driver.state() is GroupState.STABLE


def test_requests_parked_by_the_old_member_id_are_fenced() -> None:
    driver = Driver()
    leader, _ = static_group(driver, "pod-0", "pod-1")
    parked = driver.join(leader, instance_id="pod-0")
    driver.join(instance_id="pod-0")
    assert driver.kind_of(parked) is ErrorKind.FENCED_INSTANCE

    other = Driver()
    tickets = [other.join(instance_id="pod-0"), other.join(instance_id="pod-1")]
    other.advance(2 * DELAY_MS)
    syncing = other.sync(other.joined(tickets[1]).member_id, 1, instance_id="pod-1")
    other.join(instance_id="pod-1")

    assert other.kind_of(syncing) is ErrorKind.FENCED_INSTANCE
    assert other.state() is GroupState.PREPARING_REBALANCE


def test_a_restarted_static_leader_is_told_to_skip_the_assignment() -> None:
    driver = Driver()
    static_group(driver, "pod-0", "pod-1")

    ticket = driver.join(instance_id="pod-0", can_skip_assignment=True)
    answer = driver.joined(ticket)

    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2


def test_an_older_static_leader_is_told_that_its_predecessor_leads() -> None:
    driver = Driver()
    old_leader, _ = static_group(driver, "pod-0", "pod-1")

    answer = driver.joined(driver.join(instance_id="pod-0"))

    assert not answer.skip_assignment
    assert answer.leader == old_leader
    assert answer.members == ()


def test_a_static_follower_is_not_told_to_skip_anything() -> None:
    driver = Driver()
    static_group(driver, "pod-0", "pod-1")

    answer = driver.joined(driver.join(instance_id="pod-1", can_skip_assignment=True))

    assert not answer.skip_assignment
    assert answer.members == ()


def test_a_static_member_that_changes_the_protocol_makes_the_group_rebalance() -> None:
    driver = Driver()
    static_group(driver, "pod-0", "pod-1", protocols=protocols("range", "sticky"))

    driver.join(instance_id="pod-1", protocols=protocols("sticky"))

    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_changes_its_topics_makes_the_group_rebalance() -> None:
    driver = Driver()
    static_group(driver, "pod-0", "pod-1")

    driver.join(instance_id="pod-1", protocols=protocols("range", topics=("t", "u")))

    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_is_replaced_while_the_group_prepares_a_rebalance() -> None:
    driver = Driver()
    leader, old = static_group(driver, "pod-0", "pod-1")
    parked = driver.join(leader, instance_id="pod-0")

    replaced = driver.join(instance_id="pod-1")

    generation_two = driver.joined(parked)
    assert driver.joined(replaced).generation == generation_two.generation == 2
    assert old not in [m.member_id for m in generation_two.members]


def test_a_static_member_keeps_its_place_through_a_rebalance_it_missed() -> None:
    driver = Driver()
    leader, away = static_group(driver, "pod-0", "pod-1", session_timeout_ms=3 * REBALANCE_MS)

    ticket = driver.join(leader, instance_id="pod-0")
    driver.advance(REBALANCE_MS)

    assert [m.member_id for m in driver.joined(ticket).members] == [leader, away]


def test_a_group_whose_static_members_are_all_away_waits_until_one_is_back() -> None:
    driver = Driver()
    long_ms = 10 * REBALANCE_MS
    first, second, third = static_group(driver, "pod-0", "pod-1", "pod-2", session_timeout_ms=long_ms)
    driver.leave(LeavingMember(third, "pod-2"))

    driver.advance(3 * REBALANCE_MS)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    ticket = driver.join(second, instance_id="pod-1", session_timeout_ms=long_ms)
    driver.advance(REBALANCE_MS)

    assert driver.joined(ticket).leader == second
    assert [m.member_id for m in driver.joined(ticket).members] == [first, second]


def test_the_leader_stays_when_an_older_member_comes_back() -> None:
    driver = Driver()
    long_ms = 3 * REBALANCE_MS
    first, second = static_group(driver, "pod-0", "pod-1", session_timeout_ms=long_ms)
    ticket = driver.join(
        second, instance_id="pod-1", session_timeout_ms=long_ms, protocols=protocols("range", topics=("u",))
    )
    driver.advance(REBALANCE_MS)
    assert driver.joined(ticket).leader == second

    tickets = [driver.join(first, instance_id="pod-0", protocols=protocols("range", topics=("u",)))]
    tickets.append(driver.join(second, instance_id="pod-1", protocols=protocols("range", topics=("u",))))

    assert [driver.joined(ticket).leader for ticket in tickets] == [second, second]


def unsynced_static_member(driver: Driver) -> tuple[str, str]:
    """A stable group in which `pod-1` owes a SyncGroup and is then restarted; returns leader and new id."""
    tickets = [driver.join(instance_id="pod-0"), driver.join(instance_id="pod-1")]
    driver.advance(2 * DELAY_MS)
    leader, old = (driver.joined(ticket).member_id for ticket in tickets)
    driver.sync(leader, 1, {old: b"x"}, instance_id="pod-0")
    return leader, driver.joined(driver.join(instance_id="pod-1")).member_id


def test_a_restarted_static_member_owes_the_syncgroup_of_its_predecessor() -> None:
    driver = Driver()
    leader, new = unsynced_static_member(driver)

    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(leader, 1)
        driver.heartbeat(new, 1)
        driver.advance(5_000)

    assert [m.member_id for m in driver.describe().members] == [leader]


def test_a_restarted_static_member_that_syncs_keeps_the_group_stable() -> None:
    driver = Driver()
    leader, new = unsynced_static_member(driver)
    driver.sync(new, 1, instance_id="pod-1")

    for _ in range(2 * REBALANCE_MS // 5_000):
        driver.heartbeat(leader, 1)
        driver.heartbeat(new, 1)
        driver.advance(5_000)

    assert driver.state() is GroupState.STABLE


def test_a_restarted_static_member_finds_its_place_in_a_full_group() -> None:
    driver = Driver(replace(OPTIONS, group_members_max=2))
    leader, _ = static_group(driver, "pod-0", "pod-1")

    assert driver.joined(driver.join(instance_id="pod-1")).generation == 1
    assert driver.kind_of(driver.join(instance_id="pod-2")) is ErrorKind.GROUP_FULL
    driver.join(leader, instance_id="pod-0")
    assert driver.joined(driver.join(instance_id="pod-1")).generation == 2


def test_an_operator_removes_a_static_member_by_its_instance_id() -> None:
    driver = Driver()
    leader, _ = static_group(driver, "pod-0", "pod-1")

    reply = driver.leave(LeavingMember("", "pod-1"), LeavingMember("", "pod-9"), LeavingMember(""))

    assert reply == LeaveGroupResult(
        (
            LeftMember("", "pod-1"),
            LeftMember("", "pod-9", ErrorKind.UNKNOWN_MEMBER),
            LeftMember("", None, ErrorKind.UNKNOWN_MEMBER),
        )
    )
    assert [m.member_id for m in driver.describe().members] == [leader]


def test_an_instance_id_nobody_holds_is_unknown() -> None:
    driver = Driver()
    leader, _ = static_group(driver, "pod-0", "pod-1")

    assert kind_of(driver.heartbeat(leader, 1, "pod-9")) is ErrorKind.UNKNOWN_MEMBER


def test_a_restarted_static_member_survives_a_failover_under_its_new_id() -> None:
    before = Driver()
    static_group(before, "pod-0", "pod-1")
    new = before.joined(before.join(instance_id="pod-1")).member_id

    after = before.failed_over()

    assert after.synced(after.sync(new, 1, instance_id="pod-1")).assignment
    after.advance(SESSION_MS)
    assert after.state() is GroupState.EMPTY
