from pathlib import Path

from tests.cluster.failover import run_failover

ROUNDS = 2


def test_killed_leaders_and_a_lost_majority_lose_nothing_and_writing_goes_on(tmp_path: Path) -> None:
    outcome = run_failover(tmp_path, ROUNDS, seed=1, rate=300, progress=lambda _: None)

    assert outcome.verdict.anomalies == []
    assert outcome.verdict.failed == []
    assert outcome.verdict.acknowledged == outcome.verdict.sent > 0
    assert outcome.controllers >= 1
    assert len(outcome.refusals) == 3
