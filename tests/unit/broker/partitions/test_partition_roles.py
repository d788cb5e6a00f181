"""What a node is to its logs follows from the metadata; the logs stay."""

from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic, DeleteTopic, ReassignPartition, ReplicaAssignment
from penstock.core.model import SECOND, ApiError, ErrorKind, NodeId, PartitionIndex, TopicId
from penstock.core.records import check_batches
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Producer, ReplicasBench, batch
from tests.unit.core.metadata.clusters import broker_of, perform, registration


def test_one_node_leads_and_the_other_replicas_follow_it() -> None:
    bench = ReplicasBench().create(1, 2, 3)

    assert bench[1].led.leader_epoch == 0
    assert bench[1].partitions.followed() == []
    for number in (2, 3):
        assert bench[number].partitions.find("orders", 0) is None
        assert bench[number].partitions.find_by_id(TOPIC_ID, 0) is None
        assert (bench[number].followed.leader, bench[number].followed.leader_epoch) == (1, 0)


def test_a_node_without_a_replica_makes_no_log() -> None:
    bench = ReplicasBench().create(1, 2)

    assert len(bench[3].partitions) == 0
    assert not bench[3].disk.exists("logs/orders/0")


def test_when_another_node_takes_over_the_old_leader_stops_and_follows() -> None:
    bench = ReplicasBench().create(1, 2, 3)
    old, log = bench[1].led, bench[1].led.log

    bench.fence(1)

    assert str(old.stopped) == "orders/0: broker 2 leads in epoch 1"
    assert bench[1].partitions.find("orders", 0) is None
    assert bench[1].followed.leader == 2
    assert bench[1].followed.log is log
    assert bench[2].led.leader_epoch == 1
    assert (bench[3].followed.leader, bench[3].followed.leader_epoch) == (2, 1)


def test_a_new_epoch_of_the_same_leader_is_a_new_partition_on_the_same_log() -> None:
    bench = ReplicasBench().create(1)
    old = bench[1].led
    errors: list[ApiError | None] = []
    bench[1].syncs.held = True
    content = batch()
    old.append(content, check_batches(content), bench.timers.wall())
    old.when_acknowledged(old.log.end, errors.append)

    bench.fence(1)
    bench.unfence(1)

    assert [None if error is None else error.kind for error in errors] == [ErrorKind.NOT_LEADER]
    assert bench[1].led is not old
    assert bench[1].led.leader_epoch > old.leader_epoch
    assert bench[1].led.log is old.log


def test_what_an_earlier_role_appended_counts_for_the_new_one_once_it_is_synced() -> None:
    bench = ReplicasBench().create(1)
    bench[1].syncs.held = True
    content = batch()
    bench[1].led.append(content, check_batches(content), bench.timers.wall())
    bench.fence(1)
    bench.unfence(1)
    assert bench[1].led.high_watermark == 0

    bench[1].syncs.held = False
    bench[1].settle()

    assert bench[1].led.high_watermark == 1


def test_an_append_right_after_a_change_of_roles_is_acknowledged_by_the_sync_that_was_asked_for_before() -> (
    None
):
    bench = ReplicasBench().create(1)
    bench[1].syncs.held = True
    first = batch()
    # Two rounds: one that runs, and one that gathers while it does.
    bench[1].led.append(first, check_batches(first), bench.timers.wall())
    second = batch()
    bench[1].led.append(second, check_batches(second), bench.timers.wall())
    bench.fence(1)
    bench.unfence(1)
    producer = Producer(bench[1])

    end = producer.append()
    bench[1].syncs.held = False
    bench[1].settle()

    assert producer.acknowledged == [end]


def test_a_leader_that_registers_anew_leads_under_a_new_epoch() -> None:
    bench = ReplicasBench().create(1)
    old = bench[1].led

    bench.perform(registration(1, previous_epoch=broker_of(bench.machine, 1).epoch))

    assert str(old.stopped) == f"orders/0: leader epoch {bench.state.leader_epoch} has started"
    assert bench[1].led.leader_epoch == bench.state.leader_epoch > old.leader_epoch


def test_without_a_leader_a_node_is_neither_and_keeps_the_log() -> None:
    bench = ReplicasBench().create(1, 2)
    log = bench[1].led.log

    bench.fence(2)
    bench.fence(1)

    assert bench[1].partitions.find("orders", 0) is None
    assert bench[1].partitions.followed() == bench[2].partitions.followed() == []
    assert [replica.log for replica in bench[1].partitions] == [log]


def test_subscribers_are_notified_when_roles_change_and_not_when_only_the_isr_does() -> None:
    bench = ReplicasBench().create(1, 2, 3)
    bench.timers.pass_ms(100)
    told = [bench[number].told for number in (1, 2, 3)]

    bench.change_isr(1, 2)
    assert [bench[number].told for number in (1, 2, 3)] == told

    bench.fence(1)
    assert [bench[number].told for number in (1, 2, 3)] == [count + 1 for count in told]


def test_roles_of_logs_that_were_made_are_told_too() -> None:
    bench = ReplicasBench().create(1, 2, 3)

    bench.timers.pass_ms(100)

    assert all(bench[number].told == 2 for number in (1, 2, 3))


def test_a_deleted_topic_is_removed_from_leader_and_followers() -> None:
    bench = ReplicasBench().create(1, 2, 3)
    led, followed = bench[1].led, bench[2].followed

    bench.perform(DeleteTopic(name="orders"))

    assert str(led.stopped) == "orders/0: the topic was deleted"
    assert followed.stopped
    for number in (1, 2, 3):
        assert len(bench[number].partitions) == 0
        assert bench[number].disk.listdir("logs") == []


def test_a_restarted_node_opens_the_logs_that_are_placed_on_it() -> None:
    bench = ReplicasBench().create(1, 2, 3)
    Producer(bench[1]).append()
    bench.copy(2)

    broker = bench.restart(2)

    assert broker.followed.log.end == 1
    assert broker.followed.leader == 1


def test_a_replica_that_moves_away_is_removed_and_one_that_comes_is_made() -> None:
    bench = ReplicasBench().create(1, 2)
    Producer(bench[1]).append()
    bench.copy(2)
    moved = bench[2].followed

    bench.perform(ReassignPartition("orders", PartitionIndex(0), (NodeId(1), NodeId(3))))
    bench.copy(3)
    bench.change_isr(1, 2, 3)

    assert bench.state.replicas == (1, 3)
    assert moved.stopped
    assert len(bench[2].partitions) == 0
    assert bench[2].disk.listdir("logs/orders") == []
    assert bench[3].followed.log.end == 1
    assert bench[1].led.isr.assignment.replicas == (1, 3)


def test_a_replica_that_moves_away_while_its_log_is_made_leaves_nothing_behind() -> None:
    bench = ReplicasBench()
    placed = ReplicaAssignment(PartitionIndex(0), (NodeId(1), NodeId(2)))
    perform(bench.machine, CreateTopic("orders", TOPIC_ID, assignments=(placed,)))
    bench[2].partitions.on_metadata(bench.image)
    made: list[bool] = []
    bench[2].partitions.on_logs_ready(lambda: made.append(True))

    perform(bench.machine, ReassignPartition("orders", PartitionIndex(0), (NodeId(1),)))
    bench[2].partitions.on_metadata(bench.image)
    assert made == []
    bench[2].settle()

    assert bench.state.replicas == (1,)
    assert made == [True]
    assert len(bench[2].partitions) == 0
    assert bench[2].disk.listdir("logs/orders") == []


def test_whoever_waits_for_logs_does_not_wait_for_those_of_topics_that_come_later() -> None:
    bench = ReplicasBench()
    partitions, topics, ready = bench[2].partitions, 0, list[int]()

    def one_more() -> None:
        nonlocal topics
        topics += 1
        placed = ReplicaAssignment(PartitionIndex(0), (NodeId(2),))
        perform(bench.machine, CreateTopic(f"t{topics}", TopicId(UUID(int=topics)), assignments=(placed,)))
        partitions.on_metadata(bench.image)

    one_more()
    partitions.on_logs_ready(lambda: ready.append(len(partitions)))
    while not ready and topics < 100:
        # There is always one that is not made yet.
        one_more()
        bench.timers.step()

    assert ready == [1]
    assert topics > 1


def test_whoever_waits_for_a_topic_does_not_wait_for_the_logs_of_others() -> None:
    bench = ReplicasBench()
    partitions, ready = bench[2].partitions, list[int]()
    for name, count in (("wide", 100), ("small", 1)):
        placed = tuple(ReplicaAssignment(PartitionIndex(index), (NodeId(2),)) for index in range(count))
        perform(bench.machine, CreateTopic(name, TopicId(UUID(int=count)), assignments=placed))
    partitions.on_metadata(bench.image)

    partitions.on_topics_ready(["small"], lambda: ready.append(len(partitions)))
    before = list(ready)
    bench[2].settle()

    assert before == []
    assert len(ready) == 1
    assert ready[0] < 30
    assert len(partitions) == 101


def test_what_was_made_is_told_within_a_second_though_the_last_notice_took_long() -> None:
    bench = ReplicasBench()
    partitions = bench[2].partitions
    partitions._telling_ns = 60 * SECOND
    placed = tuple(ReplicaAssignment(PartitionIndex(index), (NodeId(2),)) for index in range(100))
    perform(bench.machine, CreateTopic("wide", TopicId(UUID(int=1)), assignments=placed))
    partitions.on_metadata(bench.image)
    bench.timers.run()
    before = bench[2].told

    bench.timers.pass_ms(1_000)

    assert len(partitions) == 100
    assert bench[2].told == before + 1


def test_a_replica_that_moved_away_while_its_node_was_down_is_removed_at_the_start() -> None:
    bench = ReplicasBench().create(1, 2)
    old = bench.brokers.pop(2)
    bench.perform(ReassignPartition("orders", PartitionIndex(0), (NodeId(1), NodeId(3))))
    bench.change_isr(1, 3)
    assert bench.state.replicas == (1, 3)
    assert old.disk.listdir("logs/orders") == ["0"]

    bench.brokers[2] = old
    broker = bench.restart(2)

    assert len(broker.partitions) == 0
    assert broker.disk.listdir("logs/orders") == []
    assert not broker.disk.exists("set-aside")


def test_a_directory_of_an_unknown_topic_is_set_aside() -> None:
    bench = ReplicasBench().create(1, 2)
    bench.machine = ReplicasBench().machine

    broker = bench.restart(2)

    assert len(broker.partitions) == 0
    assert broker.disk.listdir("set-aside") == [f"orders-0-{TOPIC_ID}"]


def test_a_directory_of_another_topic_of_the_same_name_is_set_aside_although_the_replica_is_elsewhere() -> (
    None
):
    bench = ReplicasBench().create(2)
    other = ReplicasBench()
    other.perform(CreateTopic("orders", TopicId(UUID(int=78)), 1, 1))
    bench.machine = other.machine

    broker = bench.restart(2)

    assert broker.disk.listdir("set-aside") == [f"orders-0-{TOPIC_ID}"]


@pytest.mark.parametrize("number", [1, 2])
def test_both_leaders_and_followers_delete_old_records_below_the_high_watermark(number: int) -> None:
    bench = ReplicasBench().create(1, 2, retention_ms="60000", segment_bytes="4000")
    producer = Producer(bench[1])
    for _ in range(10):
        producer.append(b"x" * 1_000)
    bench.copy(2)
    bench.copy(2)
    assert bench[number].partitions.find_log("orders", 0) is not None

    bench.timers.pass_ms(600_000)
    bench[1].settle()
    bench[2].settle()

    replica = bench[number].partitions.find_log("orders", 0)
    assert replica is not None
    assert replica.log.start == 10
