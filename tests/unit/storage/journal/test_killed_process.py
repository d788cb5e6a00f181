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
