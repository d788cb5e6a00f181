"""A log that cannot be opened is offline and waited for; the node, and whoever has the records, go on."""

import pytest

from penstock.core.metadata import NO_LEADER, ElectReported
from penstock.core.model import PartitionIndex
from penstock.storage.disk import CrashableDisk
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Producer, ReplicasBench
from tests.unit.broker.partitions.test_replica_reports import Reports, come_back
from tests.unit.core.metadata.clusters import registration

DIRECTORY = "logs/orders/0"
SEGMENT = f"{DIRECTORY}/{0:020}.log"
ASIDE = f"{DIRECTORY}/aside"
RETRY_MS = 10_000


def block(disk: CrashableDisk) -> None:
    """A directory where the segment is expected."""
    disk.rename(SEGMENT, ASIDE)
    disk.make_directory(SEGMENT)


def unblock(disk: CrashableDisk) -> None:
    disk.remove_tree(SEGMENT)
    disk.rename(ASIDE, SEGMENT)


@pytest.fixture
def bench() -> ReplicasBench:
    """Four records, which broker 2 alone has in the end."""
    bench = ReplicasBench().create(2, 1, 3, min_insync_replicas="1")
    producer = Producer(bench[2])
    producer.append(b"everywhere")
    for follower in (1, 3):
        bench.copy(follower)
        bench.copy(follower)
    bench.fence(1)
    bench.fence(3)
    for _ in range(3):
        producer.append(b"on one")
    assert len(producer.acknowledged) == 4
    assert bench.state.isr == (2,)
    return bench


def crash_all(bench: ReplicasBench) -> None:
    block(bench[2].disk)
    for node in (1, 2, 3):
        bench.perform(registration(node, fenced=True))
    for node in (1, 2, 3):
        bench.restart(node)


def test_nobody_leads_in_the_place_of_the_replica_that_has_the_records(bench: ReplicasBench) -> None:
    with recorded_events() as events:
        crash_all(bench)
        for number in (1, 2, 3):
            come_back(bench, number)
        for _ in range(3):
            bench.timers.pass_ms(RETRY_MS)
            bench[2].settle()

    assert bench.state.leader == NO_LEADER
    # It is said once, however often it is tried.
    assert [event["partition"] for event in events.named("partition.not_opened")] == ["orders/0"]

    unblock(bench[2].disk)
    bench.timers.pass_ms(RETRY_MS)
    bench.follow()

    assert (bench.state.leader, bench[2].led.log.end) == (2, 4)
    assert bench.state.unclean_epoch != bench.state.leader_epoch


def test_the_only_replica_leads_again_when_its_log_can_be_opened() -> None:
    bench = ReplicasBench().create(1)
    Producer(bench[1]).append(b"kept")
    block(bench[1].disk)
    bench.perform(registration(1, fenced=True))
    bench.restart(1)
    reports = Reports(bench, 1).start()
    bench.unfence(1)
    assert (reports.ended, bench.state.leader) == (1, NO_LEADER)

    unblock(bench[1].disk)
    bench.timers.pass_ms(RETRY_MS)
    bench.follow()

    assert Producer(bench[1]).append(b"next") == 2


def test_others_that_lost_nothing_do_not_wait_for_ever() -> None:
    bench = ReplicasBench().create(2, 1, 3)
    producer = Producer(bench[2])
    producer.append(b"everywhere")
    for follower in (1, 3):
        bench.copy(follower)
        bench.copy(follower)
    crash_all(bench)
    for number in (1, 2, 3):
        come_back(bench, number)
    assert bench.state.leader == NO_LEADER
    bench.perform(ElectReported(((TOPIC_ID, PartitionIndex(0)),)))

    assert (bench.state.leader, bench[3].led.log.end) == (3, 1)
