"""A node with fewer descriptors than logs and clients: it serves what it has, and says what it lacks."""

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.nodes import NodeProcess

LIMIT = 256
PARTITIONS = 400


def limited(node: NodeProcess, soft: int, hard: int) -> NodeProcess:
    node.wrapper = ("sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh")
    return node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = limited(NodeProcess(tmp_path / "data"), LIMIT, LIMIT)
    yield node
    node.kill()


def events_of(node: NodeProcess, name: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in node.events.read_text().splitlines() if line.startswith("{"))
    return [event for event in lines if event["event"] == name]


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=90)[topic].result(100)


def send_to_all(node: NodeProcess) -> list[int]:
    """Send a record to every partition, one after the other; returns the offsets that they got."""
    offsets: dict[int, int] = {}
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            offsets[partition] = offset

    producer = Producer({"bootstrap.servers": node.kafka, "message.timeout.ms": 60_000})
    for partition in range(PARTITIONS):
        producer.produce("orders", b"value", partition=partition, on_delivery=delivered)
    producer.flush(90)
    assert failed == []
    return [offsets[partition] for partition in range(PARTITIONS)]


def test_a_node_has_more_logs_than_descriptors_and_starts_again(node: NodeProcess) -> None:
    node.start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    create(admin, "orders", PARTITIONS)

    assert send_to_all(node) == [0] * PARTITIONS
    node.kill()
    node.start()
    assert send_to_all(node) == [1] * PARTITIONS
    assert node.stop() == 0
    node.start()

    assert send_to_all(node) == [2] * PARTITIONS
    assert events_of(node, "partition.not_opened") == []


def test_clients_are_turned_away_before_logs_lack_descriptors(node: NodeProcess) -> None:
    node.start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    # From here on it has its connection to the broker; the one of the bootstrap is closed behind it.
    create(admin, "early", 1)
    with contextlib.ExitStack() as clients:
        for _ in range(LIMIT):
            client = clients.enter_context(socket.create_connection(node.address, 20))
        client.settimeout(20)
        # The last ones are closed by the node; that is how a client learns of it.
        assert client.recv(1) == b""

        create(admin, "orders", 20)

    # Turned away many times, and said once.
    assert len(events_of(node, "acceptor.out_of_descriptors")) == 1
    assert events_of(node, "partition.create_failed") == []


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    node = limited(NodeProcess(tmp_path / "data"), 64, 2_048).start()

    limits = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)

    assert limits == (2_048, 2_048)
    assert node.stop() == 0


def test_a_node_that_cannot_do_with_its_limit_says_so_in_one_line(tmp_path: Path) -> None:
    node = limited(NodeProcess(tmp_path / "data"), 64, 64)

    node.launch()
    code = node.await_end()

    (line,) = node.said().splitlines()
    assert code != 0
    assert line.startswith("penstock: this process may open 64 files, and a node needs ")
    assert "ulimit -Hn" in line
