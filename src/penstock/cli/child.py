"""A broker in a process of its own, on free ports and a throw-away directory."""

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.model import SECOND, PenstockError
from penstock.runtime.child_command import child_command
from penstock.runtime.loop import MachineClock

START_SECONDS = 30
STOP_SECONDS = 10
# Of the operator's environment a throw-away broker takes only what is no setting.
_KEPT_VARIABLES = ("PENSTOCK_TRACEBACK",)


class BrokerNotStarted(PenstockError):
    """The child ended, or said nothing, before it was ready."""


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker that is ready."""

    bootstrap: str
    http: str
    grpc: str
    metrics: str
    pid: int
    data_dir: str
    start_ns: int


@contextmanager
def throw_away_broker(settings: Sequence[str] = (), directory: str | None = None) -> Iterator[BrokerProcess]:
    """Start a broker with these `key=value` settings; stop it and remove its data at the end.

    `directory` is where its data directory is made, for measurements on a certain disk.
    """
    with terminated_in_order(), tempfile.TemporaryDirectory(prefix="penstock-", dir=directory) as root:
        events = Path(root, "events.log")
        with events.open("wb") as stderr:
            clock = MachineClock()
            began = clock.now()
            process = subprocess.Popen(
                _command(str(Path(root, "data")), settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=root,
                env=_environment(),
                # Ctrl-C is for us; we signal the broker when it is time.
                start_new_session=True,
            )
        try:
            ready = _await_ready(process, events)
            yield BrokerProcess(
                ready["kafka"],
                ready["http"],
                ready["grpc"],
                ready["metrics"],
                process.pid,
                ready["data_dir"],
                clock.now() - began,
            )
        finally:
            stop(process)


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Let SIGTERM end us as an exit does, so that what was started is stopped and removed."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _command(data_dir: str, settings: Sequence[str]) -> list[str]:
    listeners = [
        word for name in ("kafka", "http", "grpc", "metrics") for word in (f"--{name}", "127.0.0.1:0")
    ]
    chosen = [word for setting in settings for word in ("--set", setting)]
    return command_line(["up", "--json", "--data-dir", data_dir, *listeners, *chosen])


def command_line(arguments: Sequence[str]) -> list[str]:
    """The command for a child that does not outlive us; it must be started from the main thread."""
    return child_command("penstock.cli", arguments)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PENSTOCK_") or name in _KEPT_VARIABLES
    }


def _await_ready(process: "subprocess.Popen[bytes]", events: Path) -> dict[str, str]:
    assert process.stdout is not None
    clock = MachineClock()
    deadline = clock.now() + START_SECONDS * SECOND
    received = b""
    while not received.endswith(b"\n"):
        left = (deadline - clock.now()) / SECOND
        if left <= 0:
            raise BrokerNotStarted(f"the broker was not ready within {START_SECONDS} s")
        if not select.select([process.stdout], [], [], left)[0]:
            continue
        more = os.read(process.stdout.fileno(), 65_536)
        if not more:
            lines = events.read_text(errors="replace").strip().splitlines()
            raise BrokerNotStarted(f"the broker did not start: {lines[-1] if lines else 'it said nothing'}")
        received += more
    ready: dict[str, str] = json.loads(received)
    return ready


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to stop, and insist if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
