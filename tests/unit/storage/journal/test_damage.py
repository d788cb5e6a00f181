"""What a start finds when files were damaged while the node was down."""

import pytest

from penstock.core.model import Offset
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal import JournalOptions
from penstock.storage.log import DamagedRange, LogOptions
from tests.unit.storage.journal.conftest import JournalBench

SEGMENT = "logs/orders/0/00000000000000000000.log"


def settled(bench: JournalBench, rounds: int = 6) -> bytes:
    """Some durable batches in the first log, in its file as well as in the journal."""
    for _ in range(rounds):
        bench.write(0)
    bench.write(1)
    bench.crashable = bench.crashable.copy()
    for path in bench.crashable.files():
        file = bench.crashable.open(path)
        file.sync()
        file.close()
    return bench.content(0)


def holes(bench: JournalBench, log: int = 0) -> list[tuple[int, int]]:
    """The ranges that a start has found to be lost, and that cannot be read."""
    found = bench.reports[log].corruption
    for damage in found:
        with pytest.raises(DamagedRange):
            bench.logs[log].read(damage.start, 1000)
    return [(int(damage.start), int(damage.end)) for damage in found]


def test_every_byte_of_a_tail_may_be_wrong() -> None:
    original = JournalBench()
    content = settled(original)

    for byte in range(len(content)):
        bench = JournalBench()
        assert settled(bench) == content
        bench.crashable.flip_bit(SEGMENT, byte * 8 + byte % 8)
        bench.restart(power_cut=False)

        assert bench.content(0) == content, f"byte {byte}"
        assert bench.reports[0].lost is None


def test_a_tail_may_be_cut_anywhere() -> None:
    original = JournalBench()
    content = settled(original)

    for size in range(0, len(content), 7):
        bench = JournalBench()
        settled(bench)
        bench.crashable.cut_short(SEGMENT, size)
        bench.restart(power_cut=False)

        assert bench.content(0) == content, f"size {size}"
        assert bench.reports[0].lost is None


def test_a_segment_above_the_recovery_point_may_be_gone(bench: JournalBench) -> None:
    for _ in range(12):
        bench.write(0)
    assert len(bench.logs[0].segments()) > 1
    before = bench.content(0)
    last = bench.logs[0].segments()[-1].base_offset
    bench.crashable = bench.crashable.copy()
    bench.crashable.remove(f"logs/orders/0/{last:020d}.log")

    bench.restart(power_cut=False)

    assert bench.content(0) == before


def test_what_the_journal_does_not_hold_is_lost_and_named() -> None:
    bench = JournalBench()
    bench.write(0)
    bench.write(0, size=2000)
    bench.write(0)
    bench.crashable = bench.crashable.copy()
    bench.crashable.cut_short("logs/orders/0/00000000000000000001.log", 500)

    bench.restart(power_cut=False)

    assert holes(bench) == [(1, 2)]
    assert bench.ends() == [3, 0]
    assert bench.reports[0].lost is None
    assert not bench.reports[1].corruption


def frames_of(bench: JournalBench) -> tuple[str, list[int]]:
    """The active journal file and where its frames begin."""
    name = f"meta/journal/{bench.journal_files()[-1]}"
    file = bench.crashable.open(name, readonly=True)
    content = file.pread(0, file.size())
    starts, position = [], content.find(b"PSJF")
    while position >= 0:
        starts.append(position)
        position = content.find(b"PSJF", position + 1)
    return name, starts


def test_a_damaged_frame_that_others_follow_puts_the_logs_in_doubt_that_it_may_be_about() -> None:
    bench = JournalBench(logs=3)
    bench.write(0)
    bench.write(1)
    bench.write(1)
    bench.write(2)
    name, starts = frames_of(bench)
    bench.crashable.flip_bit(name, (starts[1] + 60) * 8)

    bench.restart()

    # The last two are named by a later frame: all before it was durable in the journal or the log.
    assert [bool(report.doubt) for report in bench.reports] == [True, False, False]
    assert holes(bench, 1) == [(0, 1)]
    assert bench.ends() == [1, 2, 1]


def test_after_a_power_cut_the_last_frame_is_taken_for_an_unfinished_write(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(0)
    name, starts = frames_of(bench)
    # The seal behind it was not durable.
    bench.crashable.flip_bit(name, (starts[-2] + 60) * 8)

    bench.restart()

    assert bench.ends() == [1, 0]
    assert not bench.journal.damage


def test_when_only_the_process_ended_damage_to_the_last_frame_is_seen(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(0)
    name, starts = frames_of(bench)
    for byte in range(starts[-2], starts[-1], 5):
        harmed = JournalBench()
        harmed.write(0)
        harmed.write(0)
        harmed.crashable.flip_bit(name, byte * 8)

        harmed.restart(power_cut=False)

        assert harmed.journal.damage, f"byte {byte - starts[-2]}"
        assert [bool(report.doubt) for report in harmed.reports] == [True, True]


def test_the_seal_itself_may_be_damaged(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(0)
    name, starts = frames_of(bench)
    bench.crashable.flip_bit(name, (starts[-1] + 9) * 8)

    bench.restart(power_cut=False)

    assert not bench.journal.damage
    bench.write(0)
    bench.restart()
    assert not bench.journal.damage
    assert bench.ends() == [3, 0]


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("more", [0, 2])
def test_the_last_of_several_files_is_missed(bench: JournalBench, power_cut: bool, more: int) -> None:
    while len(bench.journal_files()) < 2:
        bench.write(0)
    for _ in range(more):
        bench.write(0)
    bench.crashable.remove(f"meta/journal/{bench.journal_files()[-1]}")
    bench.crashable.sync_directory("meta/journal")

    bench.restart(power_cut=power_cut)

    # With a power cut right behind its first frame, nothing says yet that it was there.
    assert bool(bench.journal.damage) == (not power_cut or more > 0)


def test_a_file_that_was_cut_is_damaged_wherever_that_was(bench: JournalBench) -> None:
    bench.write(0)
    name, starts = frames_of(bench)
    for size in (starts[0] - 100, starts[0], starts[0] + 30, starts[1], starts[1] + 100):
        harmed = JournalBench()
        harmed.write(0)
        harmed.crashable.cut_short(name, size)

        harmed.restart(power_cut=False)

        assert harmed.journal.damage, f"cut to {size}"
        assert harmed.reports[1].doubt


def test_without_the_state_the_last_files_may_be_gone_as_well(bench: JournalBench) -> None:
    for _ in range(3):
        bench.write(0)
    bench.crashable.remove("meta/journal/state")
    bench.crashable.sync_directory("meta/journal")

    bench.restart()

    assert [bool(report.doubt) for report in bench.reports] == [True, True]


def test_a_header_that_is_damaged_is_seen_by_the_frame_behind_it(bench: JournalBench) -> None:
    bench.write(0)
    bench.write(0)
    bench.write(0)
    name, starts = frames_of(bench)
    bench.crashable.flip_bit(name, (starts[1] + 9) * 8)

    bench.restart()

    assert bench.journal.damage
    assert holes(bench) == [(1, 2)]
    assert bench.ends() == [3, 0]


def test_a_missing_file_of_the_journal_is_a_loss(bench: JournalBench) -> None:
    for _ in range(60):
        bench.write(0)
    assert len(bench.journal_files()) > 2
    bench.crashable.remove(f"meta/journal/{bench.journal_files()[1]}")
    bench.crashable.sync_directory("meta/journal")

    bench.restart()

    assert bench.journal.damage


def test_the_newest_file_of_the_journal_is_missed_too(bench: JournalBench) -> None:
    bench.write(0)
    bench.crashable.remove(f"meta/journal/{bench.journal_files()[-1]}")
    bench.crashable.sync_directory("meta/journal")

    bench.restart()

    assert [bool(report.doubt) for report in bench.reports] == [True, True]


@pytest.mark.parametrize("harm", ["removed", "damaged"])
def test_a_journal_without_its_state_is_read_all_the_same_but_doubted(harm: str) -> None:
    bench = JournalBench()
    bench.write(0)
    if harm == "removed":
        bench.crashable.remove("meta/journal/state")
        bench.crashable.sync_directory("meta/journal")
    else:
        bench.crashable.flip_bit("meta/journal/state", 100)

    bench.restart()

    assert bench.ends() == [1, 0]
    assert bench.journal.damage
    bench.write(0)
    bench.restart()
    assert bench.ends() == [2, 0]


def test_a_journal_that_is_gone_altogether_puts_every_log_in_doubt(bench: JournalBench) -> None:
    bench.write(0)
    bench.crashable.remove_tree("meta/journal")
    bench.crashable.sync_directory("meta")

    bench.restart()

    assert [bool(report.doubt) for report in bench.reports] == [True, True]
    bench.write(0)
    before = bench.content(0)
    bench.restart()
    assert bench.content(0) == before


def test_the_bytes_of_a_record_cannot_pass_for_a_frame() -> None:
    bench = JournalBench(journal=JournalOptions(first_bytes=8192, file_bytes=32 << 10))
    for _ in range(3):
        bench.write(0)
    name, starts = frames_of(bench)
    file = bench.crashable.open(name, readonly=True)
    frame = file.pread(starts[2], 24 + 4096)
    other = JournalBench(journal=JournalOptions(first_bytes=8192, file_bytes=32 << 10))
    other.salt = 1000
    other.restart()
    other.write(0)
    name, starts = frames_of(other)
    # A torn frame, in front of bytes that were a frame elsewhere.
    other.crashable.open(name).pwrite(starts[0] + 30, frame)
    other.crashable.open(name).sync()

    other.restart()

    assert not other.journal.damage


def test_all_frames_of_the_oldest_file_may_be_gone(bench: JournalBench) -> None:
    bench.write(1)
    while len(bench.journal_files()) < 2:
        bench.write(0)
    bench.crashable = bench.crashable.copy()
    # Nothing but its header is left.
    bench.crashable.cut_short(f"meta/journal/{bench.journal_files()[0]}", 512)

    bench.restart()

    assert bench.journal.damage
    assert bench.reports[1].doubt


def test_a_start_that_ends_early_does_not_hide_damage(bench: JournalBench) -> None:
    bench.write(1)
    while len(bench.journal_files()) < 2:
        bench.write(0)
    bench.crashable = bench.crashable.copy()
    bench.crashable.cut_short(f"meta/journal/{bench.journal_files()[0]}", 512)
    for _ in range(2):
        # Only the quorum's log is opened, and the node is stopped while it joins its cluster.
        bench.logs = bench.logs[:1]
        bench.restart()
        bench.do_work()
        bench.journal.close()

    bench.restart()
    bench.open_log(1)
    assert bench.reports[1].doubt

    bench.journal.logs_opened()
    for _ in range(200):
        bench.write(0)
        bench.do_work()
    assert len(bench.journal_files()) <= 5


def checkpointed(bench: JournalBench) -> None:
    """Durable batches in both logs that the journal need not remember."""
    for number in (0, 1):
        bench.write(number)
        bench.logs[number].checkpoint(lambda _: None)
        bench.rounds.finish_all()
        bench.commit_all(number)


def test_a_log_without_its_checkpoint_is_in_doubt(bench: JournalBench) -> None:
    checkpointed(bench)
    bench.crashable.remove("logs/orders/0/checkpoint")

    bench.restart(power_cut=False)

    assert [report.doubt for report in bench.reports] == ["its checkpoint is lost", ""]


def test_a_log_that_was_copied_from_another_node_is_in_doubt_once(bench: JournalBench) -> None:
    other = JournalBench()
    other.salt = 1_000
    other.crashable.remove_tree("meta/journal")
    other.restart(power_cut=False)
    checkpointed(other)
    checkpointed(bench)
    content = other.crashable.open("logs/orders/0/checkpoint", readonly=True).pread(0, 1_000)
    file = bench.crashable.open("logs/orders/0/checkpoint")
    file.truncate(0)
    file.append(content)
    file.sync()

    bench.restart(power_cut=False)
    assert ["another journal" in report.doubt for report in bench.reports] == [True, False]
    bench.logs[0].accept_loss()
    bench.restart(power_cut=False)

    assert [report.doubt for report in bench.reports] == ["", ""]


def put_back(bench: JournalBench, old: CrashableDisk, directory: str) -> None:
    """Put an older copy of a directory in its place."""
    bench.crashable.remove_tree(directory)
    bench.crashable.make_directory(directory)
    for path in old.files():
        if path.startswith(f"{directory}/"):
            source = old.open(path, readonly=True)
            target = bench.crashable.open(path, create=True)
            target.append(source.pread(0, source.size()))
            target.sync()
    bench.crashable.sync_directory(directory)
    bench.crashable.sync_directory(directory.rpartition("/")[0])


def test_logs_that_are_newer_than_the_journal_are_in_doubt(bench: JournalBench) -> None:
    old = bench.crashable.copy()
    bench.restart()
    checkpointed(bench)
    put_back(bench, old, "meta/journal")

    bench.restart()

    assert all("newer than the journal" in report.doubt for report in bench.reports)


def test_what_is_written_to_a_log_that_is_newer_than_the_journal_is_kept(bench: JournalBench) -> None:
    old = bench.crashable.copy()
    bench.restart()
    bench.restart()
    checkpointed(bench)
    bench.write(0)
    put_back(bench, old, "meta/journal")
    # Its frames count from before the one that the checkpoint names.
    bench.restart(power_cut=False, is_synced_later=True)
    assert "newer than the journal" in bench.reports[0].doubt

    bench.write(0)
    before = bench.content(0)
    bench.restart()

    assert bench.content(0) == before


@pytest.mark.parametrize("in_order", [True, False])
def test_an_older_copy_of_logs_and_journal_is_missed_by_who_knows_the_last_run(
    bench: JournalBench, *, in_order: bool
) -> None:
    checkpointed(bench)
    if in_order:
        bench.close()
    old = bench.crashable.copy()
    bench.open()
    assert not any(report.doubt for report in bench.reports)
    checkpointed(bench)
    noted = bench.journal.run

    bench.crashable = old
    bench.open(noted=noted)
    assert "older copy" in bench.journal.damage
    assert all(report.doubt for report in bench.reports)
    noted = bench.journal.run
    for log in bench.logs:
        log.accept_loss()
    bench.crashable = bench.crashable.copy()

    bench.open(noted=noted)
    assert [report.doubt for report in bench.reports] == ["", ""]


def test_a_start_that_ends_early_does_not_hide_that_the_journal_is_an_older_copy(bench: JournalBench) -> None:
    checkpointed(bench)
    bench.close()
    old = bench.crashable.copy()
    bench.open()
    checkpointed(bench)
    noted, count = bench.journal.run, len(bench.logs)
    bench.crashable, bench.logs = old, []

    # It notes its own run, and ends before it has opened a log.
    bench.open(noted=noted)
    noted = bench.journal.run
    bench.crashable = bench.crashable.copy()
    bench.open(noted=noted)
    for number in range(count):
        bench.open_log(number)

    assert all(report.doubt for report in bench.reports)


@pytest.mark.parametrize("how", ["stopped in order", "killed when its files were used again", "found whole"])
def test_an_older_copy_of_a_log_that_the_journal_need_not_name_is_in_doubt(how: str) -> None:
    bench = JournalBench()
    checkpointed(bench)
    old = bench.crashable.copy()
    checkpointed(bench)
    if how == "found whole":
        # What the last checkpoint names is known from its file only.
        bench.restart()
    if how == "stopped in order":
        bench.close()
    else:
        for _ in range(200):
            bench.write(0)
            bench.do_work()
    bench.crashable = bench.crashable.copy()
    put_back(bench, old, "logs/orders/1")

    bench.open()
    assert bench.journal.damage == ""
    assert ["older copy" in report.doubt for report in bench.reports] == [False, True]

    bench.crashable = bench.crashable.copy()
    bench.open()
    assert ["older copy" in report.doubt for report in bench.reports] == [False, True]
    bench.logs[1].accept_loss()
    checkpointed(bench)
    bench.crashable = bench.crashable.copy()
    bench.open()
    assert [report.doubt for report in bench.reports] == ["", ""]


@pytest.mark.parametrize("harm", ["none", "gone", "flipped", "cut"])
def test_what_the_journal_knows_of_checkpoints_puts_no_whole_log_in_doubt(harm: str) -> None:
    bench = JournalBench()
    path = "meta/journal/checkpoints"
    for number in range(3):
        checkpointed(bench)
        if number == 1:
            # The next checkpoint is not needed, for there is nothing new that it could hold.
            bench.close()
            bench.open()
        bench.close()
        bench.crashable = bench.crashable.copy()
        if harm == "gone":
            bench.crashable.remove(path)
        elif harm == "flipped":
            bench.crashable.flip_bit(path, 170)
        elif harm == "cut":
            bench.crashable.cut_short(path, 3)
        bench.open()

        assert not bench.journal.damage
        assert [report.doubt for report in bench.reports] == ["", ""]


@pytest.mark.parametrize("again", [False, True])
def test_what_was_cut_does_not_come_back_from_a_journal_that_lost_its_state(*, again: bool) -> None:
    bench = JournalBench(logs=1, options=LogOptions(segment_bytes=1 << 20, index_interval_bytes=150))
    bench.write(size=30)
    bench.write(size=40)
    # Another leader has something else there, too large for the journal.
    bench.logs[0].truncate_to(Offset(1))
    bench.append(size=950, epoch=1)
    bench.commit_all()
    bench.append(size=50, epoch=1)
    bench.commit_all()
    content, noted = bench.content(), bench.journal.run
    bench.crashable = bench.crashable.copy()
    bench.crashable.flip_bit("meta/journal/state", 80)

    bench.open(noted=noted)
    if again:
        # Before any checkpoint that the log would have had in time.
        noted = bench.journal.run
        bench.crashable = bench.crashable.copy()
        bench.open(noted=noted)

    assert bench.content() == content
    assert bench.ends() == [3]
    assert bench.reports[0].restored is None
