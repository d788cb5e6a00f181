from pathlib import Path

from tests.cluster.faults import run_faults


def test_a_leader_that_stands_still_and_nodes_that_restart_lose_nothing(tmp_path: Path) -> None:
    _, verdict = run_faults(tmp_path, ["pause", "rolling"], rounds=1, rate=300)

    assert verdict.anomalies == []
    assert verdict.failed == []
    assert verdict.acknowledged == verdict.sent > 0


def test_leaders_that_are_cut_off_in_both_or_one_direction_lose_nothing(tmp_path: Path) -> None:
    _, verdict = run_faults(tmp_path, ["cut", "mute"], rounds=1, rate=300)

    assert verdict.anomalies == []
    assert verdict.failed == []
    assert verdict.acknowledged == verdict.sent > 0
