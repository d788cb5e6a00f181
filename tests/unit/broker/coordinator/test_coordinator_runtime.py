"""The runtime's rules hold for any machine: here for locks, which know nothing of groups."""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pytest

from penstock.broker.coordinator import Coordinator, CoordinatorState, partition_of
from penstock.broker.coordinator.runtime import FACTS_PER_TURN_MAX, REPLIES_PER_TURN_MAX
from penstock.broker.lease import FOREVER
from penstock.core.metadata import CreatedTopic, TopicDeleted
from penstock.core.model import ApiError, ErrorKind, NodeId, Timestamp, TopicName
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import FailureRule
from tests.unit.broker.coordinator.leader_bench import topic_facts
from tests.unit.broker.coordinator.lock_machine import (
    LOCK_TOPIC,
    LOCK_TOPIC_ID,
    AcquireLock,
    Holder,
    LockBench,
    LockCommand,
    LockFact,
    LockFreed,
    LockHeld,
    LockMachine,
    LockReply,
    ReleaseLock,
    ShowLock,
)

LockCoordinator: TypeAlias = Coordinator[LockMachine, LockCommand, LockFact]
THREE = (NodeId(1), NodeId(2), NodeId(3))


@pytest.fixture
def bench() -> LockBench:
    return LockBench().start()


@pytest.fixture
def replicated() -> LockBench:
    """Two followers whose progress is what the test says."""
    bench = LockBench()
    bench.replicas = THREE
    return bench.start()


def kind_of(reply: LockReply) -> ErrorKind | None:
    return reply.kind if isinstance(reply, ApiError) else None


def test_a_reply_waits_until_what_it_rests_on_is_below_the_high_watermark(replicated: LockBench) -> None:
    acquired = replicated.submit(AcquireLock, owner="a")
    read = replicated.submit(ShowLock)
    refused = replicated.submit(AcquireLock, owner="b")
    replicated.settle()
    unreplicated = [*acquired, *read, *refused]

    replicated.replicate(LOCK_TOPIC, 2, 1)
    half_replicated = [*acquired, *read, *refused]
    replicated.replicate(LOCK_TOPIC, 3, 1)

    assert (unreplicated, half_replicated) == ([], [])
    assert [*acquired, *read] == [Holder("a"), Holder("a")]
    assert kind_of(refused[0]) is ErrorKind.INVALID_REQUEST


def test_a_reply_waits_for_the_disk(bench: LockBench) -> None:
    bench.syncs.held = True

    replies = bench.submit(AcquireLock, owner="a")
    bench.settle()
    before = list(replies)
    bench.syncs.finish()

    assert before == []
    assert replies == [Holder("a")]


def test_a_read_is_replied_to_at_once_when_nothing_is_under_way(bench: LockBench) -> None:
    bench.acquire("a")
    bench.syncs.held = True

    assert bench.submit(ShowLock) == [Holder("a")]


def test_a_reply_that_only_prepares_another_command_waits_for_no_disk_but_for_the_lease() -> None:
    bench = LockBench(unlogged_commands=(ShowLock,)).start()
    bench.syncs.held = True
    acquired = bench.submit(AcquireLock, owner="a")

    assert bench.submit(ShowLock) == [Holder("a")]
    assert acquired == []
    end_lease(bench)
    assert [kind_of(reply) for reply in bench.submit(ShowLock)] == [ErrorKind.NOT_COORDINATOR]


def test_replicas_that_do_not_confirm_in_time_are_told_of(replicated: LockBench) -> None:
    replies = replicated.submit(AcquireLock, owner="a")
    replicated.settle()

    replicated.timers.pass_ms(6_000)

    assert [kind_of(reply) for reply in replies] == [ErrorKind.COORDINATOR_NOT_AVAILABLE]


def test_below_the_minimum_of_replicas_reads_are_served_and_writes_refused(replicated: LockBench) -> None:
    replicated.submit(AcquireLock, owner="a")
    replicated.settle()
    replicated.replicate(LOCK_TOPIC, 2, 1)
    replicated.replicate(LOCK_TOPIC, 3, 1)

    replicated.change_isr(LOCK_TOPIC, 1)

    assert kind_of(replicated.acquire("b")) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert replicated.holder() == "a"


def test_a_command_may_be_parked_until_another_one_settles_it(bench: LockBench) -> None:
    bench.acquire("a")
    parked = bench.submit(AcquireLock, owner="b", wait=True)
    bench.settle()
    before = list(parked)

    bench.ask(ReleaseLock, owner="a")

    assert before == []
    assert parked == [Holder("b")]
    assert bench.coordinator.waiting == 0


def test_deadlines_are_kept_by_the_timer_alone(bench: LockBench) -> None:
    bench.acquire("a", lease_ms=5_000)
    bench.acquire("a", "long", lease_ms=50_000)

    bench.timers.pass_ms(5_001)
    bench.settle()

    assert (bench.holder(), bench.holder("long")) == (None, "a")
    assert bench.observer.new[-1] == LockFreed("door")
    assert bench.observer.events == ["the lease of door is over"]


def test_an_earlier_deadline_takes_the_place_of_a_later_one(bench: LockBench) -> None:
    bench.acquire("a", "long", lease_ms=50_000)
    bench.acquire("a", lease_ms=1_000)

    bench.timers.pass_ms(1_001)
    bench.settle()

    assert bench.holder() is None


def test_the_state_is_rebuilt_from_the_log(bench: LockBench) -> None:
    bench.acquire("a")
    bench.acquire("b", "window")
    bench.acquire("c", "gate")
    bench.ask(ReleaseLock, "window", owner="b")

    restarted = bench.restarted()

    assert restarted.coordinator.machine.held == bench.coordinator.machine.held
    assert restarted.observer.replayed == bench.observer.new
    assert restarted.observer.new == []
    restarted.timers.pass_ms(10_001)
    assert restarted.holder() is None


def test_commands_are_refused_while_the_log_is_read(bench: LockBench) -> None:
    bench.acquire("a")
    restarted = LockBench(disk=bench.crashable.copy())
    restarted.lead(LOCK_TOPIC, LOCK_TOPIC_ID, 1, epoch=1)
    restarted.follow(*topic_facts(LOCK_TOPIC, LOCK_TOPIC_ID, 1))

    early = restarted.submit(ShowLock)
    restarted.settle()

    assert kind_of(early[0]) is ErrorKind.COORDINATOR_LOADING
    assert restarted.holder() == "a"


def test_records_that_mean_nothing_to_the_machine_are_skipped(bench: LockBench) -> None:
    bench.acquire("a")
    foreign = write_batch([Record(0, 1, None, b"no key")])
    bench.partition.append(foreign, check_batches(foreign), Timestamp(1))
    bench.settle()

    assert bench.restarted().holder() == "a"


def test_a_record_that_cannot_be_read_is_not_passed_over(bench: LockBench) -> None:
    bench.acquire("a")
    broken = write_batch([Record(0, 1, b"door", b"not json")])
    bench.partition.append(broken, check_batches(broken), Timestamp(1))
    bench.settle()

    restarted = bench.restarted()

    assert restarted.coordinator.state is CoordinatorState.FAILED
    assert kind_of(restarted.ask(ShowLock)) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert restarted.observer.load_failures == [restarted.partition.name]


def test_corrections_are_written_before_the_first_command(bench: LockBench) -> None:
    bench.acquire("a")
    restarted = LockBench(disk=bench.crashable.copy())
    restarted.corrections = [LockFreed("door")]

    restarted.start(epoch=1)

    assert restarted.holder() is None
    assert restarted.restarted().holder() is None


def test_very_many_corrections_are_written_in_turns_and_then_commands_are_served(
    bench: LockBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.acquire("a")
    restarted = LockBench(disk=bench.crashable.copy())
    restarted.corrections = [*[LockFreed(f"door-{number}") for number in range(1_200)], LockFreed("door")]
    append, portions = Coordinator.append, []

    def noted(coordinator: LockCoordinator, facts: Sequence[LockFact]) -> bool:
        portions.append(len(facts))
        assert coordinator.state is CoordinatorState.LOADING
        return append(coordinator, facts)

    monkeypatch.setattr(Coordinator, "append", noted)
    restarted.start(epoch=1)

    assert portions == [FACTS_PER_TURN_MAX, FACTS_PER_TURN_MAX, 1_201 - 2 * FACTS_PER_TURN_MAX]
    assert restarted.holder() is None


def test_corrections_end_where_the_partition_stops(bench: LockBench) -> None:
    restarted = LockBench(disk=bench.crashable.copy())
    restarted.corrections = [LockFreed(f"door-{number}") for number in range(1_200)]
    restarted.lead(LOCK_TOPIC, LOCK_TOPIC_ID, 1, 1)
    restarted.follow(*topic_facts(LOCK_TOPIC, LOCK_TOPIC_ID, 1))
    while restarted.led[LOCK_TOPIC, 0].log.end == 0:
        assert restarted.timers.step()

    coordinator = restarted.coordinator

    restarted.led[LOCK_TOPIC, 0].stop("another leads it")
    restarted.settle()

    assert coordinator.state is CoordinatorState.CLOSED
    assert restarted.led[LOCK_TOPIC, 0].log.end == FACTS_PER_TURN_MAX


def test_replies_for_very_many_who_waited_are_given_in_turns(bench: LockBench) -> None:
    given: list[LockReply] = []
    waiting: list[Callable[[LockReply], None]] = [partial(given.append) for _ in range(250)]
    bench.coordinator._waiting.update(dict.fromkeys(waiting))
    counts: list[int] = []

    bench.coordinator._release([(on_reply, Holder(str(number))) for number, on_reply in enumerate(waiting)])
    counts.append(len(given))
    while bench.timers.step():
        counts.append(len(given))

    assert counts[:3] == [REPLIES_PER_TURN_MAX, 2 * REPLIES_PER_TURN_MAX, 250]
    assert given == [Holder(str(number)) for number in range(250)]


def test_who_waits_is_told_when_the_leadership_is_lost_and_the_next_leader_rebuilds(bench: LockBench) -> None:
    bench.acquire("a")
    parked = bench.submit(AcquireLock, owner="b", wait=True)
    bench.syncs.held = True
    unsynced = bench.submit(AcquireLock, "window", owner="c")
    old = bench.coordinator

    bench.partition.stop("leader epoch 1 began", wanted=True)
    bench.settle()

    assert [kind_of(reply) for reply in (*parked, *unsynced)] == [ErrorKind.NOT_COORDINATOR] * 2
    assert old.state is CoordinatorState.CLOSED
    assert bench.observer.closed == 1
    assert kind_of(bench.ask(ShowLock)) is ErrorKind.NOT_COORDINATOR

    bench.syncs.held = False
    bench.syncs.finish()
    bench.partition.log.close()
    bench.lead(LOCK_TOPIC, LOCK_TOPIC_ID, 1, epoch=1)
    bench.coordinators.on_leadership_change()
    bench.settle()

    assert bench.coordinator is not old
    assert (bench.holder(), bench.holder("window")) == ("a", "c")


def test_nothing_is_appended_under_another_leader_epoch(bench: LockBench) -> None:
    end = bench.partition.log.end
    bench.partition.leader_epoch = type(bench.partition.leader_epoch)(7)

    reply = bench.acquire("a")

    assert kind_of(reply) is ErrorKind.NOT_COORDINATOR
    assert bench.partition.log.end == end


def test_an_append_that_fails_costs_the_machine_and_not_the_log(bench: LockBench) -> None:
    bench.acquire("a")
    parked = bench.submit(AcquireLock, owner="b", wait=True)
    bench.disk.fail(FailureRule("append", errno.ENOSPC))

    failed = bench.acquire("c", "window")
    bench.disk.heal()
    early = bench.ask(ShowLock)
    bench.timers.pass_ms(1_000)
    bench.settle()

    assert [kind_of(reply) for reply in (failed, *parked, early)] == [
        ErrorKind.NOT_COORDINATOR,
        ErrorKind.NOT_COORDINATOR,
        ErrorKind.COORDINATOR_LOADING,
    ]
    assert (bench.holder(), bench.holder("window")) == ("a", None)


def test_a_callback_whose_own_command_fails_does_not_keep_the_log_from_being_read_again(
    bench: LockBench,
) -> None:
    second: list[LockReply] = []

    def go_on(_: LockReply) -> None:
        bench.disk.fail(FailureRule("append", errno.ENOSPC))
        bench.coordinator.submit(AcquireLock(on_reply=second.append, name="window", owner="a"))

    # A read is replied to inside `submit`, with the rest of that step still to come.
    bench.acquire("a")
    bench.coordinator.submit(ShowLock(on_reply=go_on, name="door"))
    bench.settle()
    bench.disk.heal()
    bench.timers.pass_ms(1_000)
    bench.settle()

    assert [kind_of(reply) for reply in second] == [ErrorKind.NOT_COORDINATOR]
    assert bench.coordinator.state is CoordinatorState.ACTIVE
    assert bench.holder() == "a"


def test_who_is_told_of_a_failure_may_submit_again(bench: LockBench) -> None:
    again: list[LockReply] = []

    def try_again(_: LockReply) -> None:
        bench.coordinator.submit(AcquireLock(on_reply=again.append, name="door", owner="a"))

    bench.disk.fail(FailureRule("append", errno.ENOSPC))
    bench.coordinator.submit(AcquireLock(on_reply=try_again, name="door", owner="a"))
    bench.settle()

    assert [kind_of(reply) for reply in again] == [ErrorKind.COORDINATOR_LOADING]


def test_what_was_not_written_is_not_reported(bench: LockBench) -> None:
    bench.acquire("a", lease_ms=5_000)
    bench.disk.fail(FailureRule("append", errno.ENOSPC))

    bench.timers.pass_ms(5_001)

    assert bench.observer.events == []


def test_a_log_that_has_grown_is_rewritten_and_says_the_same() -> None:
    bench = LockBench(rewrite_records_min=50).start()
    bench.acquire("keeper", "gate")
    for number in range(200):
        bench.acquire(f"owner-{number}")
        bench.ask(ReleaseLock, owner=f"owner-{number}")
    bench.acquire("last")

    log = bench.partition.log
    assert log.start > 0
    assert log.end - log.start < 60
    restarted = bench.restarted()
    assert restarted.coordinator.machine.held == {
        "gate": LockHeld("gate", "keeper", 10_000),
        "door": LockHeld("door", "last", 10_000),
    }


def test_a_rewritten_log_is_cut_when_the_copy_is_committed() -> None:
    bench = LockBench(rewrite_records_min=20).start()
    for _ in range(19):
        bench.acquire("a")
    bench.syncs.held = True

    bench.submit(AcquireLock, owner="a")
    bench.settle()
    start_before = bench.partition.log.start
    bench.syncs.finish()
    bench.settle()

    assert start_before == 0
    assert bench.partition.log.start == 20


def test_keys_are_spread_over_the_partitions() -> None:
    bench = LockBench(partitions=5).start()
    names = [f"lock-{number}" for number in range(20)]

    for name in names:
        bench.acquire("a", name)

    for index in range(5):
        here = [name for name in names if partition_of(name, 5) == index]
        assert bench.led[LOCK_TOPIC, index].log.end == len(here)


def test_the_topic_is_made_when_a_coordinator_is_first_looked_for() -> None:
    bench = LockBench()
    found: list[NodeId | ApiError] = []

    bench.coordinators.locate("door", found.append)
    early = bench.submit(ShowLock)
    ((name, created),) = bench.asked_for
    before = list(found)
    bench.start()
    created(CreatedTopic(TopicName(LOCK_TOPIC), LOCK_TOPIC_ID, 1, 1))

    assert name == LOCK_TOPIC
    assert before == []
    assert kind_of(early[0]) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert found == [1]


def test_a_command_is_reason_enough_to_make_the_topic() -> None:
    bench = LockBench()

    reply = bench.ask(ShowLock)

    assert kind_of(reply) is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert [name for name, _ in bench.asked_for] == [LOCK_TOPIC]


def test_a_topic_that_cannot_be_made_is_told_of_and_asked_for_again() -> None:
    bench = LockBench()
    found: list[NodeId | ApiError] = []
    bench.coordinators.locate("door", found.append)
    ((_, created),) = bench.asked_for

    created(ApiError(ErrorKind.INVALID_REPLICATION_FACTOR, "one broker is there, three are asked for"))
    bench.coordinators.locate("door", found.append)

    assert found == [
        ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "one broker is there, three are asked for")
    ]
    assert len(bench.asked_for) == 2


def test_another_node_s_coordinators_are_located_and_not_served() -> None:
    bench = LockBench()
    bench.follow(*topic_facts(LOCK_TOPIC, LOCK_TOPIC_ID, 1, leader=2))
    found: list[NodeId | ApiError] = []

    bench.coordinators.locate("door", found.append)

    assert found == [2]
    assert kind_of(bench.ask(ShowLock)) is ErrorKind.NOT_COORDINATOR


def test_a_partition_whose_log_is_not_open_yet_is_loading() -> None:
    bench = LockBench()

    bench.follow(*topic_facts(LOCK_TOPIC, LOCK_TOPIC_ID, 1))

    assert kind_of(bench.ask(ShowLock)) is ErrorKind.COORDINATOR_LOADING


def test_coordinators_go_with_their_topic(bench: LockBench) -> None:
    bench.acquire("a")
    parked = bench.submit(AcquireLock, owner="b", wait=True)

    bench.led.clear()
    bench.follow(TopicDeleted(LOCK_TOPIC_ID))
    bench.settle()

    assert kind_of(parked[0]) is ErrorKind.NOT_COORDINATOR
    assert list(bench.coordinators) == []


def test_a_node_that_stops_closes_its_coordinators_for_good(bench: LockBench) -> None:
    bench.acquire("a")
    parked = bench.submit(AcquireLock, owner="b", wait=True)

    bench.coordinators.stop()
    bench.coordinators.on_leadership_change()
    bench.settle()

    assert [kind_of(reply) for reply in parked] == [ErrorKind.NOT_COORDINATOR]
    assert list(bench.coordinators) == []


def end_lease(bench: LockBench) -> None:
    bench.lease.until = bench.timers.now()


def test_without_the_lease_no_command_is_decided(bench: LockBench) -> None:
    bench.acquire("a")
    end = bench.partition.log.end
    end_lease(bench)

    refused = [bench.ask(ShowLock), bench.ask(ReleaseLock, owner="a"), bench.acquire("b", "window")]

    assert [kind_of(reply) for reply in refused] == [ErrorKind.NOT_COORDINATOR] * 3
    assert bench.partition.log.end == end


def test_a_reply_that_waited_for_the_disk_is_not_released_without_the_lease(bench: LockBench) -> None:
    bench.syncs.held = True
    acquired = bench.submit(AcquireLock, owner="a")
    read = bench.submit(ShowLock)
    end_lease(bench)

    bench.syncs.held = False
    bench.settle()

    assert [kind_of(reply) for reply in (*acquired, *read)] == [ErrorKind.NOT_COORDINATOR] * 2


def test_what_is_due_without_the_lease_waits_for_it_and_starts_in_full(bench: LockBench) -> None:
    bench.acquire("a", lease_ms=10_000)
    parked = bench.submit(AcquireLock, owner="b", wait=True)
    end_lease(bench)
    bench.timers.pass_ms(11_000)
    bench.settle()
    refused = bench.ask(ShowLock)

    bench.lease.until = FOREVER
    bench.timers.pass_ms(1_000)
    bench.settle()
    after = bench.ask(ShowLock)
    bench.timers.pass_ms(10_000)
    bench.settle()

    assert kind_of(parked[0]) is ErrorKind.NOT_COORDINATOR
    assert kind_of(refused) is ErrorKind.NOT_COORDINATOR
    assert after == Holder("a")
    assert bench.ask(ShowLock) == Holder(None)


def test_a_command_of_the_node_itself_is_decided_without_the_lease() -> None:
    bench = LockBench(own_commands=(ReleaseLock,)).start()
    bench.acquire("a")
    end_lease(bench)

    bench.ask(ReleaseLock, owner="a")
    bench.lease.until = FOREVER

    assert bench.ask(ShowLock) == Holder(None)
