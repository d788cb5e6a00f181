"""Coordinators whose log has several replicas: what they know, and what they may tell."""

import pytest

from penstock.broker.coordinator import CoordinatorState
from penstock.core.groups import CommitResults, GroupOk, Reply
from penstock.core.metadata import OFFSETS_TOPIC
from penstock.core.model import ApiError, ErrorKind, NodeId
from tests.unit.broker.groups.groups_bench import GroupsBench

THREE = (NodeId(1), NodeId(2), NodeId(3))


@pytest.fixture
def bench() -> GroupsBench:
    bench = GroupsBench()
    bench.replicas = THREE
    return bench.start()


def kind_of(reply: Reply) -> ErrorKind | None:
    return reply.kind if isinstance(reply, ApiError) else None


def phase_of(bench: GroupsBench) -> CoordinatorState:
    (host,) = bench.groups
    return host.state


def test_a_commit_is_answered_when_all_replicas_have_it(bench: GroupsBench) -> None:
    replies = bench.commit_offset(7)
    bench.settle()
    assert replies == []

    bench.fetched(2, 1)
    assert replies == []

    bench.fetched(3, 1)
    assert [type(reply) for reply in replies] == [CommitResults]


def test_a_commit_that_waits_too_long_for_replicas_is_told_to_try_again(bench: GroupsBench) -> None:
    replies = bench.commit_offset(7)
    bench.settle()

    bench.timers.pass_ms(6_000)

    assert [kind_of(reply) for reply in replies] == [ErrorKind.COORDINATOR_NOT_AVAILABLE]
    assert phase_of(bench) is CoordinatorState.ACTIVE


def test_with_too_few_replicas_in_sync_nothing_is_taken_and_what_is_known_is_told(
    bench: GroupsBench,
) -> None:
    bench.commit_offset(7)
    bench.settle()
    bench.fetched(2, 1)
    bench.fetched(3, 1)

    bench.isr(1)

    assert kind_of(bench.ask_to_commit(8)) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert bench.committed() == 7
    bench.isr(1, 2)
    bench.commit_offset(8)
    bench.settle()
    bench.fetched(2, 2)
    assert bench.committed() == 8


def test_members_go_on_with_their_heartbeats_while_too_few_replicas_are_in_sync() -> None:
    bench = GroupsBench().start()
    joined = bench.join_alone()
    bench.led[OFFSETS_TOPIC, 0].assignment_changed(
        bench.led[OFFSETS_TOPIC, 0].isr.assignment._replace(replicas=THREE, isr=THREE[:1], minimum=2)
    )

    replies = bench.heartbeat(joined)
    bench.settle()

    assert [type(reply) for reply in replies] == [GroupOk]


def test_a_new_leader_reads_its_log_when_it_knows_that_all_of_it_is_committed() -> None:
    first = GroupsBench().start()
    first.ask_to_commit(7)
    second = GroupsBench(disk=first.crashable.copy())
    second.replicas = THREE
    second.open_logs(epoch=1)
    # What the checkpoint of the log knew is less than what the log holds.
    led = second.led[OFFSETS_TOPIC, 0]
    assert (led.high_watermark, led.log.end) == (0, 1)
    second.serve()
    assert phase_of(second) is CoordinatorState.LOADING
    assert kind_of(second.ask_to_commit(8)) is ErrorKind.COORDINATOR_LOADING

    second.fetched(2, 1)
    assert phase_of(second) is CoordinatorState.LOADING
    second.fetched(3, 1)

    assert phase_of(second) is CoordinatorState.ACTIVE
    assert second.committed() == 7


def test_a_new_leader_without_enough_replicas_says_that_there_is_no_coordinator() -> None:
    first = GroupsBench().start()
    first.ask_to_commit(7)
    second = GroupsBench(disk=first.crashable.copy())
    second.replicas = THREE
    second.open_logs(epoch=1)
    second.isr(1)

    second.serve()

    assert kind_of(second.ask_to_commit(8)) is ErrorKind.COORDINATOR_NOT_AVAILABLE


def test_when_the_next_epoch_of_the_same_leader_begins_its_coordinators_begin_anew(
    bench: GroupsBench,
) -> None:
    (old,) = bench.groups
    replies = bench.commit_offset(7)
    bench.settle()

    bench.led[OFFSETS_TOPIC, 0].stop("leader epoch 1 began", wanted=True)
    bench.settle()

    assert old.state is CoordinatorState.CLOSED
    assert [kind_of(reply) for reply in replies] == [ErrorKind.NOT_COORDINATOR]


def test_a_log_that_was_made_late_gets_its_coordinator() -> None:
    bench = GroupsBench()
    bench.serve()
    assert isinstance(bench.ask_to_commit(1), ApiError)

    bench.open_logs()
    bench.groups.roles_changed()
    bench.settle()

    assert isinstance(bench.ask_to_commit(1), CommitResults)


def test_a_node_that_stops_takes_no_coordinator_back() -> None:
    bench = GroupsBench().start()
    bench.groups.stop()

    bench.groups.roles_changed()
    bench.settle()

    assert list(bench.groups) == []
