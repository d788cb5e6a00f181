"""The same scenarios against several brokers in the same run."""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.cli.bench import scenarios
from penstock.cli.bench.report import Figures, Results
from penstock.cli.bench.scenarios import BenchTarget, RoundTripPlan
from penstock.cli.output import show_table
from penstock.client.load import ProduceLoad

Measure = Callable[[BenchTarget], Figures]
# What is worth a line in the table; of the first group more is better, of the second less.
MORE = ("messages_per_s", "mb_per_s", "requests_per_s")
LESS = ("p50_us", "p99_us", "broker_cpu_us_per_produce", "broker_cpu_us_per_fetch", "broker_rss_mb")


def plan(records: int) -> dict[str, Measure]:
    """The scenarios of a comparison, for a given number of records."""
    few = max(500, records // 100)
    return {
        "produce 100 B": lambda one: scenarios.produce(one, ProduceLoad(records, 100, partition=0)),
        "produce 1 KB": lambda one: scenarios.produce(one, ProduceLoad(records // 2, 1_000, partition=0)),
        "consume 1 KB": lambda one: scenarios.consume(one, ProduceLoad(records // 2, 1_000, partition=0)),
        "publish depth 1": lambda one: scenarios.latency(one, RoundTripPlan(few)),
        "fetch empty": lambda one: scenarios.empty_fetch(one, few),
        "end to end": lambda one: scenarios.end_to_end(one, few, min(10_000, few), 100, 60),
    }


def compare(
    targets: Sequence[BenchTarget], measures: dict[str, Measure], step: Callable[[str], None]
) -> dict[str, Results]:
    """Every scenario against every target in turn, so that a noisy minute hits all alike."""
    results: dict[str, Results] = {target.name: {} for target in targets}
    for name, measure in measures.items():
        for target in targets:
            step(f"{name}: {target.name}")
            results[target.name][name] = measure(target)
    return results


def show_comparison(results: dict[str, Results]) -> None:
    """One line per figure; the ratio says how many times better the first broker is."""
    first, *others = results
    columns = ["scenario", "figure", first]
    for other in others:
        columns += [other, "ratio"]
    show_table("", columns, _rows(results, first, others))


def _rows(results: dict[str, Results], first: str, others: list[str]) -> list[list[Any]]:
    rows = []
    for scenario, figures in results[first].items():
        for name in (*MORE, *LESS):
            if name not in figures:
                continue
            row: list[Any] = [scenario, name, f"{figures[name]:,.10g}"]
            for other in others:
                theirs = results[other].get(scenario, {}).get(name)
                ratio = better(name, figures[name], theirs)
                row += [
                    "-" if theirs is None else f"{theirs:,.10g}",
                    "-" if ratio is None else f"{ratio:.2f}",
                ]
            rows.append(row)
    return rows


def better(name: str, ours: float, theirs: float | None) -> float | None:
    """How many times better ours is, whichever direction is good."""
    if not theirs or not ours:
        return None
    return ours / theirs if name in MORE else theirs / ours
