"""One attack beside the well-behaved clients: before, meanwhile, afterwards, and after `kill -9`."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.attacks import well_behaved
from benchmarks.attacks.attack import LATE_SECONDS, Attack, Attacker, Target, run_attacker
from benchmarks.attacks.figures import Account, AttackResult, Window, noted_events
from benchmarks.attacks.nodes import AttackedNodes
from benchmarks.attacks.well_behaved import acked_records, read_records
from penstock.client import ClientError
from penstock.runtime.child_command import child_command

SAMPLE_SECONDS = 0.1
CLIENTS_SECONDS = 60
DRAIN_SECONDS = 120
READ_TRIES = 3
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Timeline:
    """How long each part takes."""

    baseline_seconds: float = 4.0
    attack_seconds: float = 10.0
    recovery_seconds: float = 8.0


class MemoryWatch(threading.Thread):
    """Notes the most memory that the nodes had; `most` starts again when it is read."""

    def __init__(self, nodes: AttackedNodes) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._most = 0
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._most = max(self._most, self._nodes.resident_bytes())

    def most_mb(self) -> float:
        most, self._most = self._most, 0
        return round(most / 1e6, 1)

    def close(self) -> None:
        self._is_over.set()
        self.join()


class WellBehavedClients:
    """A producer and a consumer in processes of their own, and the files they write down what happens in."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._running = {part: self._start(part) for part in ("consume", "produce")}

    @property
    def acked(self) -> Path:
        return self._directory / "produce"

    @property
    def read(self) -> Path:
        return self._directory / "consume"

    def _start(self, part: str) -> "subprocess.Popen[bytes]":
        arguments = [part, "--bootstrap", self._bootstrap, "--output", str(self._directory / part)]
        with (self._directory / f"{part}.err").open("ab") as errors:
            command = child_command(well_behaved.__name__, arguments)
            return subprocess.Popen(command, cwd=ROOT, stderr=errors)

    def await_flow(self) -> None:
        """Wait until records are acknowledged and read."""
        deadline = time.monotonic() + CLIENTS_SECONDS
        while not (acked_records(self.acked) and read_records(self.read)):
            if time.monotonic() > deadline:
                raise ClientError("the well-behaved clients do not get going")
            time.sleep(0.1)

    def stop_producer(self) -> None:
        """Stop sending, and wait until what was sent is acknowledged."""
        self._end("produce", well_behaved.FLUSH_SECONDS + 10)

    def drain(self) -> None:
        """Wait until the consumer has seen what was acknowledged."""
        acked = {one.number for one in acked_records(self.acked) if one.is_acked}
        deadline = time.monotonic() + DRAIN_SECONDS
        while acked - {one.number for one in read_records(self.read)} and time.monotonic() < deadline:
            time.sleep(0.1)

    def account(self) -> Account:
        """Read the whole topic, and compare."""
        log = self._directory / "read"
        is_read = False
        for _ in range(READ_TRIES):
            log.unlink(missing_ok=True)
            reader = self._start("read")
            try:
                is_read = reader.wait(well_behaved.FLUSH_SECONDS + 30) == 0
            except subprocess.TimeoutExpired:
                reader.kill()
                reader.wait()
            if is_read:
                break
        return Account.of(self.acked, self.read, log, is_log_read=is_read)

    def close(self) -> None:
        for part in list(self._running):
            self._end(part, 10)

    def _end(self, part: str, seconds: float) -> None:
        process = self._running.pop(part, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class AttackerProcesses:
    """All processes of some attacks."""

    def __init__(self, attacks: Sequence[Attack], target: Target, *, is_repeated: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._running: list[tuple[str, BaseProcess, Connection]] = []
        for attack in attacks:
            # Each node has its attackers: what they ask for is led by one of them only.
            for number in range(attack.processes * len(target.kafka)):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=run_attacker,
                    args=(attack.run, target, number, theirs),
                    kwargs={"is_repeated": is_repeated},
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._running.append((attack.name, process, ours))

    def await_over(self, seconds: float) -> dict[str, Counter[str]]:
        """Wait until their time is over; returns what they counted. Who does not end is ended."""
        deadline = time.monotonic() + seconds
        counts: dict[str, Counter[str]] = {}
        for name, process, results in self._running:
            mine = counts.setdefault(name, Counter())
            try:
                if results.poll(max(0.0, deadline - time.monotonic())):
                    mine.update(results.recv())
                else:
                    mine["hung"] += 1
            except EOFError:
                mine["crashed"] += 1
            process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
            results.close()
        return counts


def target_of(nodes: AttackedNodes, seconds: float) -> Target:
    """What attackers are told of the nodes."""
    return Target(
        kafka=tuple(node.address("kafka") for node in nodes.nodes),
        http=tuple(node.address("http") for node in nodes.nodes if "http" in node.ready),
        grpc=tuple(str(node.ready["grpc"]) for node in nodes.nodes if "grpc" in node.ready),
        peers=nodes.peers,
        secured=tuple(node.secured for node in nodes.nodes),
        pids=tuple(node.pid for node in nodes.nodes),
        data_dirs=tuple(node.data_dir for node in nodes.nodes),
        seconds=seconds,
    )


def create_well_behaved_topic(target: Target) -> None:
    """With as many replicas as there are nodes, three at most."""
    attacker = Attacker(replace(target, seconds=60))
    attacker.create_topic(well_behaved.TOPIC, well_behaved.PARTITIONS)
    if attacker.counts:
        raise ClientError(f"the topic of the well-behaved clients cannot be created: {dict(attacker.counts)}")


def run_attack(attack: Attack, nodes_count: int, timeline: Timeline) -> AttackResult:
    """Start nodes and clients, attack, and say what they felt."""
    result = AttackResult(attack.name, nodes_count, outage_seconds=attack.outage_seconds)
    with _stage(attack, nodes_count) as (nodes, root):
        target = target_of(nodes, timeline.attack_seconds)
        create_well_behaved_topic(target)
        if attack.prepare is not None:
            attack.prepare(Attacker(replace(target, seconds=120)))
        clients, memory = WellBehavedClients(nodes.bootstrap, root), MemoryWatch(nodes)
        try:
            clients.await_flow()
            time.sleep(1)
            memory.start()
            baseline = _window(timeline.baseline_seconds)
            result.before_mb = memory.most_mb()
            result.descriptors_before = nodes.descriptors()
            began_ns = time.monotonic_ns()
            attackers = AttackerProcesses([attack], target)
            counts = attackers.await_over(timeline.attack_seconds + LATE_SECONDS + 5)
            result.attackers = dict(counts[attack.name])
            attacked = Window(began_ns, time.monotonic_ns())
            result.during_mb = memory.most_mb()
            recovery = _window(timeline.recovery_seconds)
            result.after_mb = round(nodes.resident_bytes() / 1e6, 1)
            result.descriptors_after = nodes.descriptors()
            result.nodes_ended = len(nodes.nodes) - nodes.running
            if result.nodes_ended:
                nodes.end(signal.SIGKILL)
                _restart(nodes)
            clients.stop_producer()
            clients.drain()
            if attack.while_stopped is not None:
                nodes.end(signal.SIGTERM)
                attack.while_stopped([node.data_dir for node in nodes.nodes])
            else:
                nodes.end(signal.SIGKILL)
            result.restart_seconds = _restart(nodes)
            if result.restart_seconds is not None:
                result.account = clients.account()
            acked, read = acked_records(clients.acked), read_records(clients.read)
            result.baseline, result.produce = baseline.acked(acked), attacked.acked(acked)
            result.consume, result.recovery = attacked.read(read), recovery.acked(acked)
            result.events = noted_events([node.events for node in nodes.nodes])
        finally:
            clients.close()
            memory.close()
    return result


def _restart(nodes: AttackedNodes) -> float | None:
    try:
        return round(nodes.start(), 2)
    except ClientError:
        return None


def _window(seconds: float) -> Window:
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    return Window(start_ns, time.monotonic_ns())


@contextlib.contextmanager
def _stage(attack: Attack, nodes_count: int) -> Iterator[tuple[AttackedNodes, Path]]:
    with tempfile.TemporaryDirectory(prefix="penstock-attack-", ignore_cleanup_errors=True) as directory:
        nodes = AttackedNodes(Path(directory), nodes_count, attack.setup)
        try:
            nodes.start()
            yield nodes, Path(directory)
        finally:
            nodes.close()
            keep = os.environ.get("ATTACKS_KEEP_EVENTS")
            if keep:
                for node in nodes.nodes:
                    text = node.events.read_text(errors="replace") if node.events.exists() else ""
                    Path(keep, f"{attack.name}-{node.data_dir.name}.log").write_text(text)
