import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.cluster.faults import run_faults
from tests.cluster.full_disk import run_full_disk
from tests.cluster.wrong_clocks import MISSING, run_wrong_clocks
from tests.support.clocks import library


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


def test_a_node_whose_disk_is_full_resigns_and_comes_back(tmp_path: Path) -> None:
    waits, verdict = run_full_disk(tmp_path, rounds=1)

    assert len(waits) == 1
    assert verdict.anomalies == []
    assert verdict.failed == []
    assert verdict.acknowledged == verdict.sent > 0


@pytest.mark.skipif(library() is None, reason=MISSING)
def test_clocks_that_disagree_lose_nothing_when_a_leader_is_killed(tmp_path: Path) -> None:
    _, verdict = run_wrong_clocks(tmp_path, rounds=1)

    assert started(tmp_path / "node-1.log") - started(tmp_path / "node-2.log") > timedelta(minutes=115)
    assert verdict.anomalies == []
    assert verdict.failed == []
    assert verdict.acknowledged == verdict.sent > 0


def started(events: Path) -> datetime:
    """When a node's first event was, by its own clock."""
    return datetime.fromisoformat(json.loads(events.read_text().splitlines()[0])["time"])
