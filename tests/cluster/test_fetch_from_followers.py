"""Consumers of librdkafka with `client.rack` read from the replica in their rack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.load import QUIET
from tests.cluster.stage import create_topic
from tests.support.clusters import ClusterProcesses, cluster_of, until

TOPIC = "racked"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three nodes, each in a rack of its own: `rack-1` and so on."""
    root: Path = tmp_path_factory.mktemp("racks")
    with cluster_of(root, "groups.offsets_partitions=1") as running:
        yield running


class RackConsumer:
    """A consumer of one partition, and the broker that it reads from."""

    def __init__(self, cluster: ClusterProcesses, rack: str) -> None:
        self.broker = -1
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"readers-{rack}",
                "client.rack": rack,
                "statistics.interval.ms": 100,
                "stats_cb": self._seen,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _seen(self, text: str) -> None:
        partition = json.loads(text).get("topics", {}).get(TOPIC, {}).get("partitions", {}).get("0", {})
        self.broker = partition.get("broker", -1)

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    def close(self) -> None:
        self._consumer.close()


def produce(cluster: ClusterProcesses, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=0)
    assert producer.flush(30) == 0


def test_a_consumer_reads_in_its_rack_and_from_the_leader_when_that_is_gone(racks: ClusterProcesses) -> None:
    create_topic(racks, TOPIC, 1)
    racks.await_in_sync(TOPIC)
    leader = racks.leader_of(TOPIC)
    near = next(number for number in racks.nodes if number != leader)
    produce(racks, "a", "b")
    consumer = RackConsumer(racks, f"rack-{near}")

    def has_read(*values: bytes) -> bool:
        consumer.poll()
        return consumer.values == [*values]

    def reads_from(node: int) -> bool:
        consumer.poll()
        return consumer.broker == node

    try:
        until(lambda: has_read(b"a", b"b"), "both are read")
        until(lambda: reads_from(near), "the consumer reads in its rack")
        produce(racks, "c")
        until(lambda: has_read(b"a", b"b", b"c"), "what is new is read there")
        assert consumer.broker == near

        racks.nodes[near].kill()
        produce(racks, "d")
        until(lambda: has_read(b"a", b"b", b"c", b"d"), "the leader serves it again")
        until(lambda: reads_from(racks.leader_of(TOPIC)), "the consumer reads from the leader")
    finally:
        consumer.close()
