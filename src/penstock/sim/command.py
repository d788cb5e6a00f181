"""`penstock sim`: run simulated clusters over seeds, and say which seed failed."""

import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.sim.world import RunResult

if TYPE_CHECKING:
    from penstock.sim.cluster import SimulatedClusterOptions

_SEEDS = 2**32
NODES_MAX = 7


def sim(
    seed: Annotated[
        int | None, typer.Option(min=0, help="The first seed; without it, one is drawn and shown.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="How many seeds to run, one after the other.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Run seeds until so much time has passed.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, max=NODES_MAX, help="How many nodes; without it, the seed decides: three, or five."
        ),
    ] = None,
    queues: Annotated[
        bool, typer.Option("--queues", help="Work queues in every run; without it, the seed decides.")
    ] = False,
    security: Annotated[
        bool, typer.Option("--security", help="Secured nodes in every run, and users whose rights change.")
    ] = False,
    encrypted: Annotated[
        bool,
        typer.Option(
            "--encrypted", help="Nodes encrypt their disks and change master keys; no value is found."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run, and nothing else.")
    ] = False,
) -> None:
    """Run a cluster in virtual time under faults drawn from a seed, and check what its clients saw.

    The same seed gives the same run, to the bit. The exit code is 1 if any run shows an
    anomaly.
    """
    # Imported before the first run is timed.
    from penstock.sim import cluster

    first = int.from_bytes(os.urandom(8), "big") % _SEEDS if seed is None else seed
    report = _Report(nodes, queues, security, encrypted, as_json, alone=minutes is None and runs in (None, 1))
    started = time.monotonic()
    number = 0
    while _goes_on(number, runs, None if minutes is None else started + minutes * 60 - time.monotonic()):
        started_run = time.perf_counter()
        options = cluster.options_for(
            first + number, nodes, queues=queues, security=security, encrypted=encrypted
        )
        result = _guarded(cluster.run_cluster, first + number, options)
        report.add(result, time.perf_counter() - started_run)
        number += 1
    report.finish()
    if report.failed:
        raise typer.Exit(1)


def _guarded(
    run: "Callable[[int, SimulatedClusterOptions], RunResult]", seed: int, options: "SimulatedClusterOptions"
) -> RunResult:
    """One run; a defect of the simulator ends it like an anomaly, and not the runs that follow."""
    try:
        return run(seed, options)
    except Exception as error:
        traceback.print_exc()
        crash = f"the simulator failed: {type(error).__name__}: {error}"
        return RunResult(seed, (crash,), 0, 0, 0, 0, {}, "")


def _goes_on(done: int, runs: int | None, seconds_left: float | None) -> bool:
    """One run at least; then as many as asked for, within the time asked for."""
    if done == 0:
        return True
    if seconds_left is not None and seconds_left <= 0:
        return False
    wanted = runs if runs is not None else 1 if seconds_left is None else None
    return wanted is None or done < wanted


class _Report:
    """Shows runs as they end: lines, or a single line that is rewritten on a terminal."""

    def __init__(
        self, nodes: int | None, queues: bool, security: bool, encrypted: bool, as_json: bool, *, alone: bool
    ) -> None:
        self._options = "" if nodes is None else f" --nodes {nodes}"
        self._options += " --queues" if queues else ""
        self._options += " --security" if security else ""
        self._options += " --encrypted" if encrypted else ""
        self._json = as_json
        self._alone = alone
        self._live = sys.stdout.isatty() and not as_json and not alone
        self._first = self._last = 0
        self._seconds = 0.0
        self._runs = self._events = self._operations = 0
        self._faults: Counter[str] = Counter()
        self._visited: Counter[str] = Counter()
        self._runs_visiting: Counter[str] = Counter()
        self.failed = 0

    def add(self, result: RunResult, seconds: float) -> None:
        self._first = self._first if self._runs else result.seed
        self._last = result.seed
        self._runs += 1
        self._seconds += seconds
        self._events += result.events
        self._operations += result.operations
        self._faults.update(result.faults)
        self._visited.update(result.visited)
        self._runs_visiting.update(result.visited.keys())
        self.failed += not result.passed
        if self._json:
            line = json.loads(result.to_json()) | {"events_per_second": round(result.events / seconds)}
            typer.echo(json.dumps(line))
        elif result.passed and self._live:
            self._show_progress()
        else:
            self._show(result, seconds)

    def _show(self, result: RunResult, seconds: float) -> None:
        faults = _counted(result.faults) or "none"
        word = "ok" if result.passed else "FAILED"
        self._clear()
        typer.echo(
            f"seed {result.seed} {word}: {result.operations} operations, {result.acknowledged} records "
            f"acknowledged, {result.events} events in "
            f"{result.virtual_ms / 1000:.1f} virtual s ({result.events / seconds:,.0f} events/s), "
            f"faults {faults}, trace {result.trace}"
        )
        for anomaly in result.anomalies:
            typer.echo(f"    {anomaly}")
        if not result.passed:
            typer.echo(f"    replay: penstock sim --seed {result.seed}{self._options}")

    def _show_progress(self) -> None:
        rate = self._events / self._seconds
        self._clear()
        typer.echo(f"{self._runs} runs, {self.failed} failed, {rate:,.0f} events/s", nl=False)

    def _clear(self) -> None:
        if self._live:
            typer.echo("\r\x1b[K", nl=False)

    def finish(self) -> None:
        if self._json or self._alone:
            return
        self._clear()
        typer.echo(
            f"seeds {self._first} to {self._last}: {self._runs} runs, "
            f"{self._operations} operations, {self._faults.total()} faults, "
            f"{self._events / self._seconds:,.0f} events/s, {self._seconds / self._runs:.2f} s per run: "
            + (f"{self.failed} FAILED" if self.failed else "no anomaly")
        )
        typer.echo("faults " + (_counted(self._faults) or "none"))
        self._show_visited()

    def _show_visited(self) -> None:
        """What the runs came across: how often, and in how many of them."""
        if self._visited:
            typer.echo("visited, and in how many runs")
        for name, count in sorted(self._visited.items()):
            typer.echo(f"    {name:40} {count:>9,} {self._runs_visiting[name]:>6,}")


def _counted(faults: Mapping[str, int]) -> str:
    return " ".join(f"{kind}:{count}" for kind, count in sorted(faults.items()))
