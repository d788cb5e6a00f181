"""What is measured: a name, a load, and what the machine does without a broker."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.macro.brokers import Promise
from benchmarks.macro.pipelined import fetch_cpu, produce_cpu
from benchmarks.macro.rebalance import rebalance
from penstock.cli.bench import scenarios
from penstock.cli.bench.report import MEGABYTE, Figures
from penstock.cli.bench.scenarios import BenchTarget, RoundTripPlan, client_limit, disk_limits, socket_limit
from penstock.client.load import ProduceLoad

READERS = 2
BATCH_BYTES = 16_000
SPREAD = 1_000
# What a record of a batch carries beside its value.
RECORD_OVERHEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Measure:
    """One load on one broker; `limit` measures the machine, given a directory."""

    name: str
    run: Callable[[BenchTarget], Figures]
    promise: Promise = Promise.DEFAULT
    limit: Callable[[str | None], Figures] | None = None
    rounds_max: int = 3


def measures(scale: float) -> list[Measure]:
    """Everything, in the order of the report; `scale` makes it smaller."""

    def some(count: int) -> int:
        return max(500, int(count * scale))

    return [*_streams(some), *_paced(some), *_depth_1(some), *_cpu(some)]


def _streams(some: Callable[[int], int]) -> list[Measure]:
    found = []
    for text, size, count in (("100 B", 100, 3_000_000), ("1 KB", 1_000, 600_000)):
        for acks in ("all", "1"):
            load = ProduceLoad(some(count), size, acks=acks, linger_ms=5, partition=0)
            limit = partial(_produce_limit, load) if acks == "all" else None
            found.append(
                Measure(f"produce {text}, acks={acks}", partial(scenarios.produce, load=load), limit=limit)
            )
    load = ProduceLoad(some(1_000_000), 1_000, partition=0)
    return [*found, Measure("consume 1 KB", partial(scenarios.consume, load=load))]


def _paced(some: Callable[[int], int]) -> list[Measure]:
    paced = ProduceLoad(some(250_000), 100, acks="all", linger_ms=0, rate=50_000, partition=0)
    return [
        Measure("publish at 50k/s", partial(scenarios.produce, load=paced)),
        Measure(
            "end to end at 10k/s",
            partial(scenarios.end_to_end, records=some(50_000), rate=10_000, value_bytes=100, seconds_max=60),
        ),
        Measure("rebalance of 10", rebalance),
    ]


def _depth_1(some: Callable[[int], int]) -> list[Measure]:
    plan = RoundTripPlan(some(5_000), seconds_max=20)
    busy = RoundTripPlan(some(2_000), readers=READERS, seconds_max=20)
    return [
        Measure(
            "publish depth 1, synced", partial(scenarios.latency, plan=plan), Promise.DURABLE, _sync_limit
        ),
        Measure("publish depth 1, synced, busy", partial(scenarios.latency, plan=busy), Promise.DURABLE),
        Measure("publish depth 1", partial(scenarios.latency, plan=plan), Promise.CACHED, _socket_limit),
        Measure("publish depth 1, busy", partial(scenarios.latency, plan=busy), Promise.CACHED),
    ]


def _cpu(some: Callable[[int], int]) -> list[Measure]:
    def batches(spread: int) -> Callable[[BenchTarget], Figures]:
        return partial(produce_cpu, count=some(10_000), value_bytes=BATCH_BYTES, spread=spread)

    def depth_1(spread: int) -> Callable[[BenchTarget], Figures]:
        plan = RoundTripPlan(some(5_000), BATCH_BYTES, partitions=spread, connections=spread, seconds_max=20)
        return partial(scenarios.latency, plan=plan)

    cached = Promise.CACHED
    return [
        Measure("small Produce", partial(produce_cpu, count=some(40_000)), cached),
        Measure("small Produce, synced", partial(produce_cpu, count=some(40_000)), Promise.DURABLE),
        Measure("Fetch without data", partial(fetch_cpu, count=some(40_000)), cached),
        Measure("16 KB Produce, 1 x 1", batches(1), cached),
        Measure("16 KB Produce, 1,000 x 1,000", batches(SPREAD), cached, rounds_max=2),
        Measure("16 KB Produce depth 1, 1 x 1", depth_1(1), cached),
        Measure("16 KB Produce depth 1, 1,000 x 1,000", depth_1(SPREAD), cached, rounds_max=2),
    ]


def _produce_limit(load: ProduceLoad, directory: str | None) -> Figures:
    """The smaller of what the client and what the disk could do, and both."""
    client = client_limit(load)["messages_per_s"]
    append = disk_limits(directory or tempfile.gettempdir())["raw_append_1mb"]["mb_per_s"] * MEGABYTE
    records = round(append / (load.value_bytes + RECORD_OVERHEAD_BYTES))
    return {"client_per_s": client, "append_per_s": records, "messages_per_s": min(client, records)}


def _sync_limit(directory: str | None) -> Figures:
    return disk_limits(directory or tempfile.gettempdir())["raw_fdatasync_4kb"]


def _socket_limit(_directory: str | None) -> Figures:
    return socket_limit()
