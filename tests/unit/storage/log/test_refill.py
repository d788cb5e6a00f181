"""A damaged segment is written anew from its good parts and another replica's records."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import Offset
from penstock.core.records import ControlType, CorruptBatch, write_batch
from penstock.core.records.record import Record
from penstock.storage.disk import CrashableDisk, FailingDisk, PowerCut
from penstock.storage.log import GoodBytes, MissingRange, PartitionLog, SegmentDraft
from tests.unit.storage.log.conftest import DIRECTORY, TOPIC, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = "00000000000000000000"
SECOND = "00000000000000000016"


def damaged(*numbers: int) -> tuple[Bench, PartitionLog]:
    """A log with bad batches in its first two segments, and a whole copy of it."""
    bench = Bench()
    for _ in range(2):
        bench.fill(8)
        bench.log.roll()
    bench.fill(2)
    bench.sync_now()
    bench.log.set_high_watermark(bench.log.end)
    # With a checkpoint whose name is durable, too.
    bench.reopen()
    whole, _ = PartitionLog.open(bench.crashable.copy(), DIRECTORY, TOPIC, bench.options)
    size = bench.headers()[0].size_bytes
    for number in numbers:
        bench.flip(f"{FIRST}.log" if number < 8 else f"{SECOND}.log", (number % 8) * size + 65)
    for _ in bench.log.scrub():
        pass
    return bench, whole


def fill(draft: SegmentDraft, disk: FailingDisk, whole: PartitionLog) -> list[MissingRange]:
    """Do all that is to be done; returns what was fetched."""
    fetched = []
    while (part := draft.next) is not None:
        if isinstance(part, GoodBytes):
            draft.copy(disk)
        else:
            fetched.append(part)
            draft.add(disk, whole.read(part.start, 1, end=part.end).to_bytes())
    draft.seal(disk)
    return fetched


def content(disk: CrashableDisk, name: str) -> bytes:
    return bytes(disk.open(f"{DIRECTORY}/{name}", readonly=True).map_readonly())


def test_only_what_is_damaged_is_fetched_and_the_segment_is_what_it_was() -> None:
    bench, whole = damaged(1, 2, 5)
    before = {path: bench.crashable.size(path) for path in bench.crashable.files() if path.endswith("log")}

    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fetched = fill(draft, bench.disk, whole)
    assert bench.log.finish_refill(draft)
    bench.rounds.finish_all()

    assert [(part.start, part.end) for part in fetched] == [(2, 6), (4, 6), (10, 12)]
    assert bench.log.corruption == ()
    assert bench.everything() == list(range(0, 36, 2))
    assert {path: bench.crashable.size(path) for path in before} == before
    assert bench.log.read(Offset(0), 10_000).to_bytes() == whole.read(Offset(0), 10_000).to_bytes()
    for suffix in ("index", "timeindex"):
        whole_file = whole.directory + f"/{FIRST}.{suffix}"
        assert bench.crashable.size(whole_file) == len(content(bench.crashable, f"{FIRST}.{suffix}"))
    assert bench.log.begin_refill("again", may_have_gaps=False) is None


def test_the_damaged_bytes_are_kept() -> None:
    bench, whole = damaged(1)
    size = bench.headers()[0].size_bytes
    rotten = content(bench.crashable, f"{FIRST}.log")[size : 2 * size]

    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fill(draft, bench.disk, whole)
    bench.log.finish_refill(draft)

    assert content(bench.crashable, f"quarantine/{2:020d}.cut") == rotten


def test_each_damaged_segment_gets_its_turn_and_a_start_finds_them_whole() -> None:
    bench, whole = damaged(1, 9)

    for token in ("first", "second"):
        draft = bench.log.begin_refill(token, may_have_gaps=False)
        assert draft is not None
        fill(draft, bench.disk, whole)
        assert bench.log.finish_refill(draft)
        bench.rounds.finish_all()

    report = bench.reopen()
    assert report.corruption == ()
    assert [step.damage for step in bench.log.scrub() if step.damage] == []
    assert bench.everything() == list(range(0, 36, 2))
    assert not [name for name in bench.files() if name.endswith((".tmp", ".cleaned"))]


def test_what_a_compaction_has_named_is_not_taken_for_a_part_of_a_refill() -> None:
    bench, whole = damaged(1)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fill(draft, bench.disk, whole)
    bench.crashable.open(f"{DIRECTORY}/{FIRST}.txnindex.cleaned", create=True).close()

    assert bench.log.finish_refill(draft)

    assert bench.files(".cleaned") == []


def test_records_of_another_epoch_or_offset_are_not_taken() -> None:
    bench, whole = damaged(1)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    draft.copy(bench.disk)
    right = bytearray(whole.read(Offset(2), 1).to_bytes())
    records = [Record(0, 20, None, b"value", ())] * 2

    for wrong in (
        write_batch(records, base_offset=2, leader_epoch=7),
        write_batch(records, base_offset=4),
        write_batch(records[:1], base_offset=3),
        whole.read(Offset(2), 1_000).to_bytes(),
    ):
        with pytest.raises(CorruptBatch):
            draft.add(bench.disk, wrong)
    right[70] ^= 1
    with pytest.raises(CorruptBatch):
        draft.add(bench.disk, right)
    assert draft.next == MissingRange(Offset(2), Offset(4))


def test_a_range_that_the_other_replica_has_compacted_away_may_be_missing_only_if_that_can_be() -> None:
    # Records that were committed are the same everywhere, so they can only have been compacted.
    for may_have_gaps, committed, can_be in ((False, 3, False), (False, 4, True), (True, 0, True)):
        bench, whole = damaged(1)
        draft = bench.log.begin_refill("token", may_have_gaps=may_have_gaps)
        assert draft is not None
        draft.copy(bench.disk)

        assert draft.nothing_more(Offset(committed)) is can_be

    assert draft is not None
    fill(draft, bench.disk, whole)
    assert bench.log.finish_refill(draft)
    bench.rounds.finish_all()
    assert bench.everything() == [0, *range(4, 36, 2)]
    assert bench.reopen().corruption == ()


@pytest.mark.parametrize("behind", [2, 0])
@pytest.mark.parametrize("index_is_lost", [False, True])
def test_an_abort_whose_marker_the_other_replica_has_dropped_stays_an_abort(
    behind: int, index_is_lost: bool
) -> None:
    bench = Bench()
    alice = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    bench.append(2, base_sequence=0, **alice)
    marker = bench.end_transaction(1, ControlType.ABORT).first_offset
    bench.fill(behind)
    position = sum(header.size_bytes for header in bench.headers(end=marker))
    bench.log.roll()
    bench.append(2, base_sequence=2, **alice)
    bench.end_transaction(1, ControlType.COMMIT)
    bench.sync_now()
    bench.log.set_high_watermark(bench.log.end)
    bench.reopen()
    before = bench.log.aborted_between(Offset(0), bench.log.end)
    bench.flip(f"{FIRST}.log", position + 65)
    for _ in bench.log.scrub():
        pass
    draft = bench.log.begin_refill("token", may_have_gaps=True)
    assert draft is not None
    draft.copy(bench.disk)

    # Its records were the first to go there.
    assert draft.nothing_more(bench.log.end)
    while draft.next is not None:
        draft.copy(bench.disk)
    draft.seal(bench.disk)
    assert bench.log.finish_refill(draft)
    bench.rounds.finish_all()

    assert bench.headers(marker)[0].is_control
    assert bench.log.aborted_between(Offset(0), bench.log.end) == before != []
    if index_is_lost:
        for name in (*bench.files(".txnindex"), *bench.files(".snapshot")):
            bench.crashable.remove(f"{DIRECTORY}/{name}")
    assert bench.reopen().corruption == ()
    assert [step.damage for step in bench.log.scrub() if step.damage] == []
    assert bench.log.aborted_between(Offset(0), bench.log.end) == before
    assert bench.log.last_stable_offset == bench.log.high_watermark


def test_damage_that_comes_while_a_segment_is_filled_is_found_as_it_is_copied() -> None:
    bench, _ = damaged(5)
    bench.flip(f"{FIRST}.log", bench.headers(end=2)[0].size_bytes + 7)
    bench.crashable.remove(f"{DIRECTORY}/{FIRST}.txnindex")

    draft = bench.log.begin_refill("token", may_have_gaps=False)

    assert draft is not None
    with pytest.raises(CorruptBatch):
        draft.copy(bench.disk)


def test_a_range_that_the_other_replica_has_deleted_is_left_out() -> None:
    bench, whole = damaged(1)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    draft.copy(bench.disk)

    draft.deleted_before(Offset(100))

    fill(draft, bench.disk, whole)
    assert bench.log.finish_refill(draft)
    assert bench.log.corruption == ()


def test_a_log_that_was_cut_meanwhile_keeps_its_own_files() -> None:
    bench, whole = damaged(1)
    draft = bench.log.begin_refill("token", may_have_gaps=False)
    assert draft is not None
    fill(draft, bench.disk, whole)

    bench.log.truncate_to(Offset(20))

    assert not bench.log.finish_refill(draft)
    draft.cancel(bench.disk)
    assert not [name for name in bench.files() if name.endswith(".tmp")]


def test_a_power_cut_at_any_moment_leaves_the_old_segment_or_the_new_one() -> None:
    def refilled(cut_at: int | None) -> tuple[Bench, "Callable[[], None]"]:
        bench, whole = damaged(1)
        draft = bench.log.begin_refill("token", may_have_gaps=False)
        assert draft is not None

        def run() -> None:
            fill(draft, bench.disk, whole)
            bench.log.finish_refill(draft)
            bench.rounds.finish_all()

        if cut_at is not None:
            bench.crashable.cut_power_at(cut_at)
        return bench, run

    bench, run = refilled(None)
    begun = bench.crashable.operations
    run()
    operations = bench.crashable.operations - begun
    assert operations > 15
    outcomes = set()
    for cut_at in range(1, operations + 1):
        bench, run = refilled(cut_at)
        with pytest.raises(PowerCut):
            run()
        for seed in range(3):
            disk = bench.crashable.crash(Random(seed))
            log, report = PartitionLog.open(disk, DIRECTORY, TOPIC, bench.options)
            found = [(damage.start, damage.end) for damage in report.corruption]
            assert found in ([], [(2, 4)])
            assert not [step.damage for step in log.scrub() if step.damage]
            assert log.end == 36
            outcomes.add(bool(found))
    assert outcomes == {False, True}
