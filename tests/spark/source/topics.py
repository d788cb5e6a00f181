"""Records for the tests, from a client that is not ours."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

FLUSH_SECONDS = 30


def produce(servers: str, topic: str, values: Iterable[str], partition: int = 0, **more: Any) -> None:
    """Every value as a record, in order, acknowledged."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5})
    for value in values:
        producer.produce(topic, value.encode(), partition=partition, **more)
    assert producer.flush(FLUSH_SECONDS) == 0


def numbered(start: int, end: int, prefix: str = "v") -> list[str]:
    return [f"{prefix}{number}" for number in range(start, end)]


def delete_records(servers: str, topic: str, before: int) -> None:
    """Delete everything in partition 0 below an offset, as retention would."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(FLUSH_SECONDS)
