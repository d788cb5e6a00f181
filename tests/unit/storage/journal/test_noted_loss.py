"""What was lost is told by every start, until somebody has taken it down."""

import pytest

from penstock.core.model import Offset
from penstock.storage.disk import CrashableDisk, FailureRule
from penstock.storage.log import CorruptRange
from penstock.storage.log.files import read_file
from penstock.storage.log.loss import NotedLoss, decode_loss, encode_loss, read_loss
from penstock.storage.log.types import CorruptFile
from tests.unit.storage.journal.conftest import JournalBench

LOSS = "logs/orders/0/loss"
CHECKPOINT = "logs/orders/0/checkpoint"


def doubting(bench: JournalBench) -> JournalBench:
    """The journal is lost after a crash, so that every log is in doubt."""
    bench.write(0)
    bench.crashable.remove_tree("meta/journal")
    bench.crashable.sync_directory("meta")
    bench.restart()
    assert bench.reports[0].doubt
    return bench


def test_a_second_crash_does_not_hide_a_doubt(bench: JournalBench) -> None:
    doubting(bench)
    bench.journal.logs_opened()
    bench.write(0)
    bench.logs[0].checkpoint()
    bench.rounds.finish_all()

    for _ in range(2):
        bench.restart()
        assert bench.reports[0].doubt


def killed(bench: JournalBench) -> JournalBench:
    """The process is killed with batches behind the checkpoint, and the journal is lost."""
    bench.write(0)
    bench.write(0)
    bench.crashable.remove_tree("meta/journal")
    bench.crashable.sync_directory("meta")
    bench.restart(power_cut=False, is_synced_later=True)
    assert bench.reports[0].doubt
    return bench


def test_nothing_is_written_to_a_log_because_the_journal_is_lost(bench: JournalBench) -> None:
    before = read_file(bench.crashable, CHECKPOINT)

    killed(bench)

    assert read_file(bench.crashable, CHECKPOINT) == before
    assert not bench.crashable.exists(LOSS)
    bench.restart(power_cut=False, is_synced_later=True)
    assert bench.reports[0].doubt


def test_what_is_written_after_the_journal_was_lost_needs_no_checkpoint(bench: JournalBench) -> None:
    killed(bench)
    for _ in range(3):
        bench.write(0)
        before = bench.content(0)

        bench.restart(is_synced_later=True)

        assert bench.content(0) == before
    assert bench.ends() == [5, 0]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_checkpoint_notes_the_doubt_that_it_would_hide(bench: JournalBench, is_closed: bool) -> None:
    killed(bench)

    if is_closed:
        bench.close()
    else:
        bench.logs[0].checkpoint()
        bench.rounds.finish_all()

    assert bench.crashable.exists(LOSS)
    bench.restart()
    assert bench.reports[0].doubt


def test_a_doubt_that_was_accepted_is_not_noted_by_a_checkpoint(bench: JournalBench) -> None:
    killed(bench)

    bench.logs[0].accept_loss()
    bench.logs[0].checkpoint()
    bench.rounds.finish_all()

    assert not bench.crashable.exists(LOSS)
    bench.restart()
    assert not bench.reports[0].doubt


def test_a_doubt_ends_when_it_is_accepted(bench: JournalBench) -> None:
    doubting(bench)

    bench.logs[0].accept_loss()
    bench.restart(power_cut=False)

    assert [bool(report.doubt) for report in bench.reports] == [False, True]
    assert not bench.crashable.exists(LOSS)


def test_a_note_that_cannot_be_removed_is_only_told_again(bench: JournalBench) -> None:
    doubting(bench)
    bench.disk.fail(FailureRule("remove", path_ends="orders/0/loss"))

    bench.logs[0].accept_loss()

    bench.write(0)
    bench.restart(power_cut=False)
    assert bench.reports[0].doubt


def test_a_lost_tail_is_told_although_the_journal_is_lost_as_well() -> None:
    bench = JournalBench()
    bench.write(0)
    bench.write(0, size=2000)
    bench.crashable = bench.crashable.copy()
    bench.crashable.cut_short("logs/orders/0/00000000000000000001.log", 500)
    bench.restart(power_cut=False)
    assert bench.reports[0].lost is not None

    bench.crashable.remove_tree("meta/journal")
    bench.crashable.sync_directory("meta")
    bench.restart()

    lost = bench.reports[0].lost
    assert lost is not None
    assert (lost.start, lost.end) == (1, 2)


def test_a_lost_tail_that_was_accepted_is_not_told_again() -> None:
    bench = JournalBench()
    bench.write(0)
    bench.write(0, size=2000)
    bench.crashable = bench.crashable.copy()
    bench.crashable.cut_short("logs/orders/0/00000000000000000001.log", 500)
    bench.restart(power_cut=False)

    bench.logs[0].accept_loss()
    bench.rounds.finish_all()
    bench.restart()

    assert bench.reports[0].lost is None
    bench.write(0)
    assert bench.ends() == [2, 0]


def rotten(bench: JournalBench) -> tuple[str, int]:
    """A scrub finds one bad batch in a sealed segment."""
    for _ in range(15):
        bench.write(0)
    base = bench.logs[0].segments()[0].base_offset
    path = f"logs/orders/0/{base:020d}.log"
    bench.logs[0].checkpoint()
    bench.rounds.finish_all()
    bench.crashable.flip_bit(path, 8 * 100)
    found = [step.damage for step in bench.logs[0].scrub() if step.damage is not None]
    assert [(damage.start, damage.end) for damage in found] == [(1, 2)]
    return path, 8 * 100


def test_a_range_that_a_scrub_has_found_is_known_at_the_next_start(bench: JournalBench) -> None:
    rotten(bench)

    for _ in range(2):
        bench.restart(power_cut=False)
        assert [(damage.start, damage.end) for damage in bench.reports[0].corruption] == [(1, 2)]
        bench.logs[0].accept_loss()


def test_a_range_that_can_be_read_again_is_no_loss(bench: JournalBench) -> None:
    path, bit = rotten(bench)

    bench.crashable.flip_bit(path, bit)
    bench.restart(power_cut=False)

    assert not bench.reports[0].corruption
    assert not bench.crashable.exists(LOSS)


def test_a_range_that_can_be_read_again_is_forgotten_although_the_log_has_grown(bench: JournalBench) -> None:
    path, bit = rotten(bench)
    bench.write(0)

    bench.crashable.flip_bit(path, bit)
    bench.restart(power_cut=False)

    assert bench.reports[0].bytes_read
    assert not bench.reports[0].corruption
    assert not bench.crashable.exists(LOSS)


def test_a_range_behind_a_cut_is_forgotten_though_a_kill_came_before_the_note(bench: JournalBench) -> None:
    rotten(bench)
    before = bench.crashable.open(LOSS, readonly=True)
    content = before.pread(0, before.size())
    before.close()
    bench.logs[0].truncate_to(Offset(1))
    bench.logs[0].roll()
    bench.rounds.finish_all()
    note = bench.crashable.open(LOSS, create=True)
    note.append(content)
    note.sync()
    note.close()

    bench.restart(power_cut=False)

    assert not bench.reports[0].corruption
    assert not bench.crashable.exists(LOSS)


def test_what_is_written_after_a_cut_is_not_what_was_damaged(bench: JournalBench) -> None:
    rotten(bench)

    bench.logs[0].truncate_to(Offset(1))
    for _ in range(12):
        bench.write(0)
    bench.restart(power_cut=False)

    assert not bench.reports[0].corruption
    assert not bench.crashable.exists(LOSS)


def test_what_is_damaged_in_front_of_a_cut_stays_noted(bench: JournalBench) -> None:
    rotten(bench)

    bench.logs[0].truncate_to(Offset(4))
    for _ in range(2):
        bench.write(0)
        bench.restart(power_cut=False)
        assert [(damage.start, damage.end) for damage in bench.reports[0].corruption] == [(1, 2)]


def test_a_note_that_cannot_be_read_is_a_doubt(bench: JournalBench) -> None:
    rotten(bench)
    bench.crashable.flip_bit(LOSS, 200)

    bench.restart(power_cut=False)

    assert bench.reports[0].doubt


@pytest.mark.parametrize("doubt", ["", "a frame is damaged"])
def test_the_file_says_what_was_noted(doubt: str) -> None:
    damage = (
        CorruptRange(Offset(0), Offset(3), Offset(9), "CRC", 100, 300),
        CorruptRange(Offset(50), Offset(60), Offset(61), "ü", 1, 2),
    )
    loss = NotedLoss(Offset(77), doubt, damage)

    assert decode_loss(encode_loss(loss)) == loss
    with pytest.raises(CorruptFile):
        decode_loss(encode_loss(loss)[:-3])


def test_no_file_is_no_loss() -> None:
    assert read_loss(CrashableDisk(), "logs") == NotedLoss()
