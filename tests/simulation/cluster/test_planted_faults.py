"""The simulator finds what it is there to find: planted faults, within a stated number of runs.

Here those that a few runs find; `make simfaults` plants all of them.
"""

import pytest

from penstock.sim.cluster import SimulatedClusterOptions, run_cluster
from tests.simulation.cluster.planted_faults import FAULTS, PlantedFault, runs_needed

SOON_FOUND = [fault for fault in FAULTS if fault.is_soon_found]
CIRCUMSTANCES = {id(fault.circumstances): (fault.circumstances, str(fault)) for fault in FAULTS}


@pytest.mark.parametrize("fault", SOON_FOUND, ids=str)
def test_a_planted_fault_is_found_within_the_stated_number_of_runs(
    fault: PlantedFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.plant(monkeypatch)

    assert runs_needed(fault, [fault.hint, *range(1, fault.runs_max + 1)]) is not None


@pytest.mark.parametrize(
    "options",
    [options for options, _ in CIRCUMSTANCES.values()],
    ids=[f"those of: {name}" for _, name in CIRCUMSTANCES.values()],
)
def test_the_same_circumstances_show_nothing_where_nothing_is_planted(
    options: SimulatedClusterOptions,
) -> None:
    assert run_cluster(1, options).anomalies == ()
