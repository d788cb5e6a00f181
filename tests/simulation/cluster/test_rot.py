"""Segments that rot and reads that fail while nodes run."""

from dataclasses import replace

from penstock.core.model import MILLISECOND, SECOND
from penstock.sim.cluster import run_cluster
from penstock.sim.cluster.options import STATIC, SimulatedClusterOptions
from penstock.sim.faults import FaultKind, FaultPlan
from penstock.sim.network import FAIR
from tests.simulation.cluster.coverage import run_until_visited

PLAN = FaultPlan((FaultKind.ROT, FaultKind.FAILED_READ), 200 * MILLISECOND, SECOND, FAIR)
OPTIONS = SimulatedClusterOptions(plan=PLAN, static={**STATIC, "log.scrub.interval.ms": "200"})


def test_the_scrub_finds_what_no_client_reads_and_replicas_are_filled_again() -> None:
    names = ("scrub.damaged_ranges", "partition.repaired", "quorum.log_repaired")

    assert run_until_visited(OPTIONS, names) == set()


def test_without_a_scrub_readers_find_it() -> None:
    never = {**STATIC, "log.scrub.bytes.per.second": "0"}
    options = replace(OPTIONS, static=never)

    assert run_until_visited(options, ("partition.corrupt_range",)) == set()
    assert "scrub.passes" not in run_cluster(1, options).visited
