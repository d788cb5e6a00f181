"""Brokers in processes of their own, one or several of them."""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.bench.scenarios import ResourceUsage, usage_of
from penstock.cli.child import command_line, stop
from penstock.client import ClientError

START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Nodes:
    """Brokers that are ready."""

    bootstrap: str
    pids: tuple[int, ...]
    metrics: tuple[str, ...]

    def usage(self) -> list[ResourceUsage]:
        return [usage_of(pid) for pid in self.pids]


@contextmanager
def nodes(
    count: int, directory: str | None = None, settings: Sequence[str] = (), tree: Path | None = None
) -> Iterator[Nodes]:
    """Start a cluster of so many nodes on free ports; stop it and remove its data at the end."""
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory))
        peers = [f"127.0.0.1:{port}" for port in free_ports(count)]
        voters = ",".join(f"{number}@{peer}" for number, peer in enumerate(peers, 1))
        started = []
        for number, peer in enumerate(peers, 1):
            cluster = [f"--peer={peer}", f"--voters={voters}"] if count > 1 else []
            arguments = [f"--node-id={number}", *cluster]
            process = launch(Path(root, f"node-{number}"), "127.0.0.1:0", arguments, settings, tree)
            stack.callback(stop, process)
            started.append(process)
        ready = [await_ready(process) for process in started]
        yield Nodes(
            ",".join(line["kafka"] for line in ready),
            tuple(process.pid for process in started),
            tuple(line["metrics"] for line in ready),
        )


def launch(
    data_dir: Path,
    kafka: str,
    arguments: Sequence[str] = (),
    settings: Sequence[str] = (),
    tree: Path | None = None,
    wrapper: Sequence[str] = (),
) -> "subprocess.Popen[bytes]":
    """Start a node from the sources of a tree, or of this one; its events go beside its data directory.

    `wrapper` are words before the command, of a program that becomes the node.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    # An installed package has its bytecode: without it, most of a start is compiling.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if tree is not None:
        environment["PYTHONPATH"] = str(tree / "src")
    listeners = [f"--kafka={kafka}", "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--metrics=127.0.0.1:0"]
    chosen = [word for setting in settings for word in ("--set", setting)]
    with data_dir.with_suffix(".log").open("ab") as events:
        command = command_line(["up", "--json", f"--data-dir={data_dir}", *listeners, *arguments, *chosen])
        return subprocess.Popen(
            [*wrapper, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=events,
            # Not where sources lie that Python would find before those of the tree.
            cwd=data_dir.parent,
            env=environment,
            start_new_session=True,
        )


def await_ready(process: "subprocess.Popen[bytes]") -> dict[str, str]:
    """What a node says about itself once it is ready."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if readable else b""
    if not line:
        raise ClientError(f"a broker was not ready within {START_SECONDS} s")
    ready: dict[str, str] = json.loads(line)
    return ready


def check_tree(tree: Path) -> None:
    """Make sure that a node of this tree runs this tree, and not an installed package."""
    found = subprocess.run(
        [sys.executable, "-c", "import penstock; print(penstock.__file__)"],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    if not found.startswith(str(tree / "src")):
        raise ClientError(f"{tree}: its sources are not what would run, but {found or 'nothing'}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now, all of them different."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
