"""Clusters whose nodes encrypt their disks keep every promise, and no disk has a value in clear."""

import pytest

from penstock.sim.cluster import options_for, run_cluster
from penstock.sim.cluster.options import SimulatedClusterOptions


@pytest.mark.parametrize("seed", range(1, 7))
def test_faults_lose_nothing_that_is_encrypted_and_no_disk_has_it_in_clear(seed: int) -> None:
    result = run_cluster(seed, options_for(seed, encrypted=True))

    assert result.anomalies == ()
    # Nodes have only those keys in the end that they say they need.
    assert result.visited["master_keys.rotated"] > 0
    assert result.visited["master_keys.taken_away"] > 0


@pytest.mark.parametrize("seed", [1, 2])
def test_queues_are_encrypted_too(seed: int) -> None:
    result = run_cluster(seed, options_for(seed, queues=True, encrypted=True))

    assert result.anomalies == ()


def test_a_node_that_has_just_started_does_not_give_away_a_key_that_it_needs() -> None:
    result = run_cluster(212, options_for(212, encrypted=True))

    assert result.anomalies == ()


def test_the_search_finds_what_is_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sim.cluster.options.ENCRYPTED", "false")

    result = run_cluster(1, SimulatedClusterOptions(encrypted=True, faulty_ns=10**9))

    assert any(anomaly.startswith("in clear: ") for anomaly in result.anomalies)
