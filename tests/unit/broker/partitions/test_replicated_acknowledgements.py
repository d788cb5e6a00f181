"""What producers and consumers get when several replicas keep a partition."""

import pytest

from penstock.broker.partitions import FsyncMode
from penstock.core.metadata import (
    ConfigResource,
    ConfigResourceType,
    FenceBroker,
    IncrementalAlterConfigs,
    ReassignPartition,
)
from penstock.core.metadata.commands import ConfigChange, ConfigOperation
from penstock.core.model import ApiError, ErrorKind, NodeId, Offset, PartitionIndex
from penstock.core.replica.isr import anyone
from tests.unit.broker.partitions.replicas_bench import Producer, ReplicasBench
from tests.unit.core.metadata.clusters import broker_of, perform


@pytest.fixture
def bench() -> ReplicasBench:
    return ReplicasBench().create(1, 2, 3)


def test_the_leaders_own_sync_is_enough_for_some_and_the_slowest_replica_decides_for_all(
    bench: ReplicasBench,
) -> None:
    producer = Producer(bench[1])
    producer.append()
    assert (producer.synced, producer.acknowledged) == ([1], [])

    bench.copy(2)
    assert producer.acknowledged == []
    assert bench[1].led.high_watermark == 0

    bench.copy(3)
    assert producer.acknowledged == [1]
    assert bench[1].led.high_watermark == bench[1].led.log.high_watermark == 1


def test_what_a_follower_has_not_synced_is_not_acknowledged(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    bench[3].syncs.held = True
    producer.append()
    bench.copy(2)

    bench.copy(3)
    assert bench[3].followed.log.end == 1
    assert producer.acknowledged == []

    bench[3].syncs.held = False
    bench[3].settle()
    bench.tell(3)
    assert producer.acknowledged == [1]


def test_what_the_leader_has_not_synced_is_not_acknowledged_although_the_followers_have_it(
    bench: ReplicasBench,
) -> None:
    bench[1].syncs.held = True
    producer = Producer(bench[1])
    producer.append()
    bench.copy(2)
    bench.copy(3)
    assert (producer.synced, producer.acknowledged) == ([], [])

    bench[1].syncs.held = False
    bench[1].settle()

    assert (producer.synced, producer.acknowledged) == ([1], [1])


def test_in_mode_none_appended_means_synced_on_all_replicas() -> None:
    bench = ReplicasBench(FsyncMode.NONE).create(1, 2, 3)
    for number in (1, 2, 3):
        bench[number].syncs.held = True
    producer = Producer(bench[1])

    producer.append()
    bench.copy(2)
    bench.copy(3)

    assert (producer.synced, producer.acknowledged) == ([1], [1])


def test_an_isr_that_shrinks_lets_those_go_who_waited_for_the_one_that_left(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    producer.append()
    bench.copy(2)

    bench.change_isr(1, 2)

    assert producer.acknowledged == [1]


def test_below_the_minimum_nothing_more_is_acknowledged(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    before = bench[1].led.has_min_isr

    bench.change_isr(1)
    producer.append()

    assert (before, bench[1].led.has_min_isr) == (True, False)
    assert (producer.synced, producer.acknowledged) == ([1], [])

    bench.copy(2)
    bench.change_isr(1, 2)
    bench.tell(2)
    assert producer.acknowledged == [1]


def test_the_minimum_follows_the_topics_configuration(bench: ReplicasBench) -> None:
    bench.change_isr(1, 2)
    enough = [bench[1].led.has_min_isr]

    for minimum in ("3", "2"):
        change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", minimum)
        bench.perform(IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "orders"), (change,)))
        enough.append(bench[1].led.has_min_isr)

    assert enough == [True, False, True]


def test_a_lower_minimum_is_not_in_force_with_an_isr_that_is_gone_by_then() -> None:
    """Both reach the leader at once: broker 3 is eligible all the time, and has not got the record."""
    bench = ReplicasBench().create(1, 2, 3, min_insync_replicas="3")
    bench.change_isr(1, 2)
    producer = Producer(bench[1])
    producer.append()
    bench.copy(2)
    change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", "2")
    perform(bench.machine, FenceBroker(NodeId(2), broker_of(bench.machine, 2).epoch))

    bench.perform(IncrementalAlterConfigs(ConfigResource(ConfigResourceType.TOPIC, "orders"), (change,)))

    assert (bench.state.isr, bench.state.elr) == ((1,), (2, 3))
    assert (producer.acknowledged, bench[1].led.high_watermark) == ([], 0)


def test_settings_of_one_broker_do_not_change_the_minimum(bench: ReplicasBench) -> None:
    change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", "1")

    bench.perform(IncrementalAlterConfigs(ConfigResource(ConfigResourceType.BROKER, "1"), (change,)))

    assert bench[1].led.isr.assignment.minimum == 2


def test_whoever_waits_longer_than_asked_gets_a_timeout(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    producer.append(timeout_ms=1_000)
    producer.append(timeout_ms=60_000)

    bench.timers.pass_ms(900)
    assert producer.errors == []
    bench.timers.pass_ms(500)

    (error,) = producer.errors
    assert error.kind is ErrorKind.TIMED_OUT
    bench.copy(2)
    bench.copy(3)
    assert producer.acknowledged == [2]


def test_those_who_time_out_because_too_few_are_in_sync_are_told_so(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    producer.append(timeout_ms=1_000)

    bench.change_isr(1)
    bench.timers.pass_ms(2_000)

    (error,) = producer.errors
    assert error.kind is ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert str(error) == "orders/0: 1 in sync, 2 are needed"


def test_the_only_replica_knows_no_timeouts() -> None:
    bench = ReplicasBench().create(1)
    bench[1].syncs.held = True
    producer = Producer(bench[1])
    producer.append(timeout_ms=10)

    bench.timers.pass_ms(10_000)
    assert producer.errors == []

    bench[1].syncs.held = False
    bench[1].settle()
    assert producer.acknowledged == [1]


def test_a_leader_that_was_alone_waits_for_those_who_join_it() -> None:
    bench = ReplicasBench().create(1, 2)
    bench.change_isr(1)
    producer = Producer(bench[1])
    producer.append()
    assert producer.acknowledged == [1]

    bench.copy(2)
    bench.change_isr(1, 2)
    producer.append()

    assert producer.acknowledged == [1]
    bench.copy(2)
    assert producer.acknowledged == [1, 2]


def test_the_first_of_several_replicas_has_what_it_had_when_it_was_the_only_one() -> None:
    bench = ReplicasBench().create(1)
    Producer(bench[1]).append()

    bench.perform(ReassignPartition("orders", PartitionIndex(0), (NodeId(1), NodeId(2))))

    led = bench[1].led
    assert led.isr.high_watermark == led.high_watermark == 1
    assert led.when_synced(Offset(1), _never)


def _never(_: ApiError | None) -> None:
    raise AssertionError("this holds already")


def test_a_third_replica_raises_the_minimum() -> None:
    bench = ReplicasBench().create(1, 2)
    before = bench[1].led.isr.assignment.minimum

    bench.perform(ReassignPartition("orders", PartitionIndex(0), (NodeId(1), NodeId(2), NodeId(3))))
    bench.copy(3)
    bench.change_isr(1, 2, 3)

    assert (before, bench[1].led.isr.assignment.minimum) == (1, 2)


def test_followers_are_notified_once_per_turn_that_the_log_end_has_moved(bench: ReplicasBench) -> None:
    partition = bench[1].led
    heard: list[int] = []

    def watcher() -> None:
        heard.append(partition.log.end)

    partition.watch_end(watcher)
    bench[1].syncs.held = True
    Producer(bench[1]).append()
    assert heard == [1]

    partition.unwatch_end(watcher)
    Producer(bench[1]).append()
    assert heard == [1]


def test_a_new_leader_knows_only_what_it_was_told_until_the_others_have_caught_up(
    bench: ReplicasBench,
) -> None:
    old = Producer(bench[1])
    old.append()
    for number in (2, 3):
        bench.copy(number)
    old.append()
    for number in (2, 3):
        bench.copy(number)
    assert old.acknowledged == [1, 2]
    # Broker 2 has got the first one only.
    assert bench[2].followed.log.high_watermark == 1

    bench.fence(1)

    led = bench[2].led
    assert (led.high_watermark, led.is_established) == (1, False)
    bench.tell(3)
    assert (led.high_watermark, led.is_established) == (2, True)


def test_a_proposal_counts_from_the_moment_it_is_made(bench: ReplicasBench) -> None:
    bench.change_isr(1, 2)
    producer = Producer(bench[1])
    bench.copy(3)

    proposal = bench[1].led.proposal(anyone)
    assert proposal is not None
    assert [member.node_id for member in proposal] == [1, 2, 3]
    producer.append()
    bench.copy(2)
    assert producer.acknowledged == []

    bench[1].led.proposal_ended(accepted=False)
    assert producer.acknowledged == [Offset(1)]
