"""The child process that serves REST, WebSocket and gRPC for a node: its start, its end, its return.

The node listens at the HTTP address and hands the socket on:

    a gateway runs         it accepts; what comes before it serves waits in the socket's queue
    it has ended           it is started again at once; if it ends too often, after a while,
                           and the node accepts meanwhile: health, readiness and metrics; the
                           rest gets 503
    it gives no sign of    it is ended, with its stacks in the log, and started again as above
    life (`hung_timeout_ms`)

It tells the node from which ports it connects, before it does: many callers are behind these connections, so
that they are not counted as those of one address.
"""

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import suppress

import msgspec

from penstock.core.model import MILLISECOND, Instant
from penstock.observability import log
from penstock.runtime import Callback, Runtime, Timer
from penstock.runtime.child_command import child_command, child_environment
from penstock.runtime.descriptors import is_readable
from penstock.server.gateway.options import GatewayOptions
from penstock.server.http import HttpResponse, HttpServer

PROCESS = "penstock.server.gateway.process"
START_MS = 10_000
STOP_MS = 900
BACKOFF_MS = (0, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
# A gateway that ran for so long was not broken from the start.
STEADY_MS = 60_000
# How long a child may take until its first sign of life, and to write its stacks before it is killed.
FIRST_SIGN_MS = 60_000
STACKS_MS = 1_000
SAID_BYTES = 4_096
# Ports that were announced and from which nobody has come: connections to other nodes.
PORTS_MAX = 10_000


def not_serving() -> HttpResponse:
    """What a client gets while no gateway runs."""
    problem = {"title": "Temporarily unavailable", "status": 503, "detail": "the gateway is not running"}
    return HttpResponse(503, msgspec.json.encode(problem) + b"\n", "application/problem+json")


class GatewayProcess:
    """One child after the other."""

    def __init__(self, runtime: Runtime, http: HttpServer, options: GatewayOptions, token: str) -> None:
        """`token` is what the node knows its gateway by."""
        self._token = token
        self._runtime = runtime
        self._http = http
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        # Our end of the socket that tells the child that we live.
        self._alive: socket.socket | None = None
        # What it has said of a line that is not complete, and the ports from which it will connect.
        self._said = b""
        self._ports: dict[int, None] = {}
        self._started = Instant(0)
        self._watch: Timer | None = None
        self._failures = 0
        self._retry: Timer | None = None
        self._patience: Timer | None = None
        self._stopped: Callback | None = None
        self._tell_settled: Callback | None = None
        # Whether the first child serves, or has failed to: nobody need wait for it any longer.
        self.is_settled = False

    @property
    def pid(self) -> int | None:
        """The process id of the child that runs."""
        return None if self._child is None else self._child.pid

    def start(self, settled: Callback) -> None:
        """Start the first child; `settled` is called when it serves, or has failed to."""
        self._tell_settled = settled
        due = Instant(self._runtime.clock.now() + START_MS * MILLISECOND)
        self._patience = self._runtime.timers.at(due, self._settle)
        self._start()

    def _settle(self) -> None:
        if self.is_settled:
            return
        self.is_settled = True
        if self._patience is not None:
            self._patience.cancel()
        if self._tell_settled is not None:
            self._tell_settled()

    def _start(self) -> None:
        """Start a child; it accepts from now on."""
        self._http.pause()
        ours, theirs = socket.socketpair()
        options = msgspec.structs.replace(
            self._options, http_descriptor=self._http.descriptor, node_descriptor=theirs.fileno()
        )
        try:
            with theirs:
                self._child = subprocess.Popen(
                    child_command(PROCESS, [msgspec.json.encode(options).decode()]),
                    pass_fds=(options.http_descriptor, options.node_descriptor),
                    stdin=subprocess.PIPE,
                    env=child_environment(),
                    # Ctrl-C is for the node, which ends its child in order.
                    process_group=0,
                )
        except OSError as error:
            ours.close()
            self._failed(f"it could not be started: {error}")
            return
        # Not among its arguments, which every user of the machine can read. It fits into the pipe.
        assert self._child.stdin is not None
        with suppress(BrokenPipeError), self._child.stdin as channel:
            channel.write(self._token.encode())
        ours.setblocking(False)
        self._alive = ours
        self._loop.add_reader(ours, self._heard)
        self._started = self._runtime.clock.now()
        self._expect_sign(max(FIRST_SIGN_MS, self._options.hung_timeout_ms))
        self._pidfd = os.pidfd_open(self._child.pid)
        self._loop.add_reader(self._pidfd, self._ended)

    def _heard(self) -> None:
        """The child serves, as it says again and again; or its end of the socket is closed."""
        assert self._alive is not None
        try:
            said = self._alive.recv(SAID_BYTES)
        except BlockingIOError:
            return
        if said:
            self._take(said)
        else:
            self._loop.remove_reader(self._alive)

    def _take(self, said: bytes) -> None:
        *lines, self._said = (self._said + said).split(b"\n")
        for line in lines:
            if line.isdigit():
                self._ports[int(line)] = None
                if len(self._ports) > PORTS_MAX:
                    del self._ports[next(iter(self._ports))]
            else:
                self._settle()
                self._expect_sign(self._options.hung_timeout_ms)

    def connects_from(self, port: int) -> bool:
        """Whether a new connection from this port of this machine is that of the child."""
        if self._alive is not None and port not in self._ports:
            # It was said before the connection was opened, and may not have been read yet.
            with suppress(BlockingIOError):
                while said := self._alive.recv(SAID_BYTES):
                    self._take(said)
        return self._ports.pop(port, False) is None

    def _expect_sign(self, within_ms: int) -> None:
        if self._watch is not None:
            self._watch.cancel()
        due = Instant(self._runtime.clock.now() + within_ms * MILLISECOND)
        self._watch = self._runtime.timers.at(due, lambda: self._missed_sign(within_ms))

    def _missed_sign(self, within_ms: int) -> None:
        assert self._child is not None
        assert self._alive is not None
        if is_readable(self._alive.fileno(), 0):
            # It is this process that was late.
            self._expect_sign(within_ms)
            return
        log.error("gateway.hung", pid=self._child.pid, silent_ms=within_ms)
        self._child.send_signal(signal.SIGABRT)
        due = Instant(self._runtime.clock.now() + STACKS_MS * MILLISECOND)
        self._watch = self._runtime.timers.at(due, self.kill)

    def _ended(self) -> None:
        code = self._reap()
        if self._stopped is not None:
            stopped, self._stopped = self._stopped, None
            self._http.resume()
            stopped()
            return
        if self._runtime.clock.now() - self._started >= STEADY_MS * MILLISECOND:
            self._failures = 0
        self._failed(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)

    def _reap(self) -> int:
        """Forget a child that has ended; returns its exit code."""
        assert self._child is not None
        assert self._alive is not None
        if self._watch is not None:
            self._watch.cancel()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._loop.remove_reader(self._alive)
        self._alive.close()
        code = self._child.wait()
        self._child = self._alive = None
        self._said = b""
        self._ports.clear()
        return code

    def _failed(self, reason: str) -> None:
        wait_ms = BACKOFF_MS[min(self._failures, len(BACKOFF_MS) - 1)]
        self._failures += 1
        log.error("gateway.ended", reason=reason, restart_in_ms=wait_ms)
        if wait_ms:
            self._http.resume()
        due = Instant(self._runtime.clock.now() + wait_ms * MILLISECOND)
        self._retry = self._runtime.timers.at(due, self._start)
        if wait_ms:
            self._settle()

    def stop(self, done: Callback) -> None:
        """End the child in order, or after a while against its will; then call `done`."""
        for timer in (self._retry, self._patience, self._watch):
            if timer is not None:
                timer.cancel()
        if self._child is None:
            self._runtime.timers.soon(done)
            return
        overdue = Instant(self._runtime.clock.now() + STOP_MS * MILLISECOND)
        timer = self._runtime.timers.at(overdue, self.kill)

        def stopped() -> None:
            timer.cancel()
            done()

        self._stopped = stopped
        self._child.terminate()

    def kill(self) -> None:
        """End the child at once."""
        if self._child is not None:
            self._child.kill()
