"""Share consumers (KIP-932) that are not ours: librdkafka's, and Kafka's own."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.maven import PeerUnavailable
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.compatibility.clients import java_programs
from tests.compatibility.node import Broker
from tests.support.wire import Wire

SECONDS = 60
GROUP_RESOURCE = 32
LOCK_MS = 2_000
# Takes what there is, says so, and never acknowledges it: to be killed.
HOLDER = """
import sys, time
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while not (found := list(consumer.poll(timeout=1.0))):
    pass
print(len(found), flush=True)
time.sleep(600)
"""


def make_topic(broker: Broker, topic: str, values: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(SECONDS) == 0


def lock_for(broker: Broker, group: str, lock_ms: int) -> None:
    host, port = broker.address.rsplit(":", 1)
    config = IncrementalAlterConfigsRequestConfig(
        name="share.record.lock.duration.ms", config_operation=0, value=str(lock_ms)
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=(config,)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    with contextlib.closing(Wire((host, int(port)))) as wire:
        reply = wire.ask(request, IncrementalAlterConfigsResponse, 1)
    assert reply.responses[0].error_code == 0, reply


@contextlib.contextmanager
def sharing(broker: Broker, group: str, topic: str) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer({"bootstrap.servers": broker.address, "group.id": group})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_two_consumers_of_librdkafka_share_a_partition(broker: Broker, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("shared"), fresh("workers")
    make_topic(broker, topic, [str(number) for number in range(2_000)])

    got: list[list[int]] = [[], []]
    end = time.monotonic() + SECONDS
    with sharing(broker, group, topic) as first, sharing(broker, group, topic) as second:
        while sum(map(len, got)) < 2_000 and time.monotonic() < end:
            for place, consumer in enumerate((first, second)):
                got[place] += [message.offset() for message in consumer.poll(timeout=0.5)]

    assert sorted(got[0] + got[1]) == list(range(2_000))


def test_what_a_killed_consumer_held_is_delivered_to_the_next(
    broker: Broker, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("held"), fresh("workers")
    make_topic(broker, topic, ["one", "two", "three"])
    lock_for(broker, group, LOCK_MS)
    command = [sys.executable, "-c", HOLDER, broker.address, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) > 0
        holder.kill()

    found: dict[str, int] = {}
    end = time.monotonic() + SECONDS
    with sharing(broker, group, topic) as consumer:
        while len(found) < 3 and time.monotonic() < end:
            for message in consumer.poll(timeout=1.0):
                found[message.value().decode()] = message.offset()

    assert found == {"one": 0, "two": 1, "three": 2}


@pytest.fixture(scope="module")
def share_queue(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return java_programs.command(Path(tmp_path_factory.mktemp("classes")), "ShareQueue")
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka's client cannot be run here: {reason}")


def test_kafkas_consumer_accepts_releases_and_rejects(
    share_queue: list[str], broker: Broker, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("java-shared"), fresh("workers")
    make_topic(broker, topic, ["good", "again", "poison", "good"])

    ended = subprocess.run(
        [*share_queue, broker.address, topic, group, "4"],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.splitlines() == ["0 accepted 1", "1 accepted 2", "2 rejected 1", "3 accepted 1"]
    assert dead_letters(broker, f"{topic}.dlq") == ["poison"]


def dead_letters(broker: Broker, topic: str) -> list[str]:
    settings = {"bootstrap.servers": broker.address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe([topic])
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            found = [each for each in consumer.consume(10, 1.0) if each.error() is None]
            if found:
                return [message.value().decode() for message in found]
    finally:
        consumer.close()
    return []
