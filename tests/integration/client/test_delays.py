"""Delayed records of a broker in a process of its own that is killed, and the header that queues wait for."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from penstock.cli.bench.delay_load import DelayLoad, await_due, schedule_at_rate
from penstock.client import ClientError, Endpoint
from penstock.client.connection import BrokerConnection, connect
from penstock.client.coordinator import Deadline
from penstock.client.delays import DelayAdmin, LaterRecord
from penstock.client.received import received
from penstock.core.delays import ID_BYTES, choose_ids
from penstock.core.protocol.messages.delay_records import DelayRecordsRequest, DelayRecordsRequestRecord
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.testing import Broker
from penstock.testing import broker as running_broker
from tests.support.clusters import until as await_that

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker(in_process=False, settings={"storage.fsync.mode": "every"}) as found:
        yield found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def consumed(node: Broker, topic: str, is_over: Callable[[], bool]) -> list[tuple[bytes, int]]:
    """All committed records of the topic with their timestamps, once `is_over` holds."""
    await_that(is_over, "every delay is published", PATIENCE_SECONDS)
    deadline = Deadline(PATIENCE_SECONDS)
    consumer = Consumer({
        "bootstrap.servers": node.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    with closing(consumer):
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        found: list[tuple[bytes, int]] = []
        unread = set(partitions)
        while unread:
            assert not deadline.is_over()
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                found.append((message.value(), message.timestamp()[1]))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
        return found


def test_a_missing_topic_is_created_and_one_that_cannot_be_is_refused_at_once(node: Broker) -> None:
    admin = DelayAdmin(Endpoint(node.bootstrap_servers))

    (delay_id,) = admin.schedule([LaterRecord("made-later", now_ms() + 600_000, b"v")])

    assert admin.cancel([delay_id]) == [None]
    for topic, partition in (("made-later", 99), ("a/b", -1), ("__delayed", -1)):
        with pytest.raises(ClientError, match="not delayed"):
            admin.schedule([LaterRecord(topic, now_ms() + 600_000, b"v", partition=partition)])


def test_every_record_is_published_once_and_in_time_by_a_broker_that_was_killed(node: Broker) -> None:
    topic = node.create_topic("later", partitions=3)
    admin = DelayAdmin(Endpoint(node.bootstrap_servers))
    base = now_ms()
    due = {f"r{at}".encode(): base + 1_000 + 20 * at for at in range(200)}
    ids = admin.schedule([LaterRecord(topic, at, value, value) for value, at in due.items()])
    doomed = admin.schedule([LaterRecord(topic, base + 600_000, b"never")])

    node.nodes[0].kill()
    node.nodes[0].start()

    found = consumed(node, topic, lambda: len(admin.listed()) <= 1)
    assert sorted(value for value, _ in found) == sorted(due)
    assert all(timestamp >= due[value] for value, timestamp in found)
    assert [one.delay_id for one in admin.listed()] == doomed
    assert admin.cancel(doomed) == [None]
    assert all(admin.cancel([ids[0], "nonsense"]))


class Sender(threading.Thread):
    """Schedules records at a rate, whatever becomes of the broker; what it got no reply for it leaves."""

    RATE, BATCH, DELAY_MS = 10_000, 100, 250

    def __init__(self, node: Broker, topic: str) -> None:
        super().__init__()
        self._endpoint = Endpoint(node.bootstrap_servers)
        self._topic = topic
        self._is_over = threading.Event()
        # When each was to be published: those that are stored for certain, and all.
        self.stored: dict[bytes, int] = {}
        self.sent: dict[bytes, int] = {}
        self.errors = 0

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                with closing(connect(self._endpoint)) as connection:
                    self._send(connection)
            except ClientError:
                self.errors += 1

    def end(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_SECONDS)

    def await_stored(self, records: int) -> None:
        """Wait until so many more are stored."""
        wanted, deadline = len(self.stored) + records, Deadline(PATIENCE_SECONDS)
        while len(self.stored) < wanted and not deadline.is_over():
            time.sleep(0.005)
        assert len(self.stored) >= wanted

    def _send(self, connection: BrokerConnection) -> None:
        turn = time.perf_counter()
        while not self._is_over.is_set():
            time.sleep(max(0.0, turn - time.perf_counter()))
            turn = max(turn + self.BATCH / self.RATE, time.perf_counter())
            due = now_ms() + self.DELAY_MS
            batch = {f"{len(self.sent) + at}".encode(): due + at // 10 for at in range(self.BATCH)}
            self.sent.update(batch)
            ids = choose_ids(secrets.token_bytes(ID_BYTES * self.BATCH))
            rows = [
                DelayRecordsRequestRecord(topic=self._topic, key=value, value=value, deliver_at_ms=at, id=one)
                for (value, at), one in zip(batch.items(), ids, strict=True)
            ]
            answer = connection.ask(DelayRecordsRequest(records=tuple(rows)))
            if answer.error_code:
                raise ClientError("not stored")
            for (value, at), row in zip(batch.items(), answer.results, strict=True):
                if not row.error_code:
                    self.stored[value] = at


def test_a_broker_that_is_killed_under_load_loses_doubles_and_hurries_no_record(node: Broker) -> None:
    topic = node.create_topic("busy", partitions=4)
    admin = DelayAdmin(Endpoint(node.bootstrap_servers))
    sender = Sender(node, topic)
    sender.start()
    try:
        for _ in range(2):
            # By then the first of them are due: some are being stored, others published.
            sender.await_stored(4_000)
            node.nodes[0].kill()
            node.nodes[0].start()
        sender.await_stored(1_000)
    finally:
        sender.end()

    found = consumed(node, topic, lambda: not admin.listed(topic))

    values = [value for value, _ in found]
    assert sender.errors >= 2
    assert set(sender.stored) - set(values) == set()
    assert len(values) == len(set(values))
    assert [value for value, timestamp in found if timestamp < sender.sent[value]] == []


def test_a_load_of_delayed_records_is_read_once_and_none_is_early(node: Broker) -> None:
    topic = node.create_topic("measured", partitions=2)
    endpoint = Endpoint(node.bootstrap_servers)
    load = DelayLoad(500, rate=1_000, delay_ms=300, partitions=2)

    schedule_at_rate(endpoint, topic, load)
    found = await_due(endpoint, topic, 2, load.records, PATIENCE_SECONDS)

    assert len(found.lateness_ms) == 500
    assert min(found.lateness_ms) >= 0
    assert found.duplicates == 0


def test_a_record_with_the_header_is_in_the_log_at_once_and_in_queues_when_it_is_due(node: Broker) -> None:
    topic = node.create_topic("parked")
    deliver_at = now_ms() + 3_000
    producer = Producer({"bootstrap.servers": node.bootstrap_servers})
    producer.produce(topic, b"parked", headers=[("penstock-deliver-at", str(deliver_at).encode())])
    producer.produce(topic, b"plain")
    assert producer.flush(30) == 0

    host, _, port = node.bootstrap_servers.rpartition(":")
    with closing(BrokerConnection((host, int(port)))) as connection:
        values: list[tuple[bytes, int]] = []
        deadline = Deadline(PATIENCE_SECONDS)
        while len(values) < 2 and not deadline.is_over():
            answer = connection.ask(
                QueueReceiveRequest(
                    group_id="workers",
                    consumer="c",
                    topics=(QueueReceiveRequestTopic(topic=topic),),
                    wait_ms=1_000,
                )
            )
            values += [(record.value or b"", now_ms()) for record in received(answer).records]

    assert [value for value, _ in consumed(node, topic, lambda: True)] == [b"parked", b"plain"]
    assert [value for value, _ in values] == [b"plain", b"parked"]
    assert values[1][1] >= deliver_at
