"""A node in a process of its own."""

import json
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.testing.fork_server import FORK_SERVER
from penstock.testing.nodes import START_SECONDS, STOP_SECONDS, NodeEndpoints, NodeFailed, NodeNotReady

HELPERS_SECONDS = 5.0
LOOK_SECONDS = 0.005


class ChildNode:
    """A process that runs one node; `events` is where its log goes."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._pid = 0
        self._pidfd: int | None = None
        # Our end of its stdin, which tells it that we are alive, and of its stdout.
        self._pipes: tuple[int, int] = (-1, -1)
        self._has_failed = False

    def launch(self, settings: Mapping[str, str]) -> None:
        assert self._pidfd is None
        self._has_failed = False
        stdin, alive = os.pipe()
        said, stdout = os.pipe()
        self._pipes = alive, said
        stderr = os.open(self._events, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._pid, self._pidfd = FORK_SERVER.start(settings, (stdin, stdout, stderr))
        finally:
            for stream in (stdin, stdout, stderr):
                os.close(stream)
            if self._pidfd is None:
                self._close_pipes()

    def await_ready(self) -> NodeEndpoints:
        _, said = self._pipes
        if not _is_readable(said, START_SECONDS):
            raise NodeNotReady(f"the node was not ready within {START_SECONDS} s: {self._last_words()}")
        # One line, in one write.
        line = os.read(said, select.PIPE_BUF)
        if not line.endswith(b"\n"):
            raise NodeNotReady(f"the node did not start: {self._last_words()}")
        return NodeEndpoints(*json.loads(line))

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        self.await_end()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.await_end()

    def discard(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._pidfd is not None:
            self._has_failed = _is_readable(self._pidfd, 0)
            if not self._has_failed:
                signal.pidfd_send_signal(self._pidfd, number)

    def await_end(self) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is None:
            return
        try:
            if not _is_readable(pidfd, STOP_SECONDS):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                raise NodeFailed(f"the node did not stop within {STOP_SECONDS} s")
        finally:
            os.close(pidfd)
            self._close_pipes()
            _await_session_end(self._pid)
        if self._has_failed:
            raise NodeFailed(f"the node ended: {self._last_words()}")

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = (-1, -1)

    def _last_words(self) -> str:
        lines = self._events.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _await_session_end(session: int) -> None:
    """Wait for the node's helpers, which end by themselves when it has ended."""
    for _ in range(int(HELPERS_SECONDS / LOOK_SECONDS)):
        if not any(_is_alive_in(session, name) for name in os.listdir("/proc") if name.isdigit()):
            return
        time.sleep(LOOK_SECONDS)


def _is_alive_in(session: int, pid: str) -> bool:
    try:
        # One that has ended stays as a zombie until its parent, whoever that is by now, takes notice.
        return os.getsid(int(pid)) == session and ") Z " not in Path("/proc", pid, "stat").read_text()
    except OSError:
        return False
