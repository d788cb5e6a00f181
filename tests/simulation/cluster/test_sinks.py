"""Sinks are part of some runs, and in those batches are committed, repeated and refused."""

from dataclasses import replace

from penstock.sim.cluster import SimulatedClusterOptions, options_for
from penstock.sim.world import World
from tests.simulation.cluster.coverage import run_until_visited
from tests.simulation.cluster.planted_faults import RACKS


def test_some_seeds_with_transactions_have_a_sink_and_everything_else_is_drawn_as_without() -> None:
    seeds = range(1, 401)
    drawn = {seed: options_for(seed) for seed in seeds}
    without = {
        seed: SimulatedClusterOptions.draw(World(seed).random("options"))
        .with_consumer_group(World(seed).random("consumer group"))
        .with_queues(World(seed).random("queue clients"))
        for seed in seeds
    }
    with_sinks = [seed for seed, options in drawn.items() if options.sinks]
    transactional = [seed for seed, options in without.items() if options.has_transactions]

    assert 0.1 < len(with_sinks) / len(transactional) < 0.2
    for seed, options in drawn.items():
        producers = without[seed].transactional_producers
        assert replace(options, sinks=0, rack_consumers=0, transactional_producers=producers) == without[seed]


def test_batches_are_committed_repeated_and_refused_and_followers_are_read() -> None:
    names = ("batch.committed", "batch.repeated", "batch.refused", "client.read_from_follower")

    assert run_until_visited(RACKS, names) == set()
