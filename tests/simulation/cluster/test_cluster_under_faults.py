"""Three whole nodes under every kind of fault: no guarantee to a client is broken."""

import pytest

from penstock.sim.cluster import run_cluster

SEEDS = range(1, 11)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_guarantees_to_all_its_clients(seed: int) -> None:
    verdict = run_cluster(seed)

    assert verdict.anomalies == ()
    assert verdict.operations > 100


def test_a_run_is_repeated_by_its_seed() -> None:
    assert run_cluster(2) == run_cluster(2)
