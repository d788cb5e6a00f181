"""What a round with a journal writes and syncs, and whom it tells."""

import errno

from penstock.core.model import Offset, PartitionIndex, Timestamp
from penstock.core.records import Record, check_batches, read_records, rewrite_batch, write_batch
from penstock.storage.disk import FailureRule
from penstock.storage.journal import JournalOptions
from penstock.storage.log import PartitionLog
from tests.unit.storage.journal.conftest import OPTIONS, TOPIC, JournalBench, path_of


def test_one_round_of_many_logs_syncs_one_file() -> None:
    bench = JournalBench(logs=20, journal=JournalOptions())
    bench.rounds.sizes.clear()

    for log in range(20):
        bench.append(log)
        bench.logs[log].sync(bench.answers.append)
    bench.rounds.finish_all()

    # The first request begins a round of its own; all others share the next.
    assert bench.rounds.sizes == [1, 1]
    assert bench.answers == [None] * 20
    assert [int(log.synced) for log in bench.logs] == [1] * 20


def test_what_was_durable_is_there_after_a_power_cut_though_no_log_was_synced(bench: JournalBench) -> None:
    for _ in range(5):
        bench.write(0)
        bench.write(1)
    before = bench.content(0), bench.content(1)

    bench.restart()

    assert (bench.content(0), bench.content(1)) == before
    assert [report.restored is not None for report in bench.reports] == [True, True]
    assert all(report.lost is None and not report.doubt for report in bench.reports)


def test_what_a_leader_had_compacted_is_restored_on_a_follower_too(bench: JournalBench) -> None:
    whole = write_batch([Record(0, 1000, b"%d" % key, b"v", ()) for key in range(4)])
    (header,) = check_batches(whole)
    left = [record for record in read_records(memoryview(whole)) if record.offset != 1]
    compacted = bytes(rewrite_batch(header._replace(base_offset=3), left))
    bench.logs[0].append_replica(compacted, check_batches(compacted, compacted=True), Timestamp(1))
    bench.commit_all(0)

    bench.restart()

    assert bench.ends()[0] == 7
    assert (bench.reports[0].lost, bench.reports[0].restored is not None) == (None, True)


def test_a_large_append_is_synced_in_its_own_file_and_leaves_a_mark(bench: JournalBench) -> None:
    bench.write(0, size=900)

    # Its file, and then the journal, which says so.
    assert bench.rounds.sizes == [1, 1]
    before = bench.content(0)
    bench.restart()
    assert bench.content(0) == before
    assert bench.reports[0].restored is None


def test_small_appends_behind_a_large_one_are_not_called_durable_without_it(bench: JournalBench) -> None:
    bench.append(0, size=2000)
    bench.append(0)
    bench.commit_all(0)

    bench.restart()

    assert bench.ends()[0] == 2
    assert bench.reports[0].lost is None


def test_a_segment_that_is_rolled_is_restored_with_its_successor(bench: JournalBench) -> None:
    for _ in range(30):
        bench.append(0)
        bench.logs[0].sync(bench.answers.append)
        # Only the journal's syncs end; whatever else was asked for goes with the power.
        if len(bench.rounds.waiting) > 1:
            bench.rounds.finish()
    assert len(bench.logs[0].segments()) > 1
    bench.rounds.finish_all()
    before = bench.content(0)

    bench.restart()

    assert bench.content(0) == before


def test_when_the_journal_cannot_be_synced_the_logs_files_are(bench: JournalBench) -> None:
    bench.write(0)
    bench.disk.fail(FailureRule("sync", errno.EIO, ".spare", times=1))

    bench.write(0)
    bench.write(1)

    assert bench.journal.failure is not None
    assert bench.answers == [None] * 3
    bench.restart()
    assert bench.ends() == [2, 1]


def test_when_the_journal_cannot_be_written_the_logs_files_are_synced(bench: JournalBench) -> None:
    bench.disk.fail(FailureRule("pwrite", errno.ENOSPC, ".spare", times=1))

    bench.write(0)
    bench.write(1)

    assert bench.journal.failure is not None
    assert bench.answers == [None, None]
    bench.restart()
    assert bench.ends() == [1, 1]


def test_a_log_whose_own_file_fails_stops_and_others_go_on(bench: JournalBench) -> None:
    bench.disk.fail(FailureRule("sync", errno.EIO, "orders/0/00000000000000000000.log"))

    bench.append(0, size=2000)
    bench.append(1)
    bench.commit_all(0, 1)

    assert [answer is None for answer in bench.answers] == [False, True]
    assert bench.journal.failure is None
    assert bench.logs[0].stopped is not None
    assert bench.logs[1].stopped is None


def test_a_log_that_nobody_waits_for_stays_out_of_the_journal(bench: JournalBench) -> None:
    bench.logs[0].use_journal(is_on=False)
    bench.write(0)
    bench.logs[0].use_journal(is_on=True)
    bench.append(0)
    bench.commit_all(0)

    bench.restart()

    assert bench.ends()[0] == 2
    assert bench.reports[0].restored is not None
    assert bench.reports[0].restored.start == 1


def test_appends_from_before_the_journal_was_switched_on_are_synced_first(bench: JournalBench) -> None:
    bench.logs[0].use_journal(is_on=False)
    bench.append(0)
    bench.logs[0].use_journal(is_on=True)
    bench.append(0)
    bench.commit_all(0)

    bench.restart()

    assert bench.ends()[0] == 2


def test_truncated_batches_do_not_come_back_from_the_journal(bench: JournalBench) -> None:
    for _ in range(4):
        bench.write(0)
    bench.logs[0].truncate_to(Offset(2))

    bench.restart()

    assert bench.ends()[0] == 2
    assert bench.reports[0].lost is None


def test_a_log_that_was_cut_goes_on_with_what_was_appended_since(bench: JournalBench) -> None:
    for _ in range(4):
        bench.write(0)
    bench.logs[0].truncate_to(Offset(2))
    bench.write(0, size=33)
    before = bench.content(0)

    bench.restart()

    assert bench.content(0) == before
    assert bench.ends()[0] == 3


def test_a_log_that_is_made_again_does_not_meet_its_past(bench: JournalBench) -> None:
    bench.write(0)
    bench.logs[0].abandon()
    bench.journal.removed(TOPIC, PartitionIndex(0))
    bench.disk.remove_tree(path_of(0))
    PartitionLog.create(bench.disk, path_of(0), TOPIC, OPTIONS, position=bench.journal.position()).close()

    bench.restart()

    assert bench.ends()[0] == 0
    assert bench.reports[0].lost is None
