"""kafka-python: an implementation in Python, independent of librdkafka."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from tests.compatibility.clients.client import PATIENCE_SECONDS, Received, Sent, collect
from tests.compatibility.clients.contract import EveryClient
from tests.compatibility.node import Broker

# It joins anew when a poll ends between the responses to JoinGroup and SyncGroup.
POLL_SECONDS = 1.0


def received(record: ConsumerRecord) -> Received:
    return Received(
        record.partition, record.offset, record.timestamp, record.key.decode(), record.value.decode()
    )


class KafkaPythonMember:
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[Received]:
        polled = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        return [received(record) for records in polled.values() for record in records]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()


class KafkaPythonClient:
    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = KafkaAdminClient(bootstrap_servers=address)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions}})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._address, compression_type=None if codec == "none" else codec, linger_ms=50
        )
        with closing(producer):
            sent = [
                producer.send(topic, r.value.encode(), r.key.encode(), None, r.partition, r.timestamp_ms)
                for r in records
            ]
            producer.flush(PATIENCE_SECONDS)
            for future in sent:
                future.get(PATIENCE_SECONDS)

    @contextmanager
    def join(self, group: str, topic: str) -> Iterator[KafkaPythonMember]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self._address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        with closing(consumer):
            yield KafkaPythonMember(consumer)

    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        wanted = TopicPartition(topic, partition)
        with closing(KafkaConsumer(bootstrap_servers=self._address)) as consumer:
            consumer.assign([wanted])
            consumer.seek(wanted, consumer.offsets_for_times({wanted: timestamp_ms})[wanted].offset)
            return collect(KafkaPythonMember(consumer), count)

    def close(self) -> None:
        self._admin.close()


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[KafkaPythonClient]:
    connected = KafkaPythonClient(broker.address)
    yield connected
    connected.close()


class TestKafkaPython(EveryClient):
    """kafka-python."""
