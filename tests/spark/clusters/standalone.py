"""A standalone Spark cluster of one master and two workers on loopback, from what pip installed."""

import os
import re
import subprocess
from pathlib import Path
from types import TracebackType

from penstock.spark.run.session import environment
from tests.spark.exactness.processes import MARK, comes_true, kill_marked, last_lines

WORKERS = 2
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
START_SECONDS = 120.0
LOOPBACK = "127.0.0.1"

_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master (.*)")


class StandaloneCluster:
    """Runs while the context lasts; `master` is the value for `--master`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mark = f"{os.getpid()}-{directory}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.master = ""

    def __enter__(self) -> "StandaloneCluster":
        try:
            self._start("master", MASTER_CLASS, "--port", "0")
            self.master = self._await_line("master", _AT)
            for number in range(WORKERS):
                self._start_worker(f"worker-{number}")
            for number in range(WORKERS):
                self._await_line(f"worker-{number}", _REGISTERED)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def executor_logs(self) -> list[Path]:
        """What the executors said, by worker."""
        return sorted(self._directory.glob("worker-*/app-*/*/stderr"))

    def _start_worker(self, name: str) -> None:
        self._start(
            *(name, WORKER_CLASS, "--cores", "1", "--memory", "1g"),
            *("--work-dir", str(self._directory / name), self.master),
        )

    def _start(self, name: str, spark_class: str, *arguments: str) -> None:
        from pyspark.find_spark_home import _find_spark_home

        program = Path(_find_spark_home(), "bin", "spark-class")
        command = [str(program), spark_class, "--host", LOOPBACK, "--webui-port", "0", *arguments]
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | environment("spark://127.0.0.1:0") | self._variables(),
            )

    def _variables(self) -> dict[str, str]:
        return {MARK: self._mark, "SPARK_LOCAL_DIRS": str(self._directory), "SPARK_DAEMON_MEMORY": "256m"}

    def _await_line(self, name: str, line: re.Pattern[str]) -> str:
        """The first group of a line in a log, once it is there."""
        log, process = self.log(name), self._processes[name]
        comes_true(
            lambda: process.poll() is not None or line.search(log.read_text()) is not None, START_SECONDS
        )
        found = line.search(log.read_text())
        assert found is not None, f"the {name} did not come up:\n{last_lines(log)}"
        return found[1]

    def _stop(self) -> None:
        """All of it at once: nothing here has to be put in order."""
        kill_marked(self._mark)
        for process in self._processes.values():
            process.wait()
