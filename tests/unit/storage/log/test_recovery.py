"""What opening a log finds after a clean stop, a crash, and damage."""

import errno
from uuid import UUID

import pytest

from penstock.core.model import Offset, ProducerId, Timestamp, TopicId
from penstock.core.records import ControlType
from penstock.core.replica import DuplicateBatch
from penstock.core.replica.producer_state import BatchMetadata
from penstock.storage.disk import DiskFailed, FailureRule
from penstock.storage.log import DamagedRange, IncompleteLog, LogOptions, LogStopped, PartitionLog, WrongTopic
from penstock.storage.log.files import read_file
from tests.unit.storage.log.conftest import Bench

TOPIC = TopicId(UUID(int=7))
FIRST = "00000000000000000000"


def test_after_a_clean_stop_no_batch_is_read(bench: Bench) -> None:
    bench.fill(30)
    bench.log.set_high_watermark(Offset(40))
    bench.log.delete_records(Offset(3))

    report = bench.reopen()

    assert report.was_clean
    assert (report.bytes_read, report.batches_read) == (0, 0)
    log = bench.log
    assert (log.start, log.end, log.synced, log.high_watermark) == (3, 60, 60, 40)


def _mixed_load(bench: Bench) -> None:
    """Epochs that change, times that go back, idempotent producers, transactions with both endings."""
    for number in range(120):
        epoch = number // 50
        if number % 40 == 39:
            ending = ControlType.ABORT if number < 60 else ControlType.COMMIT
            bench.end_transaction(7, ending, epoch=epoch)
        elif number % 10 == 7:
            of_seven = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
            bench.append(2, at=40 * number, epoch=epoch, transactional=True, **of_seven)
        elif number % 10 == 3:
            bench.append(1, at=10, epoch=epoch, producer_id=5, producer_epoch=0, base_sequence=number)
        else:
            bench.append(number % 3 + 1, at=37 * number % 900, epoch=epoch)


def test_a_tail_that_is_read_leaves_the_same_state_as_the_appends_did() -> None:
    options = LogOptions(segment_bytes=100_000, index_interval_bytes=400, time_index_interval_ms=5)
    written, killed = Bench(options=options), Bench(options=options)
    for one in (written, killed):
        _mixed_load(one)

    report = killed.reopen(clean=False)

    assert report.batches_read == 120
    assert killed.log.epochs.entries() == written.log.epochs.entries()
    assert _producers(killed) == _producers(written)
    assert killed.log.max_timestamp == written.log.max_timestamp
    for one in (written, killed):
        one.log.roll()
        one.rounds.finish_all()
    for suffix in ("index", "timeindex", "txnindex"):
        path = f"{killed.log.directory}/{FIRST}.{suffix}"
        assert read_file(killed.disk, path) == read_file(written.disk, path), suffix


def _producers(bench: Bench) -> dict[int, list[BatchMetadata]]:
    return {producer: list(state.batches) for producer, state in bench.log.producers}


def test_the_directory_of_another_topic_is_refused(bench: Bench) -> None:
    with pytest.raises(WrongTopic) as refused:
        PartitionLog.open(bench.disk, bench.log.directory, TopicId(UUID(int=8)))

    assert refused.value.found == TOPIC


def test_a_creation_that_was_interrupted_is_incomplete_and_can_be_repeated(bench: Bench) -> None:
    bench.disk.remove(f"{bench.log.directory}/partition.metadata")

    with pytest.raises(IncompleteLog):
        PartitionLog.open(bench.disk, bench.log.directory, TOPIC)
    log = PartitionLog.create(bench.disk, bench.log.directory, TOPIC)

    assert log.end == 0


def test_a_log_is_not_created_over_another(bench: Bench) -> None:
    from penstock.storage.disk import FileAlreadyExists

    with pytest.raises(FileAlreadyExists):
        PartitionLog.create(bench.disk, bench.log.directory, TOPIC)


@pytest.mark.parametrize("lost_bytes", [1, 40, 84])
def test_a_torn_batch_at_the_end_is_cut_off_and_reported(bench: Bench, lost_bytes: int) -> None:
    bench.fill(5)
    size = bench.log.size_bytes
    batch = size // 5
    bench.crashable.cut_short(f"{bench.log.directory}/{FIRST}.log", size - lost_bytes)

    report = bench.reopen(clean=False)

    assert report.cut is not None
    assert (report.cut.segment, report.cut.offset, report.cut.position) == (0, 8, 4 * batch)
    assert report.cut.lost_bytes == batch - lost_bytes
    assert bench.everything() == [0, 2, 4, 6]
    bench.fill(1)
    assert bench.everything() == [0, 2, 4, 6, 8]


def test_a_broken_batch_above_the_checkpoint_is_cut_off_with_all_that_follows(bench: Bench) -> None:
    bench.fill(2)
    bench.checkpoint()
    bench.fill(20)
    batch = bench.headers()[0].size_bytes
    bench.flip(f"{FIRST}.log", 3 * batch + 70)

    report = bench.reopen(clean=False)

    assert report.cut is not None
    assert (report.cut.offset, report.corruption) == (6, ())
    assert bench.segment_bases() == [0]
    assert bench.everything() == [0, 2, 4]


def test_a_batch_of_an_older_epoch_than_the_one_before_is_not_good(bench: Bench) -> None:
    for _ in range(4):
        bench.append(epoch=5)
    batch = bench.headers()[0].size_bytes
    bench.flip(f"{FIRST}.log", 2 * batch + 15)

    report = bench.reopen(clean=False)

    assert report.cut is not None
    assert (report.cut.offset, bench.everything()) == (2, [0, 1])


def test_what_was_recovered_once_is_not_read_again(bench: Bench) -> None:
    bench.fill(5)

    first = bench.reopen(clean=False)
    second = bench.reopen(clean=False)

    assert (first.batches_read, second.batches_read) == (5, 0)
    assert bench.log.synced == 10


def test_a_broken_batch_below_the_checkpoint_is_not_cut_but_refused_to_readers(bench: Bench) -> None:
    bench.fill(4)
    bench.log.roll()
    bench.fill(4)
    batch = bench.headers()[0].size_bytes
    bench.reopen()
    bench.flip(f"{FIRST}.log", 2 * batch + 7)

    found = [step.damage for step in bench.log.scrub() if step.damage]

    assert [(damage.segment, damage.start, damage.end) for damage in found] == [(0, 4, 6)]
    assert bench.log.corruption == tuple(found)
    assert bench.bases(0) == [0, 2]
    with pytest.raises(DamagedRange):
        bench.log.read(Offset(5), 100)
    assert bench.bases(6) == [6]
    assert bench.bases(8) == [8, 10, 12, 14]
    bench.append()
    assert bench.log.end == 17


def test_a_segment_that_became_shorter_is_found_at_the_start(bench: Bench) -> None:
    bench.fill(4)
    bench.log.roll()
    bench.fill(4)
    bench.log.close()
    size = bench.crashable.size(f"{bench.log.directory}/{FIRST}.log")
    bench.crashable.cut_short(f"{bench.log.directory}/{FIRST}.log", size - 10)

    report = bench.reopen(clean=False)

    assert [(damage.start, damage.end) for damage in report.corruption] == [(6, 8)]
    assert report.cut is None
    assert bench.bases(0) == [0, 2, 4]


def test_a_segment_that_is_gone_is_corruption_and_not_a_new_beginning(bench: Bench) -> None:
    bench.fill(4)
    bench.log.roll()
    bench.fill(4)
    bench.log.close()
    bench.disk.remove(f"{bench.log.directory}/{FIRST}.log")

    report = bench.reopen(clean=False)

    assert [(damage.start, damage.end) for damage in report.corruption] == [(0, 8)]
    assert bench.log.start == 0
    with pytest.raises(DamagedRange):
        bench.log.read(Offset(0), 100)
    with pytest.raises(DamagedRange):
        bench.log.offset_for_timestamp(Timestamp(0))


def test_a_log_whose_last_segment_is_damaged_takes_no_writes_until_it_is_put_aside(bench: Bench) -> None:
    bench.fill(4)
    bench.log.close()
    bench.crashable.cut_short(f"{bench.log.directory}/{FIRST}.log", 50)

    report = bench.reopen(clean=False)

    assert [(damage.start, damage.end) for damage in report.corruption] == [(0, 8)]
    with pytest.raises(LogStopped):
        bench.append()
    bench.log.quarantine(Offset(0))
    appended = bench.append()
    assert (appended.first_offset, bench.log.corruption) == (8, ())
    assert bench.files("quarantine/" + FIRST + ".log") == [f"quarantine/{FIRST}.log"]
    assert bench.reopen().corruption == ()


def test_cutting_the_log_below_the_damage_is_another_way_out(bench: Bench) -> None:
    bench.fill(4)
    batch = bench.headers()[0].size_bytes
    bench.log.close()
    bench.crashable.cut_short(f"{bench.log.directory}/{FIRST}.log", 2 * batch + 5)
    bench.reopen(clean=False)

    bench.log.truncate_to(Offset(4))
    bench.fill(1)

    assert bench.everything() == [0, 2, 4]
    assert bench.reopen().corruption == ()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("remove", [True, False])
def test_an_index_that_is_missing_or_damaged_is_rebuilt(bench: Bench, suffix: str, *, remove: bool) -> None:
    bench.fill(60)
    bench.reopen()
    for name in bench.files("." + suffix):
        if remove:
            bench.disk.remove(f"{bench.log.directory}/{name}")
        else:
            bench.flip(name, 4)

    assert bench.reopen(clean=False).corruption == ()

    for offset in range(0, 120, 3):
        assert bench.bases(offset, max_bytes=1) == [offset // 2 * 2]
        found = bench.log.offset_for_timestamp(Timestamp(offset // 2 * 20))
        assert found is not None
        assert found.offset == offset // 2 * 2
    assert bench.log.stats.indexes_rebuilt > 0
    assert bench.files("." + suffix) != []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("remove", [True, False])
def test_the_growing_index_that_was_rebuilt_is_there_at_the_next_start(
    bench: Bench, suffix: str, *, remove: bool
) -> None:
    bench.fill(8)
    bench.reopen()
    growing = bench.files("." + suffix)[-1]
    if remove:
        bench.disk.remove(f"{bench.log.directory}/{growing}")
    else:
        bench.flip(growing, 2)

    assert bench.reopen(clean=False).indexes_rebuilt == 1

    assert bench.reopen().was_clean


@pytest.mark.parametrize("name", ["checkpoint", "leader-epochs"])
def test_a_small_file_that_is_damaged_costs_a_longer_start_and_nothing_else(bench: Bench, name: str) -> None:
    for epoch in range(4):
        bench.append(2, epoch=epoch, producer_id=5, producer_epoch=0, base_sequence=2 * epoch)
    bench.log.roll()
    bench.append(epoch=4)
    epochs = bench.log.epochs.entries()
    bench.log.close()
    bench.rounds.finish_all()
    bench.flip(name, 20)

    report = bench.reopen(clean=False)

    assert not report.was_clean
    assert (report.corruption, report.cut) == ((), None)
    assert bench.everything() == [0, 2, 4, 6, 8]
    assert bench.log.epochs.entries() == epochs
    assert bench.log.producers.get(ProducerId(5)) is not None
    assert bench.reopen().was_clean


def test_without_a_checkpoint_nothing_is_ever_cut(bench: Bench) -> None:
    bench.fill(5)
    batch = bench.headers()[0].size_bytes
    bench.disk.remove(f"{bench.log.directory}/checkpoint")
    bench.flip(f"{FIRST}.log", 2 * batch + 70)

    report = bench.reopen(clean=False)

    assert report.checkpoint_lost
    assert report.cut is None
    assert [(damage.start, damage.segment) for damage in report.corruption] == [(4, 0)]
    assert bench.crashable.size(f"{bench.log.directory}/{FIRST}.log") == 5 * batch


def test_what_unfinished_writes_left_behind_is_removed(bench: Bench) -> None:
    bench.fill(2)
    bench.log.close()
    for name in ("checkpoint.3.tmp", "00000000000000000077.index", "00000000000000000077.snapshot"):
        bench.disk.open(f"{bench.log.directory}/{name}", create=True).append(b"rubbish")

    bench.reopen(clean=False)

    assert [name for name in bench.files() if "tmp" in name or "77" in name] == []


def test_a_producer_of_old_records_is_not_forgotten_because_of_a_crash(bench: Bench) -> None:
    """It may be about to send its last batch again, whatever times its records carry."""
    day = 86_400_000
    bench.append(1, at=5, now=30 * day, producer_id=5, producer_epoch=0, base_sequence=0)
    (sent,) = bench.headers()
    bench.sync_now()

    bench.reopen(clean=False, now=30 * day + 1)
    bench.log.expire(Timestamp(30 * day + 2))

    assert isinstance(bench.log.producers.check(sent), DuplicateBatch)


def test_producers_are_known_again_after_a_crash(bench: Bench) -> None:
    headers = []
    for sequence in range(0, 16, 2):
        bench.append(2, producer_id=5, producer_epoch=1, base_sequence=sequence)
        headers.append(bench.headers(sequence, max_bytes=1)[0])
        if sequence == 8:
            bench.checkpoint()

    bench.reopen(clean=False)

    verdicts = [bench.log.producers.check(header) for header in headers[-5:]]
    assert [v.first_offset for v in verdicts if isinstance(v, DuplicateBatch)] == [6, 8, 10, 12, 14]


def test_a_scrub_of_a_good_log_reads_every_byte_in_steps_and_finds_nothing(bench: Bench) -> None:
    bench.fill(30)

    steps = list(bench.log.scrub())

    assert sum(step.bytes_read for step in steps) == bench.log.size_bytes
    assert [step.damage for step in steps if step.damage] == []


def test_a_scrub_around_an_offset_looks_at_its_segment_only(bench: Bench) -> None:
    bench.fill(30)
    segments = bench.log.segments()
    assert len(segments) > 2

    steps = list(bench.log.scrub(around=segments[1].base_offset))

    assert [step.segment for step in steps] == [segments[1].base_offset]
    assert sum(step.bytes_read for step in steps) == segments[1].size_bytes


@pytest.mark.parametrize("byte", [7, 15, 30, 65], ids=["offset", "leader epoch", "header", "record"])
def test_a_scrub_notices_a_flipped_bit_anywhere_in_a_batch(bench: Bench, byte: int) -> None:
    bench.fill(4)
    batch = bench.headers()[0].size_bytes
    bench.flip(f"{FIRST}.log", 2 * batch + byte)

    found = [step.damage for step in bench.log.scrub() if step.damage]

    assert [damage.start for damage in found] == [4]


def test_without_a_checkpoint_a_flipped_offset_is_not_where_the_log_ends(bench: Bench) -> None:
    bench.fill(5)
    batch = bench.headers()[0].size_bytes
    bench.disk.remove(f"{bench.log.directory}/checkpoint")
    # In the base offset of the last batch, which its CRC does not cover.
    bench.flip(f"{FIRST}.log", 4 * batch + 6)

    report = bench.reopen(clean=False)

    assert report.end == 8
    assert [damage.start for damage in report.corruption] == [8]


def test_without_a_checkpoint_what_lies_behind_a_missing_segment_stays_in_the_log(bench: Bench) -> None:
    bench.fill(40)
    bases = bench.segment_bases()
    assert len(bases) > 3
    bench.disk.remove(f"{bench.log.directory}/checkpoint")
    bench.disk.remove(f"{bench.log.directory}/{bases[1]:020d}.log")

    report = bench.reopen(clean=False)

    assert report.cut is None
    assert [(damage.start, damage.end) for damage in report.corruption] == [(bases[1], bases[2])]
    assert (bench.log.end, bench.bases(bases[2])[0]) == (80, bases[2])


def test_without_a_checkpoint_what_lies_behind_damage_stays_in_the_log(bench: Bench) -> None:
    bench.fill(40)
    bases = bench.segment_bases()
    assert len(bases) > 2
    batch = bench.headers()[0].size_bytes
    bench.disk.remove(f"{bench.log.directory}/checkpoint")
    bench.flip(f"{FIRST}.log", 2 * batch + 70)

    report = bench.reopen(clean=False)

    assert report.cut is None
    assert [(damage.start, damage.end) for damage in report.corruption] == [(4, bases[1])]
    assert bench.segment_bases() == bases
    assert (bench.log.end, bench.log.stopped) == (80, None)
    assert bench.bases(bases[1])[0] == bases[1]


def test_a_tail_that_cannot_be_read_does_not_keep_a_log_from_opening(bench: Bench) -> None:
    bench.fill(40)
    bases = bench.segment_bases()
    bench.disk.fail(FailureRule("pread", errno.EIO, f"{bases[1]:020d}.log", times=1000))

    report = bench.reopen(clean=False)

    assert report.cut is None
    assert [(damage.start, damage.end) for damage in report.corruption] == [(bases[1], bases[2])]
    assert bench.segment_bases() == bases
    assert (bench.log.end, bench.log.stopped) == (80, None)
    assert bench.bases(0)[0] == 0
    with pytest.raises(DamagedRange):
        bench.log.read(Offset(bases[1]), 100)


def test_a_growing_segment_that_cannot_be_read_takes_no_more_writes(bench: Bench) -> None:
    bench.fill(3)
    bench.disk.fail(FailureRule("pread", errno.EIO, f"{FIRST}.log", times=1000))

    bench.reopen(clean=False)

    assert [damage.start for damage in bench.report.corruption] == [0]
    assert bench.log.stopped is not None
    with pytest.raises(LogStopped):
        bench.append()


@pytest.mark.parametrize("name", ["checkpoint", "leader-epochs", f"{FIRST}.index"])
def test_small_files_that_cannot_be_read_are_rebuilt(bench: Bench, name: str) -> None:
    bench.fill(3)
    bench.checkpoint()
    bench.disk.fail(FailureRule("pread", errno.EIO, name, times=3))

    bench.reopen(clean=False)

    assert not bench.report.corruption
    assert bench.everything() == [0, 2, 4]
    bench.append()


@pytest.mark.parametrize("name", ["checkpoint", f"{FIRST}.log"])
def test_a_failure_that_may_pass_is_no_damage(bench: Bench, name: str) -> None:
    bench.fill(3)
    bench.disk.fail(FailureRule("open", errno.EMFILE, name))
    bench.disk.fail(FailureRule("pread", errno.ENOMEM, name))

    for _ in range(2):
        with pytest.raises(DiskFailed):
            bench.reopen(clean=False)

    assert not bench.reopen(clean=False).corruption
    assert bench.everything() == [0, 2, 4]
