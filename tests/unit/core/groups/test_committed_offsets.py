"""Offsets: who may commit, what a fetch sees, what is deleted and when it expires."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.core.groups import (
    CommitResults,
    DeleteGroup,
    DeleteOffsets,
    DeletionResults,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopics,
    GroupDeleted,
    GroupOk,
    GroupState,
    GroupStored,
    LeavingMember,
    MemberProtocol,
    OffsetCommitted,
    OffsetDeleted,
    OffsetResult,
    OffsetToCommit,
    Reply,
    TopicToFetch,
)
from penstock.core.model import (
    MILLISECOND,
    ErrorKind,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from tests.unit.core.groups.consumer_driver import Topics
from tests.unit.core.groups.group_driver import (
    DELAY_MS,
    GROUP,
    OPTIONS,
    SESSION_MS,
    WALL_START_MS,
    Driver,
    at,
    ignore,
    kind_of,
    position,
    protocols,
)

RETENTION_MS = 60 * 60 * 1_000
CHECK_MS = 60_000
EXPIRING = replace(OPTIONS, offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)


def fetch_all(driver: Driver) -> tuple[FetchedOffset, ...]:
    reply = driver.ask(FetchOffsets(on_reply=ignore, group_id=GROUP, topics=None))
    assert isinstance(reply, FetchedOffsets)
    return reply.offsets


def delete(driver: Driver, *partitions: TopicPartition) -> Reply:
    return driver.ask(DeleteOffsets(on_reply=ignore, group_id=GROUP, partitions=partitions))


def test_a_member_commits_and_fetches_what_it_committed() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    offset = OffsetToCommit(at("t", 3), Offset(42), LeaderEpoch(7), "note")

    reply = driver.commit(offset, generation=1, member_id=member)

    assert reply == CommitResults((OffsetResult(at("t", 3)),))
    assert fetch_all(driver) == (FetchedOffset(at("t", 3), Offset(42), LeaderEpoch(7), "note"),)
    fact = driver.facts[-1]
    assert isinstance(fact, OffsetCommitted)
    assert fact.committed_at == WALL_START_MS + driver.now_ms
    assert fact.expires_at is None


def test_a_client_may_move_its_position_back() -> None:
    driver = Driver()
    driver.commit(position(100))

    driver.commit(position(5))

    assert driver.committed() == 5


def test_a_consumer_that_assigns_itself_commits_without_joining() -> None:
    driver = Driver()

    reply = driver.commit(position(9))

    assert reply == CommitResults((OffsetResult(at("t")),))
    assert driver.committed() == 9
    assert driver.state() is GroupState.EMPTY


def test_a_group_with_members_refuses_commits_from_outside() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    assert kind_of(driver.commit(position(9))) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.commit(position(9), member_id="stranger", generation=1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.commit(position(9), member_id=member)) is ErrorKind.ILLEGAL_GENERATION
    assert driver.committed() == -1


@pytest.mark.parametrize("generation", [0, 2])
def test_a_commit_of_another_generation_changes_nothing(generation: int) -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    assert (
        kind_of(driver.commit(position(9), member_id=member, generation=generation))
        is ErrorKind.ILLEGAL_GENERATION
    )
    assert driver.committed() == -1


@pytest.mark.parametrize("generation", [0, 3])
def test_a_generation_in_a_group_nobody_knows_is_refused(generation: int) -> None:
    assert (
        kind_of(Driver().commit(position(9), member_id="m", generation=generation)) is ErrorKind.UNKNOWN_GROUP
    )


def test_a_generation_in_an_empty_group_is_refused() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    driver.leave(LeavingMember(member))

    assert kind_of(driver.commit(position(9), member_id=member, generation=1)) is ErrorKind.UNKNOWN_MEMBER
    assert driver.commit(position(9)) == CommitResults((OffsetResult(at("t")),))


def test_commits_are_taken_while_a_rebalance_is_prepared_and_refused_while_it_completes() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader)

    preparing = driver.commit(position(5), member_id=follower, generation=1)
    driver.join(follower)
    completing = driver.commit(position(6), member_id=follower, generation=2)

    assert preparing == CommitResults((OffsetResult(at("t")),))
    assert kind_of(completing) is ErrorKind.REBALANCE_IN_PROGRESS
    assert driver.committed() == 5


def test_a_commit_counts_as_a_heartbeat() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        driver.commit(position(1), member_id=member, generation=1)

    assert driver.heartbeat(member, 1) == GroupOk()


def test_metadata_over_the_limit_is_refused_for_its_partition_alone() -> None:
    driver = Driver()
    limit = OPTIONS.offset_metadata_chars_max

    reply = driver.commit(
        position(1, metadata="x" * limit), position(2, partition=1, metadata="x" * (limit + 1))
    )

    assert reply == CommitResults(
        (OffsetResult(at("t", 0)), OffsetResult(at("t", 1), ErrorKind.OFFSET_METADATA_TOO_LARGE))
    )
    assert (driver.committed(), driver.committed(partition=1)) == (1, -1)


def test_a_position_in_a_partition_that_does_not_exist_is_refused_for_its_partition_alone() -> None:
    driver = Driver(topics=Topics(t=2))

    reply = driver.commit(
        position(1), position(1, partition=1), position(1, partition=2), position(1, topic="gone")
    )

    assert reply == CommitResults(
        (
            OffsetResult(at("t", 0)),
            OffsetResult(at("t", 1)),
            OffsetResult(at("t", 2), ErrorKind.UNKNOWN_PARTITION),
            OffsetResult(at("gone", 0), ErrorKind.UNKNOWN_PARTITION),
        )
    )
    assert driver.coordinator.image.positions == 2


def test_a_partition_that_a_commit_names_often_is_stored_once_as_it_is_said_last() -> None:
    driver = Driver()

    reply = driver.commit(*[position(offset) for offset in range(1_000)], position(7, partition=1))

    assert reply == CommitResults((OffsetResult(at("t", 0)), OffsetResult(at("t", 1))))
    assert len([fact for fact in driver.facts if isinstance(fact, OffsetCommitted)]) == 2
    assert (driver.committed(), driver.committed(partition=1)) == (999, 7)


def test_without_room_positions_are_moved_but_no_new_ones_stored() -> None:
    room = [True]
    driver = Driver(replace(OPTIONS, has_room=lambda: room[0]))
    driver.commit(position(1, metadata="short"))
    room[0] = False

    moved = driver.commit(position(2, metadata="other"), position(1, partition=1))
    longer = driver.commit(position(3, metadata="much longer"))

    refused = OffsetResult(at("t", 1), ErrorKind.TOO_MANY_OFFSETS)
    assert moved == CommitResults((OffsetResult(at("t", 0)), refused))
    assert longer == CommitResults((OffsetResult(at("t", 0), ErrorKind.TOO_MANY_OFFSETS),))
    assert driver.committed() == 2


def test_without_room_for_metadata_positions_that_have_as_much_are_moved_and_small_ones_stored() -> None:
    room = [100]
    driver = Driver(replace(OPTIONS, metadata_room=lambda: room[0]))
    driver.commit(position(1, metadata="x" * 100))
    room[0] = 10

    moved = driver.commit(
        position(2, metadata="y" * 100),
        position(2, partition=1, metadata="x" * 10),
        position(2, partition=2, metadata="x" * 11),
        # Four bytes a character.
        position(2, partition=3, metadata="\u2014" * 3),
    )

    assert moved == CommitResults(
        (
            OffsetResult(at("t", 0)),
            OffsetResult(at("t", 1)),
            OffsetResult(at("t", 2), ErrorKind.OFFSET_METADATA_TOO_LARGE),
            OffsetResult(at("t", 3), ErrorKind.OFFSET_METADATA_TOO_LARGE),
        )
    )
    assert (driver.committed(), driver.committed(partition=1)) == (2, 2)


def test_positions_and_what_they_take_are_counted() -> None:
    driver = Driver()
    image = driver.coordinator.image
    driver.commit(position(1, metadata="x" * 100), position(1, partition=1))
    two = image.position_bytes

    driver.commit(position(2, metadata="x" * 40))
    assert (image.positions, image.position_bytes, image.metadata_bytes) == (2, two - 60, 40)
    driver.ask(DeleteOffsets(on_reply=ignore, group_id=GROUP, partitions=(at("t", 0), at("t", 1))))

    assert (image.positions, image.position_bytes, image.metadata_bytes) == (0, 0, 0)
    assert driver.failed_over().coordinator.image == image


def test_an_unknown_group_has_committed_nothing_and_that_is_no_error() -> None:
    driver = Driver()

    assert fetch_all(driver) == ()
    wanted = (TopicToFetch(TopicName("t"), (PartitionIndex(0), PartitionIndex(1))),)
    reply = driver.ask(FetchOffsets(on_reply=ignore, group_id="unknown", topics=wanted, require_stable=True))
    assert reply == FetchedOffsets((FetchedOffset(at("t", 0)), FetchedOffset(at("t", 1))))


def test_an_offset_of_a_topic_that_was_made_anew_is_not_shown() -> None:
    driver = Driver()
    old, new = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    driver.commit(position(5)._replace(topic_id=old))

    def offset_for(topic_id: TopicId | None) -> int:
        wanted = (TopicToFetch(TopicName("t"), (PartitionIndex(0),), topic_id),)
        reply = driver.ask(FetchOffsets(on_reply=ignore, group_id=GROUP, topics=wanted))
        assert isinstance(reply, FetchedOffsets)
        return reply.offsets[0].offset

    assert [offset_for(topic_id) for topic_id in (old, new, None)] == [5, -1, 5]


def test_offsets_survive_a_failover() -> None:
    driver = Driver()
    driver.commit(position(5), position(6, "u", 2))

    assert fetch_all(driver.failed_over()) == fetch_all(driver)
    assert len(fetch_all(driver)) == 2


def test_offsets_of_topics_the_group_reads_cannot_be_deleted() -> None:
    driver = Driver()
    member = driver.stable_group(1, protocols=protocols("range", topics=("t", "v")))[0]
    driver.commit(position(1), position(2, "old"), member_id=member, generation=1)

    reply = delete(driver, at("t"), at("old"), at("never-committed"))

    assert reply == DeletionResults(
        (
            OffsetResult(at("t"), ErrorKind.GROUP_SUBSCRIBED),
            OffsetResult(at("old")),
            OffsetResult(at("never-committed")),
        )
    )
    assert driver.facts[-1] == OffsetDeleted(GROUP, at("old"))
    assert (driver.committed(), driver.committed("old")) == (1, -1)


def test_nothing_is_deleted_while_subscriptions_cannot_be_read() -> None:
    driver = Driver()
    driver.stable_group(1, protocols=(MemberProtocol("custom", b"?"),))

    reply = delete(driver, at("t"))

    assert reply == DeletionResults((OffsetResult(at("t"), ErrorKind.GROUP_SUBSCRIBED),))


def test_a_subscription_that_cannot_be_read_any_more_protects_everything() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    driver.commit(position(1, "old"), member_id=member, generation=1)

    driver.settle([driver.join(member, protocols=(MemberProtocol("range", b"?"),))])

    assert delete(driver, at("old")) == DeletionResults(
        (OffsetResult(at("old"), ErrorKind.GROUP_SUBSCRIBED),)
    )


def test_offsets_of_a_stable_group_that_is_not_of_consumers_do_not_expire() -> None:
    driver = Driver(EXPIRING)
    member = driver.stable_group(1, protocol_type="connect")[0]
    driver.commit(position(1, "old"), member_id=member, generation=1)

    for _ in range((RETENTION_MS + CHECK_MS) // 5_000 + 1):
        driver.advance(5_000)
        driver.heartbeat(member, 1)

    assert driver.committed("old") == 1


def test_offsets_of_a_group_that_is_not_of_consumers_are_deleted_only_when_it_is_empty() -> None:
    driver = Driver()
    member = driver.stable_group(1, protocol_type="connect")[0]
    driver.commit(position(1), member_id=member, generation=1)

    assert kind_of(delete(driver, at("t"))) is ErrorKind.GROUP_NOT_EMPTY
    driver.leave(LeavingMember(member))
    delete(driver, at("t"))

    assert driver.committed() == -1


def test_offsets_of_a_group_nobody_knows_cannot_be_deleted() -> None:
    assert kind_of(delete(Driver(), at("t"))) is ErrorKind.UNKNOWN_GROUP


def test_offsets_in_a_deleted_topic_are_forgotten_in_every_group() -> None:
    driver = Driver()
    driver.commit(position(1), position(2, "kept"))
    driver.commit(position(3, partition=4), group_id="other")

    assert driver.ask(ForgetTopics(on_reply=ignore, topics=frozenset({TopicName("t")}))) == GroupOk()

    assert (driver.committed(), driver.committed(partition=4, group_id="other")) == (-1, -1)
    assert driver.committed("kept") == 2


def test_offsets_expire_after_the_group_has_been_empty_for_the_retention_time() -> None:
    driver = Driver(EXPIRING)
    member = driver.stable_group(1)[0]
    driver.commit(position(1), member_id=member, generation=1)
    for _ in range(2 * RETENTION_MS // 5_000):  # as long as there are members, nothing ages
        driver.advance(5_000)
        driver.heartbeat(member, 1)
    driver.leave(LeavingMember(member))

    driver.advance(RETENTION_MS - CHECK_MS)
    assert driver.committed() == 1
    driver.advance(2 * CHECK_MS)

    assert driver.committed() == -1
    assert driver.facts[-2:] == [OffsetDeleted(GROUP, at("t")), GroupDeleted(GROUP)]
    assert driver.state() is GroupState.DEAD


def test_the_time_a_group_has_been_empty_survives_a_failover() -> None:
    before = Driver(EXPIRING)
    member = before.stable_group(1)[0]
    before.commit(position(1), member_id=member, generation=1)
    before.leave(LeavingMember(member))
    before.advance(RETENTION_MS - CHECK_MS)

    after = Driver(EXPIRING, before.facts, before.now_ms)
    after.advance(2 * CHECK_MS)

    assert after.committed() == -1


def test_offsets_of_a_consumer_that_assigns_itself_expire_after_their_commit() -> None:
    driver = Driver(EXPIRING)
    driver.commit(position(1), position(2, partition=1))
    driver.advance(RETENTION_MS // 2)
    driver.commit(position(3))

    driver.advance(RETENTION_MS // 2 + CHECK_MS)

    assert (driver.committed(), driver.committed(partition=1)) == (3, -1)


def test_a_client_may_name_its_own_retention() -> None:
    driver = Driver(EXPIRING)
    driver.commit(position(1), retention_ms=2 * CHECK_MS)

    driver.advance(CHECK_MS)
    assert driver.committed() == 1
    driver.advance(CHECK_MS)

    assert driver.committed() == -1


def test_offsets_of_topics_a_stable_group_does_not_read_any_more_expire() -> None:
    driver = Driver(EXPIRING)
    member = driver.stable_group(1)[0]
    driver.commit(position(1), position(2, "old"), member_id=member, generation=1)

    for _ in range((RETENTION_MS + CHECK_MS) // 5_000 + 1):
        driver.advance(5_000)
        driver.heartbeat(member, 1)

    assert (driver.committed(), driver.committed("old")) == (1, -1)
    assert driver.state() is GroupState.STABLE


def test_an_empty_group_without_offsets_is_deleted_at_the_next_check() -> None:
    driver = Driver(EXPIRING)
    member = driver.stable_group(1)[0]
    driver.leave(LeavingMember(member))

    driver.advance(CHECK_MS)

    assert driver.facts[-1] == GroupDeleted(GROUP)


def test_many_groups_are_swept_a_few_at_a_time() -> None:
    driver = Driver(replace(EXPIRING, groups_expired_per_turn_max=10))
    for number in range(25):
        driver.commit(position(1), group_id=f"g{number}")
    driver.now_ms += RETENTION_MS

    sizes = []
    while (outcome := driver.coordinator.expire(driver.now)).facts:
        sizes.append(len(outcome.facts))
        for fact in outcome.facts:
            driver.coordinator.apply(fact)

    assert sizes == [10, 10, 5]
    assert driver.coordinator.image.offsets == {}


def test_a_sweep_looks_at_every_group_once_and_does_not_mind_those_that_went_meanwhile() -> None:
    driver = Driver(replace(EXPIRING, groups_expired_per_turn_max=10))
    for number in range(10, 35):
        driver.commit(position(1), group_id=f"g{number}")
    driver.now_ms += CHECK_MS

    driver.coordinator.expire(driver.now)
    driver.ask(DeleteGroup(on_reply=ignore, group_id="g34"))
    for _ in range(2):
        assert driver.coordinator.next_deadline() == CHECK_MS * MILLISECOND
        driver.coordinator.expire(driver.now)

    assert driver.coordinator.next_deadline() == 2 * CHECK_MS * MILLISECOND


def test_offsets_of_a_group_stored_without_members_ever_age_from_their_commit() -> None:
    stored = GroupStored(GROUP, "", 0, None, None, Timestamp(WALL_START_MS), ())
    driver = Driver(EXPIRING, [stored])
    driver.advance(CHECK_MS // 2)
    driver.commit(position(1))
    driver.advance(RETENTION_MS - CHECK_MS // 2)
    assert driver.committed() == 1

    driver.advance(CHECK_MS)

    assert driver.committed() == -1


def test_committing_does_not_shorten_a_rebalance() -> None:
    driver = Driver()
    member, ticket = driver.join_new()

    driver.commit(position(1), member_id=member, generation=0)

    assert ticket not in driver.answers
    driver.advance(DELAY_MS)
    assert driver.joined(ticket).generation == 1
