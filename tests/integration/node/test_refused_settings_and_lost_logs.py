"""A node in a process of its own outlives bad settings and logs that are taken away."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.nodes import NodeProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "data").start()
    yield node
    node.kill()


def create(admin: AdminClient, topic: str, **configs: str) -> None:
    values = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=values)])[topic].result(20)


def error_of(call: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error


def send(node: NodeProcess, topic: str) -> KafkaError | None:
    """Send one record; returns what came of it."""
    outcome: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        outcome.append(error)

    producer = Producer({"bootstrap.servers": node.kafka, "message.timeout.ms": 3_000})
    producer.produce(topic, b"value", on_delivery=delivered)
    producer.flush(20)
    return outcome[0]


@pytest.mark.parametrize(("key", "value"), [("index.interval.bytes", "0"), ("segment.index.bytes", "4")])
def test_a_setting_that_would_end_the_node_is_refused_by_name(
    node: NodeProcess, key: str, value: str
) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    create(admin, "orders")
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])

    created = error_of(lambda: create(admin, "other", **{key.replace(".", "_"): value}))
    altered = error_of(lambda: admin.incremental_alter_configs([resource])[resource].result(20))

    for error in (created, altered):
        assert error.code() == KafkaError.INVALID_CONFIG
        assert key in error.str()
        assert value in error.str()
    assert send(node, "orders") is None


def test_a_log_that_was_taken_away_is_offline_and_the_others_serve(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    create(admin, "orders")
    create(admin, "payments")
    assert send(node, "orders") is None
    assert node.stop() == 0

    shutil.rmtree(node.data_dir / "logs" / "orders")
    node.start()

    assert send(node, "payments") is None
    assert send(node, "orders") is not None
    events = [json.loads(line) for line in node.events.read_text().splitlines()]
    lost = [event["partition"] for event in events if event["event"] == "replica.lost"]
    assert lost == ["orders/0"]
    assert not (node.data_dir / "logs" / "orders" / "0").exists()
