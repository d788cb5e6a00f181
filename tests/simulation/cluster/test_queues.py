"""Runs with queues: which ones have them, and what happens in them."""

from dataclasses import replace

from penstock.core.model import MILLISECOND, SECOND
from penstock.sim.cluster import SimulatedClusterOptions, options_for, run_cluster
from penstock.sim.faults import FaultKind, FaultPlan, FaultTarget
from penstock.sim.network import FAIR
from penstock.sim.world import World
from tests.simulation.cluster.coverage import run_until_visited

PLAN = FaultPlan(
    (FaultKind.KILL, FaultKind.ISOLATE, FaultKind.CLOCK_JUMP),
    300 * MILLISECOND,
    600 * MILLISECOND,
    FAIR,
    (FaultTarget.ANYBODY, FaultTarget.LEADER),
    patient=True,
)
QUEUES = SimulatedClusterOptions(
    partitions=1,
    queue_consumers=2,
    queue_transactors=1,
    transactional_producers=1,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    transactions_min=1,
    pace_ms=20,
    faulty_ns=4 * SECOND,
    plan=PLAN,
)
VISITED = (
    "acknowledge_confirmed",
    "acknowledge_refused",
    "dead_letters",
    "deliveries",
    "expired",
    "redeliveries",
    "reject_confirmed",
    "release_confirmed",
    "renew_confirmed",
    "transactional_acks",
)


def test_some_runs_have_queues_and_all_others_are_what_they_would_be_without() -> None:
    seeds = range(1, 401)
    drawn = {seed: options_for(seed) for seed in seeds}
    without = {
        seed: SimulatedClusterOptions.draw(World(seed).random("options"))
        .with_consumer_group(World(seed).random("consumer group"))
        .with_sinks(World(seed).random("sinks"))
        for seed in seeds
    }

    others = [seed for seed, options in drawn.items() if not options.queue_consumers]

    assert 0.07 < 1 - len(others) / len(seeds) < 0.2
    assert [drawn[seed] for seed in others] == [without[seed] for seed in others]


def test_every_run_has_queues_kills_and_wrong_clocks_where_they_are_asked_for() -> None:
    drawn = [options_for(seed, queues=True) for seed in range(1, 101)]

    assert all(options.queue_consumers and not options.compacted for options in drawn)
    assert all(options.client_skew_ms for options in drawn)
    kinds = [() if options.plan is None else options.plan.kinds for options in drawn]
    assert all(FaultKind.KILL in each and FaultKind.CLOCK_JUMP in each for each in kinds)
    assert len({options.nodes for options in drawn}) > 1
    assert {options.nodes for options in (options_for(seed, 4, queues=True) for seed in (1, 2))} == {4}


def test_records_of_queues_are_finished_delivered_again_and_given_up_while_nodes_fall() -> None:
    assert run_until_visited(QUEUES, [f"queue.{name}" for name in VISITED]) == set()


def test_members_of_a_share_group_come_back_and_queues_are_paused_while_nodes_fall() -> None:
    options = replace(QUEUES, queue_consumers=1, queue_transactors=0, share_consumers=3, queue_pausers=1)
    names = ("queue.share_deliveries", "queue.share_removals", "queue.pauses")

    assert run_until_visited(options, names) == set()


def test_dead_letters_are_moved_while_nodes_fall() -> None:
    options = replace(QUEUES, queue_consumers=4, queue_redrivers=3)

    assert run_until_visited(options, ("queue.redriven",)) == set()


def test_a_run_whose_queues_do_little_proves_nothing() -> None:
    run = run_cluster(1, replace(QUEUES, queue_acks_min=10_000, faulty_ns=SECOND // 4))

    assert [anomaly for anomaly in run.anomalies if anomaly.startswith("vacuous: only ")]


def test_a_run_with_queues_is_repeated_by_its_seed() -> None:
    options = replace(QUEUES, faulty_ns=SECOND)

    assert run_cluster(2, options) == run_cluster(2, options)
