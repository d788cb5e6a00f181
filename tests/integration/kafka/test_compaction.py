"""A node that compacts, seen by a client that is not ours."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.nodes import NodeProcess

TOPIC = "prices"
KEYS, ROUNDS = 5, 60
TIMEOUT_SECONDS = 60
LOOKS, LOOK_SECONDS = 150, 0.2
EAGER = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "data", "storage.compaction_interval_ms=200").start()
    yield node
    assert node.stop() == 0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    for _ in range(LOOKS):
        if is_so():
            return
        time.sleep(LOOK_SECONDS)
    raise AssertionError(what)


def produce(node: NodeProcess, pairs: list[tuple[str, str | None]]) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 0})
    for key, value in pairs:
        producer.produce(TOPIC, key=key, value=value)
        # Each in a batch of its own, so that segments fill up one by one.
        producer.flush(TIMEOUT_SECONDS)


def consume(node: NodeProcess) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: list[Any] = []
        while (message := consumer.poll(TIMEOUT_SECONDS)) is not None:
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
        raise AssertionError("the end of the partition was not reached")
    finally:
        consumer.close()


def test_a_consumer_of_a_compacted_topic_sees_the_latest_value_of_every_key(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(TOPIC, 1, config=EAGER)])[TOPIC].result(TIMEOUT_SECONDS)
    written: list[tuple[str, str | None]] = [
        (f"key-{number % KEYS}", f"value-{number}") for number in range(KEYS * ROUNDS)
    ]
    written += [("rare", "once"), ("gone", "soon")]
    written += [(key, value) for key, value in written[:KEYS]]
    written.append(("gone", None))
    produce(node, written)

    wait_until(lambda: len(consume(node)) < len(written) // 2, "nothing was compacted")
    found = consume(node)
    node.stop()
    node.start()
    after_restart = consume(node)

    latest = {message.key().decode(): message.value() for message in found}
    wanted = {key: None if value is None else value.encode() for key, value in dict(written).items()}
    assert latest == wanted
    for message in found:
        key, value = written[message.offset()]
        assert message.key().decode() == key
        assert message.value() == (None if value is None else value.encode())
    assert "partition.compacted" in node.events.read_text()
    assert {message.offset() for message in after_restart} <= {message.offset() for message in found}
    assert {message.key().decode(): message.value() for message in after_restart} == latest
