"""aiokafka: a client for asyncio with group and fetch code of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compatibility.clients.client import PATIENCE_SECONDS, POLL_SECONDS, Received, Sent, collect
from tests.compatibility.clients.contract import EveryClient
from tests.compatibility.node import Broker

T = TypeVar("T")
# Runs a coroutine on the loop where the clients live, heartbeats included, and waits for it.
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def received(record: ConsumerRecord) -> Received:
    return Received(
        record.partition, record.offset, record.timestamp, record.key.decode(), record.value.decode()
    )


class AiokafkaMember:
    def __init__(self, run: Run, consumer: AIOKafkaConsumer) -> None:
        self._run = run
        self._consumer = consumer

    def poll(self) -> list[Received]:
        polled = self._run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        return [received(record) for records in polled.values() for record in records]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._run(self._consumer.commit())


class AiokafkaClient:
    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        self._address = address

    async def _with_admin(self, use: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
        await admin.start()
        try:
            return await use(admin)
        finally:
            await admin.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._run(self._with_admin(lambda admin: admin.create_topics([NewTopic(topic, partitions, 1)])))

    def delete_topic(self, topic: str) -> None:
        self._run(self._with_admin(lambda admin: admin.delete_topics([topic])))

    def topics(self) -> set[str]:
        return set(self._run(self._with_admin(lambda admin: admin.list_topics())))

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        self._run(self._produce(topic, records, None if codec == "none" else codec))

    async def _produce(self, topic: str, records: Sequence[Sent], codec: str | None) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._address, compression_type=codec, linger_ms=50, enable_idempotence=True
        )
        async with producer:
            acknowledgements = [
                await producer.send(topic, r.value.encode(), r.key.encode(), r.partition, r.timestamp_ms)
                for r in records
            ]
            for acknowledged in acknowledgements:
                await acknowledged

    @contextmanager
    def join(self, group: str, topic: str) -> Iterator[AiokafkaMember]:
        consumer = self._run(self._consumer(topic, group_id=group))
        yield AiokafkaMember(self._run, consumer)
        self._run(consumer.stop())

    async def _consumer(self, *topics: str, group_id: str | None) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._address,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        await consumer.start()
        return consumer

    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        consumer = self._run(self._consumer(group_id=None))
        self._run(self._seek(consumer, TopicPartition(topic, partition), timestamp_ms))
        records = collect(AiokafkaMember(self._run, consumer), count)
        self._run(consumer.stop())
        return records

    @staticmethod
    async def _seek(consumer: AIOKafkaConsumer, partition: TopicPartition, timestamp_ms: int) -> None:
        consumer.assign([partition])
        found = await consumer.offsets_for_times({partition: timestamp_ms})
        consumer.seek(partition, found[partition].offset)


@pytest.fixture(scope="module")
def client(run: Run, broker: Broker) -> AiokafkaClient:
    return AiokafkaClient(run, broker.address)


class TestAiokafka(EveryClient):
    """aiokafka."""
