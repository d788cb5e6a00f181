"""A whole node in a process of its own: start, stop, restart, and what prevents a start."""

import json
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
    import json, sys
    from penstock.node import ListenerOptions, NodeOptions, build, static_settings
    from penstock.node.run import run_node
    from penstock.config import Config
    from penstock.core.model import NodeId, PenstockError
    from penstock.runtime import Address
    from penstock.observability import log

    data_dir, port = sys.argv[1], int(sys.argv[2])
    free = Address("127.0.0.1", 0)
    options = NodeOptions(
        data_dir,
        NodeId(1),
        (
            ListenerOptions(Address("127.0.0.1", port)),
            ListenerOptions(free, name="OUTSIDE", advertised=Address("example.org", 0)),
        ),
        http=free,
        metrics=free,
        static=static_settings(Config()),
    )

    def ready(addresses):
        kafka = {name: list(address) for name, address in addresses.kafka.items()}
        print(json.dumps({"kafka": kafka, "http": str(addresses.http), "metrics": str(addresses.metrics)}))
        sys.stdout.flush()

    try:
        sys.exit(run_node(options, ready))
    except PenstockError as error:
        sys.exit(f"penstock: {error}")
"""


class NodeProcess:
    """One node, run as `penstock up` runs it."""

    def __init__(self, data_dir: Path, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(data_dir), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addresses: dict[str, Any] = {}

    def wait_until_ready(self) -> "NodeProcess":
        assert self.process.stdout is not None
        self.addresses = json.loads(self.process.stdout.readline())
        return self

    def get(self, path: str, door: str = "http") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.addresses[door]}{path}", timeout=30) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode

    def outcome(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
        node.process.communicate(timeout=30)


def start(nodes: list[NodeProcess], data_dir: Path, port: int = 0) -> NodeProcess:
    node = NodeProcess(data_dir, port)
    nodes.append(node)
    return node


def test_a_node_starts_answers_its_pages_and_stops_cleanly(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path).wait_until_ready()

    health, readiness = node.get("/health"), node.get("/ready")
    status, figures = node.get("/metrics", "metrics")
    missing = node.get("/nothing")
    code = node.stop()

    assert (health, readiness) == ((200, '{"status":"ok"}\n'), (200, '{"status":"ready"}\n'))
    assert status == 200
    assert 'penstock_nodes{status="live"} 1.0' in figures
    assert missing[0] == 404
    assert code == 0
    assert (tmp_path / "meta" / "clean").read_text().startswith("clean 0\n")


def test_every_listener_accepts_connections(nodes: list[NodeProcess], tmp_path: Path) -> None:
    node = start(nodes, tmp_path).wait_until_ready()

    peers = {}
    for name, (host, port) in node.addresses["kafka"].items():
        with socket.create_connection((host, port), timeout=30) as connection:
            peers[name] = connection.getpeername()[1]

    assert sorted(peers) == ["OUTSIDE", "PLAINTEXT"]
    assert len(set(peers.values())) == 2


def test_each_start_is_a_new_broker_epoch_of_the_same_cluster(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    start(nodes, tmp_path).wait_until_ready().stop()
    cluster = (tmp_path / "meta" / "cluster-id").read_text()

    start(nodes, tmp_path).wait_until_ready().stop(signal.SIGINT)

    assert (tmp_path / "meta" / "cluster-id").read_text() == cluster
    assert (tmp_path / "meta" / "clean").read_text().startswith("clean 1\n")


def test_a_second_node_on_the_same_directory_is_refused_with_one_clear_line(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    first = start(nodes, tmp_path).wait_until_ready()

    code, errors = start(nodes, tmp_path).outcome()

    assert code == 1
    assert errors.splitlines() == [f"penstock: '{tmp_path}' is locked by process {first.process.pid}"]
    assert first.get("/health")[0] == 200


def test_an_address_that_is_taken_is_refused_with_one_clear_line_and_leaves_the_directory_clean(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    start(nodes, tmp_path).wait_until_ready().stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code, errors = start(nodes, tmp_path, port).outcome()

    assert code == 1
    assert errors.splitlines() == [f"penstock: cannot listen on 127.0.0.1:{port}: Address already in use"]
    assert (tmp_path / "meta" / "clean").read_text().startswith("clean 0\n")


def test_a_directory_of_a_newer_version_is_refused_with_one_clear_line(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    from penstock.storage.data_directory import write_record
    from penstock.storage.disk import PosixDisk

    start(nodes, tmp_path).wait_until_ready().stop()
    write_record(PosixDisk(str(tmp_path)), "meta", "format", "99")

    code, errors = start(nodes, tmp_path).outcome()

    assert code == 1
    assert len(errors.splitlines()) == 1
    assert "upgrade Penstock" in errors


def test_a_killed_node_leaves_no_clean_marker_and_starts_again(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    node = start(nodes, tmp_path).wait_until_ready()
    node.stop(signal.SIGKILL)
    marker = (tmp_path / "meta" / "clean").exists()

    again = start(nodes, tmp_path).wait_until_ready()

    assert not marker
    assert again.get("/ready")[0] == 200


def test_a_request_that_is_not_http_costs_its_connection_only(
    nodes: list[NodeProcess], tmp_path: Path
) -> None:
    node = start(nodes, tmp_path).wait_until_ready()
    host, _, port = node.addresses["http"].rpartition(":")

    answers = []
    for request in (b"\x00\x01\x02\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"A" * 9_000):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            answers.append(connection.recv(12))

    assert answers == [b"HTTP/1.1 400", b"HTTP/1.1 405", b"HTTP/1.1 431"]
    assert node.get("/health")[0] == 200
