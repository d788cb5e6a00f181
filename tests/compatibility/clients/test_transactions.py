"""Transactions as three independent libraries drive them: librdkafka, aiokafka and kafka-python."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from tests.compatibility.clients.client import PATIENCE_SECONDS, POLL_SECONDS, wait_until
from tests.compatibility.node import Broker

Position = tuple[str, int, int]


class Fenced(Exception):
    """A younger producer has taken over the transactional id."""


class TransactionalProducer(Protocol):
    """A producer with a transactional id, initialized."""

    def begin(self) -> None: ...
    def send(self, topic: str, values: Sequence[str]) -> None:
        """Return when all are in the log: what is aborted later must be left out by readers."""

    def send_offsets(self, group: str, positions: Sequence[Position]) -> None:
        """Positions of a group, none of whose members are named."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of one topic from the group's positions, or from the beginning; it commits nothing."""

    def poll(self) -> list[tuple[Position, str]]: ...
    def close(self) -> None: ...


class Library(Protocol):
    """One client library."""

    def producer(self, transactional_id: str) -> TransactionalProducer: ...
    def reader(self, topic: str, group: str, *, isolation: str = "read_committed") -> Reader: ...


class ConfluentProducer:
    def __init__(self, address: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 1}
        )
        self._producer.init_transactions(PATIENCE_SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[str]) -> None:
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def send_offsets(self, group: str, positions: Sequence[Position]) -> None:
        offsets = [confluent_kafka.TopicPartition(*position) for position in positions]
        member = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group})
        self._producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata())
        member.close()

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(PATIENCE_SECONDS)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
                raise Fenced from error
            raise

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_SECONDS)

    def close(self) -> None:
        self._producer.purge()


class ConfluentReader:
    def __init__(self, address: str, topic: str, group: str, isolation: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[Position, str]]:
        found = self._consumer.consume(100, POLL_SECONDS)
        for message in found:
            assert message.error() is None, message.error()
        return [((m.topic(), m.partition(), m.offset()), m.value().decode()) for m in found]

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    def __init__(self, address: str) -> None:
        self._address = address

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return ConfluentProducer(self._address, transactional_id)

    def reader(self, topic: str, group: str, *, isolation: str = "read_committed") -> Reader:
        return ConfluentReader(self._address, topic, group, isolation)


class KafkaPythonProducer:
    def __init__(self, address: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[str]) -> None:
        for value in values:
            self._producer.send(topic, value.encode())
        self._producer.flush(PATIENCE_SECONDS)

    def send_offsets(self, group: str, positions: Sequence[Position]) -> None:
        self._producer.send_offsets_to_transaction(
            {
                kafka.TopicPartition(topic, partition): kafka.structs.OffsetAndMetadata(offset, "", -1)
                for topic, partition, offset in positions
            },
            group,
        )

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise Fenced from error

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)


class KafkaPythonReader:
    def __init__(self, address: str, topic: str, group: str, isolation: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation,
        )

    def poll(self) -> list[tuple[Position, str]]:
        # It joins anew when a poll ends between the responses to JoinGroup and SyncGroup.
        polled = self._consumer.poll(timeout_ms=1_000)
        return [
            ((r.topic, r.partition, r.offset), r.value.decode())
            for records in polled.values()
            for r in records
        ]

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, address: str) -> None:
        self._address = address

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return KafkaPythonProducer(self._address, transactional_id)

    def reader(self, topic: str, group: str, *, isolation: str = "read_committed") -> Reader:
        return KafkaPythonReader(self._address, topic, group, isolation)


class AiokafkaProducer:
    def __init__(self, run: Callable[[Any], Any], address: str, transactional_id: str) -> None:
        self._run = run

        async def start() -> aiokafka.AIOKafkaProducer:
            made = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
            await made.start()
            return made

        self._producer = run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[str]) -> None:
        for value in values:
            self._run(self._producer.send(topic, value.encode()))
        self._run(self._producer.flush())

    def send_offsets(self, group: str, positions: Sequence[Position]) -> None:
        offsets = {aiokafka.TopicPartition(t, p): offset for t, p, offset in positions}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        try:
            self._run(self._producer.commit_transaction())
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise Fenced from error

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


class AiokafkaReader:
    def __init__(self, run: Callable[[Any], Any], address: str, topic: str, group: str, level: str) -> None:
        self._run = run

        async def start() -> aiokafka.AIOKafkaConsumer:
            made = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=level,
            )
            await made.start()
            return made

        self._consumer = run(start())

    def poll(self) -> list[tuple[Position, str]]:
        polled = self._run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        return [
            ((r.topic, r.partition, r.offset), r.value.decode())
            for records in polled.values()
            for r in records
        ]

    def close(self) -> None:
        self._run(self._consumer.stop())


class Aiokafka:
    def __init__(self, run: Callable[[Any], Any], address: str) -> None:
        self._run = run
        self._address = address

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return AiokafkaProducer(self._run, self._address, transactional_id)

    def reader(self, topic: str, group: str, *, isolation: str = "read_committed") -> Reader:
        return AiokafkaReader(self._run, self._address, topic, group, isolation)


@contextmanager
def running_loop() -> Iterator[Callable[[Any], Any]]:
    """Runs coroutines on a loop of its own, and waits for them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module", params=["confluent-kafka", "kafka-python", "aiokafka"])
def library(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Library]:
    if request.param == "confluent-kafka":
        yield Confluent(broker.address)
    elif request.param == "kafka-python":
        yield KafkaPython(broker.address)
    else:
        with running_loop() as run:
            yield Aiokafka(run, broker.address)


def read(library: Library, topic: str, group: str, last: str, isolation: str = "read_committed") -> list[str]:
    """What a reader gets, in order, up to a value that is known to come."""
    reader = library.reader(topic, group, isolation=isolation)
    found: list[str] = []
    try:
        wait_until(
            lambda: last in found, lambda: found.extend(value for _, value in reader.poll()), f"{last!r}"
        )
    finally:
        reader.close()
    return found


def some_records(library: Library, topic: str, group: str) -> list[tuple[Position, str]]:
    """What comes first behind the group's positions."""
    reader = library.reader(topic, group)
    found: list[tuple[Position, str]] = []
    try:
        wait_until(lambda: bool(found), lambda: found.extend(reader.poll()), f"records of {topic}")
    finally:
        reader.close()
    return found


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    library: Library, one_partition: str, fresh: Callable[[str], str]
) -> None:
    producer = library.producer(fresh("writer"))
    for number, ends in enumerate((producer.commit, producer.abort, producer.commit)):
        producer.begin()
        producer.send(one_partition, [f"{number}-{index}" for index in range(5)])
        ends()
    producer.close()

    committed = read(library, one_partition, fresh("readers"), "2-4")
    everything = read(library, one_partition, fresh("readers"), "2-4", "read_uncommitted")

    assert committed == [f"{number}-{index}" for number in (0, 2) for index in range(5)]
    assert everything == [f"{number}-{index}" for number in range(3) for index in range(5)]


def test_a_producer_that_was_replaced_can_commit_no_more(
    library: Library, one_partition: str, fresh: Callable[[str], str]
) -> None:
    transactional_id = fresh("zombie")
    zombie = library.producer(transactional_id)
    zombie.begin()
    zombie.send(one_partition, ["of the zombie"])
    successor = library.producer(transactional_id)
    successor.begin()
    successor.send(one_partition, ["of the successor"])

    with pytest.raises(Fenced):
        zombie.commit()
    successor.commit()
    zombie.close()
    successor.close()

    assert read(library, one_partition, fresh("readers"), "of the successor") == ["of the successor"]


def test_each_record_is_transformed_once_though_transactions_are_aborted_and_producers_replaced(
    library: Library, one_partition: str, fresh: Callable[[str], str]
) -> None:
    source, group, transactional_id = fresh("source"), fresh("copier"), fresh("copier")
    feeder = library.producer(fresh("feeder"))
    feeder.begin()
    feeder.send(source, [f"{number}" for number in range(60)])
    feeder.commit()
    feeder.close()

    # Each copier takes over from the positions that the one before committed, and aborts its last.
    copied = 0
    while copied < 60:
        producer = library.producer(transactional_id)
        batch = some_records(library, source, group)
        for start, ends in ((0, producer.commit), (20, producer.abort)):
            part = batch[start : start + 20]
            if not part:
                continue
            producer.begin()
            producer.send(one_partition, [value for _, value in part])
            ends_at = {(topic, partition): offset + 1 for (topic, partition, offset), _ in part}
            producer.send_offsets(group, [(*place, offset) for place, offset in ends_at.items()])
            ends()
            copied += len(part) if start == 0 else 0
        producer.close()
    marker = library.producer(fresh("marker"))
    marker.begin()
    marker.send(one_partition, ["end"])
    marker.commit()
    marker.close()

    copies = read(library, one_partition, fresh("readers"), "end")

    assert sorted(copies[:-1], key=int) == [f"{number}" for number in range(60)]


def test_readers_of_what_is_committed_see_whole_transactions_while_others_write(
    library: Library, one_partition: str, fresh: Callable[[str], str]
) -> None:
    """Two producers interleave; a reader beside them sees all records of a transaction or none."""
    names = [fresh("load"), fresh("load")]
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            producer = library.producer(name)
            for number in range(15):
                producer.begin()
                producer.send(one_partition, [f"{name}/{number}/{index}" for index in range(4)])
                (producer.abort if number % 3 == 1 else producer.commit)()
            producer.begin()
            producer.send(one_partition, [f"{name}/end/0"])
            producer.commit()
            producer.close()
        except BaseException as failure:
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    reader = library.reader(one_partition, fresh("readers"))
    found: list[str] = []
    wait_until(
        lambda: bool(failures) or all(f"{name}/end/0" in found for name in names),
        lambda: found.extend(value for _, value in reader.poll()),
        "the ends of both producers",
    )
    reader.close()
    for writer in writers:
        writer.join()

    assert failures == []
    for name in names:
        own = [value for value in found if value.startswith(f"{name}/")]
        assert own == [
            f"{name}/{number}/{index}" for number in range(15) if number % 3 != 1 for index in range(4)
        ] + [f"{name}/end/0"]


@pytest.fixture
def one_partition(broker: Broker, fresh: Callable[[str], str]) -> str:
    """A topic in which records have one order."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = fresh("ordered")
    admin = AdminClient({"bootstrap.servers": broker.address})
    (created,) = admin.create_topics([NewTopic(topic, 1)]).values()
    created.result(PATIENCE_SECONDS)
    return topic
