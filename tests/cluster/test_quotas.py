"""Quotas on a cluster: clients are told to wait by whichever node leads, also after a failover."""

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, Producer

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.core.metadata.access import CLIENT_ID, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from tests.cluster.load import QUIET
from tests.cluster.stage import SETTINGS, create_topic
from tests.support.clusters import ClusterProcesses, cluster_of, until

TOPIC = "limited"
RATE = 20_000.0
VALUE = bytes(10_000)
SECONDS = 60


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Generator[ClusterProcesses, None, None]:
    """Every client id has a limit, and `free` another one."""
    root: Path = tmp_path_factory.mktemp("limited")
    with cluster_of(root, *SETTINGS) as cluster:
        create_topic(cluster, TOPIC, 1)
        cluster.await_in_sync(TOPIC)
        admin = AccessAdmin(Endpoint(cluster.bootstrap))
        admin.alter_quotas(((CLIENT_ID, None),), {PRODUCER_BYTE_RATE: RATE})
        admin.alter_quotas(((CLIENT_ID, "free"),), {PRODUCER_BYTE_RATE: 1e9})
        admin.alter_quotas(((CLIENT_ID, "reader"),), {CONSUMER_BYTE_RATE: RATE})
        for number in cluster.nodes:
            host, port = cluster.address(number)
            until(partial(has_quotas, f"{host}:{port}"), f"node {number} has the quotas")
        yield cluster


def has_quotas(address: str) -> bool:
    return len(AccessAdmin(Endpoint(address)).quotas()) == 3


def told_librdkafka(cluster: ClusterProcesses, client_id: str) -> list[float]:
    """What a producer was told of waits, in seconds, while it sent five times as much as the limit."""
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": lambda event: told.append(event.throttle_time),
            **QUIET,
        }
    )
    for _ in range(10):
        producer.produce(TOPIC, VALUE, partition=0)
    assert producer.flush(SECONDS) == 0
    producer.poll(0)
    return [seconds for seconds in told if seconds > 0]


def send_with_kafka_python(cluster: ClusterProcesses, client_id: str) -> None:
    producer: Any = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","), client_id=client_id, acks="all", batch_size=0
    )
    for _ in range(10):
        producer.send(TOPIC, VALUE, partition=0).get(SECONDS)
    producer.close()


def test_librdkafka_is_told_to_wait_by_the_default_of_client_ids(limited: ClusterProcesses) -> None:
    assert told_librdkafka(limited, "anybody")


def test_a_client_id_with_a_limit_of_its_own_is_not_told_to_wait(limited: ClusterProcesses) -> None:
    assert told_librdkafka(limited, "free") == []


def test_kafka_python_is_told_to_wait(limited: ClusterProcesses, caplog: pytest.LogCaptureFixture) -> None:
    send_with_kafka_python(limited, "free")
    assert "ProduceResponse throttled by broker" not in caplog.text

    send_with_kafka_python(limited, "somebody")
    assert "ProduceResponse throttled by broker" in caplog.text


def librdkafka_offsets(cluster: ClusterProcesses) -> Generator[int, None, None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "reader",
            "group.id": "librdkafka",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        while True:
            record = consumer.poll(SECONDS)
            assert record is not None
            assert record.error() is None
            yield record.offset()
    finally:
        consumer.close()


def kafka_python_offsets(cluster: ClusterProcesses) -> Generator[int, None, None]:
    consumer: Any = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap.split(","),
        client_id="reader",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS * 1_000,
    )
    try:
        for record in consumer:
            yield record.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("offsets", [librdkafka_offsets, kafka_python_offsets])
def test_consumers_over_their_limit_wait_and_miss_nothing(
    limited: ClusterProcesses, offsets: Callable[[ClusterProcesses], Generator[int, None, None]]
) -> None:
    told_librdkafka(limited, "free")

    reading = offsets(limited)
    read = [next(reading) for _ in range(8)]
    reading.close()

    assert read == list(range(read[0], read[0] + 8))


def test_the_next_leader_tells_clients_to_wait(limited: ClusterProcesses) -> None:
    leader = limited.leader_of(TOPIC)
    limited.nodes[leader].kill()
    try:
        until(lambda: limited.leader_of(TOPIC) != leader, "another node leads", SECONDS)

        assert told_librdkafka(limited, "after the failover")
        assert told_librdkafka(limited, "free") == []
    finally:
        limited.nodes[leader].start()
        limited.await_in_sync(TOPIC, SECONDS)
