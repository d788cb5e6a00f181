"""confluent-kafka: a recent librdkafka."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.clients.client import PATIENCE_SECONDS, POLL_SECONDS, Received, Sent
from tests.compatibility.clients.contract import EveryClient
from tests.compatibility.node import Broker


def received(message: Message) -> Received:
    error: KafkaError | None = message.error()
    assert error is None, error.str()
    return Received(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key().decode(),
        message.value().decode(),
    )


class ConfluentMember:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[Received]:
        return [received(message) for message in self._consumer.consume(100, POLL_SECONDS)]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)


class ConfluentClient:
    def __init__(self, address: str) -> None:
        self._address = {"bootstrap.servers": address}
        self._admin = AdminClient(self._address)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_SECONDS)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_SECONDS).topics)

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        producer = Producer(self._address | {"compression.type": codec, "linger.ms": 50})
        errors: list[KafkaError] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert errors == []

    @contextmanager
    def join(self, group: str, topic: str) -> Iterator[ConfluentMember]:
        consumer = Consumer(
            self._address
            | {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
            }
        )
        consumer.subscribe([topic])
        yield ConfluentMember(consumer)
        consumer.close()

    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        consumer = Consumer(self._address | {"group.id": "unused"})
        wanted = TopicPartition(topic, partition, timestamp_ms)
        (start,) = consumer.offsets_for_times([wanted], timeout=PATIENCE_SECONDS)
        consumer.assign([start])
        messages = consumer.consume(count, PATIENCE_SECONDS)
        consumer.close()
        return [received(message) for message in messages]


@pytest.fixture(scope="module")
def client(broker: Broker) -> ConfluentClient:
    return ConfluentClient(broker.address)


class TestConfluentKafka(EveryClient):
    """librdkafka, as Python knows it."""
