"""The simulator finds what it is there to find: every planted fault, within a stated number of runs."""

import pytest

from penstock.sim.cluster import run_cluster
from tests.simulation.cluster.planted_faults import FAULTS, PlantedFault, runs_needed


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_within_the_stated_number_of_runs(
    fault: PlantedFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.plant(monkeypatch)

    assert runs_needed(fault, [fault.hint, *range(1, fault.runs_max + 1)]) is not None


def test_the_same_circumstances_show_nothing_where_nothing_is_planted() -> None:
    circumstances = {id(fault.circumstances): fault.circumstances for fault in FAULTS}

    verdicts = [run_cluster(1, options) for options in circumstances.values()]

    assert [verdict.anomalies for verdict in verdicts] == [()] * len(verdicts)
