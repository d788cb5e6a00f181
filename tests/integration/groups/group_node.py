"""A node in a process of its own, and a connection that sends any message in any version."""

import json
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.core.wire import APIS, Message, RequestHeader, read_response_header, request_frame
from penstock.core.wire.kafka.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.wire.kafka.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

M = TypeVar("M", bound=Message)
STOP_SECONDS = 20


@dataclass(frozen=True)
class GroupNode:
    """A node that is ready, with few partitions for its groups."""

    process: subprocess.Popen[str]
    kafka: str

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.kafka.rpartition(":")
        return host, int(port)

    @classmethod
    def start(cls, data_dir: Path) -> "GroupNode":
        command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--data-dir", str(data_dir)]
        for door in ("--kafka", "--http", "--metrics"):
            command += [door, "127.0.0.1:0"]
        command += ["--set", "groups.offsets_partitions=3"]
        log = data_dir.with_suffix(".log")
        with log.open("a") as events:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=events, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        return cls(process, json.loads(line)["kafka"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            self.kill()
        assert self.process.returncode == 0, "the node did not end well"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Wire:
    """One connection to a node."""

    def __init__(self, address: tuple[str, int], client_id: str = "wire") -> None:
        self.address = address
        self._client_id = client_id
        self._socket = socket.create_connection(address, timeout=30)
        self._answers = self._socket.makefile("rb")
        self._correlation_id = 0

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        """Send a request and read its answer, which must be nothing but that message."""
        api_key = request.__schema__.api_key
        assert api_key is not None
        self._correlation_id += 1
        header = RequestHeader(api_key, version, self._correlation_id, self._client_id)
        self._socket.sendall(request_frame(APIS[api_key], header, request))
        size = self._answers.read(4)
        assert len(size) == 4, "the node closed the connection"
        frame = self._answers.read(struct.unpack(">i", size)[0])
        correlation_id, position = read_response_header(APIS[api_key], version, frame)
        assert correlation_id == self._correlation_id
        return answer.decode(frame, version, position)

    def make_topic(self, name: str) -> None:
        """A topic of four partitions; and the offsets topic, made when a coordinator is looked for."""
        topic = CreateTopicsRequestTopic(
            name=name, num_partitions=4, replication_factor=-1, assignments=(), configs=()
        )
        answer = self.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 5)
        assert answer.topics[0].error_code == 0
        self.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
