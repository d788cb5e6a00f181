"""Disks that fail, fill up or lie, on either side."""

import errno

from penstock.broker.replication import ReplicationOptions
from penstock.core.metadata import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    IncrementalAlterConfigs,
)
from penstock.core.model import ApiError, NodeId
from penstock.storage.disk import FailureRule
from tests.unit.broker.replication.stage import Stage

SEGMENT = "logs/t/0/00000000000000000000.log"


def throttle(stage: Stage, bytes_per_second: int) -> None:
    """Let every broker send no faster to those who are not in sync."""
    change = ConfigChange(ConfigOperation.SET, "leader.replication.throttled.rate", str(bytes_per_second))
    reply = stage.perform(IncrementalAlterConfigs(ConfigResource(ConfigResourceType.BROKER, ""), (change,)))
    assert not isinstance(reply, ApiError)


def test_a_damaged_leader_is_replaced_by_a_follower_and_filled_anew() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    for number in range(6):
        stage.append(f"{number}")
    stage.run(1_000)
    disk = stage.world.nodes["n1"].disk
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) // 2))

    for _ in stage.log(1).scrub():
        pass
    stage.run(8_000)

    assert stage.leader() is stage.brokers[NodeId(2)].partitions.find("t", 0)
    assert [stage.values(node) for node in (1, 2, 3)] == [[f"{number}" for number in range(6)]] * 3
    assert stage.isr() == [1, 2, 3]


def test_a_leader_that_sends_damage_is_notified_and_resigns() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    for number in range(6):
        stage.append(f"{number}")
    stage.run(1_000)
    disk = stage.world.nodes["n1"].disk
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) // 2))

    # Nobody has looked there since, until a newcomer gets it and says so.
    stage.start(3)
    stage.run(8_000)

    assert stage.values(3) == [f"{number}" for number in range(6)]
    assert stage.leader() is stage.brokers[NodeId(2)].partitions.find("t", 0)
    assert stage.isr() == [1, 2, 3]


def test_an_offset_beyond_the_leaders_log_is_damage_not_a_hole() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    stage.append("a")
    stage.run(1_000)
    disk = stage.world.nodes["n1"].disk
    # The base offset of the only batch: no checksum covers it.
    disk.flip_bit(SEGMENT, 6 * 8)

    stage.start(3)
    stage.run(8_000)

    assert stage.ends(3) == [1]
    assert stage.values(3) == ["a"]
    assert stage.isr() == [1, 2, 3]


def test_a_leader_whose_log_is_whole_after_all_goes_on() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.brokers[NodeId(2)].peers.harm_next_bulk = True

    stage.append("a")
    stage.run(8_000)

    assert stage.values(2) == ["a"]
    assert stage.leader() is stage.brokers[NodeId(1)].partitions.find("t", 0)
    assert stage.leader().leader_epoch == 0


def test_a_full_disk_of_a_follower_holds_nobody_back_and_it_comes_back() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.world.nodes["n3"].fail_disk(FailureRule("append", errno.ENOSPC, path_ends=".log", times=1_000))

    for _ in range(50):
        stage.append("x")
        stage.run(100)
    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 50

    stage.world.nodes["n3"].heal_disk()
    stage.run(2_500)
    assert stage.isr() == [1, 2, 3]
    assert stage.ends(3) == [50]


def test_a_follower_whose_sync_failed_takes_nothing_more_and_leaves_the_isr() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.world.nodes["n3"].fail_disk(FailureRule("sync", path_ends=SEGMENT))

    for _ in range(20):
        stage.append("x")
        stage.run(500)

    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 20
    assert stage.log(3).stopped is not None
    assert stage.ends(3) != [20]


def test_a_newcomer_catches_up_no_faster_than_the_throttle_says() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=20_000))
    throttle(stage, 100_000)
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    for _ in range(100):
        stage.append("x" * 5_000)
    stage.run(1_000)
    assert stage.leader().high_watermark == 100

    stage.start(3)
    stage.run(2_000)
    assert 20 < stage.log(3).end < 60

    stage.run(5_000)
    assert stage.log(3).end == 100
    assert stage.isr() == [1, 2, 3]


def test_a_partition_that_has_to_wait_for_others_is_not_forgotten() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=20_000, answer_bytes_max=20_000))
    throttle(stage, 20_000)
    stage.create(1, 2, 3, partitions=3)
    stage.kill(3)
    stage.run(100)
    for index in range(3):
        for _ in range(4):
            stage.append("x" * 5_000, index=index)
    stage.run(1_000)

    stage.start(3)
    stage.run(6_000)

    assert [stage.log(3, index).end for index in range(3)] == [4, 4, 4]


def test_the_throttle_does_not_hold_back_those_in_sync() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=50_000))
    throttle(stage, 1_000)
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    for _ in range(3):
        stage.append("x" * 50_000)
    stage.start(3)
    stage.run(100)

    stage.append("y" * 50_000)
    stage.run(200)

    assert stage.leader().high_watermark == 4
    assert stage.isr() == [1, 2]


def test_a_throttle_that_is_lifted_counts_at_once() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=10_000))
    throttle(stage, 1_000)
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    for _ in range(20):
        stage.append("x" * 5_000)
    stage.start(3)
    stage.run(1_000)
    assert stage.log(3).end < 10

    throttle(stage, 2**40)
    stage.run(500)

    assert stage.log(3).end == 20
