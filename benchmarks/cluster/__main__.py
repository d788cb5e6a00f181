"""Runs the measurements and prints them."""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence

from benchmarks.cluster.nodes import Nodes, nodes
from penstock.cli.bench.report import MEGABYTE, Figures
from penstock.cli.bench.scenarios import BenchTarget, ResourceUsage, client_limit, disk_limits, produce
from penstock.client import Endpoint
from penstock.client.load import ProduceLoad

REPLICAS = 3
SIZES = (100, 1_000)
APPENDS = 512
FETCHES = "penstock_replication_fetches_total"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.cluster", description="What replication costs.")
    parser.add_argument("--messages", type=int, default=1_000_000, help="records of 100 B; a fourth of 1 KB")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--directory", help="where the data is kept, to measure a certain disk")
    parser.add_argument("--output", help="keep the figures as JSON")
    options = parser.parse_args(arguments)
    results: dict[str, Figures] = dict(disk_limits(options.directory or tempfile.gettempdir()))
    results["synced_append_1mb"] = _synced_appends(options.directory or tempfile.gettempdir())
    for size in SIZES:
        results[f"client limit, {size} B"] = client_limit(_load(options.messages, size, "1"))
    for count in (1, REPLICAS):
        with nodes(count, options.directory) as running:
            for size in SIZES:
                for acks in ("1", "all"):
                    name = f"{count} replica{'s' * (count > 1)}, acks={acks}, {size} B"
                    print(f"{name} ...", file=sys.stderr)
                    load = _load(options.messages, size, acks)
                    results[name] = _measure(running, load, count, options.partitions)
    results["ratios"] = _ratios(results)
    for name, figures in results.items():
        print(f"{name:34} {figures}")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


def _load(messages: int, size: int, acks: str) -> ProduceLoad:
    records = messages if size <= min(SIZES) else messages // 4
    return ProduceLoad(records, size, acks=acks, seconds_max=120)


def _synced_appends(directory: str) -> Figures:
    """Appending 1 MB at a time and syncing at the end: what the device keeps, not what memory takes."""
    content = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=directory) as file:
        began = time.perf_counter_ns()
        for _ in range(APPENDS):
            os.write(file.fileno(), content)
        os.fdatasync(file.fileno())
        elapsed_s = (time.perf_counter_ns() - began) / 1e9
    return {"mb_per_s": round(APPENDS * len(content) / MEGABYTE / elapsed_s, 1)}


def _measure(running: Nodes, load: ProduceLoad, replicas: int, partitions: int) -> Figures:
    target = BenchTarget("cluster", Endpoint(running.bootstrap), replication=replicas)
    # The first records wait for links and leaders.
    produce(target, ProduceLoad(10_000, load.value_bytes, acks=load.acks), partitions)
    before, fetched = running.usage(), _fetches(running)
    figures = produce(target, load, partitions)
    after, fetched = running.usage(), _fetches(running) - fetched
    return {**figures, **_used(before, after, fetched)}


def _used(before: list[ResourceUsage], after: list[ResourceUsage], fetches: float) -> Figures:
    cpu_s = sum(late.cpu_ns - early.cpu_ns for early, late in zip(before, after, strict=True)) / 1e9
    figures: Figures = {
        "brokers_cpu_s": round(cpu_s, 2),
        "brokers_rss_mb": round(sum(usage.rss_bytes for usage in after) / MEGABYTE),
    }
    if fetches:
        figures["replica_fetches"] = int(fetches)
    return figures


def _fetches(running: Nodes) -> float:
    """How many fetches of followers were answered so far."""
    total = 0.0
    for address in running.metrics:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        total += sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(FETCHES))
    return total


def _ratios(results: dict[str, Figures]) -> Figures:
    replicated = float(results[f"{REPLICAS} replicas, acks=all, 1000 B"]["mb_per_s"])
    ratios: Figures = {}
    for limit in ("raw_append_1mb", "synced_append_1mb"):
        third = float(results[limit]["mb_per_s"]) / REPLICAS
        ratios[f"acks=all 1 KB to a third of {limit}"] = round(replicated / third, 2)
    for size in SIZES:
        one = float(results[f"1 replica, acks=all, {size} B"]["messages_per_s"])
        three = float(results[f"{REPLICAS} replicas, acks=all, {size} B"]["messages_per_s"])
        ratios[f"acks=all {size} B, three replicas to one"] = round(three / one, 2)
    return ratios


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
