"""A log that is missing is lost, and not empty: the replica resigns before an empty one takes its place."""

from collections.abc import Callable

import pytest

from penstock.core.metadata import Command, DeleteTopic, Reply
from penstock.core.model import PartitionIndex
from penstock.storage.data_directory import CreatedReplicas
from penstock.storage.disk import CrashableDisk
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Broker, Producer, ReplicasBench
from tests.unit.core.metadata.clusters import broker_of

DIRECTORY = "logs/orders/0"
KEY = (TOPIC_ID, PartitionIndex(0))


def remove_directory(disk: CrashableDisk) -> None:
    disk.remove_tree(DIRECTORY)


def remove_topic(disk: CrashableDisk) -> None:
    disk.remove_tree("logs/orders")


def remove_all_logs(disk: CrashableDisk) -> None:
    disk.remove_tree("logs")


def remove_identity(disk: CrashableDisk) -> None:
    disk.remove(f"{DIRECTORY}/partition.metadata")


def put_a_file_in_its_place(disk: CrashableDisk) -> None:
    disk.remove_tree(DIRECTORY)
    disk.open(DIRECTORY, create=True).close()


def remove_all_but_the_identity(disk: CrashableDisk) -> None:
    for name in disk.listdir(DIRECTORY):
        if name != "partition.metadata":
            disk.remove(f"{DIRECTORY}/{name}")


EVERY_LOSS = [
    remove_directory,
    remove_topic,
    remove_all_logs,
    remove_all_but_the_identity,
    put_a_file_in_its_place,
]


def start_repair(bench: ReplicasBench, number: int) -> list[Command]:
    """Let a broker resign from what it lost; returns what it has asked the controller for."""
    asked: list[Command] = []

    def submit(command: Command, done: Callable[[Reply], None]) -> None:
        asked.append(command)
        bench.timers.soon(lambda: done(bench.perform(command)))

    bench[number].partitions.start_repair(broker_of(bench.machine, number).epoch, submit)
    bench[number].settle()
    return asked


def has_log(broker: Broker) -> bool:
    return broker.partitions.find_log("orders", 0) is not None


@pytest.fixture
def bench() -> ReplicasBench:
    """Three replicas of four records that are committed everywhere."""
    bench = ReplicasBench().create(1, 2, 3)
    producer = Producer(bench[1])
    for number in range(4):
        producer.append(b"%d" % number)
    for follower in (2, 3):
        bench.copy(follower)
        bench.copy(follower)
    assert producer.acknowledged == [1, 2, 3, 4]
    return bench


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_a_follower_that_lost_its_log_resigns_before_it_gets_another(
    bench: ReplicasBench, lose: Callable[[CrashableDisk], None]
) -> None:
    lose(bench[3].disk)

    with recorded_events() as events:
        bench.restart(3)
    assert not has_log(bench[3])
    assert [event["partition"] for event in events.named("replica.lost")] == ["orders/0"]

    start_repair(bench, 3)
    assert bench.state.isr == (1, 2)
    bench.copy(3)
    assert bench[3].followed.log.end == 4


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_a_leader_that_lost_its_log_never_leads_with_an_empty_one(
    bench: ReplicasBench, lose: Callable[[CrashableDisk], None]
) -> None:
    lose(bench[1].disk)

    bench.restart(1)
    assert bench.state.leader == 1
    assert bench[1].partitions.find("orders", 0) is None

    start_repair(bench, 1)
    assert (bench.state.leader, bench.state.isr) == (2, (2, 3))
    assert bench[2].led.log.end == 4
    bench.copy(1)
    assert bench[1].followed.log.end == 4


@pytest.mark.parametrize("lose", EVERY_LOSS)
def test_the_only_replica_is_offline_and_not_empty(lose: Callable[[CrashableDisk], None]) -> None:
    bench = ReplicasBench().create(1)
    Producer(bench[1]).append(b"gone")
    lose(bench[1].disk)

    for _ in range(2):
        with recorded_events() as events:
            bench.restart(1)

        asked = start_repair(bench, 1)

        assert (asked, has_log(bench[1])) == ([], False)
        (event,) = events.named("replica.lost")
        assert (event["partition"], event["replicas"], event["online"]) == ("orders/0", 1, False)


def test_the_last_complete_replica_does_not_come_back_empty() -> None:
    bench = ReplicasBench().create(1, 2)
    bench.change_isr(1)
    Producer(bench[1]).append(b"only here")
    remove_directory(bench[1].disk)

    bench.restart(1)
    asked = start_repair(bench, 1)

    assert len(asked) == 1
    assert (bench.state.leader, has_log(bench[1])) == (1, False)


def test_a_log_that_only_the_journal_remembers_is_lost() -> None:
    bench = ReplicasBench(journal=True).create(1)
    Producer(bench[1]).append(b"gone")
    CreatedReplicas(bench[1].disk).discard(KEY)
    remove_topic(bench[1].disk)

    with recorded_events() as events:
        bench.restart(1)

    assert not has_log(bench[1])
    (event,) = events.named("replica.lost")
    assert str(event["reason"]).endswith("it was durable up to offset 1")


def test_a_log_that_was_never_made_is_new() -> None:
    bench = ReplicasBench().create(1)
    # As after a crash between the topic and its log.
    CreatedReplicas(bench[1].disk).discard(KEY)
    remove_topic(bench[1].disk)

    bench.restart(1)

    assert Producer(bench[1]).append(b"first") == 1


def test_a_creation_that_was_cut_short_is_new() -> None:
    bench = ReplicasBench().create(1)
    CreatedReplicas(bench[1].disk).discard(KEY)
    remove_identity(bench[1].disk)

    bench.restart(1)

    assert Producer(bench[1]).append(b"first") == 1


def test_logs_from_before_the_list_was_kept_are_put_on_it(bench: ReplicasBench) -> None:
    bench[3].disk.remove_tree("meta/replicas")

    bench.restart(3)
    assert CreatedReplicas(bench[3].disk).all() == [KEY]
    remove_directory(bench[3].disk)
    bench.restart(3)

    assert not has_log(bench[3])


def test_what_was_deleted_is_not_missed(bench: ReplicasBench) -> None:
    bench.perform(DeleteTopic("orders"))

    assert CreatedReplicas(bench[3].disk).all() == []
    with recorded_events() as events:
        bench.restart(3)
    assert events.named("replica.lost") == []


def test_a_lost_replica_whose_topic_is_deleted_is_forgotten(bench: ReplicasBench) -> None:
    remove_directory(bench[3].disk)
    bench.restart(3)

    bench.perform(DeleteTopic("orders"))

    assert CreatedReplicas(bench[3].disk).all() == []
    assert start_repair(bench, 3) == []


def test_a_list_that_cannot_be_written_leaves_nothing_half_made() -> None:
    bench = ReplicasBench()
    disk = bench[1].disk
    disk.open("meta/replicas", create=True).close()

    with recorded_events() as events:
        bench.create(1)
        for _ in range(3):
            bench.timers.pass_ms(1_000)
            bench[1].settle()
    # It is said once, however often it is tried.
    assert len(events.named("partition.create_failed")) == 1
    assert bench[1].partitions.find("orders", 0) is None
    disk.remove("meta/replicas")
    bench.timers.pass_ms(1_000)
    bench[1].settle()

    assert Producer(bench[1]).append(b"first") == 1
    assert CreatedReplicas(disk).all() == [KEY]
