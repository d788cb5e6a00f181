"""A node in a process of its own, for tests that talk to it over sockets."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# For a machine that is busy: nobody is timed.
START_SECONDS = 120
STOP_SECONDS = 60
DOORS = ("kafka", "http", "metrics", "grpc")


class NodeProcess:
    """`penstock up` as a child process, on one data directory; it can be ended and started again.

    It keeps its ports from start to start, as a node would that clients know.
    """

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self.data_dir = data_dir
        # The later of two settings counts: a test may want its listeners elsewhere, or a gateway.
        self._settings = (*(f"listen.{door}=127.0.0.1:0" for door in DOORS), "rest.enabled=false", *settings)
        self._process: subprocess.Popen[str] | None = None
        # Words before the command (another network), and variables beside the test's own (another clock).
        self.wrapper: Sequence[str] = ()
        self.variables: Mapping[str, str] = {}
        self.ready: dict[str, Any] = {}

    @property
    def events(self) -> Path:
        """Where the node's events go."""
        return self.data_dir.with_suffix(".log")

    @property
    def kafka(self) -> str:
        """The address for bootstrap.servers."""
        return str(self.ready["kafka"])

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.kafka.rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def resident_bytes(self) -> int:
        """How much memory the node has in use."""
        fields = Path(f"/proc/{self.pid}/status").read_text().split("VmRSS:")[1].split()
        return int(fields[0]) * 1024

    def gateways(self) -> list[int]:
        """The processes that serve REST, gRPC and WebSocket for it: one, but for a moment between two."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"gateway.process" in _command_line(pid)]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> "NodeProcess":
        """Start the node and wait for its ready line."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """Start the node; several that need one another are started before any is waited for."""
        command = [
            *self.wrapper,
            sys.executable,
            "-m",
            "penstock.cli",
            "up",
            "--json",
            "--data-dir",
            str(self.data_dir),
        ]
        for setting in self._settings:
            command += ("--set", setting)
        with self.events.open("a") as events:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=events,
                text=True,
                env={**os.environ, **self.variables},
            )

    def await_ready(self, seconds: float = START_SECONDS) -> "NodeProcess":
        """Wait for the ready line of a node that was launched."""
        assert self._process is not None
        assert self._process.stdout is not None
        there = select.select([self._process.stdout], [], [], seconds)[0]
        line = self._process.stdout.readline() if there else ""
        if not line:
            self._end(signal.SIGKILL)
            why = "did not start" if there else "was not ready in time"
            raise AssertionError(f"the node {why}: {self.said()}")
        self.ready = json.loads(line)
        self._settings += tuple(f"listen.{door}={self.ready[door]}" for door in DOORS if door in self.ready)
        return self

    def said(self) -> str:
        """The last that it wrote to stderr."""
        return self.events.read_text()[-2000:]

    def pause(self) -> None:
        """Let it do nothing, as a machine does that stands still."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def await_end(self, seconds: float = START_SECONDS) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node did not end by itself: {self.said()}") from None
        finally:
            self._end(signal.SIGKILL)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        # It has ended meanwhile.
        return b""
