"""A start that cannot restore what the journal has of a log, for lack of room, say: nothing is given up."""

import errno
from dataclasses import replace

import pytest

from penstock.core.model import Timestamp
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import DiskFailed, DiskFull, FailureRule
from tests.unit.storage.journal.conftest import JournalBench, Nothing

FOR_EVER = 1 << 40


def open_on_full_disk(bench: JournalBench, operation: str, times: int = FOR_EVER) -> None:
    """Open the log of a new process while its segments cannot grow; small files still fit."""
    bench.logs, bench.reports = [], []
    bench._begin()
    bench.disk.fail(FailureRule(operation, errno.ENOSPC, ".log", times=times))
    with pytest.raises(DiskFull):
        bench.open_log(0)
    bench.disk.heal()


def append_behind_gap(bench: JournalBench, base_offset: int) -> None:
    """As a follower of a leader that has compacted away what came before."""
    batch = base_offset.to_bytes(8, "big") + write_batch([Record(0, 1000, b"k", b"v", ())])[8:]
    bench.logs[0].append_replica(batch, check_batches(batch), Timestamp(1))
    bench.commit_all()


def written(bench: JournalBench) -> bytes:
    bench.write()
    bench.logs[0].checkpoint()
    bench.rounds.finish_all()
    for _ in range(4):
        bench.write()
    return bench.content()


def test_the_same_process_restores_it_when_there_is_room() -> None:
    bench = JournalBench(logs=1)
    content = written(bench)
    bench.crashable = bench.crashable.copy()
    path = f"logs/orders/0/{0:020d}.log"
    bench.crashable.cut_short(path, bench.crashable.size(path) - 1)

    open_on_full_disk(bench, "append")
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())


def test_the_missing_end_of_a_full_segment_is_not_called_a_hole() -> None:
    bench = JournalBench(logs=1)
    content = b""
    while bench.logs[0].stats.rolls == 0:
        bench.write()
    bench.write()
    content = bench.content()
    bench.crashable = bench.crashable.copy()
    first = f"logs/orders/0/{0:020d}.log"
    bench.crashable.cut_short(first, bench.crashable.size(first) // 2)

    # What stands in the file already can be written again.
    open_on_full_disk(bench, "pwrite", times=1)
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())


def test_a_gap_in_what_is_restored_does_not_make_the_checkpoint_cover_the_rest() -> None:
    bench = JournalBench(logs=1)
    # The first gap is noted in a checkpoint, the second is in the same segment.
    for base_offset in (0, 5, 6, 9):
        append_behind_gap(bench, base_offset)
    content = bench.content()
    bench.crashable = bench.crashable.crash(Nothing())
    # What is restored goes into another segment.
    bench.log_options = replace(bench.log_options, segment_bytes=150)

    open_on_full_disk(bench, "append")
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())


def test_the_journal_keeps_it_until_there_is_room() -> None:
    bench = JournalBench(logs=2)
    content = written(bench)
    bench.crashable = bench.crashable.crash(Nothing())
    open_on_full_disk(bench, "append")
    bench.open_log(1)
    bench.journal.logs_opened()
    bench.logs *= 2

    for _ in range(200):
        bench.write(1)
        bench.do_work()
    bench.logs.clear()
    bench.reports.clear()
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())


def test_the_journal_keeps_it_for_another_try_when_the_disk_fails() -> None:
    bench = JournalBench(logs=2)
    content = written(bench)
    bench.crashable = bench.crashable.crash(Nothing())
    bench.logs, bench.reports = [], []
    bench._begin()
    bench.disk.fail(FailureRule("append", errno.EIO, ".log", times=FOR_EVER))
    with pytest.raises(DiskFailed):
        bench.open_log(0)
    bench.disk.heal()
    bench.open_log(1)
    bench.journal.logs_opened()
    bench.logs *= 2

    for _ in range(200):
        bench.write(1)
        bench.do_work()
    bench.logs.clear()
    bench.reports.clear()
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())


def test_a_journal_that_cannot_be_opened_for_now_is_not_taken_for_a_damaged_one() -> None:
    bench = JournalBench(logs=1)
    content = written(bench)
    bench.crashable = bench.crashable.crash(Nothing())
    bench.logs, bench.reports = [], []
    bench._begin()
    bench.disk.fail(FailureRule("open", errno.EMFILE, ".journal", times=FOR_EVER))
    with pytest.raises(DiskFailed):
        bench.open_log(0)
    bench.disk.heal()
    bench.open_log(0)

    assert bench.content() == content
    assert (bench.reports[0].lost, bench.reports[0].corruption) == (None, ())
