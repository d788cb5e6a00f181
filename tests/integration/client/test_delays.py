"""Delayed records of a broker in a process of its own that is killed, and the header that queues wait for."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from penstock.client import Endpoint
from penstock.client.connection import BrokerConnection
from penstock.client.coordinator import Deadline
from penstock.client.delay_load import DelayLoad, await_due, schedule_at_rate
from penstock.client.delays import DelayAdmin, LaterRecord
from penstock.client.received import received
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.testing import Broker
from penstock.testing import broker as running_broker

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker(in_process=False, settings={"storage.fsync.mode": "every"}) as found:
        yield found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def consumed(node: Broker, topic: str, count: int, until: Callable[[], bool]) -> list[tuple[bytes, int]]:
    """Committed records of the topic with their timestamps, until there are `count`, and `until` holds."""
    consumer = Consumer({
        "bootstrap.servers": node.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    })  # fmt: skip
    with closing(consumer):
        consumer.subscribe([topic])
        found: list[tuple[bytes, int]] = []
        deadline = Deadline(PATIENCE_SECONDS)
        while (len(found) < count or not until()) and not deadline.is_over():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.value(), message.timestamp()[1]))
        return found


def test_every_record_is_published_once_and_in_time_by_a_broker_that_was_killed(node: Broker) -> None:
    topic = node.create_topic("later", partitions=3)
    admin = DelayAdmin(Endpoint(node.bootstrap_servers))
    base = now_ms()
    due = {f"r{at}".encode(): base + 1_000 + 20 * at for at in range(200)}
    ids = admin.schedule([LaterRecord(topic, at, value, value) for value, at in due.items()])
    doomed = admin.schedule([LaterRecord(topic, base + 600_000, b"never")])

    node.nodes[0].kill()
    node.nodes[0].start()

    found = consumed(node, topic, len(due), lambda: len(admin.listed()) <= 1)
    assert sorted(value for value, _ in found) == sorted(due)
    assert all(timestamp >= due[value] for value, timestamp in found)
    assert [one.delay_id for one in admin.listed()] == doomed
    assert admin.cancel(doomed) == [None]
    assert all(admin.cancel([ids[0], "nonsense"]))


def test_a_load_of_delayed_records_is_read_once_and_none_is_early(node: Broker) -> None:
    topic = node.create_topic("measured", partitions=2)
    endpoint = Endpoint(node.bootstrap_servers)
    load = DelayLoad(rate=1_000, seconds=0.5, delay_ms=300, partitions=2)

    schedule_at_rate(endpoint, topic, load, time.time_ns())
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

    assert [value for value, _ in consumed(node, topic, 2, lambda: True)] == [b"parked", b"plain"]
    assert [value for value, _ in values] == [b"plain", b"parked"]
    assert values[1][1] >= deliver_at
