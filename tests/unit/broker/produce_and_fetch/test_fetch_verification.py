"""What a fetch returns from a log that is damaged, or that may be."""

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.broker.partitions import LeaderPartition
from penstock.core.model import SECOND, ErrorKind, Offset
from penstock.core.records import read_records
from penstock.core.records.batch import check_batches
from penstock.storage.disk import FailureRule
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

AT_ONCE = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=0)
SEGMENT = "logs/orders/0/00000000000000000000.log"


def fetch(bench: "Bench", partition: LeaderPartition, offset: int) -> FetchedPartition:
    """One fetch, which may have to wait for a thread."""
    answers = bench.fetch(AT_ONCE, FetchPartition(partition, offset, 1 << 20))
    bench.run(SECOND)
    ((found,),) = answers
    return found


def values(found: FetchedPartition) -> list[bytes | None]:
    assert found.records is not None
    content = found.records.to_bytes()
    shown: list[bytes | None] = []
    position = 0
    for header in check_batches(content):
        shown += [record.value for record in read_records(content[position : position + header.size_bytes])]
        position += header.size_bytes
    return shown


def filled(bench: "Bench") -> tuple[LeaderPartition, int]:
    """Four batches of one record each; and how large each is."""
    orders = bench.topic()
    for number in range(4):
        bench.written(orders, b"%d" % number)
    size = bench.node.disk.size(SEGMENT) // 4
    return orders, size


@pytest.mark.parametrize("byte", [1, 7, 9, 15, 66], ids=["far offset", "offset", "length", "epoch", "record"])
def test_damage_is_an_error_that_names_the_range_and_the_rest_is_readable(bench: "Bench", byte: int) -> None:
    orders, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + byte))

    with recorded_events() as events:
        before = fetch(bench, orders, 0)
        at = fetch(bench, orders, 2)
        behind = fetch(bench, orders, 3)

    assert values(before) == [b"0", b"1"]
    assert at.records is None
    assert at.error is not None
    assert at.error.kind is ErrorKind.CORRUPT_BATCH
    assert "damaged range 2..3" in at.error.detail
    assert values(behind) == [b"3"]
    (told,) = events.named("partition.corrupt_range")
    assert (told["partition"], told["start"], told["end"]) == ("orders/0", 2, 3)


def test_a_device_that_cannot_read_is_damage_too(bench: "Bench") -> None:
    orders, _ = filled(bench)
    # Makes the range cold; the failures come before anything is seen of it.
    bench.node.disk.flip_bit(SEGMENT, 8 * 66)
    bench.node.fail_disk(FailureRule("pread", errno.EIO, path_ends=SEGMENT, times=1_000))

    found = fetch(bench, orders, 0)

    assert found.records is None
    assert found.error is not None
    assert "Input/output error" in found.error.detail


def test_a_log_that_takes_writes_goes_on_doing_so_when_it_is_damaged(bench: "Bench") -> None:
    orders, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + 66))
    fetch(bench, orders, 0)
    assert orders.log.corruption

    bench.written(orders, b"4")

    assert values(fetch(bench, orders, 4)) == [b"4"]


def test_of_two_readers_at_the_same_time_neither_gets_anything_damaged(bench: "Bench") -> None:
    orders, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + 66))

    answers = [bench.fetch(AT_ONCE, FetchPartition(orders, 0, 1 << 20)) for _ in range(3)]
    bench.run(SECOND)

    for ((found,),) in answers:
        assert values(found) == [b"0", b"1"]


def test_a_range_whose_segment_is_cut_while_it_is_verified_is_not_served(bench: "Bench") -> None:
    orders, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + 66))

    answers = bench.fetch(AT_ONCE, FetchPartition(orders, 2, 1 << 20))
    # As a new leader epoch would have it; then the same offsets are written anew.
    orders.log.truncate_to(Offset(3))
    bench.run(SECOND)

    ((found,),) = answers
    assert found.records is None
