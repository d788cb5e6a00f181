"""Damaged replicas resign before anything is cut, and are filled anew by their leader."""

import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.broker.partitions.replica_repair import LOOK_MS
from penstock.core.metadata import Command, DeleteTopic, Reply
from penstock.core.model import TopicId
from penstock.storage.log.file_names import IDENTITY
from penstock.storage.log.files import encode_identity, replace_durably
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Broker, Producer, ReplicasBench
from tests.unit.core.metadata.clusters import broker_of

SEGMENT = "logs/orders/0/00000000000000000000.log"
DIRECTORY = "logs/orders/0"


def mend(bench: ReplicasBench, number: int) -> list[Command]:
    """Let a broker look for damage; returns what it has asked the controller for."""
    asked: list[Command] = []

    def submit(command: Command, done: Callable[[Reply], None]) -> None:
        asked.append(command)
        bench.timers.soon(lambda: done(bench.perform(command)))

    bench[number].partitions.start_repair(broker_of(bench.machine, number).epoch, submit)
    bench[number].settle()
    return asked


def damage(broker: Broker) -> None:
    """Flip a bit in the middle of the log, and have it found."""
    replica = broker.partitions.find_log("orders", 0)
    assert replica is not None
    broker.disk.flip_bit(SEGMENT, 8 * (broker.disk.size(SEGMENT) // 2))
    for _ in replica.log.scrub():
        pass
    assert replica.log.corruption


@pytest.fixture
def bench() -> ReplicasBench:
    bench = ReplicasBench().create(1, 2, 3)
    producer = Producer(bench[1])
    for number in range(6):
        producer.append(b"%d" % number)
    for follower in (2, 3):
        bench.copy(follower)
        bench.copy(follower)
    assert producer.acknowledged == [1, 2, 3, 4, 5, 6]
    return bench


def content(broker: Broker) -> bytes:
    replica = broker.partitions.find_log("orders", 0)
    assert replica is not None
    return replica.log.read(replica.log.start, 1 << 20).to_bytes()


def test_a_damaged_follower_leaves_the_isr_and_waits_to_be_filled(bench: ReplicasBench) -> None:
    damage(bench[3])

    asked = mend(bench, 3)
    bench.timers.pass_ms(LOOK_MS)

    assert bench.state.isr == (1, 2)
    assert bench[3].followed.leader_epoch == bench.state.leader_epoch == 1
    # Nothing is cut, and it does not resign once more while it is repaired.
    assert (bench[3].followed.log.end, bench[3].followed.needs_refill) == (6, True)
    assert len(asked) == 1


def test_a_damaged_leader_hands_over_to_one_that_has_everything(bench: ReplicasBench) -> None:
    damage(bench[1])

    mend(bench, 1)

    assert (bench.state.leader, bench.state.isr) == (2, (2, 3))
    assert (bench[1].followed.log.end, bench[1].followed.needs_refill) == (6, True)


def test_nothing_is_cut_before_the_resignation_is_committed(bench: ReplicasBench) -> None:
    damage(bench[3])
    held: list[Command] = []
    bench[3].partitions.start_repair(
        broker_of(bench.machine, 3).epoch, lambda command, _: held.append(command)
    )

    bench.fence(1)

    assert len(held) == 1
    assert bench[3].followed.leader == 2
    assert bench[3].followed.log.end == 6


def test_the_last_replica_that_is_complete_stays_and_tries_again() -> None:
    bench = ReplicasBench().create(1, 2)
    bench.change_isr(1)
    for _ in range(4):
        Producer(bench[1]).append()
    damage(bench[1])

    asked = mend(bench, 1)
    bench.timers.pass_ms(LOOK_MS)

    assert len(asked) == 2
    assert (bench.state.leader, bench.state.isr) == (1, (1,))
    assert bench[1].led.log.end == 4


def test_the_only_replica_asks_nobody() -> None:
    bench = ReplicasBench().create(1)
    for _ in range(4):
        Producer(bench[1]).append()
    damage(bench[1])

    assert mend(bench, 1) == []
    assert bench[1].led.log.end == 4


def test_a_log_whose_sync_failed_resigns_once_and_is_left_alone(bench: ReplicasBench) -> None:
    bench[1].syncs.held = True
    Producer(bench[1]).append()
    bench[1].syncs.finish(OSError(errno.EIO, "broken"))
    bench[1].syncs.held = False

    asked = mend(bench, 1)
    bench.timers.pass_ms(3 * LOOK_MS)

    assert len(asked) == 1
    assert (bench.state.leader, bench.state.isr) == (2, (2, 3))


def test_a_log_of_another_topic_is_made_anew_after_the_replica_has_resigned(
    bench: ReplicasBench,
) -> None:
    replace_durably(bench[3].disk, DIRECTORY, IDENTITY, encode_identity(TopicId(UUID(int=99))))
    broker = bench.restart(3)
    broker.settle()
    assert len(broker.partitions) == 0

    mend(bench, 3)

    assert bench.state.isr == (1, 2)
    assert broker.followed.log.end == 0
    bench.copy(3)
    assert content(broker) == content(bench[1])


def test_nothing_is_asked_for_topics_that_are_gone(bench: ReplicasBench) -> None:
    bench[3].disk.remove_tree(DIRECTORY)
    bench.restart(3)
    bench.perform(DeleteTopic(topic_id=TOPIC_ID))

    assert mend(bench, 3) == []


@pytest.mark.parametrize(("number", "leader", "isr"), [(1, 2, (2, 3)), (2, 1, (1, 3))])
def test_a_replica_whose_disk_is_full_resigns_at_once(
    number: int, leader: int, isr: tuple[int, ...], bench: ReplicasBench
) -> None:
    asked = mend(bench, number)
    replica = bench[number].partitions.find_log("orders", 0)
    assert replica is not None

    replica.on_storage_error()
    replica.on_storage_error()
    bench[number].settle()

    assert len(asked) == 1
    assert (bench.state.leader, bench.state.isr) == (leader, isr)
    assert bench[number].followed.leader == leader


def test_nobody_waits_for_a_log_whose_sync_has_failed(bench: ReplicasBench) -> None:
    mend(bench, 3)
    bench[3].syncs.held = True
    producer = Producer(bench[1])
    producer.append()
    bench.copy(2)
    bench.copy(3)
    assert producer.acknowledged == []

    bench[3].syncs.finish(OSError(errno.EIO, "broken"))
    bench[3].settle()

    assert bench.state.isr == (1, 2)
    bench.tell(2)
    assert bench[1].led.high_watermark == 7


def test_one_that_cannot_resign_does_not_ask_again_with_every_batch() -> None:
    bench = ReplicasBench().create(1, 2)
    bench.change_isr(1)
    asked = mend(bench, 1)
    replica = bench[1].partitions.find_log("orders", 0)
    assert replica is not None

    for _ in range(5):
        replica.on_storage_error()
        bench[1].settle()
    at_once = len(asked)
    bench.timers.pass_ms(LOOK_MS)
    replica.on_storage_error()
    bench[1].settle()

    assert (at_once, len(asked)) == (1, 2)


def test_a_replica_whose_log_cannot_be_made_resigns_until_there_is_room() -> None:
    bench = ReplicasBench()
    mend(bench, 3)
    # A file stands where the directory should be.
    bench[3].disk.make_directory("logs")
    bench[3].disk.open("logs/orders", create=True)

    bench.create(1, 2, 3)
    assert bench.state.isr == (1, 2)

    bench[3].disk.remove("logs/orders")
    bench.timers.pass_ms(2_000)
    bench[3].settle()
    assert bench[3].followed.leader == 1


def test_a_damaged_leader_goes_on_while_those_that_could_take_over_are_down(bench: ReplicasBench) -> None:
    for follower in (3, 2):
        bench.fence(follower)
    assert (bench.state.isr, bench.state.elr) == ((1,), (2,))
    damage(bench[1])

    asked = mend(bench, 1)
    assert asked == []
    assert bench.state.leader == 1, "what is not damaged can be read"

    bench.unfence(2)
    bench.timers.pass_ms(LOOK_MS)
    assert len(asked) == 1
    assert bench.state.leader == 2


def test_a_leader_whose_log_has_failed_does_not_wait_for_them(bench: ReplicasBench) -> None:
    for follower in (3, 2):
        bench.fence(follower)
    bench[1].syncs.held = True
    Producer(bench[1]).append()
    bench[1].syncs.finish(OSError(errno.EIO, "broken"))
    bench[1].syncs.held = False

    mend(bench, 1)

    assert (bench.state.leader, bench.state.elr) == (-1, (2,))


def test_a_follower_that_does_not_know_where_its_log_started_is_sent_everything() -> None:
    bench = ReplicasBench().create(1, 2, 3, segment_bytes="512")
    producer = Producer(bench[1])
    for number in range(20):
        producer.append(b"%d" % number)
    for follower in (2, 3):
        bench.copy(follower)
        bench.copy(follower)
    bench.fence(3)
    disk = bench[3].disk
    assert sum(name.endswith(".log") for name in disk.listdir("logs/orders/0")) > 1
    disk.remove(SEGMENT)
    disk.remove("logs/orders/0/checkpoint")

    bench.restart(3)
    bench.unfence(3)
    bench.copy(3)

    assert content(bench[3]) == content(bench[1])
    assert (bench[3].followed.log.start, bench[3].followed.log.end) == (0, 20)
