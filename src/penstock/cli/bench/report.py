"""What a run found: commit and machine, a table for people, JSON for comparisons."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from penstock import __version__
from penstock.cli.output import show_json, show_table

MEGABYTE = 1_000_000
POINTS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
Figures = dict[str, float]
Results = dict[str, Figures]


class LoadResult(NamedTuple):
    """What a load has done: less than it was asked for if the time was over."""

    messages: int
    latencies_ns: list[int]
    elapsed_ns: int
    client_cpu_ns: int

    def figures(self, value_bytes: int) -> Figures:
        return {
            "messages": self.messages,
            **rates(self.messages, value_bytes, self.elapsed_ns),
            **percentiles_us(self.latencies_ns),
            "client_cpu_us_per_message": round(self.client_cpu_ns / 1_000 / max(1, self.messages), 2),
        }


def percentiles_us(values_ns: Sequence[int], prefix: str = "") -> Figures:
    """p50, p90, p99, p999 and the maximum, in microseconds."""
    if not values_ns:
        return {}
    ordered = sorted(values_ns)
    found = {
        f"{prefix}{name}_us": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1_000, 1)
        for name, share in POINTS
    }
    return {**found, f"{prefix}max_us": round(ordered[-1] / 1_000, 1)}


def rates(records: int, value_bytes: int, elapsed_ns: int) -> Figures:
    """Records and megabytes a second."""
    seconds = max(1, elapsed_ns) / 1e9
    return {
        "messages_per_s": round(records / seconds),
        "mb_per_s": round(records * value_bytes / seconds / MEGABYTE, 1),
    }


def report(results: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report, in the form of the files in `bench-results/`."""
    return {
        "commit": commit(),
        "penstock": __version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        **notes,
        "results": results,
    }


def machine() -> dict[str, str | int]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": " ".join(f"{one:.2f}" for one in os.getloadavg()),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    """The commit of the sources that run, or the version where they are installed without a history."""
    answer = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or __version__


def show(results: Results, notes: Mapping[str, Any], as_json: bool, output: str | None) -> None:
    """Print the report, and keep it where that was asked for."""
    whole = report(results, notes)
    keep(whole, output)
    if as_json:
        show_json(whole)
    else:
        show_figures(results)


def show_lines(results: Results, notes: Mapping[str, Any], as_json: bool, output: str | None) -> None:
    """The same as `show`, with a line for each measurement instead of a table."""
    whole = report(results, notes)
    keep(whole, output)
    if as_json:
        show_json(whole)
        return
    for name, figures in results.items():
        sys.stdout.write(f"{name:16} {_line(figures)}\n")


def _line(figures: Figures) -> str:
    parts = [f"{figures['messages_per_s']:>9,.0f} messages/s"] if "messages_per_s" in figures else []
    parts += [
        f"{name.removesuffix('_us').replace('_', ' ')} {figures[name] / 1_000:,.2f} ms"
        for name in ("p50_us", "p99_us", "late_p50_us", "late_p99_us", "late_max_us", "wait_p99_us")
        if name in figures
    ]
    used = [
        f"{whose} {figures[f'{whose}_cpu_us_per_message']:,.1f}"
        for whose in ("broker", "gateway", "client")
        if f"{whose}_cpu_us_per_message" in figures
    ]
    if used:
        parts.append(f"CPU µs per message: {', '.join(used)}")
    if "start_ms" in figures:
        parts.append(f"ready after {figures['start_ms']:,.0f} ms, {figures['idle_rss_mb']:,.0f} MB")
    return "  ".join(parts)


def keep(whole: Mapping[str, Any], output: str | None) -> None:
    """Write the report to a file, if one was named."""
    if output is None:
        return
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n")
    sys.stderr.write(f"written to {path}\n")


def show_figures(results: Results) -> None:
    rows = [
        (scenario, name, f"{value:,.10g}")
        for scenario, figures in results.items()
        for name, value in figures.items()
    ]
    show_table("", ("scenario", "figure", "value"), rows)
