"""Where things are in a partition."""

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.broker.list_offsets import SEARCHES_MAX, ListedOffset, ListOffsetsTimestamp, PendingLookup
from penstock.broker.partitions import LeaderPartition
from penstock.core.model import SECOND, ApiError, ErrorKind, LeaderEpoch, Offset
from penstock.core.records import HEADER_BYTES, CompressionType, Record, read_header, write_batch
from penstock.core.records.batch import MAX_TIMESTAMP_POSITION, seal
from penstock.storage.disk import FailureRule
from penstock.storage.log.segment import SEARCHED_AT_ONCE
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

SEGMENT = "logs/orders/0/00000000000000000000.log"
NOWHERE = ListedOffset(-1, -1, -1)
ZSTD = CompressionType.ZSTD


def timed(bench: "Bench", partition: LeaderPartition, *timestamps: int) -> None:
    batch = write_batch([Record(0, timestamp, b"key", b"value") for timestamp in timestamps])
    bench.backend.produce_service.append(partition, memoryview(batch))
    bench.run()


def find(bench: "Bench", partition: LeaderPartition, moment: int) -> ListedOffset | ApiError:
    found = bench.backend.offset_lookup.find(partition, moment, read_committed=False)
    assert not isinstance(found, PendingLookup)
    return found


def find_later(bench: "Bench", partition: LeaderPartition, moment: int) -> ListedOffset | ApiError:
    """A lookup that a worker takes part in."""
    pending = bench.backend.offset_lookup.find(partition, moment, read_committed=False)
    assert isinstance(pending, PendingLookup)
    results: list[ListedOffset | ApiError] = []
    pending.done = results.append
    bench.run(30 * SECOND)
    (result,) = results
    return result


def append(bench: "Bench", partition: LeaderPartition, batch: bytearray) -> None:
    """Append as it is, past the checks of a Produce."""
    seal(batch, 0, len(batch))
    partition.append(memoryview(batch), (read_header(batch),), bench.runtime.clock.wall())


def claiming(timestamp: int) -> bytearray:
    """A batch of an early record whose header claims a later one."""
    batch = write_batch([Record(0, 10, None, b"early")])
    batch[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = timestamp.to_bytes(8, "big")
    return batch


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

    assert bench.deleted((orders, 2)) == [2]
    assert bench.deleted((orders, 1)) == [2]

    assert find(bench, orders, ListOffsetsTimestamp.EARLIEST) == ListedOffset(2, -1, orders.leader_epoch)
    assert find(bench, orders, 0) == ListedOffset(2, 300, orders.leader_epoch)


def test_all_that_consumers_may_see_can_be_deleted_and_nothing_above_it(bench: "Bench") -> None:
    orders = bench.topic()
    timed(bench, orders, 100, 200)
    bench.append(orders)

    # `bench.deleted` would wait until the third record is acknowledged.
    outcomes: list[Offset | ApiError] = []
    wanted = [(orders, 3), (orders, -2), (orders, -1)]
    bench.backend.record_deletion.delete(wanted, 1_000, outcomes.extend)
    bench.run()

    too_far, below_zero, every = outcomes
    assert isinstance(too_far, ApiError)
    assert too_far.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    assert isinstance(below_zero, ApiError)
    assert below_zero.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    assert every == 2


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


@pytest.mark.parametrize(
    "batch",
    [
        write_batch([Record(0, 100 + number, None, b"v") for number in range(2_000)]),
        write_batch([Record(0, 100 + number, None, bytes(100)) for number in range(900)], codec=ZSTD),
        write_batch([Record(0, 100 + number, None, bytes(1 << 20)) for number in range(10)], codec=ZSTD),
    ],
    ids=["many records", "unpacks to much", "unpacks to more than a quick job takes"],
)
def test_a_batch_that_takes_long_is_looked_through_by_a_worker_and_the_record_found(
    bench: "Bench", batch: bytearray
) -> None:
    orders = bench.topic()
    timed(bench, orders, 50)
    append(bench, orders, bytearray(batch))
    bench.run()

    found = find_later(bench, orders, 105)

    assert found == ListedOffset(6, 105, orders.leader_epoch)


@pytest.mark.parametrize("codec", [CompressionType.NONE, ZSTD])
def test_a_batch_that_nobody_can_decode_has_no_times_and_what_is_behind_it_has(
    bench: "Bench", codec: CompressionType
) -> None:
    orders = bench.topic()
    batch = write_batch([Record(0, 100, None, bytes(range(256)) * 2)], codec=codec)
    batch[HEADER_BYTES + 4 :] = b"\xff" * (len(batch) - HEADER_BYTES - 4)
    append(bench, orders, batch)
    timed(bench, orders, 200)

    assert find(bench, orders, 100) == ListedOffset(1, 200, orders.leader_epoch)


def test_headers_that_claim_times_do_not_keep_the_loop_busy(bench: "Bench") -> None:
    orders = bench.topic()
    for _ in range(SEARCHED_AT_ONCE + 2):
        append(bench, orders, claiming(500))
    timed(bench, orders, 400)

    assert find_later(bench, orders, 400) == ListedOffset(SEARCHED_AT_ONCE + 2, 400, orders.leader_epoch)


def test_a_search_that_headers_lead_astray_ends(bench: "Bench") -> None:
    orders = bench.topic()
    for _ in range((SEARCHES_MAX + 1) * (SEARCHED_AT_ONCE + 1)):
        append(bench, orders, claiming(500))
    bench.run()

    found = find_later(bench, orders, 400)

    assert isinstance(found, ApiError)
    assert found.kind is ErrorKind.TIMED_OUT


def test_a_partition_that_goes_while_a_worker_looks_is_not_answered_for(bench: "Bench") -> None:
    orders = bench.topic()
    append(bench, orders, write_batch([Record(0, 100, None, b"v") for _ in range(2_000)]))
    bench.run()

    pending = bench.backend.offset_lookup.find(orders, 100, read_committed=False)
    assert isinstance(pending, PendingLookup)
    results: list[ListedOffset | ApiError] = []
    pending.done = results.append
    orders.stop("the topic was deleted", wanted=True)
    bench.run(5 * SECOND)

    (result,) = results
    assert isinstance(result, ApiError)
    assert result.kind is ErrorKind.NOT_LEADER
