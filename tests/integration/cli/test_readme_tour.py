"""The README's tour, line by line as it stands there, in one directory; only the ports are free ones."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import Endpoint, TopicAdmin
from tests.integration.cli.conftest import columns

README = Path(__file__).parents[3] / "README.md"
READY_SECONDS = 60
LINE_SECONDS = 120
PORTS = {f"PENSTOCK_LISTEN_{name}": "127.0.0.1:0" for name in ("KAFKA", "HTTP", "METRICS", "PEER")}


def tour() -> list[str]:
    """The commands of the tour, without what is said about them."""
    section = README.read_text().partition("## A two-minute tour")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [line.partition("  #")[0].rstrip() for line in block[1].splitlines()]


class Terminals:
    """One directory, a terminal that runs whatever is up, and another for everything else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
        } | PORTS
        command = directory / "bin" / "penstock"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli "$@"\n')
        command.chmod(0o755)
        self._environment["PATH"] = f"{command.parent}:{self._environment['PATH']}"
        self._up: subprocess.Popen[str] | None = None
        self.bootstrap = ""

    def up(self, line: str) -> str:
        """Press Ctrl-C where something is up already, then run `line` there; returns its ready line."""
        self.stop()
        # A shell that runs the tests in the background has them ignore SIGINT, and so their children.
        self._up = subprocess.Popen(
            ["env", "--default-signal=INT", "bash", "-c", f"exec {line}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._up.stdout is not None
        assert select.select([self._up.stdout], [], [], READY_SECONDS)[0]
        ready = self._up.stdout.readline()
        found = re.search(r"kafka ([\d.:,]*\d)", ready)
        assert found is not None, f"{line} did not become ready: {ready}"
        self.bootstrap = self._environment["PENSTOCK_BOOTSTRAP"] = found[1]
        return ready

    def type(self, line: str) -> str:
        """Run `line` to its end; returns what it printed."""
        ended = subprocess.run(
            ["bash", "-c", line],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LINE_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def stop(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            self._up.communicate(timeout=READY_SECONDS)
            assert self._up.returncode == 0
            self._up = None

    def close(self) -> None:
        if self._up is not None:
            self._up.kill()
            self._up.communicate()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    opened = Terminals(tmp_path)
    yield opened
    opened.close()


def one_node_is_up(ready: str, _: Terminals) -> None:
    assert ready.startswith("ready: node 1, ")
    assert ready.endswith("data in ./penstock-data\n")


def orders_has_three_partitions(_: str, at: Terminals) -> None:
    assert [one.partition for one in TopicAdmin(Endpoint(at.bootstrap)).describe("orders").partitions] == [
        0,
        1,
        2,
    ]


def one_record_is_stored(_: str, at: Terminals) -> None:
    assert (
        sum(one.end_offset or 0 for one in TopicAdmin(Endpoint(at.bootstrap)).describe("orders").partitions)
        == 1
    )


def the_record_comes_back(shown: str, _: Terminals) -> None:
    record = json.loads(shown)
    assert (record["topic"], record["key"], record["value"]) == ("orders", "k1", "hello")


def the_group_has_no_lag(shown: str, _: Terminals) -> None:
    rows = columns(shown)
    assert rows[0] == ["mail: empty, 0 members"]
    assert [dict(zip(rows[1], row, strict=True))["LAG"] for row in rows[2:]] == ["0"]


def latencies_stand_beside_the_disk(shown: str, _: Terminals) -> None:
    assert {"raw_fdatasync_4kb", "publish depth 1"} <= {row[0] for row in columns(shown)}


def three_nodes_are_up(ready: str, _: Terminals) -> None:
    assert ready.startswith("ready: 3 nodes, ")
    assert ready.endswith("data in ./penstock-cluster\n")


def three_brokers_run(shown: str, _: Terminals) -> None:
    assert [row[2] for row in columns(shown)[2:5]] == ["running"] * 3


def no_run_went_wrong(shown: str, _: Terminals) -> None:
    assert "no anomaly" in shown


EFFECTS: dict[str, Callable[[str, Terminals], None]] = {
    "penstock up": one_node_is_up,
    "penstock topic create orders --partitions 3": orders_has_three_partitions,
    'echo "k1:hello" | penstock produce orders --key-separator :': one_record_is_stored,
    "penstock consume orders --from beginning --group mail --json": the_record_comes_back,
    "penstock group describe mail": the_group_has_no_lag,
    "penstock bench latency": latencies_stand_beside_the_disk,
    "penstock up --brokers 3": three_nodes_are_up,
    "penstock cluster status": three_brokers_run,
    "penstock sim --seed 42 --runs 5": no_run_went_wrong,
}


def test_every_line_of_the_tour_does_what_it_says(terminals: Terminals) -> None:
    lines = tour()

    assert lines == list(EFFECTS)
    for line in lines:
        run = terminals.up if line.startswith("penstock up") else terminals.type
        EFFECTS[line](run(line), terminals)
