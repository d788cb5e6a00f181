"""Delayed records: how late they are, what they cost, and what a million that are pending take.

    python -m benchmarks.delays [--rates 1000 5000 10000] [--seconds N] [--pending N] [--base TREE] [--json F]

One node. For each rate records are scheduled and published at that rate at the same time: each is due two
seconds after its turn, and a reader with `read_committed` compares the clock with what the record says.

    markers      of transactions, over all partitions of the topic
    lateness     from the time that a record is due until a reader had it
    cpu_us       of the broker with its helpers, by record: storing it, publishing it, reading it
    wait         how long a small request of another client took meanwhile: a loop that stalls shows here

Then so many records are scheduled for tomorrow, and the node is started again with them.

    growth_mb    of the node's memory by what is pending; `again` after a start
    ready_s      until it listens
    loaded_s     until everything that is pending can be listed and cancelled

The reader, the scheduler and the prober have processes of their own. On a busy machine, waits and lateness
are those of the machine.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.cluster.nodes import await_ready, launch, nodes
from penstock.cli.bench.delay_load import DelayLoad, measure, picklable, probe, schedule_pending
from penstock.cli.bench.report import machine
from penstock.cli.bench.scenarios import ResourceUsage, usage_of
from penstock.cli.child import stop
from penstock.client import ClientError, Endpoint, TopicAdmin

TOPIC = "later"
TREE = Path(__file__).resolve().parents[1]
LOAD_SECONDS = 120.0
DAY_MS = 86_400_000
GAUGE = "penstock_delayed_pending"
Figures = dict[str, float]


def lateness(load: DelayLoad, settings: Sequence[str], tree: Path = TREE) -> Figures:
    """One rate, on a node of its own."""
    with nodes(1, settings=settings, tree=tree) as running:
        endpoint = Endpoint(running.bootstrap)
        TopicAdmin(endpoint).create(TOPIC, load.partitions, 1, {})
        before: list[ResourceUsage] = []
        report = measure(endpoint, TOPIC, load, lambda: before.extend(running.usage()))
        after = running.usage()[0]
        ends = sum(one.end_offset or 0 for one in TopicAdmin(endpoint).describe(TOPIC).partitions)
    found = report.arrivals
    return {
        "records": len(found.lateness_ms),
        "early": sum(each < 0 for each in found.lateness_ms),
        "twice": found.duplicates,
        # Each transaction writes a marker to every partition that it has records for.
        "markers": ends - load.records,
        **_spread("lateness", found.lateness_ms),
        "cpu_us": round((after.cpu_ns - before[0].cpu_ns) / 1e3 / load.records, 1),
        **_spread("wait", report.waits_ms),
        "behind_ms": round(report.sent.behind_ms, 1),
    }


def pending(records: int, value_bytes: int, settings: Sequence[str], tree: Path = TREE) -> Figures:
    """Memory by so many pending records, and a start with them."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root:
        data_dir = Path(root, "node")
        process = launch(data_dir, "127.0.0.1:0", ["--node-id=1"], settings, tree)
        try:
            endpoint = Endpoint(await_ready(process)["kafka"])
            TopicAdmin(endpoint).create(TOPIC, 4, 1, {})
            schedule_pending(endpoint, TOPIC, 1_000, value_bytes, DAY_MS)
            before = usage_of(process.pid)
            schedule_pending(endpoint, TOPIC, records, value_bytes, DAY_MS)
            after = usage_of(process.pid)
        finally:
            stop(process)
        fresh_dir = Path(root, "empty")
        process = launch(fresh_dir, "127.0.0.1:0", ["--node-id=1"], settings, tree)
        try:
            await_ready(process)
            idle = usage_of(process.pid)
        finally:
            stop(process)
        return {
            "records": records,
            "growth_mb": round((after.rss_bytes - before.rss_bytes) / 1e6, 1),
            "cpu_us": round((after.cpu_ns - before.cpu_ns) / 1e3 / records, 1),
            **_start(data_dir, records, settings, tree, idle.rss_bytes),
        }


def _start(data_dir: Path, records: int, settings: Sequence[str], tree: Path, idle_bytes: int) -> Figures:
    began = time.perf_counter()
    process = launch(data_dir, "127.0.0.1:0", ["--node-id=1"], settings, tree)
    try:
        ready = await_ready(process)
        ready_s = time.perf_counter() - began
        endpoint = Endpoint(ready["kafka"])
        with multiprocessing.get_context("spawn").Manager() as manager:
            over = manager.Event()
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                probing = pool.submit(probe, picklable(endpoint), LOAD_SECONDS, over.is_set)
                while _gauge(ready["metrics"]) < records:
                    if time.perf_counter() - began > LOAD_SECONDS:
                        raise ClientError(f"{records} records were not loaded in {LOAD_SECONDS} s")
                    time.sleep(0.05)
                loaded_s = time.perf_counter() - began
                over.set()
                waits = probing.result()
        again = usage_of(process.pid)
    finally:
        stop(process)
    return {
        "again_mb": round((again.rss_bytes - idle_bytes) / 1e6, 1),
        "ready_s": round(ready_s, 2),
        "loaded_s": round(loaded_s, 2),
        "load_cpu_s": round(again.cpu_ns / 1e9, 2),
        **_spread("wait", waits),
    }


def _gauge(metrics: str) -> int:
    with closing(urlopen(f"http://{metrics}/metrics", timeout=10)) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{GAUGE} "):
                return int(float(line.split()[1]))
    return 0


def _spread(name: str, values: list[float]) -> Figures:
    ordered = sorted(values) or [0.0]
    points = {"p50": 0.5, "p99": 0.99}
    found = {key: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for key, share in points.items()}
    return {f"{name}_{key}_ms": round(value, 1) for key, value in {**found, "max": ordered[-1]}.items()}


def _show(what: str, figures: Figures) -> None:
    print(f"{what:>9}  " + "  ".join(f"{name} {value:,}" for name, value in figures.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=int, nargs="*", default=[1_000, 5_000, 10_000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--fsync", choices=("every", "interval", "none"), default="every")
    parser.add_argument("--base", type=Path, help="another checkout to measure in turns with this one")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    settings = [f"storage.fsync.mode={given.fsync}"]
    found: dict[str, Any] = {}
    for name, tree in {"base": given.base, "this": TREE}.items():
        if tree is None:
            continue
        figures = found.setdefault(name, {})
        for rate in given.rates:
            records = int(rate * given.seconds)
            load = DelayLoad(records, rate, 2_000, given.bytes, given.partitions)
            figures[str(rate)] = lateness(load, settings, tree)
            _show(f"{name} {rate:,}/s", figures[str(rate)])
        if given.pending:
            figures["pending"] = pending(given.pending, given.bytes, settings, tree)
            _show(f"{name} pending", figures["pending"])
    if given.json is not None:
        given.json.write_text(
            json.dumps({"machine": machine(), "fsync": given.fsync, "figures": found}, indent=1)
        )


if __name__ == "__main__":
    main()
