"""Two source trees side by side in one run: what a change costs or saves, on whatever machine this is.

python -m benchmarks.side_by_side --base OTHER_CHECKOUT [--only WORD …] [--rounds N] [--kafka] [--json F]

For each tree two real nodes are started from its own sources, one that syncs before it acknowledges
(`every`) and one that does not (`none`). The client is this tree's for both, and the rounds
alternate, so that both share the machine's good and bad moments:

    round 1   base  this  (kafka)   round 2   this  base  (kafka)   round 3   base …

Reported are medians over the rounds and the ratio this/base: below 1 is cheaper, or sooner; and the
ratio of the best rounds, which a busy machine disturbs least. CPU is that of the node's process, that
of its helper processes, and both. Beside the synced figures stands what the same disk takes for an
append and an fdatasync without any broker.

End to end is only comparable while the node keeps up: once it has no time left, the figure is the
length of the queue. Then compare its CPU.

With `--kafka`, Apache Kafka is measured in the same rounds, where Java and a way to Maven Central exist.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.cluster.nodes import check_tree, nodes
from benchmarks.macro.brokers import Peer
from benchmarks.macro.budgets import is_rate
from benchmarks.macro.pipelined import fetch_cpu, produce_cpu
from benchmarks.peers.kafka import kafka_node
from benchmarks.peers.maven import PeerUnavailable
from penstock.cli.bench import scenarios
from penstock.cli.bench.report import MEGABYTE, Figures, keep, percentiles_us, report
from penstock.cli.bench.scenarios import BenchTarget, RoundTripPlan, usage_of
from penstock.client import ClientError, Endpoint

ROUNDS = 5
# A run ends after the round in which this is exceeded.
SECONDS_MAX = 170.0
BASE, THIS, KAFKA = "base", "this", "kafka"
SYNCED, CACHED = "synced", "cached"
STREAM_RECORDS = 25_000
RAW_SYNCS = 400
RAW_APPEND_BYTES = 161
CACHED_SETTINGS = {BASE: "storage.fsync.mode=none", KAFKA: ""}
SYNCED_SETTINGS = {BASE: "storage.fsync.mode=every", KAFKA: "log.flush.interval.messages=1"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One load on one node; `figures` names what is reported beside the CPU per request, or per record."""

    name: str
    node: str
    run: Callable[[BenchTarget], Figures]
    figures: tuple[str, ...] = ()
    records: int = 0


MEASURES = (
    Measure("small Produce, pipelined", CACHED, lambda target: produce_cpu(target, 20_000)),
    Measure("small Produce, pipelined, synced", SYNCED, lambda target: produce_cpu(target, 20_000)),
    Measure("Fetch without data", CACHED, lambda target: fetch_cpu(target, 20_000)),
    Measure(
        "publish depth 1",
        CACHED,
        lambda target: scenarios.latency(target, RoundTripPlan(4_000, seconds_max=10)),
        ("p50_us", "p99_us"),
    ),
    Measure(
        "publish depth 1, synced",
        SYNCED,
        lambda target: scenarios.latency(target, RoundTripPlan(2_500, seconds_max=10)),
        ("p50_us", "p99_us"),
    ),
    Measure(
        "end to end at 10k/s, synced",
        SYNCED,
        lambda target: scenarios.end_to_end(target, STREAM_RECORDS, 10_000, 100, 30),
        ("p50_us", "p99_us"),
        STREAM_RECORDS,
    ),
)

# measure -> figure -> side -> one value per round
Results = dict[str, dict[str, dict[str, list[float]]]]


@dataclass(frozen=True, slots=True)
class Side:
    """The nodes of one tree, or of Kafka."""

    name: str
    nodes: dict[str, BenchTarget]


@contextmanager
def node(tree: Path, setting: str, directory: str | None) -> Iterator[BenchTarget]:
    """A node that runs the sources of a tree; stopped, and its data removed, at the end."""
    with nodes(1, directory, [setting], tree) as started:
        yield BenchTarget(tree.name, Endpoint(started.bootstrap), started.pids[0])


@contextmanager
def sides(base: Path, this: Path, directory: str | None, *, with_kafka: bool) -> Iterator[list[Side]]:
    """Start every node; a Kafka that is not to be had is left out, with a line that says why."""
    with ExitStack() as stack:
        found = []
        for name, tree in ((BASE, base), (THIS, this)):
            check_tree(tree)
            synced = stack.enter_context(node(tree, SYNCED_SETTINGS[BASE], directory))
            cached = stack.enter_context(node(tree, CACHED_SETTINGS[BASE], directory))
            found.append(Side(name, {SYNCED: synced, CACHED: cached}))
        if with_kafka:
            try:
                found.append(_kafka(stack, directory))
            except PeerUnavailable as why:
                print(f"without Kafka: {why}", file=sys.stderr)
        yield found


def _kafka(stack: ExitStack, directory: str | None) -> Side:
    nodes: dict[str, BenchTarget] = {}
    for kind, setting in ((SYNCED, SYNCED_SETTINGS[KAFKA]), (CACHED, CACHED_SETTINGS[KAFKA])):
        peer = stack.enter_context(kafka_node(directory, [setting] if setting else []))
        nodes[kind] = Peer(KAFKA, Endpoint(peer.bootstrap), peer.pid)
    return Side(KAFKA, nodes)


def helpers_cpu_ns(pid: int) -> int:
    """CPU of what a node has started: its sync helper, and workers if there are any."""
    children: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        children += [int(word) for word in listing.read_text().split()]
    return sum(usage_of(child).cpu_ns for child in children)


def measured(measure: Measure, target: BenchTarget) -> Figures:
    """Take a measure once."""
    assert target.pid is not None
    used, helpers = usage_of(target.pid).cpu_ns, helpers_cpu_ns(target.pid)
    all_figures = measure.run(target)
    used, helpers = usage_of(target.pid).cpu_ns - used, helpers_cpu_ns(target.pid) - helpers
    # The warm-up and the making of the topic count here too: a tenth, and the same on both sides.
    count = all_figures.get("requests", measure.records)
    figures = {name: all_figures[name] for name in measure.figures if name in all_figures}
    figures["cpu_us"] = round((used - helpers) / 1e3 / count, 1)
    figures["helper_cpu_us"] = round(helpers / 1e3 / count, 1)
    figures["cpu_and_helper_us"] = round(used / 1e3 / count, 1)
    return figures


def raw_sync(directory: str | None) -> Figures:
    """What the disk takes for what a synced publish asks of it."""
    times: list[int] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(RAW_SYNCS):
            began = time.perf_counter_ns()
            file.write(bytes(RAW_APPEND_BYTES))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - began)
    found = percentiles_us(times)
    return {"p50_us": found["p50_us"], "p99_us": found["p99_us"]}


def note(results: Results, measure: str, side: str, figures: Figures) -> None:
    for name, value in figures.items():
        results.setdefault(measure, {}).setdefault(name, {}).setdefault(side, []).append(value)


def run(found: Sequence[Side], chosen: Sequence[Measure], rounds: int, directory: str | None) -> Results:
    """All measures against all sides, round by round; who is first changes with the round."""
    results: Results = {}
    deadline = time.perf_counter() + SECONDS_MAX
    for number in range(rounds):
        in_turn = found if number % 2 == 0 else [*reversed(found[:2]), *found[2:]]
        for measure in chosen:
            print(f"round {number + 1}: {measure.name}", file=sys.stderr, flush=True)
            if measure.node == SYNCED:
                note(results, "raw append and fdatasync", THIS, raw_sync(directory))
            for side in in_turn:
                _take(results, measure, side)
        if time.perf_counter() > deadline:
            break
    for side in found:
        for kind, target in side.nodes.items():
            assert target.pid is not None
            megabytes = round(usage_of(target.pid).rss_bytes / MEGABYTE, 1)
            note(results, f"memory, {kind}", side.name, {"rss_mb": megabytes})
    return results


def _take(results: Results, measure: Measure, side: Side) -> None:
    # What the last measurement left to be written must not be written during this one.
    os.sync()
    try:
        note(results, measure.name, side.name, measured(measure, side.nodes[measure.node]))
    except ClientError as error:
        print(f"{measure.name}: {side.name} failed: {error}", file=sys.stderr)


def rows(results: Results, names: Sequence[str]) -> list[list[str]]:
    """The table: medians by side and their ratios, the ratio of the best rounds, and this tree's spread."""
    peers = [peer for peer in (BASE, KAFKA) if peer in names]
    lines = [["measure", "figure", *names, *(f"this/{peer}" for peer in peers), "best/best", "this: rounds"]]
    for measure, figures in results.items():
        for figure, by_side in figures.items():
            best_of = max if is_rate(figure) else min
            middle = {side: median(values) for side, values in by_side.items()}
            best = {side: best_of(values) for side, values in by_side.items()}
            ratios = [_ratio(middle, peer) for peer in peers] + [_ratio(best, BASE)]
            mine = by_side.get(THIS, [])
            spread = f"{_shown(min(mine))} to {_shown(max(mine))}" if len(mine) > 1 else ""
            shown = [_shown(middle[name]) if name in middle else "-" for name in names]
            lines.append([measure, figure, *shown, *ratios, spread])
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def _ratio(by_side: dict[str, float], peer: str) -> str:
    if THIS not in by_side or not by_side.get(peer):
        return "-"
    return f"{by_side[THIS] / by_side[peer]:.2f}"


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side")
    parser.add_argument("--base", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--this", type=Path, default=Path(), help="the checkout to judge; here without it")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="measures with one of these in their name")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each measure is taken")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka in the same rounds")
    parser.add_argument("--directory", help="where data directories are made: on the disk to be measured")
    parser.add_argument("--json", metavar="OUT", help="where every round is kept")
    arguments = parser.parse_args()

    words: list[str] | None = arguments.only
    chosen = [one for one in MEASURES if words is None or any(word in one.name for word in words)]
    base, this = arguments.base.resolve(), arguments.this.resolve()
    try:
        with sides(base, this, arguments.directory, with_kafka=arguments.kafka) as found:
            results = run(found, chosen, arguments.rounds, arguments.directory)
            lines = rows(results, [side.name for side in found])
    except ClientError as error:
        sys.exit(f"side_by_side: {error}")
    show(lines)
    if arguments.json:
        keep(report(results, {"rounds": arguments.rounds}), arguments.json)


if __name__ == "__main__":
    main()
