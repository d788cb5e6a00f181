"""Where things are in a partition."""

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.broker.list_offsets import ListedOffset, ListOffsetsTimestamp
from penstock.broker.partitions import LeaderPartition
from penstock.core.model import SECOND, ApiError, ErrorKind, LeaderEpoch
from penstock.core.records import Record, write_batch
from penstock.storage.disk import FailureRule
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

SEGMENT = "logs/orders/0/00000000000000000000.log"
NOWHERE = ListedOffset(-1, -1, -1)


def timed(bench: "Bench", partition: LeaderPartition, *timestamps: int) -> None:
    batch = write_batch([Record(0, timestamp, b"key", b"value") for timestamp in timestamps])
    bench.backend.produce_service.append(partition, memoryview(batch))
    bench.run()


def find(bench: "Bench", partition: LeaderPartition, moment: int) -> ListedOffset | ApiError:
    return bench.backend.offset_lookup.find(partition, moment, read_committed=False)


def test_the_special_moments_of_a_log_with_records(bench: "Bench") -> None:
    orders = bench.topic()
    timed(bench, orders, 100, 300)
    timed(bench, orders, 200)
    epoch = orders.leader_epoch

    found = {moment: find(bench, orders, moment) for moment in ListOffsetsTimestamp}

    assert found == {
        ListOffsetsTimestamp.LATEST: ListedOffset(3, -1, epoch),
        ListOffsetsTimestamp.EARLIEST: ListedOffset(0, -1, epoch),
        ListOffsetsTimestamp.EARLIEST_LOCAL: ListedOffset(0, -1, epoch),
        ListOffsetsTimestamp.MAX_TIMESTAMP: ListedOffset(1, 300, epoch),
        ListOffsetsTimestamp.LATEST_TIERED: NOWHERE,
    }


def test_an_empty_log_has_ends_and_no_times(bench: "Bench") -> None:
    orders = bench.topic()

    offsets = {moment: find(bench, orders, moment) for moment in (-1, -2, -3, 0)}

    assert {moment: found.offset for moment, found in offsets.items() if isinstance(found, ListedOffset)} == {
        -1: 0,
        -2: 0,
        -3: -1,
        0: -1,
    }


@pytest.mark.parametrize(("time", "offset"), [(0, 0), (100, 0), (101, 1), (300, 1), (301, -1)])
def test_a_time_is_the_first_record_at_or_after_it(bench: "Bench", time: int, offset: int) -> None:
    orders = bench.topic()
    timed(bench, orders, 100, 300)
    timed(bench, orders, 200)

    found = find(bench, orders, time)

    assert isinstance(found, ListedOffset)
    assert found.offset == offset


def test_records_that_are_not_acknowledged_are_nowhere(bench: "Bench") -> None:
    orders = bench.topic()
    timed(bench, orders, 100)
    bench.append(orders)

    assert find(bench, orders, ListOffsetsTimestamp.LATEST) == ListedOffset(1, -1, orders.leader_epoch)
    assert find(bench, orders, 101) == NOWHERE


def test_the_start_moves_with_deleted_records(bench: "Bench") -> None:
    orders = bench.topic()
    timed(bench, orders, 100, 200, 300)

    assert bench.backend.offset_lookup.delete_before(orders, 2) == 2
    assert bench.backend.offset_lookup.delete_before(orders, 1) == 2

    assert find(bench, orders, ListOffsetsTimestamp.EARLIEST) == ListedOffset(2, -1, orders.leader_epoch)
    assert find(bench, orders, 0) == ListedOffset(2, 300, orders.leader_epoch)


def test_all_that_consumers_may_see_can_be_deleted_and_nothing_above_it(bench: "Bench") -> None:
    orders = bench.topic()
    timed(bench, orders, 100, 200)
    bench.append(orders)
    lookups = bench.backend.offset_lookup

    too_far, below_zero = lookups.delete_before(orders, 3), lookups.delete_before(orders, -2)

    assert isinstance(too_far, ApiError)
    assert too_far.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    assert isinstance(below_zero, ApiError)
    assert below_zero.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    assert lookups.delete_before(orders, -1) == 2


def test_an_unknown_special_moment_is_refused(bench: "Bench") -> None:
    orders = bench.topic()

    found = find(bench, orders, -9)

    assert isinstance(found, ApiError)
    assert found.kind is ErrorKind.INVALID_REQUEST


def test_where_epochs_end(bench: "Bench") -> None:
    orders = bench.topic()
    now = orders.leader_epoch
    timed(bench, orders, 100, 200)

    end = bench.backend.offset_lookup.end_of_epoch

    assert end(orders, now, -1) == (now, 2)
    assert end(orders, now + 5, -1) == (-1, -1)
    assert end(orders, now, now) == (now, 2)
    newer = end(orders, now, LeaderEpoch(now + 1))
    assert isinstance(newer, ApiError)
    assert newer.kind is ErrorKind.UNKNOWN_LEADER_EPOCH


LINK_BYTE = 9


@pytest.mark.parametrize("fault", ["rot", "failed read"])
def test_a_lookup_by_time_that_meets_damage_has_the_segment_verified(bench: "Bench", fault: str) -> None:
    orders = bench.topic()
    for time in (100, 200, 300, 400):
        timed(bench, orders, time)
    size = bench.node.disk.size(SEGMENT) // 4
    bench.node.disk.flip_bit(SEGMENT, 8 * (size + LINK_BYTE))
    if fault == "failed read":
        bench.node.fail_disk(FailureRule("pread", errno.EIO, path_ends=SEGMENT, times=1))

    with recorded_events() as events:
        first = find(bench, orders, 350)
        bench.run(SECOND)
        second = find(bench, orders, 350)

    assert isinstance(first, ApiError)
    assert first.kind is ErrorKind.DAMAGED_LOG
    (told,) = events.named("partition.corrupt_range")
    assert (told["start"], told["end"]) == (1, 2)
    # What nobody else has is an error that clients show to their users.
    assert isinstance(second, ApiError)
    assert second.kind is ErrorKind.CORRUPT_BATCH
    assert find(bench, orders, 100) == ListedOffset(0, 100, orders.leader_epoch)


def test_a_lookup_by_time_in_a_large_segment_without_its_index_is_an_error_until_it_is_rebuilt(
    bench: "Bench",
) -> None:
    orders = bench.topic(segment_bytes="1100")
    for time in range(100, 140):
        timed(bench, orders, time)
    orders.log.configure(replace(orders.log._state.options, rebuild_bytes_max=0))
    for segment in orders.log._state.segments.items[:-1]:
        segment.index.drop()  # type: ignore[union-attr]
        bench.node.disk.remove(f"logs/orders/0/{segment.base_offset:020d}.timeindex")

    found: list[ListedOffset | ApiError] = []
    for _ in range(len(orders.log.segments())):
        found.append(find(bench, orders, 130))
        bench.run(SECOND)

    assert isinstance(found[0], ApiError)
    assert found[0].kind is ErrorKind.DAMAGED_LOG
    assert found[-1] == ListedOffset(30, 130, orders.leader_epoch)
    assert orders.log.corruption == ()
