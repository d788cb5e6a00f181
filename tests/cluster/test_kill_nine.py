from pathlib import Path

from tests.cluster.kill_rounds import run_rounds

ROUNDS = 6


def test_a_killed_node_keeps_what_it_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    outcome = run_rounds(tmp_path / "data", ROUNDS, seed=1, progress=lambda _: None)

    assert outcome.anomalies == []
    assert outcome.failed == []
    assert outcome.acknowledged == outcome.sent > 0
