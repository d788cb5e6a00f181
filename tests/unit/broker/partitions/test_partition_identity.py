"""A directory that may be another topic's log never serves, and no empty log takes its place by itself."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.core.model import PartitionIndex, TopicId
from penstock.storage.data_directory import CreatedReplicas
from penstock.storage.disk import CrashableDisk
from penstock.storage.log.files import encode_identity
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Producer, ReplicasBench

DIRECTORY = "logs/orders/0"
IDENTITY = f"{DIRECTORY}/partition.metadata"
KEY = (TOPIC_ID, PartitionIndex(0))
RETRY_MS = 10_000


def write(disk: CrashableDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append(content)
    file.close()


def remove(disk: CrashableDisk) -> None:
    disk.remove(IDENTITY)


def empty(disk: CrashableDisk) -> None:
    write(disk, IDENTITY, b"")


def flip(disk: CrashableDisk) -> None:
    disk.flip_bit(IDENTITY, 20)


def cut(disk: CrashableDisk) -> None:
    file = disk.open(IDENTITY)
    file.truncate(20)
    file.close()


def overwrite(disk: CrashableDisk) -> None:
    write(disk, IDENTITY, bytes(range(64)))


def name_another_topic(disk: CrashableDisk) -> None:
    write(disk, IDENTITY, encode_identity(TopicId(UUID(int=99))))


UNREADABLE = [remove, empty, flip, cut, overwrite]
Damage = Callable[[CrashableDisk], None]


def forget_that_it_was_made(disk: CrashableDisk) -> None:
    CreatedReplicas(disk).discard(KEY)


@pytest.fixture
def bench() -> ReplicasBench:
    """The only replica of three records."""
    bench = ReplicasBench().create(1)
    producer = Producer(bench[1])
    for number in range(3):
        producer.append(b"%d" % number)
    return bench


@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_log_that_was_made_here_gets_its_identity_back(bench: ReplicasBench, damage: Damage) -> None:
    damage(bench[1].disk)

    with recorded_events() as events:
        bench.restart(1)

    assert bench[1].led.log.end == 3
    assert Producer(bench[1]).append(b"next") == 4
    (event,) = events.named("partition.identity_restored")
    assert event["partition"] == "orders/0"
    bench.restart(1)
    assert bench[1].led.log.end == 4


@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_replica_among_others_gets_it_back_as_well(damage: Damage) -> None:
    bench = ReplicasBench().create(1, 2)
    Producer(bench[1]).append(b"everywhere")
    bench.copy(2)
    damage(bench[2].disk)

    bench.restart(2)

    assert bench[2].followed.log.end == 1
    assert bench.state.isr == (1, 2)


def is_kept(bench: ReplicasBench) -> bool:
    """Whether the directory is where it was, and nothing serves in its place."""
    disk, partitions = bench[1].disk, bench[1].partitions
    is_there = disk.size(f"{DIRECTORY}/{0:020}.log") > 0
    return is_there and partitions.find("orders", 0) is None and bool(partitions.offline_reason("orders", 0))


@pytest.mark.parametrize("damage", UNREADABLE)
def test_records_that_nobody_knows_of_are_kept_and_offline(bench: ReplicasBench, damage: Damage) -> None:
    damage(bench[1].disk)
    forget_that_it_was_made(bench[1].disk)

    with recorded_events() as events:
        bench.restart(1)
        for _ in range(3):
            bench.timers.pass_ms(RETRY_MS)
            bench[1].settle()

    assert is_kept(bench)
    # It is said once, however often it is tried.
    (event,) = events.named("partition.not_opened")
    assert event["partition"] == "orders/0"
    bench.restart(1)
    assert is_kept(bench)


def test_the_log_of_another_topic_in_the_place_of_ours_is_kept_and_offline(bench: ReplicasBench) -> None:
    name_another_topic(bench[1].disk)

    bench.restart(1)

    assert is_kept(bench)
    (reason,) = bench[1].partitions.offline().values()
    assert str(UUID(int=99)) in reason


def test_the_log_of_a_topic_that_was_deleted_meanwhile_makes_way_for_ours(bench: ReplicasBench) -> None:
    name_another_topic(bench[1].disk)
    forget_that_it_was_made(bench[1].disk)

    bench.restart(1)

    assert Producer(bench[1]).append(b"first") == 1
    assert bench[1].disk.exists(f"set-aside/orders-0-{UUID(int=99)}")


@pytest.mark.parametrize("damage", [*UNREADABLE, name_another_topic])
def test_an_operator_says_that_it_is_the_log(bench: ReplicasBench, damage: Damage) -> None:
    damage(bench[1].disk)
    if damage is not name_another_topic:
        forget_that_it_was_made(bench[1].disk)
    bench.restart(1)
    assert is_kept(bench)

    # The node looks again by itself.
    write(bench[1].disk, f"{DIRECTORY}/accept-identity", b"")
    bench.timers.pass_ms(RETRY_MS)
    bench[1].settle()

    assert bench[1].led.log.end == 3
    assert not bench[1].partitions.offline()
    assert not bench[1].disk.exists(f"{DIRECTORY}/accept-identity")
    bench.restart(1)
    assert bench[1].led.log.end == 3


@pytest.mark.parametrize("is_there", [True, False])
def test_an_operator_gives_it_up(bench: ReplicasBench, is_there: bool) -> None:
    name_another_topic(bench[1].disk)
    if not is_there:
        bench[1].disk.remove_tree(DIRECTORY)
        bench[1].disk.make_directory(DIRECTORY)
    write(bench[1].disk, f"{DIRECTORY}/accept-loss", b"")

    with recorded_events() as events:
        bench.restart(1)

    assert Producer(bench[1]).append(b"first") == 1
    assert len(events.named("partition.loss_accepted")) == 1
    bench.restart(1)
    assert bench[1].led.log.end == 1


def test_no_operator_makes_an_empty_log_pass_for_a_complete_one() -> None:
    bench = ReplicasBench().create(1, 2)
    Producer(bench[1]).append(b"only here")
    name_another_topic(bench[1].disk)
    write(bench[1].disk, f"{DIRECTORY}/accept-loss", b"")

    with recorded_events() as events:
        bench.restart(1)

    assert bench[1].partitions.find_log("orders", 0) is None
    assert len(events.named("partition.accept_loss_ignored")) == 1
