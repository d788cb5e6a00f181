"""The nodes that are attacked: in processes of their own, on ports that they keep from start to start."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attacks.niceness import set_session_niceness
from benchmarks.cluster.nodes import await_ready, free_ports, launch
from penstock.core.model import NodeId
from penstock.security.certificates import create_authority, create_node_certificate

STOP_SECONDS = 60
_LISTENERS = ("kafka", "http", "grpc", "metrics")
SASL_PLAINTEXT, SASL_SSL = "SASL_PLAINTEXT", "SASL_SSL"


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """What an attack needs of the nodes' surroundings."""

    settings: tuple[str, ...] = ()
    # REST, WebSocket and gRPC are a process of their own beside the node.
    has_gateway: bool = False
    # A cluster of one has nobody to listen to, unless it is told to.
    has_peer_listener: bool = False
    descriptors_max: int | None = None
    # Access rules, audit, and listeners with logins. Whoever uses the first listener may do everything.
    is_secured: bool = False
    # Data directories on a disk of this size.
    disk_megabytes: int | None = None


class AttackedNode:
    """`penstock up` on one data directory."""

    def __init__(self, data_dir: Path, arguments: tuple[str, ...], setup: NodeSetup) -> None:
        self.data_dir = data_dir
        self.ready: dict[str, Any] = {}
        self._arguments = arguments
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def events(self) -> Path:
        """Where its events go."""
        return self.data_dir.with_suffix(".log")

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def address(self, listener: str) -> tuple[str, int]:
        host, _, port = str(self.ready[listener]).rpartition(":")
        return host, int(port)

    @property
    def secured(self) -> dict[str, tuple[str, int]]:
        """Its listeners with logins, by their protocol."""
        listeners: dict[str, str] = self.ready.get("listeners", {})
        found = {
            name: listeners[name].rpartition(":") for name in (SASL_PLAINTEXT, SASL_SSL) if name in listeners
        }
        return {name: (host, int(port)) for name, (host, _, port) in found.items()}

    def resident_bytes(self) -> int:
        """Memory of the node and of its children: the gateway and the sync helper."""
        return sum(map(_resident_bytes, (self.pid, *_children(self.pid)))) if self.is_running else 0

    def descriptors(self) -> int:
        """How many descriptors the node has open, besides those of logs.

        A log keeps its own while the node has enough: where they are short, those of idle logs are closed.
        """
        try:
            numbers = os.listdir(f"/proc/{self.pid}/fd")
        except OSError:
            return 0
        return sum(not self._is_log(f"/proc/{self.pid}/fd/{number}") for number in numbers)

    def _is_log(self, link: str) -> bool:
        try:
            return os.readlink(link).startswith(f"{self.data_dir}/logs/")
        except OSError:
            return True

    def launch(self) -> None:
        """Start it, without waiting until it is ready."""
        # The later of two flags counts: from the second start on it listens where it did.
        listening = [f"--{name}={self.ready[name]}" for name in _LISTENERS if name in self.ready]
        settings = [f"rest.enabled={str(self._setup.has_gateway).lower()}", *self._setup.settings]
        if self._setup.is_secured:
            settings += self._security()
        limit = self._setup.descriptors_max
        self._process = launch(
            self.data_dir,
            "127.0.0.1:0",
            (*self._arguments, *listening),
            settings,
            wrapper=() if limit is None else ("prlimit", f"--nofile={limit}:{limit}"),
        )
        # It leads a session of its own, which does not inherit ours.
        set_session_niceness(self._process.pid, os.nice(0))

    def _security(self) -> list[str]:
        certificates = self.data_dir.with_suffix(".certificates")
        if not certificates.exists():
            create_authority(certificates, "attacks")
            create_node_certificate(certificates, NodeId(1), ["localhost", "127.0.0.1"])
        addresses = {name: f"{host}:{port}" for name, (host, port) in self.secured.items()}
        listeners = ",".join(
            f"{name}={name}://{addresses.get(name, '127.0.0.1:0')}" for name in (SASL_PLAINTEXT, SASL_SSL)
        )
        return [
            f"listen.listeners={listeners}",
            "security.enabled=true",
            "security.super_users=ANONYMOUS",
            "security.sasl.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
            f"security.tls.certificate={certificates}/node-1.pem",
            f"security.tls.key={certificates}/node-1.key",
            f"security.tls.authority={certificates}/ca.pem",
            "security.audit.enabled=true",
            "security.audit.data=true",
        ]

    def await_ready(self) -> None:
        assert self._process is not None
        self.ready = await_ready(self._process)

    def end(self, number: signal.Signals) -> int:
        """Send it a signal and wait until it is gone; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()


class AttackedNodes:
    """One node, or three that are a cluster."""

    def __init__(self, root: Path, count: int, setup: NodeSetup) -> None:
        peers = [f"127.0.0.1:{port}" for port in free_ports(count)]
        voters = ",".join(f"{number}@{peer}" for number, peer in enumerate(peers, 1))
        has_peers = count > 1 or setup.has_peer_listener
        self.peers = tuple(("127.0.0.1", int(peer.rpartition(":")[2])) for peer in peers) if has_peers else ()
        self._stack = ExitStack()
        if setup.disk_megabytes is not None:
            root = self._stack.enter_context(_small_disk(root / "disk", setup.disk_megabytes))
        self.nodes = [
            AttackedNode(
                root / f"node-{number}",
                (f"--node-id={number}", *((f"--peer={peer}", f"--voters={voters}") if has_peers else ())),
                setup,
            )
            for number, peer in enumerate(peers, 1)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.ready["kafka"]) for node in self.nodes)

    @property
    def running(self) -> int:
        return sum(node.is_running for node in self.nodes)

    def resident_bytes(self) -> int:
        """Memory of all nodes and of what they have started."""
        return sum(node.resident_bytes() for node in self.nodes)

    def descriptors(self) -> int:
        """How many descriptors they have open besides those of logs, all together."""
        return sum(node.descriptors() for node in self.nodes)

    def start(self) -> float:
        """Start those that do not run; returns how many seconds it took until they were ready."""
        began = time.monotonic()
        starting = [node for node in self.nodes if not node.is_running]
        for node in starting:
            node.launch()
        for node in starting:
            node.await_ready()
        return time.monotonic() - began

    def end(self, number: signal.Signals) -> None:
        for node in self.nodes:
            node.end(number)

    def close(self) -> None:
        self.end(signal.SIGKILL)
        self._stack.close()


@contextlib.contextmanager
def _small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "penstock-attacks", str(path)]
    subprocess.run(command, check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _resident_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    # What is mapped from files belongs to the page cache, which gives it back by itself.
    return 1024 * sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
