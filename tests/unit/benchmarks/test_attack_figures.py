from pathlib import Path

import pytest

from benchmarks.attacks.figures import Account, AttackResult, Latencies, Window
from benchmarks.attacks.well_behaved import acked_records, read_records

MS = 1_000_000


@pytest.fixture
def produced(tmp_path: Path) -> Path:
    """Four records: acknowledged at once, late, never (an error), and one that is being written down."""
    path = tmp_path / "produce"
    path.write_text(f"0 0 {2 * MS}\n1 {20 * MS} {900 * MS}\n2 {40 * MS} -1\n3 {60 * MS} 1")
    return path


def written(path: Path, *numbers: int) -> Path:
    path.write_text("".join(f"{number} 0 {MS} 0 {offset}\n" for offset, number in enumerate(numbers)))
    return path


def test_a_record_waits_from_when_it_should_have_been_sent(produced: Path) -> None:
    during = Window(10 * MS, 100 * MS).acked(acked_records(produced))

    assert during == Latencies(count=1, p50_ms=880.0, p99_ms=880.0, max_ms=880.0)


def test_a_record_that_was_read_twice_counts_when_it_came_first(tmp_path: Path) -> None:
    path = tmp_path / "consume"
    path.write_text(f"7 0 {3 * MS} 0 0\n7 0 {90 * MS} 0 0\n")

    assert Window(0, MS).read(read_records(path)).max_ms == 3.0


def test_an_acknowledged_record_that_is_not_in_the_log_is_lost(produced: Path, tmp_path: Path) -> None:
    group, log = written(tmp_path / "consume", 0, 1), written(tmp_path / "read", 0, 2)

    found = Account.of(produced, group, log, is_log_read=True)

    assert found == Account(acked=2, lost=1, doubled=0, unseen=0, failed=1)


def test_a_record_that_is_in_the_log_twice_is_doubled(produced: Path, tmp_path: Path) -> None:
    group, log = written(tmp_path / "consume", 0), written(tmp_path / "read", 0, 1, 1)

    found = Account.of(produced, group, log, is_log_read=True)

    assert (found.doubled, found.unseen) == (1, 1)


def test_a_log_that_was_not_read_to_its_end_says_nothing_of_what_is_lost(
    produced: Path, tmp_path: Path
) -> None:
    found = Account.of(produced, tmp_path / "consume", tmp_path / "read", is_log_read=False)

    assert found.misses() == ["log not read", "unseen", "failed"]


GOOD = Account(acked=9, lost=0, doubled=0, unseen=0, failed=0)


def test_goals_that_are_missed_are_named() -> None:
    slow = Latencies(9, 1.0, 51.0, 500.0)
    result = AttackResult("a", 1, produce=slow, before_mb=50, after_mb=101, account=GOOD)

    assert result.misses() == ["p99", "max", "memory", "restart"]


def test_a_run_in_which_nothing_was_acknowledged_proves_nothing() -> None:
    result = AttackResult("a", 1, produce=Latencies(9, 1.0, 2.0, 3.0), restart_seconds=1.0)

    assert result.misses() == ["none acknowledged"]


def test_a_row_without_misses_is_ok() -> None:
    result = AttackResult("a", 1, produce=Latencies(9, 1.0, 2.0, 3.0), restart_seconds=1.0, account=GOOD)

    assert result.row().endswith("| ok")
