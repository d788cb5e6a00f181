from pathlib import Path

from tests.cluster.security_changes import run_changes


def test_what_is_taken_back_is_gone_and_nothing_is_lost_with_a_kill_in_each_change(tmp_path: Path) -> None:
    outcome = run_changes(tmp_path, 1, seed=1, progress=lambda _: None)

    assert outcome.anomalies == []
    assert outcome.kills.total() == 4
    assert outcome.rotations == 1
    assert outcome.keys_removed > 0
    assert min(outcome.acknowledged, outcome.acknowledged_by_python, outcome.secrets_read) > 0
