"""The gateway as a child of its node: it serves, comes back, and ends with the node."""

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock.node.gateway import PROCESS
from penstock.runtime.child_command import child_command
from penstock.server.gateway.options import GatewayOptions
from penstock.server.gateway.process import SERVING
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

SECONDS = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    started = NodeProcess(tmp_path / "data", "rest.enabled=true").start()
    yield started
    started.kill()


def get(node: NodeProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{node.ready['http']}{path}", timeout=SECONDS) as page:
            return page.status, page.headers["server"]
    except urllib.error.HTTPError as error:
        return error.code, error.headers["server"]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def is_open(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def test_every_address_is_served_as_soon_as_the_node_says_that_it_is_ready(node: NodeProcess) -> None:
    with socket.create_connection(node.ready["grpc"].rsplit(":", 1), timeout=SECONDS):
        pass
    assert get(node, "/health") == (200, "penstock")
    assert get(node, "/ready") == (200, "penstock")
    assert get(node, "/metrics") == (200, "penstock")
    assert get(node, "/v1/admin/health") == (200, "penstock")
    assert get(node, "/api/v1/admin/health") == (200, "penstock")
    assert get(node, "/nowhere") == (404, "penstock")


def priorities(pid: int) -> set[int]:
    """Of all threads of a process; some may end meanwhile."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            found.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    return found


@pytest.mark.parametrize(("settings", "nice"), [((), 10), (("rest.nice=3",), 3)])
def test_every_thread_of_a_gateway_lets_its_node_go_first(
    tmp_path: Path, settings: tuple[str, ...], nice: int
) -> None:
    node = NodeProcess(tmp_path / "data", "rest.enabled=true", *settings).start()
    try:
        (gateway,) = node.gateways()
        # The lowest priority that there is is 19.
        expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice)

        assert priorities(gateway) == {expected}
    finally:
        node.kill()


def test_a_gateway_that_was_killed_is_started_again(node: NodeProcess) -> None:
    (first,) = node.gateways()

    os.kill(first, signal.SIGKILL)
    until(lambda: node.gateways() not in ([], [first]), "another gateway runs")

    assert get(node, "/health") == (200, "penstock")
    assert '"event":"gateway.ended"' in node.said()


def test_a_gateway_that_hangs_is_ended_and_started_again(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", "rest.enabled=true", "rest.hung_timeout_ms=500").start()
    try:
        (first,) = node.gateways()

        os.kill(first, signal.SIGSTOP)
        until(lambda: node.gateways() not in ([], [first]), "another gateway runs")

        assert get(node, "/health") == (200, "penstock")
        assert '"event":"gateway.hung"' in node.said()
        assert not is_running(first)
    finally:
        node.kill()


def test_the_grpc_port_is_had_as_soon_as_it_is_free() -> None:
    ours, theirs = socket.socketpair()
    http, taken = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    options = GatewayOptions(
        http_descriptor=http.fileno(), node_descriptor=theirs.fileno(), grpc=taken.getsockname()
    )
    command = child_command(PROCESS, [msgspec.json.encode(options).decode()])
    with (
        ours,
        theirs,
        http,
        subprocess.Popen(
            command, pass_fds=(http.fileno(), theirs.fileno()), stderr=subprocess.PIPE, text=True
        ) as gateway,
    ):
        ours.settimeout(SECONDS)
        assert ours.recv(64) == SERVING
        address = taken.getsockname()
        taken.close()
        until(lambda: is_open(address), "gRPC listens")

        gateway.terminate()
        _, said = gateway.communicate(timeout=SECONDS)
        assert said.index("grpc.not_listening") < said.index("grpc.listening")


def test_a_gateway_ends_with_its_node(node: NodeProcess) -> None:
    (killed,) = node.gateways()
    node.kill()
    until(lambda: not is_running(killed), "the gateway of a killed node ends")

    node.start()
    (stopped,) = node.gateways()
    assert get(node, "/health") == (200, "penstock")
    assert node.stop() == 0
    assert not is_running(stopped)
