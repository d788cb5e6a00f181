"""Consumer groups (KIP-848): joining, epochs, reconciliation, sessions and what is stored."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.groups import (
    CommitOffsets,
    CommitResults,
    ConsumerGroupOptions,
    ConsumerGroupTimeouts,
    DeleteGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupOk,
    GroupOptions,
    GroupState,
    GroupType,
    LeavingMember,
    ListedGroups,
    ListGroups,
    RebalanceCompleted,
)
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import (
    CONSUMER_OPTIONS,
    HEARTBEAT_MS,
    REVOKE_MS,
    SESSION_MS,
    ConsumerDriver,
    Topics,
    timeouts,
)
from tests.unit.core.groups.group_driver import GROUP, ignore, kind_of, position


def all_of(topic: str, count: int) -> list[tuple[str, int]]:
    return [(topic, index) for index in range(count)]


def test_the_first_member_gets_every_partition_with_its_join() -> None:
    driver = ConsumerDriver()

    member = driver.member("a")

    assert (member.epoch, member.partitions) == (1, all_of("t", 4))
    assert driver.described().state is GroupState.STABLE


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing_but_the_epoch() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")
    facts = len(driver.facts)

    reply = driver.beat("a", 1)

    assert (reply.epoch, reply.heartbeat_interval_ms, reply.assignment) == (1, HEARTBEAT_MS, None)
    assert len(driver.facts) == facts
    assert member.partitions == all_of("t", 4)


def test_a_partition_is_given_to_the_next_member_only_when_the_first_has_given_it_up() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    assert second.partitions == []

    told = driver.beat("a", first.epoch, owned=first.owned)
    second.beat()
    assert (second.partitions, driver.described().state) == ([], GroupState.RECONCILING)
    first.take(told)
    first.beat()
    second.beat()

    assert (first.partitions, second.partitions) == ([("t", 0), ("t", 1)], [("t", 2), ("t", 3)])
    assert driver.described().state is GroupState.STABLE


def test_a_member_that_still_has_what_it_shall_give_up_goes_no_further() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    told = driver.beat("a", first.epoch, owned=first.owned)

    for owned in (first.owned, None):
        reply = driver.beat("a", first.epoch, owned=owned)
        second.beat()

        assert (reply.epoch, reply.assignment) == (told.epoch, None)
        assert second.partitions == []


def test_a_member_that_confirms_leaves_its_epoch_even_if_it_has_more_to_give_up() -> None:
    driver = ConsumerDriver(topics=Topics(t=6))
    first = driver.member("a")
    driver.member("b")
    told = first.take(driver.beat("a", first.epoch, owned=first.owned))
    driver.member("c")

    again = first.beat()

    # What it sent in the epoch before, when it had more, is refused from now on.
    assert (told.epoch, again.epoch) == (1, 2)
    assert len(first.partitions) == 2
    assert driver.described_member("a").assignment == first.owned


def test_a_member_that_keeps_its_partitions_is_never_told_to_stop() -> None:
    driver = ConsumerDriver(topics=Topics(t=3))
    members = [driver.member(each) for each in "abc"]
    driver.reconcile(*members)
    kept = {member.member_id: member.partitions for member in members[:2]}

    members[2].leave()
    for _ in range(3):
        for member in members[:2]:
            member.beat()
            assert kept[member.member_id] <= member.partitions

    assert sorted(members[0].partitions + members[1].partitions) == all_of("t", 3)


def test_a_member_that_does_not_confirm_in_time_is_removed_and_its_partitions_move_on() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")

    for _ in range(REVOKE_MS // HEARTBEAT_MS + 2):
        driver.beat("a", first.epoch, owned=first.owned)
        second.beat()
        driver.advance(HEARTBEAT_MS)

    assert driver.refused("a", first.epoch) is ErrorKind.UNKNOWN_MEMBER
    second.beat()
    assert second.partitions == all_of("t", 4)


def test_a_silent_member_is_removed_after_its_session() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    driver.reconcile(first, second)

    for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
        second.beat()
        driver.advance(HEARTBEAT_MS)
    second.beat()

    assert second.partitions == all_of("t", 4)
    assert driver.refused("a", first.epoch) is ErrorKind.UNKNOWN_MEMBER


def test_a_group_whose_members_left_is_empty_and_can_be_deleted() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")
    assert kind_of(driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP))) is ErrorKind.GROUP_NOT_EMPTY

    member.leave()

    assert driver.described().state is GroupState.EMPTY
    assert driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP)) == GroupOk()
    assert not driver.coordinator.image.consumers
    assert driver.refused("a", 1) is ErrorKind.UNKNOWN_GROUP


def test_a_member_with_a_wrong_epoch_is_fenced() -> None:
    driver = ConsumerDriver()
    member, other = driver.member("a"), driver.member("b")
    driver.reconcile(member, other)

    assert driver.refused("a", member.epoch + 1) is ErrorKind.FENCED_MEMBER_EPOCH
    assert driver.refused("a", member.epoch - 1, owned=None) is ErrorKind.FENCED_MEMBER_EPOCH
    assert driver.refused("x", member.epoch) is ErrorKind.UNKNOWN_MEMBER


def test_a_member_that_was_fenced_joins_again_under_its_id() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    driver.reconcile(first, second)
    third = driver.member("c")
    driver.reconcile(first, second, third)
    before, epoch = first.partitions, first.epoch
    assert driver.refused("a", epoch + 1) is ErrorKind.FENCED_MEMBER_EPOCH

    first.owned = {}
    first.join()

    assert (first.partitions, first.epoch) == (before, epoch)
    assert driver.described().epoch == epoch


def test_a_member_that_joins_again_has_given_up_what_it_was_asked_for() -> None:
    driver = ConsumerDriver(topics=Topics(t=6))
    first, second = driver.member("a"), driver.member("b")
    driver.reconcile(first, second)
    third = driver.member("c")
    driver.beat("a", first.epoch, owned=first.owned)
    third.beat()
    assert third.partitions == []

    first.owned = {}
    first.join()
    third.beat()

    assert third.partitions != []
    driver.check_exclusive(first, third)


def test_a_member_whose_response_was_lost_may_say_its_previous_epoch() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    first.beat()
    lost = driver.beat("a", first.epoch, owned=first.owned)
    assert lost.epoch == first.epoch + 1

    again = first.beat()

    assert again.epoch == lost.epoch
    second.beat()
    driver.check_exclusive(first, second)


def test_a_join_that_is_sent_twice_is_one() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")
    epoch = member.epoch

    reply = member.join()

    assert (reply.epoch, driver.described().epoch) == (epoch, epoch)
    assert member.partitions == all_of("t", 4)


def test_more_partitions_lead_to_a_new_assignment_with_the_next_heartbeat() -> None:
    driver = ConsumerDriver()
    members = [driver.member("a"), driver.member("b")]
    driver.reconcile(*members)
    before = [member.partitions for member in members]

    driver.change_topic("t", 6)
    driver.reconcile(*members)

    assert all(old <= member.partitions for old, member in zip(before, members, strict=True))
    assert sorted(members[0].partitions + members[1].partitions) == all_of("t", 6)


def test_a_topic_that_changes_without_a_subscriber_changes_nothing() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")

    driver.change_topic("other", 6)
    member.beat()

    assert driver.described().epoch == 1


def test_a_topic_that_is_created_later_is_assigned_when_it_exists() -> None:
    driver = ConsumerDriver(topics=Topics())
    member = driver.member("a")
    assert member.partitions == []

    driver.change_topic("t", 2)
    member.beat()

    assert member.partitions == all_of("t", 2)


def test_a_member_changes_its_subscription() -> None:
    driver = ConsumerDriver(topics=Topics(t=2, u=2))
    member = driver.member("a")

    member.beat(topics=("u",))
    assert member.partitions == []
    member.beat()

    assert member.partitions == all_of("u", 2)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"member_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"group_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"epoch": -3}, ErrorKind.INVALID_REQUEST),
        ({"epoch": -2}, ErrorKind.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorKind.INVALID_REQUEST),
        ({"topics": None}, ErrorKind.INVALID_REQUEST),
        ({"assignor": "my.own.Assignor"}, ErrorKind.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 1}, ErrorKind.UNKNOWN_GROUP),
    ],
)
def test_requests_that_make_no_sense_get_one_clear_error(fields: dict[str, Any], kind: ErrorKind) -> None:
    driver = ConsumerDriver()

    reply = driver.ask(replace(driver.command("a", 0), **fields))

    assert getattr(reply, "kind", reply) is kind
    assert driver.facts == []


def test_a_full_group_takes_no_further_member() -> None:
    options = GroupOptions(consumer=ConsumerGroupOptions(members_max=1, timeouts=timeouts))
    driver = ConsumerDriver(options)
    driver.member("a")

    assert driver.refused("b", 0, owned={}) is ErrorKind.GROUP_FULL


def test_another_coordinator_goes_on_where_this_one_was() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    first.beat()

    taken_over = driver.failed_over()
    for member in (first, second):
        member.driver = taken_over
    taken_over.reconcile(first, second)

    assert (first.partitions, second.partitions) == ([("t", 0), ("t", 1)], [("t", 2), ("t", 3)])


def test_a_failover_gives_every_session_its_full_time() -> None:
    driver = ConsumerDriver()
    driver.member("a")
    driver.advance(SESSION_MS - 1)

    taken_over = driver.failed_over()
    taken_over.advance(SESSION_MS - 1)
    assert taken_over.described().members
    taken_over.advance(1)

    assert taken_over.described().state is GroupState.EMPTY


def test_a_member_may_have_a_session_timeout_of_its_own_also_after_a_failover() -> None:
    slow_heart = ConsumerGroupOptions(timeouts=lambda _: ConsumerGroupTimeouts(SESSION_MS, SESSION_MS))
    driver = ConsumerDriver(replace(CONSUMER_OPTIONS, consumer=slow_heart))
    patient, other = driver.member("a", session_timeout_ms=9_000), driver.member("b")
    told = patient.beat().heartbeat_interval_ms
    driver.advance(SESSION_MS)
    taken_over = driver.failed_over()
    taken_over.advance(9_000 - 1)

    assert told == 3_000
    assert driver.refused("b", other.epoch) is ErrorKind.UNKNOWN_MEMBER
    assert [each.member_id for each in taken_over.described().members] == ["a"]
    taken_over.advance(1)
    assert taken_over.described().members == ()
    refused = taken_over.refused("c", 0, session_timeout_ms=5_999)
    assert refused is ErrorKind.INVALID_SESSION_TIMEOUT


def test_the_snapshot_rebuilds_the_same_state() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b", instance_id="i")
    first.beat()

    rebuilt = ConsumerDriver(facts=list(driver.coordinator.snapshot()), topics=driver.cluster)

    assert rebuilt.coordinator.image == driver.coordinator.image
    assert rebuilt.coordinator.image == driver.failed_over().coordinator.image
    assert len(list(driver.coordinator.snapshot())) == driver.coordinator.size()
    assert second.partitions == []


def test_a_commit_needs_the_members_epoch() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")

    def commit(member_id: str, epoch: int, *, has_member_epoch: bool = True) -> Any:
        return driver.ask(
            CommitOffsets(
                on_reply=ignore,
                group_id=GROUP,
                member_id=member_id,
                generation=epoch,
                has_member_epoch=has_member_epoch,
                offsets=(position(7),),
            )
        )

    assert isinstance(commit("a", member.epoch), CommitResults)
    assert commit("a", member.epoch + 1).kind is ErrorKind.STALE_MEMBER_EPOCH
    assert commit("b", member.epoch).kind is ErrorKind.UNKNOWN_MEMBER
    assert commit("", -1).kind is ErrorKind.UNKNOWN_MEMBER
    assert commit("a", member.epoch, has_member_epoch=False).kind is ErrorKind.NO_MEMBER_EPOCH
    assert commit("a", member.epoch + 1, has_member_epoch=False).kind is ErrorKind.NO_MEMBER_EPOCH
    assert commit("b", member.epoch, has_member_epoch=False).kind is ErrorKind.UNKNOWN_MEMBER
    member.leave()
    assert isinstance(commit("", -1), CommitResults)
    assert isinstance(commit("", -1, has_member_epoch=False), CommitResults)


def test_a_fetch_that_names_a_member_needs_its_epoch() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")

    def fetch(member_id: str | None, epoch: int) -> Any:
        fields: Any = {"member_id": member_id, "member_epoch": epoch}
        return driver.ask(FetchOffsets(on_reply=ignore, group_id=GROUP, topics=None, **fields))

    assert isinstance(fetch("a", member.epoch), FetchedOffsets)
    assert isinstance(fetch(None, -1), FetchedOffsets)
    assert fetch("a", member.epoch + 1).kind is ErrorKind.STALE_MEMBER_EPOCH
    assert fetch("b", member.epoch).kind is ErrorKind.UNKNOWN_MEMBER


def test_a_listing_names_the_type_and_the_other_types_description_does_not_find_it() -> None:
    driver = ConsumerDriver()
    driver.member("a")

    listed = driver.ask(ListGroups(on_reply=ignore, types=("consumer",)))

    assert isinstance(listed, ListedGroups)
    assert [(each.group_id, each.type) for each in listed.groups] == [(GROUP, GroupType.CONSUMER)]
    assert driver.describe().state is GroupState.DEAD


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    driver = ConsumerDriver()
    (classic,) = driver.stable_group(1)

    assert driver.refused("x", 0, owned={}) is ErrorKind.UNKNOWN_GROUP
    driver.leave(LeavingMember(classic))
    driver.member("a")

    assert not driver.coordinator.image.groups
    assert driver.described().state is GroupState.STABLE


def test_a_rebalance_is_over_when_the_last_member_has_its_partitions() -> None:
    driver = ConsumerDriver()
    first, second = driver.member("a"), driver.member("b")
    driver.events.clear()

    driver.advance(100)
    driver.reconcile(first, second)

    completed = [event for event in driver.events if isinstance(event, RebalanceCompleted)]
    assert [(event.members, event.elapsed_ns) for event in completed] == [(2, 100_000_000)]


def test_a_large_target_is_computed_over_several_turns_and_members_read_on() -> None:
    small = GroupOptions(consumer=ConsumerGroupOptions(timeouts=timeouts, assigned_per_turn_max=10))
    driver = ConsumerDriver(small, topics=Topics(t=50))
    members = [driver.member("a")]
    assert members[0].partitions == all_of("t", 50)

    members.append(driver.member("b"))
    assert (driver.described().state, members[1].epoch) == (GroupState.ASSIGNING, 1)
    members[0].beat()
    assert members[0].partitions == all_of("t", 50)
    driver.expire_once()
    assert driver.described().state is GroupState.ASSIGNING
    driver.advance(0)
    driver.reconcile(*members)

    assert [len(member.partitions) for member in members] == [25, 25]
    assert CONSUMER_OPTIONS.consumer.assigned_per_turn_max > 100


def test_a_target_for_many_members_is_computed_over_several_turns_though_partitions_are_few() -> None:
    driver = ConsumerDriver()
    joined = CONSUMER_OPTIONS.consumer.assigned_per_turn_max // 8
    for number in range(joined):
        driver.beat(f"m{number}", 0)

    assert driver.described().state is GroupState.ASSIGNING
    driver.advance(0)
    assert driver.described().state is GroupState.RECONCILING


def test_a_target_for_many_different_subscriptions_is_computed_over_several_turns() -> None:
    topics = Topics(**{f"t{number}": 1 for number in range(100)})
    names = tuple(topics.topics)
    driver = ConsumerDriver(topics=topics)
    members = [driver.member(f"m{number}", topics=names[number:]) for number in range(50)]

    assert driver.described().state is GroupState.ASSIGNING
    for _ in range(4):
        driver.advance(HEARTBEAT_MS)
        for member in members:
            member.beat()

    assert driver.described().state is GroupState.STABLE
    assert sorted(name for member in members for name, _ in member.partitions) == sorted(names)
