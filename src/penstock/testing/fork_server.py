"""A process that has imported a node, and forks one for each that is to start.

Most of a node's start is the import of its modules; this process pays for it once. It is forked from,
and not the test itself, because a fork takes over locks that are held by threads it does not have.

    test ── settings, stdin, stdout, stderr ─►  fork server ── fork ─►  node
         ◄─ a pidfd of the node ─────────────

The node prints where it listens, as JSON, and its events; it ends with the test, whose end of its stdin
closes then. (A death signal of the kernel would be for the end of the thread that started it.)

It ends when the test does, and by itself when it has had no node for a few seconds; the next start
makes a new one.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import penstock
from penstock.testing.nodes import START_SECONDS, NodeNotReady

LINGER_SECONDS = 5.0
MESSAGE_BYTES_MAX = 64 << 10
# What it imports it must find where we found it, also if pytest has changed the path.
_LAUNCH = """\
import sys
sys.path.append(sys.argv[1])
from penstock.testing.fork_server import serve
serve(int(sys.argv[2]), float(sys.argv[3]))
"""
_PACKAGES = str(Path(penstock.__file__).parent.parent)


class ForkServer:
    """The test's end; of one process for all nodes that the test starts."""

    def __init__(self, linger_seconds: float = LINGER_SECONDS) -> None:
        self.linger_seconds = linger_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def start(self, settings: Mapping[str, str], streams: Sequence[int]) -> tuple[int, int]:
        """Start a node with these settings and streams; returns its number and its pidfd."""
        message = json.dumps(dict(settings)).encode()
        with self._lock:
            for is_new in (False, True):
                if is_new or self._connection is None:
                    self._replace()
                assert self._connection is not None
                # The one we know may have ended for want of work.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    socket.send_fds(self._connection, [message], list(streams))
                    number, pidfds, _, _ = socket.recv_fds(self._connection, MESSAGE_BYTES_MAX, 1)
                    if pidfds:
                        return int(number), pidfds[0]
        raise NodeNotReady("the process that starts nodes has ended")

    def _replace(self) -> None:
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, _PACKAGES, str(theirs.fileno()), str(self.linger_seconds)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=os.sep,
                # A node takes only what is no setting.
                env=_without_settings(os.environ),
                # A Ctrl-C is for the test.
                start_new_session=True,
            )
        ours.settimeout(START_SECONDS)
        self._connection = ours

    def close(self) -> None:
        """End it; nodes that run go on."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.wait()
            self._process = None


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if not name.startswith("PENSTOCK_")}


def serve(descriptor: int, linger_seconds: float) -> None:
    """The server's end: fork nodes until nobody wants one."""
    # The kernel takes care of those that have ended; a pidfd shows that they have.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_node()
    connection = socket.socket(fileno=descriptor)
    nodes: list[int] = []
    while True:
        ready, _, _ = select.select([descriptor, *nodes], [], [], None if nodes else linger_seconds)
        if not ready:
            return
        for ended in [pidfd for pidfd in nodes if pidfd in ready]:
            nodes.remove(ended)
            os.close(ended)
        if descriptor in ready:
            message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 3)
            if not message:
                return
            pid = os.fork()
            if not pid:
                _run(json.loads(message), streams)
            pidfd = os.pidfd_open(pid)
            nodes.append(pidfd)
            socket.send_fds(connection, [b"%d" % pid], [pidfd])
            for stream in streams:
                os.close(stream)


def _import_node() -> None:
    """Import everything that a node needs, what it imports late included."""
    from penstock.node.metrics import MetricsPage
    from penstock.server.kafka.handlers import every_route
    from penstock.testing import embedded  # noqa: F401

    every_route().load()
    MetricsPage.prepare()


def _run(settings: Mapping[str, str], streams: Sequence[int]) -> None:
    """In the new process: become a node. Does not return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        threading.Thread(target=_watch_stdin, daemon=True).start()
        _run_node(settings)
        code = 0
    except Exception as error:
        sys.stderr.write(f"{error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _watch_stdin() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _run_node(settings: Mapping[str, str]) -> None:
    from penstock.node import NodeAddresses, run_node
    from penstock.observability import DescriptorSink, EventLogOptions, LogFormat, LogLevel, log
    from penstock.runtime import NodeIdentity
    from penstock.runtime.loop import MachineClock, RuntimeOptions, run
    from penstock.runtime.port import Program
    from penstock.testing.embedded import endpoints, node_options, unsynced
    from penstock.testing.unsynced_disk import UnsyncedDisk

    def ready(addresses: NodeAddresses) -> None:
        os.write(1, json.dumps(endpoints(addresses)).encode() + b"\n")

    def run_unsynced(program: Program, identity: NodeIdentity, least: RuntimeOptions) -> BaseException | None:
        return run(program, identity, unsynced(least))

    level = LogLevel[settings["logging.level"].upper()]
    log.configure(EventLogOptions(level, LogFormat.TEXT), DescriptorSink(2), MachineClock().wall)
    run_node(node_options(settings), ready, run_unsynced, UnsyncedDisk)


FORK_SERVER = ForkServer()
