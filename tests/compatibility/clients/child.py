"""A client that is a program: its lines arrive as they are written."""

import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from tests.compatibility.clients.client import PATIENCE_SECONDS, POLL_SECONDS


class Child:
    """A running program whose output is read by threads of its own, so that it never blocks on us."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            env=os.environ | (variables or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, args=(stream,))
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def lines(self, seconds: float = POLL_SECONDS) -> list[str]:
        """What was written since the last call; waits a little for the first line."""
        try:
            lines = [self._lines.get(timeout=seconds)]
        except queue.Empty:
            assert self._process.poll() is None, f"ended with {self._process.returncode}"
            return []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return lines

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            for thread in self._threads:
                thread.join()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert stream is not None
                stream.close()
