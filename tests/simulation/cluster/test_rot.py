"""Segments that rot and reads that fail while nodes run."""

from dataclasses import replace

from penstock.core.model import MILLISECOND, SECOND
from penstock.sim.cluster import run_cluster
from penstock.sim.cluster.options import STATIC, SimulatedClusterOptions
from penstock.sim.faults import FaultKind, FaultPlan
from penstock.sim.network import FAIR

# One in which readers and scrubs meet all of it.
SEED = 4
PLAN = FaultPlan((FaultKind.ROT, FaultKind.FAILED_READ), 200 * MILLISECOND, SECOND, FAIR)
OPTIONS = SimulatedClusterOptions(plan=PLAN, static={**STATIC, "log.scrub.interval.ms": "200"})


def test_the_scrub_finds_what_no_client_reads_and_replicas_are_filled_again() -> None:
    verdict = run_cluster(SEED, OPTIONS)

    assert verdict.anomalies == ()
    assert verdict.visited["scrub.damaged_ranges"] > 0
    assert verdict.visited["partition.repaired"] > 0
    assert verdict.visited["quorum.log_repaired"] > 0


def test_without_a_scrub_readers_find_it() -> None:
    never = {**STATIC, "log.scrub.bytes.per.second": "0"}
    verdict = run_cluster(SEED, replace(OPTIONS, static=never))

    assert verdict.anomalies == ()
    assert "scrub.passes" not in verdict.visited
    assert verdict.visited["partition.corrupt_range"] > 0
