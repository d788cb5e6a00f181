"""The scrubber of a node, on the simulated runtime and disk."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.partitions.log_scrubber import LogScrubber, ScrubOptions
from penstock.core.model import SECOND, Timestamp
from penstock.storage.disk import FailureRule
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

FAST = ScrubOptions(bytes_per_second=1 << 20, interval_ms=3_600_000)
HOUR = 3_600 * SECOND
DIRECTORY = "logs/orders/0"


def filled(bench: "Bench") -> LeaderPartition:
    """A log of several sealed segments, checkpointed."""
    orders = bench.topic(segment_bytes="1100")
    for _ in range(40):
        bench.append(orders, b"x" * 50)
    bench.run(20 * SECOND)
    assert len(orders.log.segments()) > 4
    # The node's own scrubber has had nothing to do when it started, and waits for a week.
    bench.node.disk.remove("meta/scrub")
    return orders


def defer_rebuilds(partition: LeaderPartition) -> None:
    """Every segment is a large one, whose indexes are rebuilt by a thread."""
    partition.log.configure(replace(partition.log._state.options, rebuild_bytes_max=0))


def scrubber_of(bench: "Bench") -> LogScrubber:
    return LogScrubber(bench.runtime, lambda: list(bench.backend.partitions), bench.node.disk)


def test_a_pass_verifies_every_segment_and_the_next_one_comes_after_the_interval(
    bench: "Bench",
) -> None:
    orders = filled(bench)
    scrubber = scrubber_of(bench)
    begun: list[int] = []
    scrubber.on_pass(lambda: begun.append(1))

    scrubber.start(FAST)
    bench.run(60 * SECOND)
    assert scrubber.metrics.passes.count == len(begun) == 1
    assert scrubber.metrics.bytes_verified.count == orders.log.size_bytes

    bench.run(HOUR)
    assert scrubber.metrics.passes.count == len(begun) == 2


def test_a_pass_takes_the_time_that_its_rate_says(bench: "Bench") -> None:
    orders = filled(bench)
    scrubber = scrubber_of(bench)

    scrubber.start(FAST._replace(bytes_per_second=100))
    bench.run(10 * SECOND)

    assert 0 < scrubber.metrics.bytes_verified.count <= 2_500
    assert scrubber.metrics.bytes_verified.count < orders.log.size_bytes
    assert scrubber.metrics.passes.count == 0


def test_a_rate_of_zero_switches_it_off(bench: "Bench") -> None:
    filled(bench)
    scrubber = scrubber_of(bench)

    scrubber.start(FAST._replace(bytes_per_second=0))
    bench.run(HOUR)

    assert scrubber.metrics.passes.count == 0


def test_a_pass_goes_on_where_a_stop_interrupted_it(bench: "Bench") -> None:
    orders = filled(bench)
    slow = FAST._replace(bytes_per_second=200)
    first = scrubber_of(bench)
    first.start(slow)
    bench.run(9 * SECOND)
    first.stop()
    before = first.metrics.bytes_verified.count
    assert 0 < before < orders.log.size_bytes

    second = scrubber_of(bench)
    second.start(FAST)
    bench.run(60 * SECOND)

    # The segment that was not finished is verified once more.
    assert second.metrics.passes.count == 1
    assert orders.log.size_bytes - before <= second.metrics.bytes_verified.count < orders.log.size_bytes

    third = scrubber_of(bench)
    third.start(FAST)
    bench.run(60 * SECOND)
    assert third.metrics.passes.count == 0


def test_a_damaged_position_is_where_everything_begins_again(bench: "Bench") -> None:
    orders = filled(bench)
    first = scrubber_of(bench)
    first.start(FAST)
    bench.run(60 * SECOND)
    bench.node.disk.flip_bit("meta/scrub", 8)

    second = scrubber_of(bench)
    second.start(FAST)
    bench.run(60 * SECOND)

    assert second.metrics.bytes_verified.count == orders.log.size_bytes


def test_damage_is_counted_and_reported_with_its_range(bench: "Bench") -> None:
    orders = filled(bench)
    second = orders.log.segments()[1]
    bench.node.disk.flip_bit(f"{DIRECTORY}/{second.base_offset:020d}.log", 8 * 70)
    scrubber = scrubber_of(bench)

    with recorded_events() as events:
        scrubber.start(FAST)
        bench.run(60 * SECOND)

    assert scrubber.metrics.damaged_ranges.count == 1
    (told,) = events.named("partition.corrupt_range")
    assert (told["start"], told["end"]) == (second.base_offset, second.base_offset + 1)
    (done,) = events.named("scrub.completed")
    assert done["damaged_ranges"] == 1


@pytest.mark.parametrize("is_large", [False, True], ids=["on the loop", "by a thread"])
@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_a_damaged_file_of_a_segment_is_rebuilt(bench: "Bench", suffix: str, is_large: bool) -> None:
    orders = filled(bench)
    if is_large:
        defer_rebuilds(orders)
    second = orders.log.segments()[1]
    path = f"{DIRECTORY}/{second.base_offset:020d}.{suffix}"
    whole = bytes(bench.node.disk.open(path, readonly=True).map_readonly())
    bench.node.disk.flip_bit(path, 8 * 3)
    scrubber = scrubber_of(bench)

    with recorded_events() as events:
        scrubber.start(FAST)
        bench.run(60 * SECOND)

    assert bytes(bench.node.disk.open(path, readonly=True).map_readonly()) == whole
    assert len(events.named("partition.index_rebuilt")) == is_large
    (told,) = events.named("scrub.files_rebuilt")
    assert told["files"] == [path.removeprefix(f"{DIRECTORY}/")]
    assert orders.log.corruption == ()


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epochs", "checkpoint"])
@pytest.mark.parametrize("is_missing", [False, True], ids=["damaged", "missing"])
def test_a_damaged_file_of_a_log_is_written_again(bench: "Bench", name: str, is_missing: bool) -> None:
    filled(bench)
    path = f"{DIRECTORY}/{name}"
    whole = bytes(bench.node.disk.open(path, readonly=True).map_readonly())
    if is_missing:
        bench.node.disk.remove(path)
    else:
        bench.node.disk.flip_bit(path, 8 * 3)
    scrubber = scrubber_of(bench)

    scrubber.start(FAST)
    bench.run(60 * SECOND)

    assert bytes(bench.node.disk.open(path, readonly=True).map_readonly()) == whole
    assert scrubber.metrics.files_rebuilt.count == 1


def test_a_topic_that_is_deleted_meanwhile_ends_the_pass_early(bench: "Bench") -> None:
    filled(bench)
    scrubber = scrubber_of(bench)
    scrubber.start(FAST._replace(bytes_per_second=200))
    bench.run(10 * SECOND)

    bench.backend.topics.delete(["orders"], lambda _: None)
    bench.run(60 * SECOND)

    assert scrubber.metrics.passes.count == 1


def test_a_segment_that_cannot_be_opened_is_left_for_the_next_pass(bench: "Bench") -> None:
    orders = filled(bench)
    second = orders.log.segments()[1]
    bench.node.fail_disk(FailureRule("open", path_ends=f"{second.base_offset:020d}.log"))
    scrubber = scrubber_of(bench)

    with recorded_events() as events:
        scrubber.start(FAST)
        bench.run(60 * SECOND)

    assert bench.node.is_up
    assert len(events.named("partition.verification_failed")) == 1
    assert scrubber.metrics.passes.count == 1
    assert scrubber.metrics.bytes_verified.count == orders.log.size_bytes - second.size_bytes


def is_done(scrubber: LogScrubber) -> bool:
    return scrubber.progress.is_done


def test_a_pass_that_is_asked_for_begins_at_once_and_once_only(bench: "Bench") -> None:
    orders = filled(bench)
    scrubber = scrubber_of(bench)
    scrubber.start(FAST)
    bench.run(60 * SECOND)
    asked = Timestamp(bench.wall_ms + 500)

    scrubber.request(asked)
    bench.run(SECOND // 10)
    assert not is_done(scrubber)
    # In the middle of the pass: it is the one that was meant.
    scrubber.request(asked)
    bench.run(60 * SECOND)
    scrubber.request(asked)
    bench.run(60 * SECOND)

    assert scrubber.metrics.passes.count == 2
    assert scrubber.metrics.bytes_verified.count == 2 * orders.log.size_bytes
    assert is_done(scrubber)
    (replica,) = [one for one in bench.backend.partitions if one.log is orders.log]
    assert scrubber.verified_at(replica) > asked - 500


def test_a_pass_that_is_asked_for_takes_the_place_of_one_under_way(bench: "Bench") -> None:
    filled(bench)
    scrubber = scrubber_of(bench)
    scrubber.start(FAST)
    bench.run(SECOND // 10)
    assert not is_done(scrubber)

    bench.run(SECOND // 100)
    scrubber.request(Timestamp(bench.wall_ms))
    bench.run(60 * SECOND)

    assert scrubber.metrics.passes.count == 1


def test_metrics_count_what_anybody_finds_and_forget_nothing_with_a_log(bench: "Bench") -> None:
    orders = filled(bench)
    scrubber = scrubber_of(bench)
    segment = orders.log.segments()[1]
    bench.node.disk.flip_bit(f"{DIRECTORY}/{segment.base_offset:020d}.log", 8 * 65)
    for _ in orders.log.scrub():
        pass

    list(scrubber.count())
    list(scrubber.count())
    assert scrubber.metrics.ranges_found.count == 1

    bench.backend.topics.delete(["orders"], lambda _: None)
    bench.run(5 * SECOND)
    list(scrubber.count())
    assert scrubber.metrics.ranges_found.count == 1
