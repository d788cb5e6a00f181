"""Topics to read, and what was read of them."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.reading import OffsetRange, OffsetRangeReader

SECONDS_MAX = 60
Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def create(bootstrap: str, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=named)])[topic].result(SECONDS_MAX)


def recreate(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)
    create(bootstrap, topic)


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(SECONDS_MAX)


def send(bootstrap: str, topic: str, records: Iterable[Sent], **config: Any) -> None:
    """Send records to partition 0, stamped 1000 ms, 2000 ms and so on."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for number, (key, value, headers) in enumerate(records, 1):
        producer.produce(topic, key=key, value=value, headers=headers, partition=0, timestamp=1000 * number)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0


def numbered(count: int) -> list[Sent]:
    return [(None, b"%d" % number, []) for number in range(count)]


def rows_of(reader: OffsetRangeReader, span: OffsetRange) -> list[dict[str, Any]]:
    return [row for batch in reader.read(span) for row in batch.to_pylist()]


def offsets_of(reader: OffsetRangeReader, span: OffsetRange) -> list[int]:
    return [offset for batch in reader.read(span) for offset in batch.column("offset").to_pylist()]
