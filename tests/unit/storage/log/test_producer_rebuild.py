"""Producers and aborted transactions are derived again once lost records of the growing segment are back."""

from collections.abc import Callable
from random import Random

import pytest

from penstock.core.model import Offset, ProducerId
from penstock.core.records import ControlType, check_batches, write_batch
from penstock.core.records.record import Record
from penstock.core.replica import AbortedTransaction, DuplicateBatch
from penstock.storage.disk import CrashableDisk, Disk, PowerCut
from penstock.storage.log import CompactionRules, GoodBytes, LogOptions, PartitionLog, producer_rebuild
from tests.unit.storage.log.conftest import DIRECTORY, TOPIC, Bench

FIRST = "00000000000000000000"
# No segment is full by itself.
OPTIONS = LogOptions(segment_bytes=1 << 20, index_interval_bytes=150, time_index_interval_ms=5)
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
Step = Callable[[Bench], object]


def data(producer: int, sequence: int) -> Step:
    return lambda bench: bench.append(
        2, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def end(producer: int, ending: ControlType) -> Step:
    return lambda bench: bench.end_transaction(producer, ending)


def roll(bench: Bench) -> None:
    bench.log.roll()


def checkpoint(bench: Bench) -> None:
    bench.sync_now()
    bench.checkpoint()


# The first segment is lost from the checkpoint on, or as a whole. What follows it is there.
HISTORIES: dict[str, list[Step]] = {
    "begins in it and is aborted behind it": [
        *(data(1, 0), end(1, COMMIT), checkpoint, data(2, 0), roll, data(2, 2), end(2, ABORT)),
    ],
    "has no records but in it and is aborted behind it": [
        *(data(1, 0), end(1, COMMIT), checkpoint, data(2, 0), roll, end(2, ABORT), data(1, 2)),
    ],
    "is aborted in it": [
        *(data(1, 0), checkpoint, data(1, 2), end(1, ABORT), roll, data(1, 4), end(1, COMMIT)),
    ],
    "is committed in it, and the next one is aborted": [
        *(data(1, 0), checkpoint, end(1, COMMIT), roll, data(1, 2), end(1, ABORT)),
    ],
    "is open at its end, and stays so": [
        *(data(1, 0), checkpoint, end(1, COMMIT), data(2, 0), roll, data(1, 2), end(1, ABORT)),
    ],
    "is ended two segments later": [
        *(data(1, 0), checkpoint, end(1, ABORT), data(2, 0), roll, data(3, 0), end(3, ABORT), roll),
        *(data(2, 2), end(2, ABORT), roll, data(1, 2)),
    ],
}


def written(history: list[Step]) -> tuple[Bench, PartitionLog]:
    """A log that lost power some time after its last checkpoint, and a whole copy of it."""
    bench = Bench(options=OPTIONS)
    for step in history:
        step(bench)
    bench.sync_now()
    whole, report = PartitionLog.open(bench.crashable.copy(), DIRECTORY, TOPIC, OPTIONS)
    assert not report.corruption
    bench.crashable = bench.crashable.copy()
    return bench, whole


def lose_file(bench: Bench) -> None:
    bench.crashable.remove(f"{DIRECTORY}/{FIRST}.log")


def lose_file_and_index(bench: Bench) -> None:
    lose_file(bench)
    bench.crashable.remove(f"{DIRECTORY}/{FIRST}.txnindex")


def lose_end(bench: Bench) -> None:
    bench.crashable.cut_short(f"{DIRECTORY}/{FIRST}.log", 30)


def reopened(bench: Bench, high_watermark: Offset) -> None:
    bench.disk = type(bench.disk)(bench.crashable)
    bench.reopen(clean=False)
    bench.log.set_high_watermark(high_watermark)


def refill(bench: Bench, whole: PartitionLog) -> None:
    while (draft := bench.log.begin_refill(f"refill{bench.log.end}", may_have_gaps=False)) is not None:
        while (part := draft.next) is not None:
            if isinstance(part, GoodBytes):
                draft.copy(bench.disk)
            else:
                draft.add(bench.disk, whole.read(part.start, 1, end=part.end).to_bytes())
        draft.seal(bench.disk)
        assert bench.log.finish_refill(draft)
        bench.rounds.finish_all()


def rebuild(bench: Bench) -> bool:
    found = bench.log.begin_producer_rebuild("rebuild")
    assert found is not None
    while not found.is_done:
        found.work(bench.disk)
    is_done = found.finish()
    bench.rounds.finish_all()
    return is_done


def is_unsure(bench: Bench) -> bool:
    return bench.log.is_unsure


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_between(log.start, log.end)


def producers(log: PartitionLog) -> list[tuple[object, ...]]:
    """What is known of each, but for the time when it was seen."""
    return [
        (number, one.epoch, one.coordinator_epoch, list(one.batches)) for number, one in sorted(log.producers)
    ]


def assert_same(log: PartitionLog, whole: PartitionLog) -> None:
    assert log.end == whole.end
    assert aborted(log) == aborted(whole)
    assert producers(log) == producers(whole)
    assert log.producers.transactions.ongoing() == whole.producers.transactions.ongoing()
    assert log.last_stable_offset == whole.last_stable_offset


@pytest.mark.parametrize("lose", [lose_file, lose_file_and_index, lose_end])
@pytest.mark.parametrize("name", HISTORIES)
def test_transactions_in_lost_records_are_known_again(name: str, lose: Callable[[Bench], None]) -> None:
    bench, whole = written(HISTORIES[name])
    whole.set_high_watermark(whole.end)
    lose(bench)
    reopened(bench, whole.end)
    assert bench.log.corruption
    assert is_unsure(bench)
    refill(bench, whole)
    assert is_unsure(bench)

    assert rebuild(bench)

    assert not is_unsure(bench)
    assert_same(bench.log, whole)
    # The same after a clean stop, after a crash, and without any index or checkpoint.
    for is_clean in (True, False):
        bench.reopen(clean=is_clean)
        bench.log.set_high_watermark(whole.end)
        assert_same(bench.log, whole)
    for name in bench.files(".txnindex"):
        bench.crashable.remove(f"{DIRECTORY}/{name}")
    bench.reopen()
    assert aborted(bench.log) == aborted(whole)


def test_what_is_appended_meanwhile_counts() -> None:
    bench, whole = written(HISTORIES["begins in it and is aborted behind it"])
    lose_file(bench)
    reopened(bench, whole.end)
    refill(bench, whole)
    found = bench.log.begin_producer_rebuild("rebuild")
    assert found is not None
    while not found.is_done:
        found.work(bench.disk)

    data(3, 0)(bench)
    end(3, ABORT)(bench)
    assert found.finish()

    rows = [(row.producer_id, row.first_offset) for row in aborted(bench.log)]
    assert rows == [(2, 3), (3, whole.end)]
    batch = write_batch(
        [Record(0, 1000, None, b"value", ())] * 2, producer_id=3, producer_epoch=0, base_sequence=0
    )
    assert isinstance(bench.log.producers.check(check_batches(batch)[0]), DuplicateBatch)


@pytest.mark.parametrize("change", ["a roll", "a truncation", "much more"])
def test_a_log_that_has_changed_is_read_once_more(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, whole = written(HISTORIES["begins in it and is aborted behind it"])
    lose_file(bench)
    reopened(bench, whole.end)
    refill(bench, whole)
    found = bench.log.begin_producer_rebuild("first")
    assert found is not None
    while not found.is_done:
        found.work(bench.disk)

    if change == "a roll":
        bench.log.roll()
    elif change == "a truncation":
        bench.append(2)
        bench.log.truncate_to(whole.end)
    else:
        monkeypatch.setattr(producer_rebuild, "CATCH_UP_BYTES", 10)
        bench.append(2)
    assert not found.finish()
    found.cancel(bench.disk)

    assert is_unsure(bench)
    assert not bench.files(".tmp")
    assert rebuild(bench)
    assert aborted(bench.log) == aborted(whole)


def test_it_goes_on_from_slice_to_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_rebuild, "SLICE_BYTES", 1)
    bench, whole = written(HISTORIES["is ended two segments later"])
    whole.set_high_watermark(whole.end)
    lose_end(bench)
    reopened(bench, whole.end)
    refill(bench, whole)

    assert rebuild(bench)

    assert_same(bench.log, whole)


def test_snapshots_are_not_written_from_what_is_unsure_and_are_right_afterwards() -> None:
    bench, whole = written(HISTORIES["begins in it and is aborted behind it"])
    lose_file(bench)
    reopened(bench, whole.end)
    before = bench.files(".snapshot")

    bench.log.roll()
    bench.append(2)
    bench.sync_now()

    assert bench.files(".snapshot") == before
    refill(bench, whole)
    assert rebuild(bench)
    assert bench.files(".snapshot") == [*before, f"{whole.end:020d}.snapshot"]
    # A truncation to there uses it.
    bench.log.truncate_to(whole.end)
    assert producers(bench.log) == producers(whole)


def test_nothing_is_compacted_while_it_is_unsure_what_was_aborted() -> None:
    bench, whole = written(HISTORIES["is committed in it, and the next one is aborted"])
    lose_end(bench)
    reopened(bench, whole.end)
    refill(bench, whole)
    bench.log.roll()
    bench.append(1)
    checkpoint(bench)
    bench.log.set_high_watermark(bench.log.end)
    rules = CompactionRules(min_dirty_ratio=0.0)
    assert bench.log.begin_compaction(rules, type(bench.log.max_timestamp)(10**6), "task") is None

    assert rebuild(bench)

    assert bench.log.begin_compaction(rules, type(bench.log.max_timestamp)(10**6), "task") is not None


def test_a_cut_in_front_of_what_is_unsure_leaves_nothing_to_rebuild() -> None:
    history = [data(1, 0), data(1, 2), checkpoint, end(1, ABORT), roll, data(1, 4)]
    bench, whole = written(history)
    bench.crashable.cut_short(
        f"{DIRECTORY}/{FIRST}.log", check_batches(whole.read(Offset(0), 1).to_bytes())[0].size_bytes
    )
    reopened(bench, Offset(0))
    assert [(damage.start, damage.end) for damage in bench.log.corruption] == [(2, 5)]
    assert is_unsure(bench)

    bench.log.truncate_to(Offset(2))

    assert not is_unsure(bench)
    whole.truncate_to(Offset(2))
    assert producers(bench.log) == producers(whole)
    assert bench.log.producers.transactions.ongoing() == [(ProducerId(1), Offset(0))]


def test_a_cut_behind_what_is_back_takes_nothing_from_a_checkpoint_that_is_unsure() -> None:
    bench, whole = written(HISTORIES["has no records but in it and is aborted behind it"])
    lose_end(bench)
    reopened(bench, Offset(0))
    refill(bench, whole)
    assert producers(bench.log) != producers(whole)
    bench.append(2)

    bench.log.truncate_to(whole.end)

    assert producers(bench.log) == producers(whole)
    # Its indexes are wrong still.
    assert is_unsure(bench)


def test_a_cut_behind_damage_leaves_something_to_rebuild() -> None:
    history = [data(1, 0), end(1, ABORT), roll, data(2, 0), data(1, 2), data(3, 0), roll, data(3, 2)]
    bench, whole = written([*history, checkpoint])
    reopened(bench, Offset(0))
    bench.flip(f"{3:020d}.log", 65)
    for _ in bench.log.scrub():
        pass
    assert bench.log.corruption
    assert not is_unsure(bench)

    bench.log.truncate_to(Offset(7))

    assert is_unsure(bench)
    whole.truncate_to(Offset(7))
    refill(bench, whole)
    assert rebuild(bench)
    assert_same(bench.log, whole)


def test_damage_in_records_that_were_folded_before_needs_no_rebuild() -> None:
    bench, whole = written([*HISTORIES["is ended two segments later"], checkpoint])
    whole.set_high_watermark(whole.end)
    lose_file(bench)
    reopened(bench, whole.end)
    assert bench.log.corruption
    assert not is_unsure(bench)

    refill(bench, whole)

    assert bench.log.begin_producer_rebuild("none") is None
    assert_same(bench.log, whole)


def test_a_checkpointed_end_that_is_lost_needs_no_rebuild_if_its_aborts_are_on_disk() -> None:
    bench, whole = written([data(1, 0), end(1, ABORT), data(2, 0), checkpoint])
    whole.set_high_watermark(whole.end)
    rows = aborted(whole)
    lose_end(bench)
    reopened(bench, whole.end)

    assert bench.log.corruption
    assert not is_unsure(bench)
    assert aborted(bench.log) == rows != []


def test_an_index_that_is_rebuilt_behind_damage_is_not_stored() -> None:
    history = [data(1, 0), checkpoint, roll, end(1, ABORT), roll, data(1, 2)]
    bench, whole = written([*history, checkpoint])
    whole.set_high_watermark(whole.end)
    second = f"{DIRECTORY}/{2:020d}"
    lose_end(bench)
    bench.crashable.remove(f"{second}.txnindex")
    bench.crashable.remove(f"{second}.snapshot")
    reopened(bench, whole.end)
    assert not is_unsure(bench)

    # Whoever reads it gets what can be known, and the log knows that this is not all.
    assert aborted(bench.log) == [] != aborted(whole)

    assert is_unsure(bench)
    assert not bench.crashable.exists(f"{second}.txnindex")
    refill(bench, whole)
    assert rebuild(bench)
    assert_same(bench.log, whole)


@pytest.mark.parametrize("what", ["damaged", "gone"])
def test_a_hole_is_found_again_without_the_note_of_it(what: str) -> None:
    bench, whole = written(HISTORIES["is ended two segments later"])
    whole.set_high_watermark(whole.end)
    lose_end(bench)
    reopened(bench, whole.end)
    known = [(damage.start, damage.end) for damage in bench.log.corruption]
    bench.log.close()
    if what == "gone":
        bench.crashable.remove(f"{DIRECTORY}/loss")
    else:
        bench.flip("loss", 20)

    reopened(bench, whole.end)

    assert [(damage.start, damage.end) for damage in bench.log.corruption] == known
    assert bool(bench.report.doubt) == (what == "damaged")
    refill(bench, whole)
    assert rebuild(bench)
    assert_same(bench.log, whole)
    assert bench.reopen().corruption == ()


def test_after_a_power_cut_at_any_moment_the_log_is_right_or_knows_that_it_is_not() -> None:
    def prepared(cut_at: int | None) -> tuple[Bench, PartitionLog]:
        bench, whole = written(HISTORIES["is ended two segments later"])
        lose_end(bench)
        reopened(bench, whole.end)
        refill(bench, whole)
        if cut_at is not None:
            bench.crashable.cut_power_at(cut_at)
        return bench, whole

    bench, whole = prepared(None)
    whole.set_high_watermark(whole.end)
    begun = bench.crashable.operations
    assert rebuild(bench)
    operations = bench.crashable.operations - begun
    assert operations > 15
    outcomes = set()
    for cut_at in range(1, operations + 1):
        bench, _ = prepared(cut_at)
        with pytest.raises(PowerCut):
            rebuild(bench)
        for seed in range(3):
            outcomes.add(_recovered(bench.crashable.crash(Random(seed)), whole))
    assert outcomes == {False, True}


def _recovered(disk: CrashableDisk, whole: PartitionLog) -> bool:
    """Open the log, and rebuild if that has to be; returns whether it had to."""
    log, report = PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)
    log.set_high_watermark(whole.end)
    assert not report.corruption
    was_unsure = log.is_unsure
    if was_unsure:
        found = log.begin_producer_rebuild("again")
        assert found is not None
        work_on: Disk = disk
        while not found.is_done:
            found.work(work_on)
        assert found.finish()
    assert_same(log, whole)
    assert not [path for path in disk.files() if path.endswith(".tmp")]
    return was_unsure
