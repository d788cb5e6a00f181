import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Endpoint, TopicAdmin, reach
from tests.support.clusters import until

COMMAND = [sys.executable, "-m", "penstock.cli", "up"]
ANY_PORTS = [
    word for door in ("kafka", "http", "grpc", "metrics", "peer") for word in (f"--{door}", "127.0.0.1:0")
]
READY_SECONDS = 60


class Parent:
    """`penstock up --brokers N`, with its stderr in a file."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.errors = directory / f"stderr-{len(list(directory.glob('stderr-*')))}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                env=environment,
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ready_line(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], READY_SECONDS)[0], self.said()
        line = self.process.stdout.readline()
        assert line, self.said()
        return line

    def ready(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.ready_line())
        return read

    def said(self) -> str:
        return self.errors.read_text()

    def spoken(self) -> list[str]:
        """What it said to people: the lines that are no events."""
        return [line for line in self.said().splitlines() if not line.startswith("{")]

    def end(self) -> int:
        return self.process.wait(60)


Start = Callable[..., Parent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Parent] = []

    def begin(*arguments: str) -> Parent:
        parent = Parent(tmp_path, *arguments)
        running.append(parent)
        return parent

    yield begin
    for parent in running:
        if parent.process.poll() is None:
            parent.process.kill()
            parent.process.wait()
        assert parent.process.stdout is not None
        parent.process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        # Field 3 of stat is the state; a zombie has ended.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(is_alive(pid) for pid in pids)


def test_three_nodes_are_one_cluster_and_say_so_in_one_line(start: Start, tmp_path: Path) -> None:
    parent = start("--brokers", "3", "--json", "--data-dir", "data", *ANY_PORTS)

    ready = parent.ready()
    seen = [reach(Endpoint(node["kafka"])) for node in ready["nodes"]]
    parent.process.send_signal(signal.SIGTERM)

    assert parent.end() == 0
    assert (ready["event"], ready["brokers"], ready["pid"]) == ("ready", 3, parent.process.pid)
    assert ready["data_dir"] == str(tmp_path / "data")
    assert [node["node_id"] for node in ready["nodes"]] == [1, 2, 3]
    assert [node["data_dir"] for node in ready["nodes"]] == [
        str(tmp_path / "data" / f"node-{number}") for number in (1, 2, 3)
    ]
    assert ready["kafka"] == ",".join(node["kafka"] for node in ready["nodes"])
    assert len({node["peer"] for node in ready["nodes"]}) == 3
    assert [sorted(cluster.brokers) for cluster in seen] == [[1, 2, 3]] * 3
    assert len({cluster.cluster_id for cluster in seen}) == 1
    assert all_gone([node["pid"] for node in ready["nodes"]])()


def test_a_cluster_is_found_again_after_a_stop(start: Start) -> None:
    first = start("--brokers", "3", "--json", *ANY_PORTS)
    before = reach(Endpoint(first.ready()["kafka"])).cluster_id
    first.process.send_signal(signal.SIGINT)
    code = first.end()

    second = start("--brokers", "3", "--json", *ANY_PORTS)
    after = reach(Endpoint(second.ready()["kafka"])).cluster_id

    assert code == 0
    assert after == before


def test_the_ready_line_is_readable_too_and_one_node_is_a_cluster(start: Start) -> None:
    parent = start("--brokers", "1", "--data-dir", "data", *ANY_PORTS)

    line = parent.ready_line()

    assert line.startswith("ready: 1 node, kafka 127.0.0.1:")
    assert line.endswith(", data in data\n")


def test_a_node_that_dies_is_reported_and_the_others_go_on_until_none_is_left(start: Start) -> None:
    parent = start("--brokers", "3", "--json", *ANY_PORTS)
    pids = [node["pid"] for node in parent.ready()["nodes"]]

    os.kill(pids[1], signal.SIGKILL)
    until(lambda: "goes on" in parent.said(), "the first loss is reported")
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: "no majority" in parent.said(), "the second loss is reported")
    alone = is_alive(pids[2]) and parent.process.poll() is None
    os.kill(pids[2], signal.SIGKILL)

    assert parent.end() == 1
    assert alone
    reports = [line for line in parent.spoken() if line.startswith("penstock: ")]
    assert [report.partition("):")[0] for report in reports[::2]] == [
        f"penstock: node {number} ended (SIGKILL" for number in (2, 1, 3)
    ]
    assert reports[1::2] == [
        "penstock: 2 of 3 nodes are left, a majority: the cluster goes on",
        "penstock: 1 of 3 nodes is left, no majority: nothing can be written or changed until more are back",
        "penstock: no node is left",
    ]


def test_no_node_outlives_a_parent_that_is_killed(start: Start) -> None:
    parent = start("--brokers", "2", "--json", *ANY_PORTS)
    pids = [node["pid"] for node in parent.ready()["nodes"]]

    parent.process.kill()
    parent.process.wait()

    until(all_gone(pids), "the nodes are gone too")


def test_what_nodes_say_has_their_number_before_it(start: Start) -> None:
    parent = start("--brokers", "2", *ANY_PORTS, "--set", "logging.format=text")

    parent.ready_line()
    parent.process.terminate()
    parent.end()

    *lines, last = parent.said().splitlines()
    assert {line[:8] for line in lines} == {"node 1: ", "node 2: "}
    assert last == "penstock: stopped 2 nodes"


@pytest.mark.parametrize(("number", "events"), [(signal.SIGTERM, "json"), (signal.SIGINT, "text")])
def test_a_stop_is_one_line(start: Start, number: signal.Signals, events: str) -> None:
    parent = start("--brokers", "3", "--json", *ANY_PORTS, "--set", f"logging.format={events}")
    endpoint = Endpoint(parent.ready()["kafka"])
    for name in ("a", "b", "c"):
        TopicAdmin(endpoint).create(name, 9, 3, {})
        # Leaders that were chosen a moment ago are asked again until they know it.
        described = TopicAdmin(endpoint).describe(name)
        assert [one.end_offset for one in described.partitions] == [0] * 9

    parent.process.send_signal(number)

    assert parent.end() == 0
    said = parent.said()
    # Each node says that it stopped, and of the others who leaves the in-sync replicas.
    assert [event for event in ("node.stop", "isr_", "overdue") if event in said] == []
    assert parent.spoken()[-1] == said.splitlines()[-1] == "penstock: stopped 3 nodes"


def test_a_node_that_cannot_start_ends_all_with_its_own_complaint(start: Start, tmp_path: Path) -> None:
    (tmp_path / "penstock-cluster").mkdir()
    (tmp_path / "penstock-cluster" / "node-2").write_text("not a directory")

    parent = start("--brokers", "3", *ANY_PORTS)

    assert parent.end() == 1
    last = parent.spoken()[-1]
    assert last.startswith("penstock: node 2 did not start: ")
    assert f"{tmp_path}/penstock-cluster/node-2: it is a file" in last


def test_a_port_that_is_taken_is_said_before_any_node_starts(start: Start, tmp_path: Path) -> None:
    first = start("--brokers", "1", "--json", *ANY_PORTS)
    taken = first.ready()["kafka"]

    second = start("--brokers", "2", *ANY_PORTS, "--kafka", taken, "--data-dir", "other")

    assert second.end() == 1
    assert second.said() == (
        f"penstock: cannot listen on {taken}: Address already in use: stop what listens there, "
        "or choose another with --kafka (port 0 is any free one); node 1 adds 0 to it\n"
    )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("count", ["0", "10", "many"])
def test_a_number_of_nodes_that_cannot_be_is_a_usage_error(count: str, start: Start) -> None:
    assert start("--brokers", count).end() == 2
