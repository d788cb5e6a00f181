"""Brokers in processes of their own, one or several of them."""

import json
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.cli.bench.scenarios import ResourceUsage, usage_of
from penstock.client import ClientError

START_SECONDS = 60
STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Nodes:
    """Brokers that are ready."""

    bootstrap: str
    pids: tuple[int, ...]
    metrics: tuple[str, ...]

    def usage(self) -> list[ResourceUsage]:
        return [usage_of(pid) for pid in self.pids]


@contextmanager
def nodes(count: int, directory: str | None = None) -> Iterator[Nodes]:
    """Start a cluster of so many nodes on free ports; stop it and remove its data at the end."""
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory))
        peers = [f"127.0.0.1:{port}" for port in _free_ports(count)]
        voters = ",".join(f"{number}@{peer}" for number, peer in enumerate(peers, 1))
        started = []
        for number, peer in enumerate(peers, 1):
            cluster = [f"--peer={peer}", f"--voters={voters}"] if count > 1 else []
            events = stack.enter_context(Path(root, f"events-{number}.log").open("wb"))
            started.append(stack.enter_context(_node(root, number, cluster, events)))
        ready = [_await_ready(process) for process in started]
        yield Nodes(
            ",".join(line["kafka"] for line in ready),
            tuple(process.pid for process in started),
            tuple(line["metrics"] for line in ready),
        )


@contextmanager
def _node(root: str, number: int, cluster: list[str], events: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    doors = [f"--{door}=127.0.0.1:0" for door in ("kafka", "http", "metrics")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "penstock.cli", "up", "--json", f"--node-id={number}"),
            *(f"--data-dir={root}/node-{number}", *doors, *cluster),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=events,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _await_ready(process: subprocess.Popen[bytes]) -> dict[str, str]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if readable else b""
    if not line:
        raise ClientError(f"a broker was not ready within {START_SECONDS} s")
    ready: dict[str, str] = json.loads(line)
    return ready


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
