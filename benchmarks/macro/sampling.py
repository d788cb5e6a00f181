"""Where a broker's CPU time goes: its stack, some hundred times per CPU second, while it is under load.

python -m benchmarks.macro.sampling [--load produce|depth-1|batches|fetch] [--fsync every|none]

The kernel's profiling timer only runs while the broker computes, and a handler notes which function
that was. Nothing is wrapped, so that nothing becomes slower; time in the kernel and in C counts for
the Python function that called it. Only the loop's process is sampled, while the µs are shares of what
it and the sync helper used together: with `--fsync every`, read the percentages.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

from benchmarks.macro.pipelined import fetch_cpu, produce_cpu
from benchmarks.peers.kafka import free_port
from penstock.cli.bench import scenarios
from penstock.cli.bench.report import Figures
from penstock.cli.bench.scenarios import BenchTarget, RoundTripPlan
from penstock.cli.child import stop
from penstock.client import Endpoint

INTERVAL_SECONDS = 0.001
REQUESTS = 200_000
SHOWN = 25
LOADS = ("produce", "depth-1", "batches", "fetch")
ON_EVERY_STACK = 0.99


class Samples:
    """Which lines were on the stack, and which at its top."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()

    def note(self, _signal: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self.own[_function(frame)] += 1
        self.lines[f"{_module(frame)}:{frame.f_lineno}"] += 1
        seen = set()
        while frame is not None:
            seen.add(_function(frame))
            frame = frame.f_back
        self.whole.update(seen)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"own": self.own, "whole": self.whole, "lines": self.lines}))


def _module(frame: FrameType) -> str:
    return frame.f_code.co_filename.rpartition("/penstock/")[2]


def _function(frame: FrameType) -> str:
    return f"{_module(frame)}:{frame.f_code.co_firstlineno} {frame.f_code.co_qualname}"


def serve(output: Path, arguments: list[str]) -> None:
    """Run a broker in this process, and write what was seen when it stops."""
    from penstock.cli import main as penstock

    samples = Samples()
    signal.signal(signal.SIGPROF, samples.note)
    # The first SIGUSR1 begins: the start of the process is not what is asked about.
    signal.signal(
        signal.SIGUSR1, lambda *_: signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    )
    try:
        penstock(arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        samples.write(output)


def profile(load: str, fsync: str) -> tuple[Figures, dict[str, dict[str, int]]]:
    """Put a load on a sampled broker; answers the load's figures, and the samples."""
    with tempfile.TemporaryDirectory(prefix="penstock-sampling-") as root:
        output, port = Path(root, "samples.json"), free_port()
        doors = [
            "--kafka",
            f"127.0.0.1:{port}",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]
        command = [sys.executable, "-m", "benchmarks.macro.sampling", "--serve", str(output), "up"]
        process = subprocess.Popen(
            [*command, "--data-dir", f"{root}/data", *doors, "--set", f"storage.fsync.mode={fsync}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGUSR1)
            figures = _put(load, BenchTarget("penstock", Endpoint(f"127.0.0.1:{port}"), process.pid))
        finally:
            stop(process)
        found: dict[str, dict[str, int]] = json.loads(output.read_text())
        return figures, found


def _put(load: str, target: BenchTarget) -> Figures:
    if load == "fetch":
        return fetch_cpu(target, REQUESTS)
    if load == "depth-1":
        return scenarios.latency(target, RoundTripPlan(REQUESTS // 20, seconds_max=30))
    if load == "batches":
        return produce_cpu(target, REQUESTS // 10, 16_000)
    return produce_cpu(target, REQUESTS)


def show(figures: Figures, found: dict[str, dict[str, int]]) -> None:
    total = sum(found["own"].values())
    cpu_us = next(value for name, value in figures.items() if name.startswith("broker_cpu_us"))
    print(f"{figures['requests']:,.0f} requests, {cpu_us} µs of CPU each, {total:,} samples")
    for kind in ("own", "whole", "lines"):
        print(f"\n{kind:6}   %     µs")
        # What is on every stack says nothing.
        counts = Counter(
            {name: count for name, count in found[kind].items() if count < ON_EVERY_STACK * total}
        )
        for name, count in counts.most_common(SHOWN):
            print(f"       {100 * count / total:5.1f} {cpu_us * count / total:6.2f}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.sampling", description=__doc__)
    parser.add_argument("--load", choices=LOADS, default="produce")
    parser.add_argument("--fsync", choices=("every", "none"), default="none")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.serve is not None:
        serve(arguments.serve, rest)
        return
    show(*profile(arguments.load, arguments.fsync))


if __name__ == "__main__":
    main()
