"""Runs with a consumer group (KIP-848): which ones have one, and what happens in it."""

from dataclasses import replace

from penstock.sim.cluster import SimulatedClusterOptions, options_for, run_cluster
from penstock.sim.world import World
from tests.simulation.cluster.planted_faults import CONSUMER_GROUP


def test_some_runs_have_a_consumer_group_and_all_others_are_what_they_would_be_without() -> None:
    drawn = {seed: options_for(seed) for seed in range(400)}

    without = {
        seed: SimulatedClusterOptions.draw(World(seed).random("options"))
        .with_sinks(World(seed).random("sinks"))
        .with_queues(World(seed).random("queue clients"))
        for seed in drawn
    }
    others = [seed for seed, options in drawn.items() if not options.consumer_members]
    assert 0.1 < 1 - len(others) / len(drawn) < 0.2
    assert [drawn[seed] for seed in others] == [without[seed] for seed in others]
    for seed, options in drawn.items():
        assert replace(options, consumer_members=0, groups=without[seed].groups) == without[seed]


def test_members_of_a_consumer_group_get_give_up_and_lose_partitions_while_coordinators_fall() -> None:
    verdict = run_cluster(3, CONSUMER_GROUP)

    assert verdict.anomalies == ()
    visited = [name for name in verdict.visited if name.startswith("consumer_group.")]
    assert visited == [
        f"consumer_group.{name}" for name in ("assignments", "commits", "removals", "revocations")
    ]
    assert verdict.visited["consumer_group.commits"] >= CONSUMER_GROUP.commits_min
