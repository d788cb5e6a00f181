"""What the figures ought to be, and the table that says whether they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from penstock.cli.bench.report import Figures

# measure -> who ("penstock", "kafka", "limit") -> best figures, rounds, load
Results = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Budget:
    """One line of the table; more is better for rates, less for all else."""

    measure: str
    figure: str
    bound: float | None = None
    of_limit: float | None = None
    beside: str = ""  # a measure of ours that this one is held against
    of_beside: float = 1.2

    @property
    def more_is_better(self) -> bool:
        return is_rate(self.figure)


BUDGETS = (
    Budget("produce 100 B, acks=all", "messages_per_s", 1_000_000, 0.8),
    Budget("produce 100 B, acks=1", "messages_per_s"),
    Budget("produce 1 KB, acks=all", "messages_per_s", None, 0.8),
    Budget("produce 1 KB, acks=1", "messages_per_s"),
    Budget("consume 1 KB", "messages_per_s", 500_000),
    Budget("publish at 50k/s", "p50_us"),
    Budget("publish at 50k/s", "p99_us", 10_000),
    Budget("end to end at 10k/s", "p50_us", 1_000),
    Budget("end to end at 10k/s", "p99_us", 5_000),
    Budget("rebalance of 10", "rebalance_ms"),
    Budget("rebalance of 10", "heartbeat_share"),
    Budget("rebalance of 10", "without_heartbeat_ms"),
    Budget("publish depth 1, synced", "p50_us", 400),
    Budget("publish depth 1, synced", "p99_us", 10_000, 3),
    Budget("publish depth 1, synced, busy", "p50_us"),
    Budget("publish depth 1, synced, busy", "p99_us", 10_000),
    Budget("publish depth 1", "p50_us", 100),
    Budget("publish depth 1", "p99_us", 10_000),
    Budget("publish depth 1, busy", "p50_us"),
    Budget("publish depth 1, busy", "p99_us", 10_000),
    Budget("small Produce", "broker_cpu_us_per_produce", 30),
    Budget("small Produce", "requests_per_s"),
    Budget("small Produce, synced", "broker_cpu_us_per_produce"),
    Budget("Fetch without data", "broker_cpu_us_per_fetch", 20),
    Budget("16 KB Produce, 1 x 1", "broker_cpu_us_per_produce"),
    Budget("16 KB Produce, 1,000 x 1,000", "broker_cpu_us_per_produce", beside="16 KB Produce, 1 x 1"),
    Budget("16 KB Produce depth 1, 1 x 1", "broker_cpu_us_per_produce"),
    Budget(
        "16 KB Produce depth 1, 1,000 x 1,000",
        "broker_cpu_us_per_produce",
        beside="16 KB Produce depth 1, 1 x 1",
    ),
    Budget("start", "start_empty_ms", 1_000),
    Budget("start", "start_full_ms", 1_000),
    Budget("start", "start_killed_ms", 1_000),
    Budget("start", "idle_rss_mb", 100),
    Budget("start", "full_rss_mb", 200),
)


# How long a member takes to hear of a rebalance depends on where in its interval it happens to be.
BY_LUCK = ("rebalance_ms", "rebalance_short_heartbeat_ms", "heartbeat_share", "without_heartbeat_ms")


def is_rate(figure: str) -> bool:
    return figure.endswith("_per_s")


def best_of(rounds: list[Figures]) -> Figures:
    """The best of each figure: what others do on the machine only makes it worse.

    Not so where luck can also make it better; there it is the middle one.
    """
    names = sorted({name for one in rounds for name in one})
    return {name: _chosen(name, [one[name] for one in rounds if name in one]) for name in names}


def _chosen(name: str, values: list[float]) -> float:
    if name in BY_LUCK:
        return median(values)
    return max(values) if is_rate(name) else min(values)


COLUMNS = ("measure", "figure", "penstock", "budget", "limit", "of limit", "kafka", "x kafka", "load", "")


def rows(results: Results) -> list[list[str]]:
    """The lines of the table for what was measured."""
    return [_row(budget, results) for budget in BUDGETS if _ours(budget, results) is not None]


def _ours(budget: Budget, results: Results) -> float | None:
    return _value(results, budget.measure, "penstock", budget.figure)


def _value(results: Results, measure: str, who: str, figure: str) -> float | None:
    best: Mapping[str, float] = results.get(measure, {}).get(who, {}).get("best", {})
    return best.get(figure)


def _row(budget: Budget, results: Results) -> list[str]:
    ours = _ours(budget, results)
    assert ours is not None
    yardstick = budget.beside or budget.measure
    limit = _value(results, yardstick, "penstock" if budget.beside else "limit", budget.figure)
    kafka = _value(results, budget.measure, "kafka", budget.figure)
    times = None
    if kafka and ours:
        times = ours / kafka if budget.more_is_better else kafka / ours
    return [
        budget.measure,
        budget.figure,
        _shown(ours),
        _shown(budget.bound),
        _shown(limit),
        _shown(ours / limit if limit else None),
        _shown(kafka),
        _shown(times),
        str(results[budget.measure]["penstock"]["load"]),
        _verdict(budget, ours, limit),
    ]


def _verdict(budget: Budget, ours: float, limit: float | None) -> str:
    factor = budget.of_beside if budget.beside else budget.of_limit
    bounds = [bound for bound in (budget.bound, limit * factor if limit and factor else None) if bound]
    if not bounds:
        return ""
    kept = all(ours >= bound if budget.more_is_better else ours <= bound for bound in bounds)
    return "ok" if kept else "MISSED"


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"
