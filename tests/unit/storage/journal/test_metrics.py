"""What the journal counts."""

from penstock.core.model import StorageError
from tests.unit.storage.journal.conftest import JournalBench


def test_frames_marks_and_rounds_are_counted(bench: JournalBench) -> None:
    metrics = bench.journal.metrics
    bench.write(0)
    assert (metrics.frames.count, metrics.marks.count, metrics.rounds.count) == (1, 0, 1)
    assert metrics.written_bytes.count > 100

    bench.write(0, size=2000)

    assert (metrics.frames.count, metrics.marks.count) == (2, 1)
    assert metrics.synced_files.count >= 3


def test_files_that_are_needed_are_shown_with_their_size(bench: JournalBench) -> None:
    (files,) = bench.journal.metrics.files.figures.values()
    (size,) = bench.journal.metrics.size_bytes.figures.values()
    assert (files(), size()) == (1, 4096)

    while len(bench.journal_files()) < 2:
        bench.write(0)

    assert (files(), size()) == (2, 8192)


def test_what_was_taken_from_the_journal_is_counted(bench: JournalBench) -> None:
    for _ in range(3):
        bench.write(0)
    bench.restart()

    assert bench.journal.metrics.restored_records.count == 3


def test_a_failure_is_counted_once(bench: JournalBench) -> None:
    bench.journal.fail(StorageError("gone"))
    bench.journal.fail(StorageError("gone"))

    assert bench.journal.metrics.failures.count == 1
