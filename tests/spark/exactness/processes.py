"""The pipeline as processes that can be killed one by one: driver, executors, and a cluster of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EXECUTOR = "CoarseGrainedExecutorBackend"
STOP_SECONDS = 120


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one, as far as it has not been orphaned."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class PipelineProcess:
    """`penstock pipeline run metrics`, started again on the same state as often as it is killed."""

    def __init__(self, servers: str, state_dir: Path, master: str, settings: tuple[str, ...]) -> None:
        self._command = [
            *(sys.executable, "-m", "penstock.cli", "pipeline", "run", "metrics", "--json"),
            *("--bootstrap", servers, "--state-dir", str(state_dir), "--master", master),
            *(word for setting in settings for word in ("--set", setting)),
        ]
        self._said = state_dir.with_suffix(".out")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [*self._command, *more], stdout=said, stderr=said, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def batches(self) -> int:
        """How many batches it has reported since the very first start."""
        return self._said.read_bytes().count(b'"event": "progress"') if self._said.exists() else 0

    def last_words(self) -> str:
        return self._said.read_text()[-2_000:]

    def executors(self) -> list[int]:
        return [pid for pid in descendants(self.pid) if EXECUTOR in command_of(pid)]

    def kill_driver(self) -> None:
        """Python and its JVM, but not the executors: what they still write must not count twice."""
        assert self._process is not None
        executors = set(self.executors())
        below = {pid for executor in executors for pid in descendants(executor)}
        for pid in [self.pid, *set(descendants(self.pid)) - executors - below]:
            kill(pid)
        self._process.wait()

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def end(self) -> None:
        """Whatever is left of it, in its process group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
