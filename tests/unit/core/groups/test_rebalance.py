"""From one generation to the next: who triggers it, who is waited for, who is given up."""

from dataclasses import replace

from penstock.core.groups import (
    GroupOk,
    GroupOptions,
    GroupState,
    GroupStored,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    MemberRemoved,
    RebalanceCompleted,
)
from penstock.core.model import MILLISECOND, ErrorKind
from tests.unit.core.groups.group_driver import (
    DELAY_MS,
    GROUP,
    OPTIONS,
    REBALANCE_MS,
    SESSION_MS,
    Driver,
    kind_of,
    protocols,
    subscription,
)


def test_a_new_member_makes_a_stable_group_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)

    _, newcomer = driver.join_new()

    assert kind_of(driver.heartbeat(leader, 1)) is ErrorKind.REBALANCE_IN_PROGRESS
    tickets = [driver.join(leader), driver.join(follower), newcomer]
    assert [driver.joined(ticket).generation for ticket in tickets] == [2, 2, 2]
    assert driver.joined(tickets[0]).leader == leader


def test_the_leader_may_force_a_rebalance_and_a_follower_may_not() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)

    nervous = driver.join(follower)
    assert driver.joined(nervous).generation == 1
    assert driver.state() is GroupState.STABLE
    driver.join(leader)

    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_follower_with_new_metadata_makes_the_group_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    changed = protocols("range", topics=("t", "u"))

    driver.join(follower, protocols=changed)

    assert driver.state() is GroupState.PREPARING_REBALANCE
    told = driver.joined(driver.join(leader)).members
    assert [m.metadata for m in told] == [subscription("t"), subscription("t", "u")]


def test_a_member_that_joins_again_may_change_its_timeouts() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader, session_timeout_ms=3 * SESSION_MS)
    driver.join(follower, rebalance_timeout_ms=2 * REBALANCE_MS)
    for member in (follower, leader):
        driver.sync(member, 2)

    driver.advance(SESSION_MS)
    assert [m.member_id for m in driver.describe().members] == [leader]
    driver.settle([driver.join(leader, session_timeout_ms=3 * SESSION_MS)])

    fact = driver.facts[-1]
    assert isinstance(fact, GroupStored)
    assert [m.session_timeout_ms for m in fact.members] == [3 * SESSION_MS]
    stored = [f for f in driver.facts if isinstance(f, GroupStored) and f.generation == 2]
    assert [m.rebalance_timeout_ms for m in stored[0].members] == [REBALANCE_MS, 2 * REBALANCE_MS]


def test_a_lost_join_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    driver = Driver()
    member, ticket = driver.join_new()
    driver.advance(DELAY_MS)

    again = driver.join(member)

    assert driver.joined(again) == driver.joined(ticket)
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_new_metadata_while_the_assignment_is_awaited_starts_over() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    parked = driver.sync(follower, 1)

    ticket = driver.join(follower, protocols=protocols("range", topics=("u",)))

    assert driver.kind_of(parked) is ErrorKind.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.join(leader)).generation == driver.joined(ticket).generation == 2


def test_members_that_do_not_join_again_in_time_are_given_up() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    ticket = driver.join(leader)

    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(follower, 1)  # its session is fine, it just never joins
        driver.advance(5_000)

    assert [m.member_id for m in driver.joined(ticket).members] == [leader]
    assert kind_of(driver.heartbeat(follower, 1)) is ErrorKind.UNKNOWN_MEMBER


def test_another_member_leads_when_the_leader_does_not_join_again() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.leave(LeavingMember(leader))

    ticket = driver.join(follower)

    assert driver.joined(ticket).leader == follower
    assert [m.member_id for m in driver.joined(ticket).members] == [follower]


def test_silence_ends_a_session_and_the_others_rebalance() -> None:
    driver = Driver()
    leader, silent = driver.stable_group(2)

    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader, 1) == GroupOk()
    driver.advance(1)

    assert [m.member_id for m in driver.describe().members] == [leader]
    assert MemberRemoved(GROUP, silent, "session timed out") in driver.events
    assert kind_of(driver.heartbeat(silent, 1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.heartbeat(leader, 1)) is ErrorKind.REBALANCE_IN_PROGRESS


def test_heartbeats_keep_a_session_alive() -> None:
    driver = Driver()
    members = driver.stable_group(2)

    for _ in range(10):
        driver.advance(SESSION_MS - 1)
        assert [driver.heartbeat(member, 1) for member in members] == [GroupOk(), GroupOk()]

    assert driver.state() is GroupState.STABLE


def test_a_parked_joingroup_stands_for_heartbeats() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    ticket = driver.join(leader)

    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(follower, 1)
    driver.join(follower)

    assert len(driver.joined(ticket).members) == 2


def test_a_parked_syncgroup_stands_for_heartbeats_and_the_session_starts_anew_after_it() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    parked = driver.sync(follower, 1)
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(leader, 1)

    driver.sync(leader, 1, {follower: b"all"})
    assert driver.synced(parked).assignment == b"all"
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(leader, 1)
    driver.advance(1)

    assert [m.member_id for m in driver.describe().members] == [leader]


def test_the_assignment_is_stored_before_anybody_gets_it() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    parked = driver.sync(follower, 1)
    assert driver.facts == []

    own = driver.sync(leader, 1, {leader: b"one", follower: b"two"})

    assert (driver.synced(own).assignment, driver.synced(parked).assignment) == (b"one", b"two")
    (fact,) = driver.facts
    assert isinstance(fact, GroupStored)
    assert (fact.generation, fact.leader, fact.protocol) == (1, leader, "range")
    assert [(m.member_id, m.assignment) for m in fact.members] == [(leader, b"one"), (follower, b"two")]
    assert isinstance(driver.events[-1], RebalanceCompleted)


def test_a_member_the_leader_left_out_gets_an_empty_assignment() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)

    driver.sync(leader, 1, {leader: b"all", "nobody": b"x"})

    assert driver.synced(driver.sync(follower, 1)).assignment == b""


def test_a_late_syncgroup_in_a_stable_group_gets_the_assignment_at_once() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    ticket = driver.sync(member, 1)

    assert driver.synced(ticket).assignment == member.encode()


def test_a_syncgroup_sent_again_takes_the_place_of_the_parked_one() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)

    driver.sync(leader, 1, {follower: b"x"})

    assert driver.kind_of(first) is ErrorKind.REBALANCE_IN_PROGRESS
    assert driver.synced(second).assignment == b"x"


def test_members_that_do_not_sync_in_time_are_given_up() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    driver.sync(leader, 1, {leader: b"x"})

    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
        driver.advance(5_000)

    assert kind_of(driver.heartbeat(follower, 1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.heartbeat(leader, 1)) is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_leader_that_does_not_sync_in_time_is_given_up() -> None:
    driver = Driver()
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)
    parked = driver.sync(follower, 1)

    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(leader, 1)
        driver.advance(5_000)

    assert driver.kind_of(parked) is ErrorKind.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.join(follower)).leader == follower


def test_syncgroup_is_refused_for_strangers_old_generations_and_other_protocols() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    assert driver.kind_of(driver.sync("stranger", 1)) is ErrorKind.UNKNOWN_MEMBER
    assert driver.kind_of(driver.sync(member, 0)) is ErrorKind.ILLEGAL_GENERATION
    assert driver.kind_of(driver.sync(member, 1, protocol_type="connect")) is ErrorKind.INCONSISTENT_PROTOCOL
    assert driver.kind_of(driver.sync(member, 1, protocol="sticky")) is ErrorKind.INCONSISTENT_PROTOCOL
    assert driver.kind_of(driver.sync(member, 1, group_id="unknown")) is ErrorKind.UNKNOWN_MEMBER
    accepted = driver.sync(member, 1, protocol_type="consumer", protocol="range")
    assert driver.synced(accepted).assignment == member.encode()


def test_syncgroup_during_a_rebalance_says_so() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader)

    assert driver.kind_of(driver.sync(follower, 1)) is ErrorKind.REBALANCE_IN_PROGRESS


def test_heartbeats_answer_by_state() -> None:
    driver = Driver()
    assert kind_of(driver.heartbeat("m", 0)) is ErrorKind.UNKNOWN_MEMBER
    (leader, _), (follower, _) = driver.join_new(), driver.join_new()
    driver.advance(2 * DELAY_MS)

    assert driver.heartbeat(follower, 1) == GroupOk()  # completing
    assert kind_of(driver.heartbeat(follower, 0)) is ErrorKind.ILLEGAL_GENERATION
    driver.sync(leader, 1)
    assert driver.heartbeat(follower, 1) == GroupOk()  # stable
    driver.join(leader)
    assert kind_of(driver.heartbeat(follower, 1)) is ErrorKind.REBALANCE_IN_PROGRESS  # preparing
    driver.leave(LeavingMember(leader), LeavingMember(follower))
    assert kind_of(driver.heartbeat(follower, 1)) is ErrorKind.UNKNOWN_MEMBER  # empty


def test_members_that_leave_together_cost_one_rebalance() -> None:
    driver = Driver()
    first, second, third = driver.stable_group(3)

    reply = driver.leave(LeavingMember(first), LeavingMember("stranger"), LeavingMember(third, reason="done"))

    assert reply == LeaveGroupResult(
        (
            LeftMember(first, None),
            LeftMember("stranger", None, ErrorKind.UNKNOWN_MEMBER),
            LeftMember(third, None),
        )
    )
    ticket = driver.join(second)
    assert driver.joined(ticket).generation == 2


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    driver.leave(LeavingMember(member))

    assert driver.state() is GroupState.EMPTY
    fact = driver.facts[-1]
    assert isinstance(fact, GroupStored)
    assert (fact.generation, fact.protocol, fact.leader, fact.members) == (2, None, None, ())


def test_leaving_a_group_nobody_knows_names_every_member_unknown() -> None:
    reply = Driver().leave(LeavingMember("a"), LeavingMember("b", "i"), group_id="unknown")

    assert reply == LeaveGroupResult(
        (LeftMember("a", None, ErrorKind.UNKNOWN_MEMBER), LeftMember("b", "i", ErrorKind.UNKNOWN_MEMBER))
    )


def test_a_member_that_leaves_gets_its_parked_requests_answered() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    joining = driver.join(leader)
    driver.leave(LeavingMember(leader))
    assert driver.kind_of(joining) is ErrorKind.UNKNOWN_MEMBER

    newcomer, _ = driver.join_new()
    generation = driver.joined(driver.join(follower)).generation
    syncing = driver.sync(newcomer, generation)
    driver.leave(LeavingMember(newcomer))

    assert driver.kind_of(syncing) is ErrorKind.UNKNOWN_MEMBER


def test_returning_an_id_does_not_disturb_a_stable_group() -> None:
    driver = Driver()
    driver.stable_group(1)
    driver.join(random_id="changed-my-mind")

    reply = driver.leave(LeavingMember("c-changed-my-mind"))

    assert reply == LeaveGroupResult((LeftMember("c-changed-my-mind", None),))
    assert driver.state() is GroupState.STABLE


def test_a_group_over_a_lowered_limit_rebalances_after_failover_and_the_last_are_turned_away() -> None:
    driver = Driver()
    members = driver.stable_group(3)

    smaller = GroupOptions(group_members_max=2, initial_rebalance_delay_ms=DELAY_MS)
    after = Driver(smaller, driver.facts)

    assert after.state() is GroupState.PREPARING_REBALANCE
    tickets = [after.join(member) for member in members]
    assert after.kind_of(tickets[2]) is ErrorKind.GROUP_FULL
    assert len(after.joined(tickets[0]).members) == 2


def test_a_stable_group_survives_a_failover_with_sessions_in_full() -> None:
    before = Driver(OPTIONS)
    leader, _ = before.stable_group(2)
    before.advance(SESSION_MS - 1)

    after = before.failed_over()

    assert after.describe() == before.describe()
    after.advance(SESSION_MS - 1)
    assert after.heartbeat(leader, 1) == GroupOk()
    after.advance(1)
    assert [m.member_id for m in after.describe().members] == [leader]


def test_the_leader_is_known_after_a_failover() -> None:
    before = Driver()
    leader, follower = before.stable_group(2)

    after = before.failed_over()

    assert after.joined(after.join(follower)).leader == leader
    assert after.join(leader) not in after.answers


def test_a_stored_member_without_a_rebalance_timeout_has_its_session_timeout_for_it() -> None:
    before = Driver()
    leader, _ = before.stable_group(2)
    (fact,) = before.facts
    assert isinstance(fact, GroupStored)
    old = replace(fact, members=tuple(replace(m, rebalance_timeout_ms=-1) for m in fact.members))

    after = Driver(OPTIONS, [old])
    parked = after.join(leader, rebalance_timeout_ms=-1)
    after.advance(SESSION_MS - 1)
    assert parked not in after.answers
    after.advance(1)

    assert after.joined(parked).generation == 2


def test_a_rebalance_is_timed_from_its_first_cause_to_the_assignment() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.advance(5_000)
    driver.heartbeat(leader, 1)
    driver.heartbeat(follower, 1)
    driver.join(leader)
    driver.advance(1_000)
    driver.join(follower)
    driver.join(follower, protocols=protocols("range", topics=("u",)))  # starts over
    driver.advance(2_000)

    driver.join(leader)
    driver.sync(leader, 3)

    completed = driver.events[-1]
    assert isinstance(completed, RebalanceCompleted)
    assert completed.elapsed_ns == 3_000 * MILLISECOND


def test_each_session_starts_anew_at_the_failover_by_its_own_length() -> None:
    before = Driver()
    joins = [
        before.join_new(session_timeout_ms=SESSION_MS),
        before.join_new(session_timeout_ms=3 * SESSION_MS),
    ]
    before.settle([ticket for _, ticket in joins])
    (short, _), (long, _) = joins

    after = before.failed_over()
    after.advance(SESSION_MS)

    assert [m.member_id for m in after.describe().members] == [long]
    assert kind_of(after.heartbeat(short, 1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(after.heartbeat(long, 1)) is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_rebalance_under_way_is_lost_in_a_failover_and_the_old_generation_is_back() -> None:
    before = Driver()
    leader, follower = before.stable_group(2)
    before.join(leader)
    before.join(follower)

    after = before.failed_over()

    assert after.state() is GroupState.STABLE
    assert after.kind_of(after.sync(follower, 2)) is ErrorKind.ILLEGAL_GENERATION
    assert after.synced(after.sync(follower, 1)).assignment == follower.encode()


def test_an_assignment_that_does_not_fit_into_a_record_is_refused_and_the_group_joins_again() -> None:
    driver = Driver(replace(OPTIONS, record_bytes_max=1_000))
    leader, follower = driver.stable_group(2)
    tickets = [driver.join(leader), driver.join(follower)]
    assert [driver.joined(ticket).generation for ticket in tickets] == [2, 2]
    stored = [fact for fact in driver.facts if isinstance(fact, GroupStored)]

    waiting = driver.sync(follower, 2)
    refused = driver.sync(leader, 2, assignments={follower: b"x" * 1_000})

    assert [kind_of(driver.answers[ticket]) for ticket in (waiting, refused)] == [
        ErrorKind.BATCH_TOO_LARGE
    ] * 2
    assert [fact for fact in driver.facts if isinstance(fact, GroupStored)] == stored
    assert driver.state() is GroupState.PREPARING_REBALANCE
    tickets = [driver.join(leader), driver.join(follower)]
    assert [driver.joined(ticket).generation for ticket in tickets] == [3, 3]


def test_a_member_whose_metadata_does_not_fit_into_a_record_does_not_join() -> None:
    driver = Driver(replace(OPTIONS, record_bytes_max=1_000))

    refused = driver.join("", protocols=protocols("range", topics=("t" * 999,)))

    assert kind_of(driver.answers[refused]) is ErrorKind.BATCH_TOO_LARGE
