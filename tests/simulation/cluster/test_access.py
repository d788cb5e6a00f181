"""Runs with users: which ones have them, and what happens in them."""

from dataclasses import replace

from penstock.core.model import MILLISECOND, SECOND
from penstock.sim.cluster import SimulatedClusterOptions, options_for, run_cluster
from penstock.sim.faults import FaultKind, FaultPlan, FaultTarget
from penstock.sim.network import FAIR
from tests.simulation.cluster.coverage import run_until_visited

PLAN = FaultPlan(
    (FaultKind.KILL, FaultKind.ISOLATE, FaultKind.PAUSE),
    300 * MILLISECOND,
    600 * MILLISECOND,
    FAIR,
    (FaultTarget.ANYBODY, FaultTarget.LEADER),
    patient=True,
)
ACCESS = SimulatedClusterOptions(
    partitions=1,
    access_users=2,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    pace_ms=20,
    faulty_ns=4 * SECOND,
    plan=PLAN,
)
VISITED = (
    "changes",
    "delivered",
    "denied",
    "logins",
    "overtaken",
    "refused_logins",
    "served",
    "throttled",
)


def test_runs_have_users_where_they_are_asked_for_and_otherwise_what_they_had() -> None:
    seeds = range(1, 51)

    secured = [options_for(seed, security=True) for seed in seeds]
    others = [options_for(seed) for seed in seeds]

    assert {options.access_users for options in secured} == {1, 2, 3}
    assert not any(options.access_users for options in others)
    assert [options.pace_ms for options in secured] == [options.pace_ms for options in others]


def test_rights_are_given_and_taken_back_while_nodes_fall() -> None:
    assert run_until_visited(ACCESS, [f"access.{name}" for name in VISITED]) == set()


def test_a_run_in_which_nobody_was_refused_proves_nothing() -> None:
    run = run_cluster(1, replace(ACCESS, access_denied_min=10_000, faulty_ns=SECOND // 4))

    assert [anomaly for anomaly in run.anomalies if anomaly.startswith("vacuous: only ")]


def test_a_run_with_users_is_repeated_by_its_seed() -> None:
    options = replace(ACCESS, faulty_ns=SECOND)

    assert run_cluster(2, options) == run_cluster(2, options)
