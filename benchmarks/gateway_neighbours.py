"""What producers on the Kafka port feel of REST, gRPC and WebSocket beside them.

    python -m benchmarks.gateway_neighbours [--seconds N] [--rounds N] [--json F]

One node, with its gateway. For each server the most that it takes is measured first. Then one Produce of
one record goes after the other on the Kafka port, alone and while the server gets a quarter of that, in
turns; and at last while all of them get a quarter at once. The load comes from other processes, so on a
machine with two cores the node, its gateway and all clients share them. Clients of a gateway are elsewhere
as a rule: they have the lowest priority here, so that it is the node and its gateway that compete.
"""

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

from penstock.cli.bench.gateway_load import (
    GatewayLoad,
    GatewayServer,
    dequeue_websocket,
    enqueue_websocket,
    grpc_topic,
    publish_grpc,
    publish_rest,
    rest_topic,
)
from penstock.cli.bench.report import LoadResult
from penstock.cli.bench.scenarios import BenchTarget, RoundTripPlan, latency
from penstock.cli.child import throw_away_broker
from penstock.client import Endpoint

PARTITIONS = 2
EVER = 1 << 40
QUARTER = 4
TRIPS = 4_000
LOWEST = 19


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A server with a load on it."""

    name: str
    load: GatewayLoad
    run: Callable[[GatewayLoad], LoadResult]

    def most(self, seconds: float) -> int:
        """Messages a second, as many as there can be."""
        result = self.run(replace(self.load, seconds_max=seconds))
        return int(result.messages / (result.elapsed_ns / 1e9))

    @contextmanager
    def at(self, rate: int, seconds: float) -> Iterator[None]:
        """So many messages a second from another process meanwhile."""
        paced = replace(self.load, rate=rate, seconds_max=seconds)
        context = multiprocessing.get_context("spawn")
        has_begun = context.Event()
        process = context.Process(target=_begin, args=(has_begun, self.run, paced))
        process.start()
        try:
            has_begun.wait(60)
            yield
            if process.exitcode is not None:
                raise SystemExit(f"{self.name}: the load ended before the measurement")
        finally:
            process.terminate()
            process.join()


def _begin(has_begun: Event, run: Callable[[GatewayLoad], LoadResult], load: GatewayLoad) -> None:
    os.nice(LOWEST)
    has_begun.set()
    run(load)


def enqueue_and_dequeue(server: GatewayServer, topic: str, load: GatewayLoad) -> LoadResult:
    """What is enqueued is dequeued and acknowledged, a moment at a time."""
    moment = replace(load, messages=400 * load.batch)
    done = elapsed_ns = cpu_ns = 0
    while elapsed_ns < load.seconds_max * 1e9:
        for result in (
            enqueue_websocket(server, topic, moment),
            dequeue_websocket(server, topic, "bench", replace(moment, ahead=2)),
        ):
            elapsed_ns += result.elapsed_ns
            cpu_ns += result.client_cpu_ns
        done += result.messages
    return LoadResult(done, [], elapsed_ns, cpu_ns)


def p99_us(target: BenchTarget) -> float:
    return float(latency(target, RoundTripPlan(count=TRIPS))["p99_us"])


def measure(
    target: BenchTarget, neighbours: list[Neighbour], seconds: float, rounds: int
) -> dict[str, object]:
    """The 99th percentile of Produce by who is beside it, and the ratio to nobody."""
    most = {one.name: one.most(seconds) for one in neighbours}
    found: dict[str, list[float]] = {"nobody": [], **{one.name: [] for one in neighbours}, "all": []}
    for _ in range(rounds):
        found["nobody"].append(p99_us(target))
        for beside in [[one] for one in neighbours] + [neighbours]:
            with ExitStack() as stack:
                for one in beside:
                    stack.enter_context(one.at(max(1, most[one.name] // QUARTER), 600))
                found[beside[0].name if len(beside) == 1 else "all"].append(p99_us(target))
    alone = median(found["nobody"])
    return {
        name: {
            "most_per_s": most.get(name),
            "produce_p99_us": round(median(values)),
            "ratio": round(median(values) / alone, 2),
        }
        for name, values in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with ExitStack() as stack:
        node = stack.enter_context(throw_away_broker((), None))
        http, grpc = GatewayServer.at(node.http), GatewayServer.at(node.grpc)
        logs = [stack.enter_context(rest_topic(http, PARTITIONS)) for _ in range(3)]
        streamed = stack.enter_context(grpc_topic(grpc, PARTITIONS))
        framed = GatewayLoad(EVER, 100, connections=4, ahead=4)
        neighbours = [
            Neighbour("rest", GatewayLoad(EVER), partial(publish_rest, http, logs[0])),
            Neighbour("rest batches", GatewayLoad(EVER, 100), partial(publish_rest, http, logs[1])),
            Neighbour("grpc", framed, partial(publish_grpc, grpc, streamed)),
            Neighbour("websocket", framed, partial(enqueue_and_dequeue, http, logs[2])),
        ]
        target = BenchTarget("penstock", Endpoint(node.bootstrap), node.pid)
        found = measure(target, neighbours, given.seconds, given.rounds)
    for name, figures in found.items():
        print(f"{name:13} {figures}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
