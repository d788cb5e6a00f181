"""What is measured while nothing fails."""

import sys
from collections.abc import Mapping
from functools import partial

from benchmarks.durability.sides import EVERY, NONE, Cluster, Comparison, Modes, modes, topics
from benchmarks.durability.spread import spread
from benchmarks.side_by_side import THIS, note, raw_sync
from penstock.cli.bench import scenarios
from penstock.cli.bench.report import Figures
from penstock.cli.bench.scenarios import RoundTripPlan

PARTITIONS = (6, 200, 1_000)
SYNC_COST_PARTITIONS = (6, 200)
# Far below what a node can do: few messages share a sync, and pay the most for it.
PACED_RATE = 2_000
RATES = (1_000, 10_000, 30_000)
VALUE_BYTES = 100
REPLICAS = 3
# Connections are made and code gets warm first, which does not count.
WARM_UP_SECONDS = 2
END_TO_END_SECONDS_MAX = 60.0
ROUND_TRIPS_MAX = 200_000


def partitions(run: Comparison) -> None:
    """Produce with a sync before every acknowledgement, by the number of partitions; Kafka without one."""
    with run.clusters(EVERY, with_kafka=True) as sides:
        _warm_up(run, sides)
        for count in PARTITIONS:
            with topics(sides, count) as found:
                for word, acks in (("1", 1), ("all", -1)):
                    name = f"{count:,} partitions, acks={word}"
                    run.take(name, found, partial(spread, seconds=run.seconds, acks=acks))


def _warm_up(run: Comparison, sides: Mapping[str, Cluster]) -> None:
    """A load that does not count: Kafka's first seconds are those of its compiler."""
    with topics(sides, PARTITIONS[0]) as found:
        for name, topic in found.items():
            print(f"warm-up: {name}", file=sys.stderr, flush=True)
            spread(topic, run.seconds)


def sync_cost(run: Comparison) -> None:
    """CPU per message with a sync before every acknowledgement over that without."""
    with run.clusters(EVERY) as every, run.clusters(NONE) as none:
        for count in SYNC_COST_PARTITIONS:
            with topics(every, count) as synced, topics(none, count) as cached:
                for word, rate in (("full speed", None), (f"{PACED_RATE:,} msg/s", PACED_RATE)):
                    load = partial(spread, seconds=run.seconds, rate=rate)
                    name = f"sync cost, {count} partitions, {word}"
                    run.take(name, modes(synced, cached), partial(Modes.both, load=load))


def depth_1(run: Comparison) -> None:
    """One producer with one request in flight, with and without a sync."""
    plan = RoundTripPlan(ROUND_TRIPS_MAX, VALUE_BYTES, seconds_max=run.seconds)

    def load(side: Modes[Cluster]) -> Figures:
        note(run.results, "raw append and fdatasync", THIS, raw_sync(run.directory))
        return side.both(lambda one: _round_trips(one, plan))

    with run.clusters(EVERY) as every, run.clusters(NONE) as none:
        run.take("depth 1", modes(every, none), load)


def _round_trips(target: Cluster, plan: RoundTripPlan) -> Figures:
    found = scenarios.latency(target, plan)
    figures = {name: found[name] for name in ("p50_us", "p99_us")}
    return {**figures, "cpu_us": found["broker_cpu_us_per_produce"]}


def end_to_end(run: Comparison) -> None:
    """From a producer to a consumer at a rate: one node, and three that all keep it before it is read."""
    with run.clusters(EVERY, with_kafka=True) as sides:
        _warm_up(run, sides)
        for rate in RATES:
            run.take(f"end to end, one node, {rate:,} msg/s", sides, partial(_stream, run, rate, "1"))
    with run.clusters(EVERY, REPLICAS) as sides:
        for rate in RATES:
            run.take(f"end to end, RF 3, acks=all, {rate:,} msg/s", sides, partial(_stream, run, rate, "all"))


def _stream(run: Comparison, rate: int, acks: str, target: Cluster) -> Figures:
    warm_up = rate * WARM_UP_SECONDS
    records = warm_up + int(rate * run.seconds)
    seconds_max = run.seconds + END_TO_END_SECONDS_MAX
    before = target.usage()
    found = scenarios.end_to_end(target, records, rate, VALUE_BYTES, seconds_max, acks=acks, warm_up=warm_up)
    after = target.usage()
    figures = {name: found[name] for name in ("p50_us", "p99_us", "p999_us", "sender_late_ms")}
    # The making of the topic counts here too, on all sides alike.
    return {**figures, "cpu_us": round((after.cpu_ns - before.cpu_ns) / 1_000 / records, 1)}
