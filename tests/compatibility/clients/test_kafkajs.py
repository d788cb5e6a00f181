"""kafkajs: a client in JavaScript, driven through a small program that speaks JSON lines.

Its codecs other than gzip are plugged in from other packages, as its users do.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.clients.child import Child
from tests.compatibility.clients.client import Received, Sent, collect, wait_until
from tests.compatibility.clients.contract import EveryClient
from tests.compatibility.node import Broker

NODE = shutil.which("node")
DRIVER = Path(__file__).parent / "kafkajs" / "driver.js"
MODULES = Path(sys.prefix) / "kafkajs" / "node_modules"
pytestmark = pytest.mark.skipif(
    NODE is None or not (MODULES / "kafkajs").is_dir(),
    reason=f"kafkajs is not installed ({MODULES} is made by `make setup` where node and npm are there)",
)


class Driver:
    """One node process."""

    def __init__(self, address: str) -> None:
        self._child = Child([str(NODE), str(DRIVER), address], {"NODE_PATH": str(MODULES)})
        self._received: list[Received] = []
        self.assigned: set[int] = set()

    def ask(self, do: str, **arguments: object) -> Any:
        self._child.write(json.dumps({"do": do, **arguments}))
        answers: list[Any] = []
        wait_until(lambda: bool(answers), lambda: answers.extend(self._read()), f"kafkajs to {do}")
        return answers[0]

    def take(self) -> list[Received]:
        assert self._read() == []
        received, self._received = self._received, []
        return received

    def _read(self) -> list[Any]:
        answers = []
        for line in self._child.lines():
            # Its log of errors is JSON too, but nothing that was said to us.
            said = json.loads(line) if line.startswith("{") else {}
            assert "failed" not in said, said["failed"]
            self._received += [Received(*record) for record in said.get("records", [])]
            self.assigned = set(said.get("assigned", self.assigned))
            if "answer" in said:
                answers.append(said["answer"])
        return answers

    def stop(self) -> None:
        self._child.stop()


class KafkajsMember:
    def __init__(self, driver: Driver, topic: str) -> None:
        self._driver = driver
        self._topic = topic

    def poll(self) -> list[Received]:
        return self._driver.take()

    def assigned(self) -> set[int]:
        return set(self._driver.assigned)

    def commit(self) -> None:
        self._driver.ask("commit", topic=self._topic)


class KafkajsClient:
    def __init__(self, address: str) -> None:
        self._address = address
        self._driver = Driver(address)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._driver.ask("create_topic", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        self._driver.ask("delete_topic", topic=topic)

    def topics(self) -> set[str]:
        return set(self._driver.ask("topics"))

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        messages = [
            {"key": record.key, "value": record.value, "partition": record.partition}
            | ({} if record.timestamp_ms is None else {"timestamp": str(record.timestamp_ms)})
            for record in records
        ]
        self._driver.ask("produce", topic=topic, messages=messages, codec=codec)

    @contextmanager
    def _member(self, do: str, topic: str, **arguments: object) -> Iterator[KafkajsMember]:
        driver = Driver(self._address)
        try:
            driver.ask(do, topic=topic, **arguments)
            yield KafkajsMember(driver, topic)
            driver.ask("leave")
        finally:
            driver.stop()

    @contextmanager
    def join(self, group: str, topic: str) -> Iterator[KafkajsMember]:
        with self._member("join", topic, group=group) as member:
            yield member

    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        asked: dict[str, object] = {"partition": partition, "timestamp": timestamp_ms}
        with self._member("since", topic, group=f"since-{topic}", **asked) as member:
            return collect(member, count)

    def close(self) -> None:
        self._driver.stop()


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[KafkajsClient]:
    connected = KafkajsClient(broker.address)
    yield connected
    connected.close()


class TestKafkajs(EveryClient):
    """kafkajs."""
