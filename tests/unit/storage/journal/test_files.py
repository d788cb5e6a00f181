"""The files of the journal: made, filled, freed, used again."""

import errno

import pytest

from penstock.core.model import Offset, PartitionIndex
from penstock.storage.disk import DiskFailed, FailureRule
from penstock.storage.journal import JournalOptions
from penstock.storage.journal.journal import FAILED_OPENS_MAX
from tests.unit.storage.journal.conftest import TOPIC, JournalBench, Nothing


def test_a_full_file_is_followed_by_the_next_one(bench: JournalBench) -> None:
    for _ in range(40):
        bench.write(0)
    before = bench.content(0)
    assert len(bench.journal_files()) > 1

    bench.restart()

    assert bench.content(0) == before
    assert not bench.journal.damage


def test_files_are_used_again_once_every_log_in_them_has_a_checkpoint() -> None:
    bench = JournalBench()
    for _ in range(400):
        bench.write(0)
        bench.write(1)
        bench.do_work()

    # The active one, one that is full, and those that wait for a checkpoint or for their next use.
    assert len(bench.journal_files()) <= 5
    before = bench.content(0), bench.content(1)
    bench.restart()
    assert (bench.content(0), bench.content(1)) == before
    assert not bench.journal.damage


def test_a_log_that_is_quiet_does_not_keep_files_for_ever() -> None:
    bench = JournalBench()
    bench.write(1)
    for _ in range(400):
        bench.write(0)
        bench.do_work()

    assert len(bench.journal_files()) <= 5


def test_a_log_that_has_stopped_gives_up_its_files_but_not_its_end() -> None:
    bench = JournalBench()
    bench.write(1)
    bench.write(1)
    bench.logs[1]._state.durability.stop(OSError("its disk failed"))
    for _ in range(400):
        bench.write(0)
        bench.do_work()

    assert len(bench.journal_files()) <= 5
    bench.restart()
    assert bench.reports[1].lost is not None
    assert (bench.reports[1].lost.start, bench.reports[1].lost.end) == (0, 2)


def test_a_loss_is_remembered_until_the_log_is_whole_again() -> None:
    bench = JournalBench()
    bench.write(1)
    bench.write(1)
    bench.append(1, size=2000)
    bench.commit_all(1)
    bench.crashable.cut_short("logs/orders/1/00000000000000000002.log", 0)
    for _ in range(2):
        bench.restart()
        assert bench.reports[1].lost is not None
        assert (bench.reports[1].lost.start, bench.reports[1].lost.end) == (2, 3)
    for _ in range(300):
        bench.write(0)
        bench.do_work()
    bench.restart()
    assert bench.reports[1].lost is not None

    bench.write(1)
    bench.restart()

    assert bench.reports[1].lost is None


def test_after_a_stop_in_order_the_journal_is_empty(bench: JournalBench) -> None:
    for _ in range(100):
        bench.write(0)
        bench.do_work()
    bench.close()

    assert bench.journal_files() == []
    bench.restart()
    assert all(report.was_clean for report in bench.reports)
    assert not bench.journal.damage


def test_a_stop_in_order_leaves_nothing_though_a_checkpoint_was_taken_before_the_last_frame() -> None:
    bench = JournalBench()
    bench.append(0)
    # The checkpoint covers what is appended, which goes into a frame all the same.
    bench.logs[0].checkpoint()
    bench.commit_all(0)
    assert bench.logs[0].is_checkpointed
    bench.close()

    assert bench.journal_files() == []


def test_a_removed_log_keeps_no_file(bench: JournalBench) -> None:
    bench.write(0)
    bench.logs[0].abandon()
    bench.journal.removed(TOPIC, PartitionIndex(0))
    bench.logs = bench.logs[1:]
    bench.close()

    assert bench.journal_files() == []


def test_frames_larger_than_the_first_file_go_to_one_that_is_large_enough() -> None:
    options = JournalOptions(first_bytes=1024, file_bytes=16 << 10, entry_bytes_max=900, full_files_max=1)
    bench = JournalBench(logs=6, journal=options)
    bench.append(0)
    bench.logs[0].sync(bench.answers.append)
    for log in range(6):
        bench.append(log, size=700)
        bench.logs[log].sync(bench.answers.append)
    bench.rounds.finish_all()
    before = [bench.content(log) for log in range(6)]

    bench.restart()

    assert [bench.content(log) for log in range(6)] == before


def test_logs_that_are_not_the_nodes_any_more_keep_no_file(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(1)
    bench.logs = bench.logs[:1]
    bench.restart()
    assert bench.journal.durable_end(TOPIC, PartitionIndex(1)) == 1

    bench.journal.forget_others([(TOPIC, PartitionIndex(0))])

    assert bench.journal.durable_end(TOPIC, PartitionIndex(1)) == 0
    bench.close()
    assert bench.journal_files() == []


def test_an_end_that_is_to_be_written_again_is_forgotten_when_the_log_is_cut() -> None:
    # At some of these moments the end of the quiet log is about to be written again.
    for writes in range(40, 130, 2):
        bench = JournalBench()
        bench.write(1)
        for _ in range(writes):
            bench.write(0)
        bench.logs[1].truncate_to(Offset(0))
        bench.write(0)
        bench.write(0)

        bench.restart()

        assert bench.ends()[1] == 0
        assert bench.reports[1].lost is None, f"after {writes} writes"


def start_without_log_1(bench: JournalBench, *, power_cut: bool) -> bytes:
    """Start with a journal that has too many files, log 1 in all of them; returns what log 1 holds."""
    bench.write(1)
    while len(bench.journal_files()) < 2:
        bench.write(0)
    bench.write(1)
    before = bench.content(1)
    bench.logs = bench.logs[:1]
    bench.restart(power_cut=power_cut)
    assert bench.journal.is_crowded
    return before


def test_a_log_that_is_opened_late_is_restored_all_the_same(bench: JournalBench) -> None:
    before = start_without_log_1(bench, power_cut=True)
    # The quorum's log goes on while the node joins its cluster; partitions are opened when it has.
    for _ in range(200):
        bench.write(0)
        bench.do_work()

    bench.open_log(1)

    assert bench.reports[1].lost is None
    assert bench.content(1) == before


def test_a_log_that_is_opened_late_after_a_kill_survives_a_power_cut(bench: JournalBench) -> None:
    before = start_without_log_1(bench, power_cut=False)
    for _ in range(4):
        bench.write(0)
        bench.do_work()
    # As the process left it: no checkpoint is taken, for the journal has it.
    bench.open_log(1)
    assert bench.reports[1].restored is None
    for _ in range(30):
        bench.write(0)
        bench.do_work()

    bench.restart()

    assert bench.reports[1].lost is None
    assert bench.content(1) == before


def test_once_all_logs_are_open_one_that_cannot_be_keeps_no_file(bench: JournalBench) -> None:
    start_without_log_1(bench, power_cut=True)
    bench.journal.logs_opened()
    for _ in range(200):
        bench.write(0)
        bench.do_work()

    assert len(bench.journal_files()) <= 5
    bench.open_log(1)
    assert bench.reports[1].lost is not None
    assert (bench.reports[1].lost.start, bench.reports[1].lost.end) == (0, 2)


def test_a_log_that_fails_to_open_again_and_again_gives_up_its_files_but_not_its_end(
    bench: JournalBench,
) -> None:
    start_without_log_1(bench, power_cut=True)
    tries = FAILED_OPENS_MAX + 1
    bench.disk.fail(FailureRule("open", errno.EMFILE, f"orders/1/{0:020d}.log", times=tries))
    for _ in range(tries):
        with pytest.raises(DiskFailed):
            bench.open_log(1)
    bench.journal.logs_opened()
    for _ in range(200):
        bench.write(0)
        bench.do_work()

    assert len(bench.journal_files()) <= 5
    bench.restart()
    bench.open_log(1)
    assert bench.reports[1].lost is not None
    assert (bench.reports[1].lost.start, bench.reports[1].lost.end) == (0, 2)


def start_with_a_log_that_takes_no_writes(bench: JournalBench) -> tuple[str, int]:
    """Log 1 has two durable records, and a bad one that cannot be kept; returns its file and its length."""
    bench.write(1)
    bench.write(1)
    size = bench.logs[1].size_bytes
    bench.append(1)
    path = f"logs/orders/1/{0:020d}.log"
    bench.crashable = bench.crashable.copy()
    bench.crashable.flip_bit(path, 8 * (size + 70))
    bench.logs = bench.logs[:1]
    bench.restart(power_cut=False)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, f"{2:020d}.cut"))
    bench.open_log(1)
    assert bench.logs[1].stopped is not None
    bench.journal.logs_opened()
    return path, size


def test_a_log_that_opens_without_a_checkpoint_survives_a_power_cut(bench: JournalBench) -> None:
    path, size = start_with_a_log_that_takes_no_writes(bench)
    for _ in range(200):
        bench.write(0)
        bench.do_work()

    assert bench.crashable.crash(Nothing()).size(path) >= size

    bench.crashable.cut_short(path, 0)
    bench.restart()
    assert bench.reports[1].lost is not None
    assert (bench.reports[1].lost.start, bench.reports[1].lost.end) == (0, 2)


def test_a_log_that_was_closed_without_a_checkpoint_does_not_stop_the_others(bench: JournalBench) -> None:
    start_with_a_log_that_takes_no_writes(bench)
    bench.logs[1].close()
    for _ in range(200):
        bench.write(0)
        bench.do_work()

    assert len(bench.journal_files()) <= 5


def test_a_log_whose_checkpoint_failed_is_asked_again() -> None:
    bench = JournalBench()
    bench.write(1)
    bench.disk.fail(FailureRule("open", errno.ENOSPC, "orders/1/leader-epochs.1.tmp"))
    for _ in range(400):
        bench.write(0)
        bench.do_work()

    assert bench.logs[1].stopped is None
    assert len(bench.journal_files()) <= 5


def test_a_log_that_was_cut_is_not_said_to_have_been_longer() -> None:
    bench = JournalBench()
    bench.write(1)
    bench.logs[1].checkpoint()
    bench.rounds.finish_all()
    bench.append(1, size=2000)
    bench.commit_all(1)
    bench.crashable.cut_short("logs/orders/1/00000000000000000001.log", 0)
    bench.restart()
    assert bench.reports[1].lost is not None
    while not bench.journal._carried:
        bench.rounds.finish_all()
        bench.do_work()
        for _ in range(2):
            bench.append(0)
            bench.logs[0].sync(bench.answers.append)
        # The next round has begun when the log is asked for a checkpoint, and what it has lost is to be
        # written with the one after that.
        bench.rounds.finish()

    bench.logs[1].truncate_to(Offset(0))
    bench.rounds.finish_all()
    bench.write(0)
    bench.restart()

    assert bench.reports[1].lost is None


def test_small_files_grow_when_they_are_used_again() -> None:
    options = JournalOptions(first_bytes=1024, file_bytes=16 << 10, entry_bytes_max=900, full_files_max=1)
    bench = JournalBench(logs=4, journal=options)
    bench.write(0)
    for _ in range(200):
        for log in range(4):
            bench.append(log, size=700)
            bench.logs[log].sync(bench.answers.append)
        bench.rounds.finish_all()
        bench.do_work()

    assert len(bench.journal_files()) <= 6
    sizes = [bench.crashable.size(f"meta/journal/{name}") for name in bench.journal_files()]
    assert sizes == [16 << 10] * len(sizes)
