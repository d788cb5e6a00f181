"""A node in a process of its own."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import penstock
from penstock.testing.nodes import START_SECONDS, STOP_SECONDS, NodeEndpoints, NodeFailed, NodeNotStarted

# Nothing is ever written to its stdin, which ends when we do: then it kills itself. (A death signal of the
# kernel would be for the end of the thread that started it, which need not be the end of the test.) What
# it imports it must find where we found it, also if pytest has changed the path.
_LAUNCH = """\
import os, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os.kill(os.getpid(), 9)), daemon=True).start()
sys.path.append(sys.argv[1])
from penstock.cli import main
sys.exit(main(sys.argv[2:]))
"""
HELPERS_SECONDS = 5.0
LOOK_SECONDS = 0.005
_PACKAGES = str(Path(penstock.__file__).parent.parent)


class ChildNode:
    """A process that runs `penstock up`; `events` is where its log goes."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._process: subprocess.Popen[bytes] | None = None
        # The exit code of a node that ended before anybody asked it to.
        self._failed: int | None = None

    def launch(self, settings: Mapping[str, str]) -> None:
        assignments = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
        self._failed = None
        # Of the environment it takes only what is no setting, and no penstock.yaml of the working directory.
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
        with self._events.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, _PACKAGES, "up", "--json", *assignments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self._events.parent,
                env=environment,
                # A Ctrl-C is for the test, which stops the node when it ends.
                start_new_session=True,
            )

    def await_ready(self) -> NodeEndpoints:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], START_SECONDS)[0]:
            raise NodeNotStarted(f"the node was not ready within {START_SECONDS} s: {self._last_words()}")
        # One line, in one write.
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise NodeNotStarted(f"the node did not start: {self._last_words()}")
        ready = json.loads(line)
        return NodeEndpoints(ready["kafka"], ready["http"])

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        self.await_end()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.await_end()

    def discard(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._failed = self._process.poll()
            self._process.send_signal(number)

    def await_end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeFailed(f"the node did not stop within {STOP_SECONDS} s") from None
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            _await_session_end(process.pid)
        if self._failed is not None:
            raise NodeFailed(f"the node ended with {self._failed}: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._events.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


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
