"""A node in a process of its own, for tests that talk to it over sockets."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

STOP_SECONDS = 20
FREE_PORTS = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0")


class NodeProcess:
    """`penstock up` as a child process, on one data directory; it can be ended and started again.

    It keeps its ports from start to start, as a node would that clients know.
    """

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self._data_dir = data_dir
        self._settings = [part for setting in settings for part in ("--set", setting)]
        self._doors: tuple[str, ...] = FREE_PORTS
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    @property
    def events(self) -> Path:
        """Where the node's events go."""
        return self._data_dir.with_suffix(".log")

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

    def start(self) -> "NodeProcess":
        """Start the node and wait for its ready line."""
        command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--data-dir", str(self._data_dir)]
        with self.events.open("a") as events:
            self._process = subprocess.Popen(
                [*command, *self._doors, *self._settings], stdout=subprocess.PIPE, stderr=events, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the node did not start: {self.events.read_text()[-2000:]}"
        self.ready = json.loads(line)
        doors = ((f"--{name}", self.ready[name]) for name in ("kafka", "http", "metrics"))
        self._doors = tuple(part for door in doors for part in door)
        return self

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; answers its exit code."""
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
