"""Runs until everything that a test is about has happened.

Which run meets what is drawn by its seed, and any change of the code deals other cards.
"""

from collections.abc import Collection

from penstock.sim.cluster import SimulatedClusterOptions, run_cluster

RUNS = 40


def run_until_visited(options: SimulatedClusterOptions, names: Collection[str]) -> set[str]:
    """Run one seed after the other, without an anomaly; what none of them has visited."""
    missing = set(names)
    for seed in range(1, RUNS + 1):
        verdict = run_cluster(seed, options)
        assert verdict.anomalies == (), f"seed {seed}"
        missing -= {name for name, count in verdict.visited.items() if count}
        if not missing:
            break
    return missing
