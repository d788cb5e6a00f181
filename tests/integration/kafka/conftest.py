"""A node in a process of its own, and a client that sends any message in any version."""

import json
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.core.wire import Message, RequestHeader, request_frame
from penstock.core.wire.headers import read_response_header
from penstock.core.wire.kafka.registry import APIS

M = TypeVar("M", bound=Message)
STOP_SECONDS = 20


@dataclass(frozen=True)
class RunningNode:
    """Where a node that is ready can be reached."""

    kafka: str
    listeners: dict[str, str]
    data_dir: str

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.kafka.rpartition(":")
        return host, int(port)


class Wire:
    """A connection that speaks the protocol without opinions of its own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._correlation_id = 0

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        """Send a request and read its answer, which must be nothing but that message."""
        api_key = request.__schema__.api_key
        assert api_key is not None
        api = APIS[api_key]
        self._correlation_id += 1
        header = RequestHeader(api.key, version, self._correlation_id, "wire")
        self._socket.sendall(request_frame(api, header, request))
        frame = self._read(struct.unpack(">i", self._read(4))[0])
        correlation_id, position = read_response_header(api, version, frame)
        assert correlation_id == self._correlation_id
        return answer.decode(frame, version, position)

    def _read(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            more = self._socket.recv(count - len(received))
            assert more, "the node closed the connection"
            received += more
        return received

    def close(self) -> None:
        self._socket.close()


def _run(data_dir: Path, settings: tuple[str, ...]) -> tuple[subprocess.Popen[str], RunningNode]:
    command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--data-dir", str(data_dir)]
    doors = ("listen.kafka", "listen.http", "listen.metrics")
    for setting in (*(f"{door}=127.0.0.1:0" for door in doors), *settings):
        command += ["--set", setting]
    with (data_dir.parent / f"{data_dir.name}.log").open("w") as events:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=events, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (data_dir.parent / f"{data_dir.name}.log").read_text()
    ready = json.loads(line)
    return process, RunningNode(ready["kafka"], ready["listeners"], ready["data_dir"])


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    finally:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 0, "the node did not end well"


@pytest.fixture(scope="module")
def start_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningNode]]:
    """Starts nodes with settings such as `topics.auto_create=false`; they end with the module."""
    processes = []

    def start(*settings: str) -> RunningNode:
        process, node = _run(tmp_path_factory.mktemp("node") / "data", settings)
        processes.append(process)
        return node

    yield start
    for process in processes:
        _stop(process)


@pytest.fixture(scope="module")
def node(start_node: Callable[..., RunningNode]) -> RunningNode:
    """A node with default settings, except that offsets need few partitions."""
    return start_node("groups.offsets_partitions=3", "topics.partitions=3")


@pytest.fixture
def connect() -> Iterator[Callable[[tuple[str, int]], Wire]]:
    """Opens connections; they end with the test."""
    opened: list[Wire] = []

    def open_one(address: tuple[str, int]) -> Wire:
        opened.append(Wire(address))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def wire(node: RunningNode, connect: Callable[[tuple[str, int]], Wire]) -> Wire:
    return connect(node.address)
