"""The host rule: which responses are sent when, and what becomes of those who wait when things go wrong."""

import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.coordinator import CoordinatorState, partition_of
from penstock.broker.lease import FOREVER
from penstock.core.groups import (
    CommitResults,
    DescribedGroup,
    DescribeGroup,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopics,
    GroupOk,
    GroupState,
    Heartbeat,
    JoinGroupResult,
    ListedGroups,
    MemberAssignment,
    Reply,
    SyncGroup,
)
from penstock.core.metadata import OFFSETS_TOPIC, CreatedTopic, TopicDeleted
from penstock.core.model import ApiError, ErrorKind, NodeId, TopicId
from penstock.storage.disk import FailureRule
from tests.unit.broker.coordinator.leader_bench import topic_facts
from tests.unit.broker.groups.groups_bench import GROUP, OFFSETS_ID, READ_ID, READ_TOPIC, GroupsBench, brisk


@pytest.fixture
def bench() -> GroupsBench:
    return GroupsBench().start()


def kind_of(reply: Reply) -> ErrorKind | None:
    return reply.kind if isinstance(reply, ApiError) else None


def test_a_commit_is_answered_when_it_is_on_disk(bench: GroupsBench) -> None:
    bench.syncs.held = True

    replies = bench.commit_offset(5)
    bench.settle()
    before = list(replies)
    bench.syncs.finish()

    assert before == []
    assert isinstance(replies[0], CommitResults)


def test_reads_and_refusals_wait_for_what_they_saw(bench: GroupsBench) -> None:
    bench.syncs.held = True
    bench.commit_offset(5)

    read = bench.submit(FetchOffsets, topics=None)
    refused = bench.submit(Heartbeat, generation=1, member_id="nobody")
    bench.settle()
    before = [*read, *refused]
    bench.syncs.finish()

    assert before == []
    assert isinstance(read[0], FetchedOffsets)
    assert kind_of(refused[0]) is ErrorKind.UNKNOWN_MEMBER


def test_a_heartbeat_is_answered_at_once_when_nothing_is_under_way(bench: GroupsBench) -> None:
    joined = bench.join_alone()
    end = bench.log.end
    bench.syncs.held = True

    replies = bench.heartbeat(joined)

    assert replies == [GroupOk()]
    assert bench.log.end == end


def test_sessions_end_by_the_timer_alone(bench: GroupsBench) -> None:
    bench.join_alone()

    bench.timers.pass_ms(10_001)
    bench.settle()

    described = bench.ask(DescribeGroup)
    assert isinstance(described, DescribedGroup)
    assert described.state is GroupState.EMPTY


def test_a_failed_sync_answers_everybody_and_drops_the_coordinator(bench: GroupsBench) -> None:
    parked = bench.join(bench.new_member_id())
    bench.syncs.held = True
    commit = bench.commit_offset(5, group_id="simple")

    bench.syncs.finish(OSError(errno.EIO, "gone"))
    bench.settle()

    assert [kind_of(reply) for reply in (*parked, *commit)] == [ErrorKind.NOT_COORDINATOR] * 2
    assert kind_of(bench.ask(FetchOffsets, topics=None)) is ErrorKind.NOT_COORDINATOR


def test_a_full_disk_starts_the_coordinator_over_from_its_log(bench: GroupsBench) -> None:
    bench.ask_to_commit(5, group_id="simple")
    parked = bench.join(bench.new_member_id())
    bench.disk.fail(FailureRule("append", errno.ENOSPC))

    failed = bench.ask_to_commit(6, group_id="simple")
    bench.disk.heal()
    early = bench.ask(FetchOffsets, group_id="simple", topics=None)
    bench.timers.pass_ms(1_000)
    bench.settle()

    assert kind_of(early) is ErrorKind.COORDINATOR_LOADING
    assert kind_of(failed) is ErrorKind.NOT_COORDINATOR
    assert kind_of(parked[0]) is ErrorKind.NOT_COORDINATOR
    assert bench.committed("simple") == 5


def test_a_record_that_is_too_large_is_refused_as_such(bench: GroupsBench) -> None:
    replies = bench.join(bench.new_member_id())
    bench.timers.pass_ms(1_000)
    bench.settle()
    joined = replies[0]
    assert isinstance(joined, JoinGroupResult)

    huge = (MemberAssignment(joined.member_id, b"x" * (2 << 20)),)
    reply = bench.ask(SyncGroup, generation=joined.generation, member_id=joined.member_id, assignments=huge)

    assert kind_of(reply) is ErrorKind.BATCH_TOO_LARGE
    bench.timers.pass_ms(1_000)
    assert bench.committed() == -1


def test_those_who_wait_are_answered_once_when_the_node_stops(bench: GroupsBench) -> None:
    parked = bench.join(bench.new_member_id())
    bench.syncs.held = True
    commit = bench.commit_offset(5, group_id="simple")

    bench.groups.stop()
    bench.syncs.finish()
    bench.settle()

    assert [kind_of(reply) for reply in (*parked, *commit)] == [ErrorKind.NOT_COORDINATOR] * 2


def test_an_append_under_an_old_leader_epoch_does_not_happen(bench: GroupsBench) -> None:
    end = bench.log.end
    partition = bench.led[OFFSETS_TOPIC, 0]
    partition.leader_epoch = type(partition.leader_epoch)(7)

    reply = bench.ask_to_commit(5)

    assert kind_of(reply) is ErrorKind.NOT_COORDINATOR
    assert bench.log.end == end


def test_state_is_the_same_after_a_restart(bench: GroupsBench) -> None:
    joined = bench.join_alone()
    bench.commit_offset(5, generation=joined.generation, member_id=joined.member_id)
    bench.settle()
    before = bench.ask(DescribeGroup)

    restarted = bench.restarted()

    assert restarted.committed() == 5
    assert restarted.ask(DescribeGroup) == before
    assert restarted.heartbeat(joined) == [GroupOk()]
    synced = restarted.ask(SyncGroup, generation=joined.generation, member_id=joined.member_id)
    assert getattr(synced, "assignment", None) == b"everything"


def test_commands_are_told_that_the_coordinator_loads(bench: GroupsBench) -> None:
    bench.commit_offset(5)
    bench.settle()
    restarted = GroupsBench(disk=bench.crashable.copy())
    restarted.lead(OFFSETS_TOPIC, OFFSETS_ID, 1, epoch=1)
    restarted.lead(READ_TOPIC, READ_ID, 1, epoch=1)
    restarted.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 1), *topic_facts(READ_TOPIC, READ_ID, 1))

    early = restarted.submit(FetchOffsets, topics=None)
    listed: list[ListedGroups | ApiError] = []
    restarted.groups.list_groups((), (), listed.append)

    assert kind_of(early[0]) is ErrorKind.COORDINATOR_LOADING
    restarted.settle()
    assert isinstance(listed[0], ApiError)
    assert restarted.committed() == 5


def test_loading_takes_many_turns_of_the_loop() -> None:
    bench = GroupsBench().start()
    for number in range(2_000):
        bench.commit_offset(number, group_id=f"group-{number}")
    bench.settle()
    restarted = GroupsBench(disk=bench.crashable.copy())
    restarted.lead(OFFSETS_TOPIC, OFFSETS_ID, 1, epoch=1)
    restarted.lead(READ_TOPIC, READ_ID, 1, epoch=1)
    restarted.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 1), *topic_facts(READ_TOPIC, READ_ID, 1))
    (host,) = restarted.groups

    turns = 0
    while host.state is CoordinatorState.LOADING and restarted.timers.step():
        turns += 1

    assert turns > 4
    assert restarted.committed("group-1999") == 1999


def test_a_log_that_is_asked_for_is_read_before_the_others() -> None:
    bench = GroupsBench(partitions=9).start()
    names = [f"group-{number}" for number in range(60)]
    for name in names:
        bench.commit_offset(1, group_id=name)
    bench.settle()
    restarted = GroupsBench(partitions=9, disk=bench.crashable.copy())
    restarted.lead(OFFSETS_TOPIC, OFFSETS_ID, 9, epoch=1)
    restarted.lead(READ_TOPIC, READ_ID, 1, epoch=1)
    restarted.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 9), *topic_facts(READ_TOPIC, READ_ID, 1))
    last = next(name for name in names if partition_of(name, 9) == 8)

    restarted.submit(FetchOffsets, group_id=last, topics=None)
    while not any(host.state is CoordinatorState.ACTIVE for host in list(restarted.groups)[1:]):
        assert restarted.timers.step()

    assert [host.state is CoordinatorState.ACTIVE for host in restarted.groups] == [True, *[False] * 7, True]


def test_damage_in_the_log_is_not_served(bench: GroupsBench) -> None:
    bench.commit_offset(5)
    bench.settle()
    bench.log.close()
    bench.crashable.flip_bit(f"logs/{OFFSETS_TOPIC}/0/00000000000000000000.log", 8 * 70)

    restarted = bench.restarted()

    assert kind_of(restarted.ask(FetchOffsets, topics=None)) is ErrorKind.COORDINATOR_NOT_AVAILABLE


def test_a_log_that_could_not_be_read_is_read_again_after_a_while(bench: GroupsBench) -> None:
    bench.ask_to_commit(5)
    restarted = GroupsBench(disk=bench.crashable.copy())
    restarted.open_logs(epoch=1)
    # It is verified then, and found whole.
    restarted.disk.fail(FailureRule("pread", path_ends=".log"))

    restarted.serve()
    first = restarted.ask(FetchOffsets, topics=None)
    restarted.timers.pass_ms(1_000)
    restarted.settle()

    assert kind_of(first) == ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert restarted.committed() == 5
    failures = restarted.groups.metrics.load_failures.figures
    assert [(labels, tally.count) for labels, tally in failures.items()] == [((f"{OFFSETS_TOPIC}/0",), 1)]
    assert len(restarted.groups.metrics.lag.figures) == 1


def test_a_log_that_stays_damaged_is_not_read_all_the_time(bench: GroupsBench) -> None:
    bench.ask_to_commit(5)
    bench.log.close()
    bench.crashable.flip_bit(f"logs/{OFFSETS_TOPIC}/0/00000000000000000000.log", 8 * 70)
    restarted = bench.restarted()

    for _ in range(60):
        restarted.timers.pass_ms(60_000)
        restarted.settle()

    (failures,) = restarted.groups.metrics.load_failures.figures.values()
    assert 60 <= failures.count <= 70
    assert kind_of(restarted.ask(FetchOffsets, topics=None)) is ErrorKind.COORDINATOR_NOT_AVAILABLE


def test_a_coordinator_that_is_given_up_is_not_read_again(bench: GroupsBench) -> None:
    bench.ask_to_commit(5)
    bench.log.close()
    bench.crashable.flip_bit(f"logs/{OFFSETS_TOPIC}/0/00000000000000000000.log", 8 * 70)
    restarted = bench.restarted()

    restarted.groups.stop()
    restarted.timers.pass_ms(600_000)
    restarted.settle()

    (failures,) = restarted.groups.metrics.load_failures.figures.values()
    assert failures.count == 1


def test_a_log_that_has_grown_is_written_anew_and_cut() -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    for number in range(200):
        bench.commit_offset(number)
        bench.commit_offset(number, group_id="other")
        bench.settle()

    assert bench.log.end - bench.log.start < 60
    restarted = bench.restarted()
    assert (restarted.committed(), restarted.committed("other")) == (199, 199)


def test_a_rewritten_log_is_cut_only_when_it_is_on_disk() -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    for number in range(49):
        bench.commit_offset(number)
    bench.settle()
    bench.syncs.held = True

    bench.commit_offset(49)
    bench.settle()
    start_before = bench.log.start
    bench.syncs.finish()
    bench.settle()

    assert start_before == 0
    assert bench.log.start == 50


def test_groups_are_spread_and_listed_together() -> None:
    bench = GroupsBench(partitions=5).start()
    names = [f"group-{number}" for number in range(20)]
    for name in names:
        bench.commit_offset(1, group_id=name)
    bench.settle()

    listed: list[ListedGroups | ApiError] = []
    bench.groups.list_groups((), (), listed.append)
    bench.settle()

    assert isinstance(listed[0], ListedGroups)
    assert [group.group_id for group in listed[0].groups] == sorted(names)
    for index in range(5):
        here = [name for name in names if partition_of(name, 5) == index]
        assert bench.led[OFFSETS_TOPIC, index].log.end == len(here)


def test_coordinators_are_asked_for_their_groups_in_turns_of_their_own() -> None:
    bench = GroupsBench(partitions=3).start()
    asked: list[int] = []
    for number, coordinator in enumerate(bench.groups):
        submit = coordinator.submit

        def note(command: Any, number: int = number, submit: Callable[[Any], None] = submit) -> None:
            asked.append(number)
            submit(command)

        coordinator.submit = note  # type: ignore[method-assign]

    bench.groups.list_groups((), (), lambda _: None)

    assert asked == [0]
    bench.settle()
    assert asked == [0, 1, 2]


def test_positions_in_a_deleted_topic_are_forgotten(bench: GroupsBench) -> None:
    bench.commit_offset(5)
    bench.settle()

    bench.follow(TopicDeleted(READ_ID))
    bench.settle()

    assert bench.ask(FetchOffsets, topics=None) == FetchedOffsets(())


def test_topics_that_are_deleted_together_cost_one_look_at_all_positions(bench: GroupsBench) -> None:
    others = {f"other-{number}": TopicId(UUID(int=100 + number)) for number in range(3)}
    bench.follow(*(fact for name, topic_id in others.items() for fact in topic_facts(name, topic_id, 1)))
    (coordinator,) = bench.groups
    submit, asked = coordinator.submit, []

    def note(command: Any) -> None:
        asked.append(command)
        submit(command)

    coordinator.submit = note  # type: ignore[method-assign]
    bench.follow(*map(TopicDeleted, others.values()))

    (command,) = [each for each in asked if isinstance(each, ForgetTopics)]
    assert command.topics == set(others)


def test_positions_in_a_topic_that_was_deleted_meanwhile_are_forgotten_when_loaded(
    bench: GroupsBench,
) -> None:
    bench.commit_offset(5)
    bench.settle()
    restarted = GroupsBench(disk=bench.crashable.copy())
    restarted.lead(OFFSETS_TOPIC, OFFSETS_ID, 1, epoch=1)

    restarted.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 1), *topic_facts(READ_TOPIC, OFFSETS_ID, 0))
    restarted.settle()

    assert restarted.ask(FetchOffsets, topics=None) == FetchedOffsets(())


def test_the_offsets_topic_is_made_when_a_coordinator_is_first_looked_for() -> None:
    bench = GroupsBench()
    found: list[NodeId | ApiError] = []

    bench.groups.locate(GROUP, found.append)
    bench.groups.locate("another", found.append)
    early = bench.submit(FetchOffsets, topics=None)
    before = list(found)
    ((name, created),) = bench.asked_for
    bench.start()
    created(CreatedTopic(READ_TOPIC, OFFSETS_ID, 1, 1))

    assert name == OFFSETS_TOPIC
    assert before == []
    assert kind_of(early[0]) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert found == [1, 1]
    assert bench.committed() == -1


def test_a_coordinator_is_not_named_before_its_log_is_there() -> None:
    bench = GroupsBench()
    found: list[NodeId | ApiError] = []
    bench.groups.locate(GROUP, found.append)
    bench.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 1))

    bench.groups.locate(GROUP, found.append)
    early = bench.submit(FetchOffsets, topics=None)

    assert found == []
    assert kind_of(early[0]) is ErrorKind.COORDINATOR_LOADING


def test_groups_that_another_node_leads_are_not_ours() -> None:
    bench = GroupsBench()
    bench.follow(*topic_facts(OFFSETS_TOPIC, OFFSETS_ID, 1, leader=2))
    found: list[NodeId | ApiError] = []

    bench.groups.locate(GROUP, found.append)

    assert found == [2]
    assert kind_of(bench.ask(FetchOffsets, topics=None)) is ErrorKind.NOT_COORDINATOR


def test_a_coordinator_is_given_up_with_its_partition(bench: GroupsBench) -> None:
    parked = bench.join(bench.new_member_id())

    bench.led.clear()
    bench.follow(TopicDeleted(OFFSETS_ID))
    bench.settle()

    assert kind_of(parked[0]) is ErrorKind.NOT_COORDINATOR
    assert list(bench.groups) == []


def test_without_the_lease_groups_are_neither_read_nor_changed_nor_listed(bench: GroupsBench) -> None:
    bench.ask_to_commit(5)
    bench.lease.until = bench.timers.now()

    replies = [
        bench.ask(FetchOffsets, topics=None),
        bench.ask_to_commit(6),
        bench.ask(Heartbeat, generation=1, member_id="m"),
    ]
    listed: list[ListedGroups | ApiError] = []
    bench.groups.list_groups((), (), listed.append)
    lag = bench.groups.lag(GROUP)

    assert [kind_of(reply) for reply in replies] == [ErrorKind.NOT_COORDINATOR] * 3
    # Kafka's own error for a listing that cannot be given; clients ask again.
    assert isinstance(listed[0], ApiError)
    assert listed[0].kind is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert isinstance(lag, ApiError)


def test_positions_in_a_topic_that_is_deleted_are_dropped_even_without_the_lease(bench: GroupsBench) -> None:
    bench.ask_to_commit(5)
    bench.lease.until = bench.timers.now()

    bench.follow(TopicDeleted(READ_ID))
    bench.settle()
    bench.lease.until = FOREVER

    read = bench.ask(FetchOffsets, topics=None)
    assert isinstance(read, FetchedOffsets)
    assert read.offsets == ()


def test_what_groups_take_counts_while_their_coordinator_is_here_and_again_when_it_is_loaded(
    bench: GroupsBench,
) -> None:
    joined = bench.join_alone(client_id="app", client_host="/10.0.0.1")
    bench.ask(Heartbeat, generation=joined.generation, member_id=joined.member_id)
    held = bench.groups._held
    here = held.total

    restarted = bench.restarted()
    restarted.ask(Heartbeat, generation=joined.generation, member_id=joined.member_id)
    bench.groups.stop()

    assert here == restarted.groups._held.of("/10.0.0.1") > 1_000
    assert held.total == 0
