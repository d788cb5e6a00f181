"""What a run found: commit and machine, a table for people, JSON for comparisons."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.cli.output import show_json, show_table

MEGABYTE = 1_000_000
POINTS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
Figures = dict[str, float]
Results = dict[str, Figures]


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
