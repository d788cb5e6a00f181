"""The pipeline as a process of its own: what it says, and its end."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.core.model import SECOND
from penstock.pipeline.errors import PipelineError
from penstock.runtime.loop import MachineClock

STOP_SECONDS = 60
# The machine may be slow, but something happens within this time or nothing ever will.
SILENCE_SECONDS = 180
# Java compiles thoroughly what runs for hours; of two minutes that takes half.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The kernel ends the pipeline if we are killed and cannot (PR_SET_PDEATHSIG is 1, SIGTERM is 15).
_LAUNCH = """\
import ctypes, sys
ctypes.CDLL(None).prctl(1, 15)
from penstock.cli import main
sys.exit(main(sys.argv[1:]))
"""


class PipelineEnded(PipelineError):
    """The pipeline ended before it was told to, or did not do what it was waited for."""


class Following:
    """What the pipeline said last about each query, kept up to date by a thread."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._changed = threading.Condition()
        self._queries: dict[str, dict[str, Any]] = {}
        self.batches: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._follow, name="pipeline", daemon=True)
        self._thread.start()

    def query(self, name: str) -> dict[str, Any]:
        """A query's last progress; only its name before the first, and nothing before it starts."""
        with self._changed:
            return self._queries.get(name, {})

    def wait_until(self, what: str, is_so: Callable[[], bool], turn: Callable[[], None]) -> None:
        """Wait, looking again a few times a second; raises `PipelineEnded` if it cannot come true."""
        clock = MachineClock()
        last_word = clock.now()
        heard = -1
        while not is_so():
            turn()
            if self._process.poll() is not None:
                raise PipelineEnded(f"the pipeline ended before {what}: {self._complaint()}")
            if heard != len(self.batches):
                heard, last_word = len(self.batches), clock.now()
            if clock.now() - last_word > SILENCE_SECONDS * SECOND:
                raise PipelineEnded(f"the pipeline said nothing for {SILENCE_SECONDS} s, before {what}")
            with self._changed:
                self._changed.wait(0.25)

    def stop(self) -> None:
        """Ask it to stop, and see that it does so in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise PipelineEnded(f"the pipeline did not stop within {STOP_SECONDS} s") from None
        if code:
            raise PipelineEnded(f"the pipeline ended with exit code {code}: {self._complaint()}")
        self._thread.join()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                if event["event"] == "started":
                    self._queries[event["name"]] = event
                elif event["event"] == "progress":
                    self._queries[event["name"]] = event
                    self.batches.append(event)
                self._changed.notify_all()

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().strip().splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else "it said nothing"


@contextmanager
def running_pipeline(bootstrap: str, state_dir: Path, settings: dict[str, str]) -> Iterator[Following]:
    """Run the metrics pipeline while the context lasts."""
    chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _LAUNCH, "pipeline", "run", "metrics", "--json"),
            *("--bootstrap", bootstrap, "--state-dir", str(state_dir), *chosen),
            *("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED_JAVA}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C is for us; we tell the pipeline when it is time.
        start_new_session=True,
    )
    try:
        yield Following(process)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
