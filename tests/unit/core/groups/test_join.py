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
    position,
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


def held(driver: Driver) -> int:
    assert driver.coordinator.held.total == driver.coordinator.held.of("/127.0.0.1")
    return driver.coordinator.held.total


def test_what_members_send_about_themselves_is_counted_until_they_leave() -> None:
    driver = Driver()
    large = (MemberProtocol("range", b"x" * 10_000), MemberProtocol("other", b"y" * 500))

    first, _ = driver.join_new(protocols=large)
    only_first = held(driver)
    second, _ = driver.join_new(protocols=(MemberProtocol("range", b"x" * 100),))
    both = held(driver)
    driver.join(second, protocols=(MemberProtocol("range", b"x" * 300),))
    assert held(driver) == both + 200
    driver.leave(LeavingMember(first))
    only_second = held(driver)
    # Its session ends.
    driver.advance(2 * REBALANCE_MS)

    assert 10_500 < only_first < 15_000
    assert 100 < both - only_first < 2_000
    assert 300 < only_second < 5_000
    # The group is stored, without members, until offsets are looked at.
    assert 0 < driver.coordinator.held.total < 3_000
    driver.advance(OPTIONS.offsets_retention_check_interval_ms)
    assert held(driver) == 0


def test_names_of_protocols_and_of_members_are_counted() -> None:
    driver = Driver()
    driver.join(member_id_required=False, protocols=protocols("a", "b"))
    short = held(driver)

    driver.join(member_id_required=False, protocols=protocols("a" * 1_000, "b" * 1_000), group_id="other")
    names = held(driver)
    driver.join(member_id_required=False, client_id="c" * 900, group_id="third")
    ids = held(driver)

    assert 1_990 <= names - 2 * short < 2_100
    assert 900 + short - 200 <= ids - names < 2_000 + short


def test_an_id_that_was_given_out_is_counted_for_a_minute_however_long_the_session() -> None:
    driver = Driver()

    for number in range(10):
        driver.join(session_timeout_ms=1_800_000, group_id=f"{number}" * 8_000)
    given = held(driver)
    driver.advance(59_000)
    still_given = held(driver)
    driver.advance(2_000)

    assert given == still_given > 10 * 8_000
    assert held(driver) == 0


def test_an_id_that_was_given_out_is_counted_until_it_is_joined_with_or_left() -> None:
    driver = Driver()
    driver.join(random_id="a")
    driver.join(random_id="b")

    driver.leave(LeavingMember("c-a"))
    driver.leave(LeavingMember("c-b"))

    assert held(driver) == 0


def test_what_a_static_member_sends_replaces_what_it_sent_before() -> None:
    driver = Driver()
    sizes: list[int] = []
    for size in (300, 10_000, 300):
        driver.join(instance_id="i", protocols=(MemberProtocol("range", b"x" * size),))
        sizes.append(held(driver))

    assert sizes[0] == sizes[2] == sizes[1] - 9_700


def test_without_room_a_member_joins_again_as_it_is_and_not_with_more() -> None:
    room = [10_000]
    driver = Driver(replace(OPTIONS, has_member_room=lambda _, size: size <= room[0]))
    same, more = ((MemberProtocol("range", b"x" * size),) for size in (5_000, 5_001))
    member, ticket = driver.join_new(protocols=same)
    driver.advance(DELAY_MS)
    room[0] = 0

    again = driver.join(driver.joined(ticket).member_id, protocols=same)
    refused = [driver.join(member, protocols=more), driver.join(protocols=same)]

    assert again not in driver.answers or driver.joined(again).member_id == member
    assert [driver.kind_of(one) for one in refused] == [ErrorKind.GROUP_FULL] * 2
    assert 5_000 < held(driver) < 10_000


def test_without_room_nobody_joins_and_a_member_with_little_metadata_goes_on() -> None:
    room = [10_000]
    driver = Driver(replace(OPTIONS, has_member_room=lambda _, size: size <= room[0]))
    member, joined = driver.join_new()
    driver.advance(DELAY_MS)
    room[0] = 0

    little = driver.join(member, protocols=protocols("range", topics=[f"t{n}" for n in range(500)]))
    strangers = [driver.join(), driver.join(member_id_required=False), driver.join(instance_id="i")]

    assert driver.joined(joined).generation == 1
    assert driver.joined(little).generation == 2
    assert [driver.kind_of(one) for one in strangers] == [ErrorKind.GROUP_FULL] * 3


def test_without_room_a_member_that_nobody_knows_is_told_so() -> None:
    driver = Driver(replace(OPTIONS, has_member_room=lambda _host, _size: False))

    # Its client joins anew, where GROUP_FULL would end it.
    assert driver.kind_of(driver.join("forgotten")) is ErrorKind.UNKNOWN_MEMBER
    assert driver.kind_of(driver.join("forgotten", instance_id="i")) is ErrorKind.UNKNOWN_MEMBER


def test_a_member_with_more_protocols_than_any_client_has_is_refused() -> None:
    driver = Driver()
    names = [f"assignor-{number}" for number in range(101)]

    refused = driver.join(protocols=protocols(*names))
    accepted = driver.join(protocols=protocols(*names[:100]))

    assert driver.kind_of(refused) is ErrorKind.INVALID_REQUEST
    assert isinstance(driver.answers[accepted], MemberIdRequired)


def test_without_room_a_leader_assigns_little_and_not_much() -> None:
    driver = Driver(replace(OPTIONS, has_member_room=lambda _, size: size <= 2_000))
    (first, _), (second, _) = joins = [driver.join_new(), driver.join_new()]
    driver.advance(2 * DELAY_MS)
    leader = next(member for member, ticket in joins if driver.joined(ticket).members)
    other = second if leader == first else first

    refused = driver.sync(leader, 1, {first: b"x" * 9_000, second: b"x"})
    driver.join(other)
    driver.join(leader)
    accepted = driver.sync(leader, 2, {first: b"x" * 8_000, second: b"x"})

    assert driver.kind_of(refused) is ErrorKind.BATCH_TOO_LARGE
    assert driver.synced(accepted).protocol == "range"


def test_groups_that_were_left_with_nothing_are_deleted_at_once_where_there_are_very_many() -> None:
    driver = Driver(replace(OPTIONS, emptied_bytes_max=100_000))
    driver.commit(position(1), group_id="group-0")
    for number in range(200):
        group_id = f"group-{number}"
        member, _ = driver.join_new(group_id=group_id)
        driver.leave(LeavingMember(member), group_id=group_id)

    driver.advance(DELAY_MS)

    known = driver.coordinator.image.group_ids()
    assert len(known) < 60
    assert ("group-0" in known, "group-1" in known, "group-99" in known) == (True, False, True)
    assert driver.coordinator.held.total < 110_000
