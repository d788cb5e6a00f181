"""A follower's log: what it appends, cuts off and remembers, and what a new leader makes of it."""

import errno

import pytest

from penstock.broker.partitions import PartitionStopped
from penstock.core.model import LeaderEpoch, Offset, StorageError
from penstock.core.records import check_batches
from penstock.core.replica import DuplicateBatch, EpochStart
from tests.unit.broker.partitions.replicas_bench import Broker, Producer, ReplicasBench, batch


@pytest.fixture
def bench() -> ReplicasBench:
    return ReplicasBench().create(1, 2, 3)


def produce(broker: Broker, *, sequence: int, producer_id: int = 9) -> bytearray:
    """Append one record of an idempotent producer."""
    content = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    broker.led.append(content, check_batches(content), broker.timers.wall())
    broker.settle()
    return content


def test_a_follower_tells_when_what_it_appended_is_synced(bench: ReplicasBench) -> None:
    heard: list[int] = []
    followed = bench[2].followed
    followed.on_synced = lambda: heard.append(followed.synced)
    bench[2].syncs.held = True
    Producer(bench[1]).append()

    bench.copy(2)
    assert (followed.log.end, followed.synced, heard) == (1, 0, [])

    bench[2].syncs.held = False
    bench[2].settle()
    assert heard == [1]


def test_a_followers_high_watermark_is_the_leaders_as_far_as_its_log_goes(bench: ReplicasBench) -> None:
    Producer(bench[1]).append()
    bench.copy(2)
    followed = bench[2].followed

    followed.advance_high_watermark(Offset(7))
    assert followed.log.high_watermark == 1

    followed.advance_high_watermark(Offset(0))
    assert followed.log.high_watermark == 1


def test_a_followers_log_begins_where_the_leaders_does_but_not_above_the_high_watermark(
    bench: ReplicasBench,
) -> None:
    producer = Producer(bench[1])
    producer.append()
    producer.append()
    bench.copy(2)
    followed = bench[2].followed
    followed.advance_high_watermark(Offset(1))

    followed.advance_start(Offset(2))

    assert followed.log.start == 1


def test_a_new_leader_recognises_a_batch_that_the_old_leader_acknowledged(bench: ReplicasBench) -> None:
    produce(bench[1], sequence=0)
    repeated = produce(bench[1], sequence=1)
    for number in (2, 3):
        bench.copy(number)
        bench.copy(number)
    assert bench[1].led.high_watermark == 2

    bench.fence(1)

    verdict = bench[2].led.log.producers.check(check_batches(repeated)[0])
    assert isinstance(verdict, DuplicateBatch)
    assert (verdict.first_offset, verdict.last_offset) == (1, 1)


def test_a_cut_takes_producers_and_epochs_back_to_what_they_were(bench: ReplicasBench) -> None:
    produce(bench[1], sequence=0)
    bench.copy(2)
    bench.fence(1)
    again = produce(bench[2], sequence=1)
    lost = bench[2].led.log
    assert lost.epochs.entries() == (
        EpochStart(LeaderEpoch(0), Offset(0)),
        EpochStart(LeaderEpoch(1), Offset(1)),
    )
    bench.fence(2)
    bench.unfence(1)

    followed = bench[2].followed
    followed.truncate_to(Offset(1))

    assert (followed.log.end, followed.synced) == (1, 1)
    assert followed.log.epochs.entries() == (EpochStart(LeaderEpoch(0), Offset(0)),)
    verdict = followed.log.producers.check(check_batches(again)[0])
    assert not isinstance(verdict, DuplicateBatch)


def test_an_epoch_in_which_a_node_led_and_wrote_nothing_is_forgotten_when_it_follows(
    bench: ReplicasBench,
) -> None:
    producer = Producer(bench[1])
    producer.append()
    for number in (2, 3):
        bench.copy(number)
    # Only broker 3 gets one more before broker 2 leads, without writing, and then broker 3 does.
    producer.append()
    bench.copy(3)
    bench.fence(1)
    assert bench[2].led.log.epochs.latest == 1
    bench.fence(2)
    assert bench.state.leader == 3

    bench.copy(2)

    assert bench[2].followed.log.end == 2
    assert bench[2].followed.log.epochs.entries() == (EpochStart(LeaderEpoch(0), Offset(0)),)


def test_a_follower_that_is_too_far_behind_begins_anew_where_the_leaders_log_does(
    bench: ReplicasBench,
) -> None:
    Producer(bench[1]).append()
    bench.copy(2)
    followed = bench[2].followed

    followed.restart_at(Offset(50))

    assert (followed.log.start, followed.log.end, followed.synced) == (50, 50, 50)
    assert followed.log.high_watermark == 50


def test_what_is_appended_after_a_cut_is_synced_anew(bench: ReplicasBench) -> None:
    producer = Producer(bench[1])
    producer.append()
    bench[2].syncs.held = True
    bench.copy(2)
    followed = bench[2].followed
    followed.truncate_to(Offset(0))
    assert followed.synced == 0

    bench.copy(2)
    bench[2].syncs.held = False
    bench[2].settle()

    assert followed.synced == 1


def test_nothing_is_appended_in_an_epoch_that_is_over(bench: ReplicasBench) -> None:
    old = bench[3].followed
    bench.fence(1)
    content = batch()

    with pytest.raises(PartitionStopped):
        old.append(content, check_batches(content))

    assert old.stopped
    assert not bench[3].followed.stopped


def test_what_was_appended_as_leader_is_synced_as_follower(bench: ReplicasBench) -> None:
    bench[1].syncs.held = True
    Producer(bench[1]).append()
    bench.fence(1)
    heard: list[int] = []
    followed = bench[1].followed
    followed.on_synced = lambda: heard.append(followed.synced)

    bench[1].syncs.held = False
    bench[1].settle()

    assert heard == [1]


def test_a_failed_sync_ends_following(bench: ReplicasBench) -> None:
    Producer(bench[1]).append()
    bench[2].syncs.held = True
    bench.copy(2)

    bench[2].syncs.finish(OSError(errno.EIO, "broken"))

    assert bench[2].followed.stopped
    with pytest.raises((PartitionStopped, StorageError)):
        bench[2].followed.append(batch(), ())
