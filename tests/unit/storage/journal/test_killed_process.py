"""A start after the process was killed: clients wait for it, so it takes no checkpoints."""

from tests.unit.storage.journal.conftest import JournalBench


def test_a_log_is_taken_as_it_is_and_survives_a_power_cut_at_once(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(0)
    before = bench.content(0)

    bench.restart(power_cut=False)

    assert not bench.logs[0].is_checkpointed
    assert bench.logs[0].synced == bench.logs[0].end == 2
    bench.restart()
    assert bench.content(0) == before


def test_what_was_written_and_not_yet_durable_is_so_when_it_is_found(bench: JournalBench) -> None:
    bench.write(0)
    bench.append(0)
    before = bench.content(0)

    bench.restart(power_cut=False)

    assert bench.logs[0].synced == bench.logs[0].end == 2
    bench.restart()
    assert bench.content(0) == before


def test_logs_that_are_synced_later_need_no_sync_of_their_own(bench: JournalBench) -> None:
    bench.write(0)
    bench.append(0)
    bench.append(1)
    before = bench.content(0), bench.content(1)

    bench.restart(power_cut=False, is_synced_later=True)

    assert [log.synced for log in bench.logs] == [1, 0]
    assert bench.ends() == [2, 1]
    bench.commit_all()
    assert bench.rounds.sizes == [1, 1], "the journal alone"
    assert [log.synced for log in bench.logs] == [2, 1]
    bench.restart()
    assert (bench.content(0), bench.content(1)) == before


def test_a_log_that_is_synced_later_and_never_was_is_as_if_it_had_not_been_found(bench: JournalBench) -> None:
    bench.write(0)
    bench.append(0)
    bench.restart(power_cut=False, is_synced_later=True)

    bench.restart()

    assert bench.ends()[0] == 1
    assert bench.reports[0].lost is None


def test_more_than_a_frame_takes_of_one_log_is_synced_in_its_file(bench: JournalBench) -> None:
    bench.write(0)
    bench.append(0, size=bench.options.entry_bytes_max)
    before = bench.content(0)

    bench.restart(power_cut=False, is_synced_later=True)

    bench.commit_all(0)
    assert bench.logs[0].synced == bench.logs[0].end == 2
    bench.restart()
    assert bench.content(0) == before


def test_it_goes_on_where_it_ended_and_is_found_again_after_several_kills(bench: JournalBench) -> None:
    for _ in range(3):
        bench.write(0)
        bench.write(1)
        bench.restart(power_cut=False)
    before = bench.content(0), bench.content(1)

    bench.restart()

    assert (bench.content(0), bench.content(1)) == before
    assert bench.ends() == [3, 3]
    assert [report.lost for report in bench.reports] == [None, None]


def test_what_the_former_process_wrote_is_kept_for_as_long_as_it_is_needed(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(1)
    bench.restart(power_cut=False)
    former = bench.journal_files()[0]
    assert len(bench.journal_files()) == 2

    for _ in range(60):
        bench.write(0)
        bench.do_work()

    assert former not in bench.journal_files()
