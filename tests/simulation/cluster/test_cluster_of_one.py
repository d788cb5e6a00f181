"""One whole node with every kind of client: none of its guarantees is broken by its faults."""

from dataclasses import replace

import pytest

from penstock.core.model import SECOND
from penstock.sim.cluster import SimulatedClusterOptions, run_cluster
from tests.simulation.cluster.planted_faults import ALONE as FALLING

SEEDS = range(1, 21)
ALONE = SimulatedClusterOptions(nodes=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_keeps_its_guarantees_to_all_its_clients(seed: int) -> None:
    verdict = run_cluster(seed, ALONE)

    assert verdict.anomalies == ()
    assert verdict.operations > 100


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_falls_again_and_again_loses_and_doubles_nothing(seed: int) -> None:
    verdict = run_cluster(seed, FALLING)

    assert verdict.anomalies == ()
    assert sum(verdict.faults.values()) > 0


def test_a_run_in_which_nothing_is_acknowledged_proves_nothing() -> None:
    verdict = run_cluster(1, replace(ALONE, idempotent_producers=0, members=0, faulty_ns=SECOND))

    assert verdict.anomalies == ("vacuous: only 0 records were acknowledged under faults",)


def test_a_run_whose_groups_commit_nothing_proves_nothing() -> None:
    verdict = run_cluster(1, replace(ALONE, commits_min=10_000, faulty_ns=SECOND // 2))

    assert len(verdict.anomalies) == 1
    assert verdict.anomalies[0].startswith("vacuous: only ")
    assert verdict.anomalies[0].endswith(" offsets were committed under faults")


def test_a_run_is_repeated_by_its_seed() -> None:
    assert run_cluster(4, ALONE) == run_cluster(4, ALONE)
