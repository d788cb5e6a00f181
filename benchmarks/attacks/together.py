"""All attackers at once, for minutes, with a `kill -9` in between."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.attacks.attack import LATE_SECONDS, Attack, Attacker
from benchmarks.attacks.figures import Account, Latencies, Window, noted_events
from benchmarks.attacks.nodes import AttackedNodes, NodeSetup
from benchmarks.attacks.run import (
    AttackerProcesses,
    MemoryWatch,
    WellBehavedClients,
    create_well_behaved_topic,
    target_of,
)
from benchmarks.attacks.well_behaved import acked_records, read_records
from penstock.client import ClientError

BASELINE_SECONDS = 10
DOWN_SECONDS = 2
# What a client needs to find the node again is no fault of the attackers.
RETURN_SECONDS = 5
RECOVERY_SECONDS = 30
EVERYTHING = NodeSetup(has_gateway=True, has_peer_listener=True)


@dataclass(slots=True)
class Phase:
    """A part of the run, and what the clients felt in it."""

    name: str
    window: Window
    memory_mb: float = 0.0
    produce: Latencies = field(default_factory=Latencies)
    consume: Latencies = field(default_factory=Latencies)

    def row(self) -> str:
        waits = (self.produce.p50_ms, self.produce.p99_ms, self.produce.max_ms, self.consume.max_ms)
        cells = "".join(f"{wait:10.1f}" for wait in waits)
        return f"{self.name:24}{self.produce.count:8}{cells}{self.memory_mb:9.0f}"


PHASE_HEADING = (
    f"{'phase':24}{'records':>8}"
    + "".join(f"{name:>10}" for name in ("p50", "p99", "max", "read max"))
    + f"{'MB':>9}"
)


@dataclass(slots=True)
class TogetherResult:
    """What an hour of everything came to."""

    nodes: int
    minutes: float
    phases: list[Phase] = field(default_factory=list)
    after_mb: float = 0.0
    nodes_ended: int = 0
    restart_seconds: list[float | None] = field(default_factory=list)
    account: Account = field(default_factory=lambda: Account(0, 0, 0, 0, 0))
    attackers: dict[str, dict[str, int]] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run_together(
    attacks: Sequence[Attack], nodes_count: int, minutes: float, has_kill: bool
) -> TogetherResult:
    """Start nodes and clients, let everybody attack, and say what the clients felt."""
    result = TogetherResult(nodes_count, minutes)
    chosen = [attack for attack in attacks if not attack.is_alone]
    with tempfile.TemporaryDirectory(prefix="penstock-attacks-", ignore_cleanup_errors=True) as directory:
        nodes = AttackedNodes(Path(directory), nodes_count, EVERYTHING)
        try:
            nodes.start()
            _attack(nodes, chosen, result, Path(directory), has_kill=has_kill)
        finally:
            nodes.close()
            keep = os.environ.get("ATTACKS_KEEP_EVENTS")
            for node in nodes.nodes if keep else ():
                text = node.events.read_text(errors="replace") if node.events.exists() else ""
                Path(str(keep), f"together-{node.data_dir.name}.log").write_text(text)
    return result


def _attack(
    nodes: AttackedNodes, attacks: Sequence[Attack], result: TogetherResult, root: Path, *, has_kill: bool
) -> None:
    seconds = result.minutes * 60
    create_well_behaved_topic(target_of(nodes, seconds))
    for attack in attacks:
        if attack.prepare is not None:
            attack.prepare(Attacker(target_of(nodes, 120)))
    clients, memory = WellBehavedClients(nodes.bootstrap, root), MemoryWatch(nodes)
    memory.start()
    try:
        clients.await_flow()
        _phase(result, memory, "nobody", BASELINE_SECONDS)
        attackers = AttackerProcesses(attacks, target_of(nodes, seconds), is_repeated=True)
        if has_kill:
            _phase(result, memory, "all together", seconds / 2)
            result.nodes_ended += len(nodes.nodes) - nodes.running
            start_ns = time.monotonic_ns()
            nodes.nodes[0].end(signal.SIGKILL)
            time.sleep(DOWN_SECONDS)
            result.restart_seconds.append(_start(nodes))
            time.sleep(RETURN_SECONDS)
            result.phases.append(Phase("kill -9", Window(start_ns, time.monotonic_ns()), memory.most_mb()))
            _phase(result, memory, "all together, again", seconds / 2)
        else:
            _phase(result, memory, "all together", seconds)
        result.attackers = {
            name: dict(counts) for name, counts in attackers.await_over(LATE_SECONDS * 3).items()
        }
        _phase(result, memory, "recovery", RECOVERY_SECONDS)
        result.after_mb = round(nodes.resident_bytes() / 1e6, 1)
        result.nodes_ended += len(nodes.nodes) - nodes.running
        _start(nodes)
        clients.stop_producer()
        clients.drain()
        nodes.end(signal.SIGKILL)
        result.restart_seconds.append(_start(nodes))
        result.account = clients.account()
        acked, read = acked_records(clients.acked), read_records(clients.read)
        for phase in result.phases:
            phase.produce, phase.consume = phase.window.acked(acked), phase.window.read(read)
        result.events = noted_events([node.events for node in nodes.nodes])
    finally:
        clients.close()
        memory.close()


def _start(nodes: AttackedNodes) -> float | None:
    try:
        return round(nodes.start(), 2)
    except ClientError:
        return None


def _phase(result: TogetherResult, memory: MemoryWatch, name: str, seconds: float) -> None:
    print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    result.phases.append(Phase(name, Window(start_ns, time.monotonic_ns()), memory.most_mb()))
