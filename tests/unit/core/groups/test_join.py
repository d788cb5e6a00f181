"""JoinGroup: ids, protocols, limits and the first rebalance of a group."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.groups import (
    GroupOptions,
    GroupState,
    JoinedMember,
    LeavingMember,
    MemberIdRequired,
    MemberProtocol,
)
from penstock.core.model import ErrorKind
from tests.unit.core.groups.group_driver import (
    DELAY_MS,
    GROUP,
    OPTIONS,
    REBALANCE_MS,
    SESSION_MS,
    Driver,
    protocols,
    subscription,
)


def test_a_dynamic_member_is_first_given_an_id_and_joins_with_it() -> None:
    driver = Driver()

    first = driver.join(client_id="app", random_id="xyz")

    assert driver.answers[first] == MemberIdRequired("app-xyz")
    assert driver.state() is GroupState.EMPTY
    second = driver.join("app-xyz")
    assert second not in driver.answers
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_an_old_client_joins_without_knowing_its_id() -> None:
    driver = Driver()

    ticket = driver.join(member_id_required=False)
    driver.advance(DELAY_MS)

    assert driver.joined(ticket).member_id == "c-1"


def test_an_id_nobody_joins_with_is_forgotten_after_the_session_timeout() -> None:
    driver = Driver()
    driver.join(random_id="slow")

    driver.advance(SESSION_MS)

    assert driver.describe().state is GroupState.DEAD
    assert driver.kind_of(driver.join("c-slow")) is ErrorKind.UNKNOWN_MEMBER


def test_a_group_that_was_only_ever_asked_for_ids_is_gone_when_they_are_given_back() -> None:
    driver = Driver()
    driver.join(random_id="x")

    driver.leave(LeavingMember("c-x"))

    assert driver.state() is GroupState.DEAD
    driver.advance(2 * SESSION_MS)
    assert driver.facts == []


def test_an_id_still_out_holds_up_a_rebalance_until_it_expires() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(random_id="pending", session_timeout_ms=SESSION_MS - 4_000)
    rejoins = [driver.join(leader), driver.join(follower)]

    assert not any(ticket in driver.answers for ticket in rejoins)
    driver.advance(SESSION_MS - 4_000)

    assert [driver.joined(ticket).generation for ticket in rejoins] == [2, 2]


def test_an_id_that_is_given_back_is_not_waited_for() -> None:
    driver = Driver()
    leader = driver.stable_group(1)[0]
    driver.join(random_id="x")
    parked = driver.join(leader)
    assert parked not in driver.answers

    driver.leave(LeavingMember("c-x"))

    assert driver.joined(parked).generation == 2


def test_a_member_id_is_unknown_in_a_group_that_does_not_exist() -> None:
    driver = Driver()

    ticket = driver.join("from-another-life")

    assert driver.kind_of(ticket) is ErrorKind.UNKNOWN_MEMBER
    assert driver.describe().state is GroupState.DEAD


def test_a_member_id_nobody_gave_out_is_unknown() -> None:
    driver = Driver()
    driver.stable_group(1)

    assert driver.kind_of(driver.join("stranger")) is ErrorKind.UNKNOWN_MEMBER


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_outside_the_range_is_refused(session_timeout_ms: int) -> None:
    driver = Driver()

    ticket = driver.join(session_timeout_ms=session_timeout_ms)

    assert driver.kind_of(ticket) is ErrorKind.INVALID_SESSION_TIMEOUT


def test_an_empty_group_id_is_refused() -> None:
    driver = Driver()

    assert driver.kind_of(driver.join(group_id="")) is ErrorKind.INVALID_GROUP
    assert driver.kind_of(driver.sync("m", 1, group_id="")) is ErrorKind.INVALID_GROUP


def test_the_leader_alone_learns_of_every_member_and_its_metadata() -> None:
    driver = Driver()
    (first, first_ticket), (second, second_ticket) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)

    leader, follower = driver.joined(first_ticket), driver.joined(second_ticket)

    metadata = subscription("t")
    assert leader.members == (JoinedMember(first, None, metadata), JoinedMember(second, None, metadata))
    assert follower.members == ()
    assert leader.leader == follower.leader == first
    assert leader.generation == follower.generation == 1
    assert (leader.protocol_type, leader.protocol) == ("consumer", "range")


def test_a_new_group_waits_for_the_initial_delay() -> None:
    driver = Driver()
    _, ticket = driver.join_new()

    driver.advance(DELAY_MS - 1)
    assert ticket not in driver.answers
    driver.advance(1)

    assert driver.joined(ticket).generation == 1


def test_the_initial_delay_is_extended_while_members_come() -> None:
    driver = Driver()
    tickets = [driver.join_new()[1]]
    for _ in range(3):
        driver.advance(DELAY_MS - 1)
        tickets.append(driver.join_new()[1])
    assert not any(ticket in driver.answers for ticket in tickets)

    driver.advance(2 * DELAY_MS)

    assert [driver.joined(ticket).generation for ticket in tickets] == [1, 1, 1, 1]


def test_the_initial_delay_ends_with_the_rebalance_timeout_however_many_come() -> None:
    driver = Driver()
    _, first = driver.join_new(rebalance_timeout_ms=3 * DELAY_MS)
    waited_ms = 0

    while first not in driver.answers:
        driver.join_new(rebalance_timeout_ms=3 * DELAY_MS)
        driver.advance(1_000)
        waited_ms += 1_000

    assert waited_ms <= 4 * DELAY_MS


def test_a_protocol_all_support_and_most_prefer_is_chosen() -> None:
    driver = Driver()
    wishes = [("sticky", "range", "odd"), ("range", "sticky"), ("range", "sticky")]
    tickets = [driver.join_new(protocols=protocols(*wish))[1] for wish in wishes]

    driver.advance(3 * DELAY_MS)

    assert {driver.joined(ticket).protocol for ticket in tickets} == {"range"}


def test_a_member_with_no_protocol_in_common_is_refused() -> None:
    driver = Driver()
    driver.stable_group(2)

    ticket = driver.join(protocols=protocols("roundrobin"))

    assert driver.kind_of(ticket) is ErrorKind.INCONSISTENT_PROTOCOL
    assert driver.state() is GroupState.STABLE


def test_a_member_of_another_protocol_type_is_refused() -> None:
    driver = Driver()
    driver.stable_group(1)

    assert driver.kind_of(driver.join(protocol_type="connect")) is ErrorKind.INCONSISTENT_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_bring_a_type_and_a_protocol(fields: dict[str, Any]) -> None:
    driver = Driver()

    assert driver.kind_of(driver.join(**fields)) is ErrorKind.INCONSISTENT_PROTOCOL


def test_a_protocol_named_twice_counts_once() -> None:
    driver = Driver()
    twice = (MemberProtocol("range", b"first"), MemberProtocol("range", b"second"))
    _, doubled = driver.join_new(protocols=twice)
    driver.join_new()

    driver.advance(2 * DELAY_MS)

    assert driver.joined(doubled).members[0].metadata == b"first"


def test_an_empty_group_may_change_its_protocol_type() -> None:
    driver = Driver()
    driver.stable_group(1)
    driver.advance(2 * SESSION_MS)
    assert driver.state() is GroupState.EMPTY

    _, ticket = driver.join_new(protocol_type="connect", protocols=protocols("v2"))
    driver.advance(DELAY_MS)

    assert driver.joined(ticket).protocol_type == "connect"
    assert driver.joined(ticket).generation == 3


def test_a_full_group_turns_new_members_away() -> None:
    driver = Driver(GroupOptions(group_members_max=2, initial_rebalance_delay_ms=0))
    members = driver.stable_group(2)

    assert driver.kind_of(driver.join()) is ErrorKind.GROUP_FULL
    assert driver.heartbeat(members[1], 1) is not None
    assert driver.state() is GroupState.STABLE


def test_ids_given_out_do_not_let_a_group_grow_over_its_limit() -> None:
    driver = Driver(GroupOptions(group_members_max=1, initial_rebalance_delay_ms=0))
    driver.join(random_id="a")
    driver.join(random_id="b")

    first, second = driver.join("c-a"), driver.join("c-b")
    driver.advance(1)

    assert driver.kind_of(second) is ErrorKind.GROUP_FULL
    assert driver.joined(first).generation == 1
    driver.sync("c-a", 1)
    # The id that was turned away is not waited for.
    assert driver.joined(driver.join("c-a")).generation == 2


def test_a_client_that_asks_for_ids_in_a_loop_costs_a_bounded_number() -> None:
    driver = Driver(GroupOptions(pending_members_max=10))
    for number in range(15):
        driver.join(random_id=str(number))

    refused = [driver.kind_of(driver.join(f"c-{number}")) for number in range(5)]
    accepted = [driver.join(f"c-{number}") for number in range(5, 15)]
    driver.settle(accepted)

    assert refused == [ErrorKind.UNKNOWN_MEMBER] * 5
    assert len(driver.describe().members) == 10


def test_a_joingroup_sent_again_takes_the_place_of_the_parked_one() -> None:
    driver = Driver()
    member, first = driver.join_new()

    second = driver.join(member)
    driver.advance(DELAY_MS)

    assert driver.kind_of(first) is ErrorKind.REBALANCE_IN_PROGRESS
    assert driver.joined(second).generation == 1


def test_a_new_members_joingroup_is_given_up_after_five_minutes() -> None:
    driver = Driver()
    members = driver.stable_group(1, rebalance_timeout_ms=1_000_000)
    newcomer, ticket = driver.join_new(rebalance_timeout_ms=1_000_000)

    for _ in range(300_000 // 5_000):
        driver.heartbeat(members[0], 1)  # alive, but never joins again
        driver.advance(5_000)

    assert driver.kind_of(ticket) is ErrorKind.UNKNOWN_MEMBER
    assert newcomer not in [m.member_id for m in driver.describe().members]


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    driver = Driver()
    (leader, _), (slow, _) = joins = [
        driver.join_new(),
        driver.join_new(rebalance_timeout_ms=2 * REBALANCE_MS),
    ]
    driver.settle([ticket for _, ticket in joins])
    ticket = driver.join(leader)

    for _ in range(2 * REBALANCE_MS // 5_000 - 1):
        driver.advance(5_000)
        driver.heartbeat(slow, 1)
    assert ticket not in driver.answers
    driver.advance(5_000)

    assert [m.member_id for m in driver.joined(ticket).members] == [leader]


def test_the_clients_reason_is_reported() -> None:
    driver = Driver()

    driver.join(member_id_required=False, reason="topics changed")

    assert "topics changed" in str(driver.events[-1])
    assert GROUP in str(driver.events[-1])


def test_what_members_send_about_themselves_is_counted_until_they_leave() -> None:
    driver = Driver()
    large = (MemberProtocol("range", b"x" * 10_000), MemberProtocol("other", b"y" * 500))

    first, _ = driver.join_new(protocols=large)
    second, _ = driver.join_new(protocols=(MemberProtocol("range", b"x" * 100),))
    assert driver.coordinator.metadata_bytes == 10_600
    driver.join(second, protocols=(MemberProtocol("range", b"x" * 300),))
    assert driver.coordinator.metadata_bytes == 10_800
    driver.leave(LeavingMember(first))
    assert driver.coordinator.metadata_bytes == 300
    # Its session ends.
    driver.advance(10 * REBALANCE_MS)

    assert driver.coordinator.metadata_bytes == 0


def test_what_a_static_member_sends_replaces_what_it_sent_before() -> None:
    driver = Driver()
    for size in (10_000, 300):
        driver.join(instance_id="i", protocols=(MemberProtocol("range", b"x" * size),))

    assert driver.coordinator.metadata_bytes == 300


def test_without_room_a_member_joins_again_as_it_is_and_not_with_more() -> None:
    room = [5_000]
    driver = Driver(replace(OPTIONS, has_member_room=lambda size: size <= room[0]))
    same, more = ((MemberProtocol("range", b"x" * size),) for size in (5_000, 5_001))
    member, ticket = driver.join_new(protocols=same)
    driver.advance(DELAY_MS)
    room[0] = 0

    again = driver.join(driver.joined(ticket).member_id, protocols=same)
    refused = [driver.join(member, protocols=more), driver.join(protocols=same)]

    assert again not in driver.answers or driver.joined(again).member_id == member
    assert [driver.kind_of(one) for one in refused] == [ErrorKind.GROUP_FULL] * 2
    assert driver.coordinator.metadata_bytes == 5_000


def test_without_room_a_member_with_little_metadata_joins() -> None:
    driver = Driver(replace(OPTIONS, has_member_room=lambda _: False))
    sizes = (OPTIONS.small_metadata_bytes, OPTIONS.small_metadata_bytes + 1)
    little, more = ((MemberProtocol("range", b"x" * size),) for size in sizes)

    _, joined = driver.join_new(protocols=little)
    refused = driver.join(protocols=more)
    driver.advance(DELAY_MS)

    assert driver.joined(joined).generation == 1
    assert driver.kind_of(refused) is ErrorKind.GROUP_FULL
