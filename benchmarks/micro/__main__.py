"""Run the micro-benchmarks and write their figures to one JSON file."""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

PARTS = ("records", "wire", "log", "group_commit", "replication", "queues", "security", "calls")
RESULTS = Path("bench-results")


def machine() -> dict[str, str | int]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown"
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def run(parts: list[str]) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    for part in parts:
        print(f"{part} …", file=sys.stderr, flush=True)
        results[part] = importlib.import_module(f"benchmarks.micro.{part}").run()
    return results


def show(results: dict[str, dict[str, float]], baseline: dict[str, dict[str, float]]) -> None:
    for part, figures in results.items():
        for name, value in figures.items():
            before = baseline.get(part, {}).get(name)
            ratio = f"  {value / before:.2f} of the baseline" if before else ""
            print(f"{part:13} {name:48} {value:14.3f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="run these parts only")
    parser.add_argument("--compare", type=Path, help="an earlier result to print ratios against")
    parser.add_argument("--output", type=Path, help="where the JSON goes (bench-results/micro-COMMIT.json)")
    arguments = parser.parse_args()

    results = run(arguments.only)
    baseline = json.loads(arguments.compare.read_text())["results"] if arguments.compare else {}
    show(results, baseline)

    output = arguments.output or RESULTS / f"micro-{commit()}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    report = {"commit": commit(), "when": now, "machine": machine(), "results": results}
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {output}", file=sys.stderr)


if __name__ == "__main__":
    main()
