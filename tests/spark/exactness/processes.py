"""The pipeline as processes that can be killed one by one: driver, executors, and a cluster of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

EXECUTOR = "CoarseGrainedExecutorBackend"
# Processes that lost their parent are still known by a variable that all of them inherit.
MARK = "PENSTOCK_TRIAL"
GONE_SECONDS = 30
LAST_LINES = 12
# Spark gives a Python worker ten seconds to start, which no setting changes.
TOO_SLOW = "Python worker failed to connect back"

_APPLICATION = re.compile(r"--app-id (app-\d+-\d+)")


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def marked(mark: str) -> list[int]:
    """Every live process that was started with this mark, or by one that was."""
    sought = f"{MARK}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if sought in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill them until none is left: while they end, they may start others."""

    def none_is_left() -> bool:
        left = marked(mark)
        for pid in left:
            kill(pid)
        return not left

    if not comes_true(none_is_left, GONE_SECONDS):
        raise AssertionError(f"could not be killed: {[command_of(pid)[:200] for pid in marked(mark)]}")


def comes_true(is_so: Callable[[], bool], seconds: float) -> bool:
    """Look a few times a second, until it is so or the time is up."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def last_lines(file: Path, count: int = LAST_LINES) -> str:
    """The end of a log, without what only says how far it has got, or where in Spark it was."""
    if not file.exists():
        return f"{file.name} is not there"
    lines = [
        line
        for line in file.read_text(errors="replace").splitlines()
        if '"progress"' not in line and not line.startswith("\tat ")
    ]
    return "\n".join([f"{file.name}:", *lines[-count:]])


class PipelineProcess:
    """`penstock pipeline run metrics`, started again on the same state as often as it is killed."""

    def __init__(self, servers: str, state_dir: Path, master: str, arguments: Sequence[str]) -> None:
        self._command = [
            *(sys.executable, "-m", "penstock.cli", "pipeline", "run", "metrics", "--json"),
            *("--bootstrap", servers, "--state-dir", str(state_dir), "--master", master, *arguments),
        ]
        self._state_dir = state_dir
        self._said = state_dir.with_suffix(".out")
        self._mark = f"{os.getpid()}-{state_dir}"
        self._process: subprocess.Popen[bytes] | None = None
        self._applications: set[str] = set()

    def start(self, *more: str) -> None:
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=os.environ | {MARK: self._mark},
            )

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def was_too_slow(self) -> bool:
        """Whether it gave up because the machine was busy: as good as a kill, and it is started again."""
        return self.has_ended and TOO_SLOW in last_lines(self._said, 1)

    def batches(self) -> int:
        """How many batches it has reported since the very first start."""
        return self._said.read_bytes().count(b'"event": "progress"') if self._said.exists() else 0

    def last_words(self) -> str:
        logs = sorted(self._state_dir.rglob("spark.log"))
        return "\n".join(last_lines(file) for file in (self._said, *logs))

    def executors(self) -> list[int]:
        """Those of the driver that runs now; those of killed ones end by themselves."""
        found = {pid: command for pid in marked(self._mark) if EXECUTOR in (command := command_of(pid))}
        names = {pid: match[1] for pid, command in found.items() if (match := _APPLICATION.search(command))}
        fresh = set(names.values()) - self._applications
        return [pid for pid, name in names.items() if name in fresh]

    def kill_driver(self) -> None:
        """Python and its JVM, but not the executors: what they still write must not count twice."""
        assert self._process is not None
        executors = {pid for pid in marked(self._mark) if EXECUTOR in command_of(pid)}
        spared = executors | {one for pid in executors for one in descendants(pid)}
        self._remember_applications()
        for pid in set(marked(self._mark)) - spared:
            kill(pid)
        self._process.wait()

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def end(self) -> None:
        """Whatever is left of it, also of drivers that were killed before; and the files of its clusters."""
        self._remember_applications()
        kill_marked(self._mark)
        if self._process is not None:
            self._process.wait()
        work = _spark_home() / "work"
        for application in self._applications:
            # A cluster within the driver keeps its executors' files in Spark's own directory.
            shutil.rmtree(work / application, ignore_errors=True)

    def _remember_applications(self) -> None:
        commands = " ".join(map(command_of, marked(self._mark)))
        self._applications |= set(_APPLICATION.findall(commands))


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
