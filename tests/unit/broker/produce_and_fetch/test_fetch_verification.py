"""What a fetch returns from a log that is damaged, or that may be."""

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.broker.list_offsets import UNSURE, ListedOffset
from penstock.broker.partitions import LeaderPartition
from penstock.core.model import MILLISECOND, SECOND, ErrorKind, Offset
from penstock.core.records import read_records
from penstock.core.records.batch import check_batches
from penstock.storage.disk import FailureRule
from penstock.storage.log import SegmentSummary, Verification, VerifiedBytes
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

AT_ONCE = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=0)
SEGMENT = "logs/orders/0/00000000000000000000.log"
LATEST = -1


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


@pytest.mark.parametrize("is_alone", [False, True])
def test_what_is_committed_is_not_told_by_a_log_that_is_unsure_if_there_is_another_replica(
    bench: "Bench", is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, _ = filled(bench)
    orders.log._state.note_unsure(Offset(2))
    monkeypatch.setattr(LeaderPartition, "has_other_replicas", property(lambda _: not is_alone))
    wanted = FetchPartition(orders, 0, 1 << 20)

    ((uncommitted,),) = bench.fetch(AT_ONCE, wanted)
    ((committed,),) = bench.fetch(AT_ONCE._replace(read_committed=True), wanted)
    latest = bench.backend.offset_lookup.find(orders, LATEST, read_committed=True)

    assert len(values(uncommitted)) == 4
    if is_alone:
        assert len(values(committed)) == 4
        assert latest == ListedOffset(4, -1, orders.leader_epoch)
    else:
        assert (committed.error, committed.records) == (UNSURE, None)
        assert latest == UNSURE


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


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[Verification]:
    """Those that were carried out."""
    carried_out: list[Verification] = []
    work = Verification.work

    def noted(verification: Verification) -> VerifiedBytes:
        carried_out.append(verification)
        return work(verification)

    monkeypatch.setattr(Verification, "work", noted)
    return carried_out


def test_many_who_ask_for_the_same_records_have_them_verified_once(
    bench: "Bench", verifications: list[Verification]
) -> None:
    orders, _ = filled(bench)
    orders.log.distrust(Offset(0))

    answers = [bench.fetch(AT_ONCE, FetchPartition(orders, 0, 1 << 20)) for _ in range(50)]
    bench.run(SECOND)

    for ((found,),) in answers:
        assert values(found) == [b"0", b"1", b"2", b"3"]
    assert len(verifications) == 1


def test_clients_that_ask_again_do_not_have_a_log_verified_each_time(
    bench: "Bench", verifications: list[Verification]
) -> None:
    orders, _ = filled(bench)

    for _ in range(20):
        bench.backend.fetch_service.distrust(orders, Offset(0))
        bench.fetch(AT_ONCE, FetchPartition(orders, 0, 1 << 20))
        bench.run(MILLISECOND)

    assert len(verifications) == 1
    bench.run(SECOND)
    bench.backend.fetch_service.distrust(orders, Offset(0))
    fetch(bench, orders, 0)
    assert len(verifications) == 2


def test_a_range_whose_segment_is_cut_while_it_is_verified_is_not_served(bench: "Bench") -> None:
    orders, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + 66))

    answers = bench.fetch(AT_ONCE, FetchPartition(orders, 2, 1 << 20))
    # As a new leader epoch would have it; then the same offsets are written anew.
    orders.log.truncate_to(Offset(3))
    bench.run(SECOND)

    ((found,),) = answers
    assert found.records is None


def segmented(bench: "Bench") -> tuple[LeaderPartition, int]:
    """Several sealed segments of batches with one record each; and how large each batch is."""
    orders = bench.topic(segment_bytes="1100")
    for _ in range(40):
        bench.written(orders, b"x" * 50)
    first = orders.log.segments()[0]
    return orders, first.size_bytes // first.end_offset


def path_of(segment: SegmentSummary) -> str:
    return f"logs/orders/0/{segment.base_offset:020d}.log"


def test_damage_in_one_segment_does_not_keep_the_next_one_from_being_verified(bench: "Bench") -> None:
    orders, _ = segmented(bench)
    first, second = orders.log.segments()[1:3]

    with recorded_events() as events:
        for segment in (first, second):
            # The first batch leads nowhere.
            bench.node.disk.flip_bit(path_of(segment), 8 * 9)
            fetch(bench, orders, segment.end_offset - 1)

    assert [told["segment"] for told in events.named("partition.corrupt_range")] == [
        first.base_offset,
        second.base_offset,
    ]


def test_a_segment_that_is_damaged_again_after_its_repair_is_verified_again(bench: "Bench") -> None:
    orders, size = segmented(bench)
    segment = orders.log.segments()[1]
    at, end = segment.base_offset, segment.end_offset
    bench.node.disk.flip_bit(path_of(segment), 8 * 9)
    fetch(bench, orders, end - 1)
    assert [(one.start, one.end) for one in orders.log.corruption] == [(at, at + 1)]
    # As a refill would leave it.
    bench.node.disk.flip_bit(path_of(segment), 8 * 9)
    orders.log._state.set_damage(orders.log._state.segments[1], ())
    bench.run(SECOND)

    bench.node.disk.flip_bit(path_of(segment), 8 * (size + 9))
    fetch(bench, orders, end - 1)

    assert [(one.start, one.end) for one in orders.log.corruption] == [(at + 1, at + 2)]


def test_a_read_that_the_device_refuses_has_the_segment_verified(bench: "Bench") -> None:
    _, size = filled(bench)
    bench.node.disk.flip_bit(SEGMENT, 8 * (2 * size + 66))
    bench.node.stop()
    bench.run(SECOND)
    bench.node.start()
    bench.run(5 * SECOND)
    again = bench.backend.partitions.find("orders", 0)
    assert again is not None
    bench.node.fail_disk(FailureRule("pread", errno.EIO, path_ends=SEGMENT, times=1))

    with recorded_events() as events:
        refused = fetch(bench, again, 1)

    assert refused.error is not None
    assert refused.error.kind is ErrorKind.STORAGE_FAILED
    (told,) = events.named("partition.corrupt_range")
    assert (told["start"], told["end"]) == (2, 3)


@pytest.mark.parametrize("damage", ["bit", "gone"])
def test_a_large_segment_without_its_index_is_an_error_until_a_thread_has_rebuilt_it(
    bench: "Bench", damage: str
) -> None:
    orders, _ = segmented(bench)
    segment = orders.log.segments()[1]
    path = path_of(segment).replace(".log", ".index")
    whole = bytes(bench.node.disk.open(path, readonly=True).map_readonly())
    orders.log.configure(replace(orders.log._state.options, rebuild_bytes_max=0))
    orders.log._state.segments[1].index.drop()  # type: ignore[union-attr]
    if damage == "bit":
        bench.node.disk.flip_bit(path, 8)
    else:
        bench.node.disk.remove(path)

    with recorded_events() as events:
        refused = fetch(bench, orders, segment.base_offset + 1)
        found = fetch(bench, orders, segment.base_offset + 1)

    assert refused.error is not None
    assert refused.error.kind is ErrorKind.DAMAGED_LOG
    assert len(values(found)) == segment.end_offset - segment.base_offset - 1
    assert len(events.named("partition.index_rebuilt")) == 1
    assert events.named("partition.corrupt_range") == []
    assert bytes(bench.node.disk.open(path, readonly=True).map_readonly()) == whole
