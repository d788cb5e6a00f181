"""All nodes are killed and one comes back with a damaged disk: what was acknowledged is still there."""

import contextlib
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.load import QUIET
from tests.cluster.readers import read_everything
from tests.support.clusters import ClusterProcesses, cluster_of, until

RECORDS = 100
SETTINGS = ("groups.offsets_partitions=1",)
# The node whose disk is damaged.
DAMAGED = 2


def flip(partition: Path) -> None:
    """A bit in the middle of the records."""
    segment = _segment(partition)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


def cut(partition: Path) -> None:
    """The second half of the records."""
    segment = _segment(partition)
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def remove_segment(partition: Path) -> None:
    _segment(partition).unlink()


def remove_identity(partition: Path) -> None:
    (partition / "partition.metadata").unlink()


def _segment(partition: Path) -> Path:
    [segment] = partition.glob("*.log")
    return segment


# A topic for each way in which a disk is damaged.
DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "cut": cut,
    "without-directory": shutil.rmtree,
    "without-segment": remove_segment,
    "without-identity": remove_identity,
}


def create(cluster: ClusterProcesses, topics: Sequence[str], replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    minimum = {"min.insync.replicas": str(replicas - 1)}
    wanted = [NewTopic(topic, 1, replicas, config=minimum) for topic in topics]
    for created in admin.create_topics(wanted).values():
        created.result(timeout=20)
    for topic in topics:
        cluster.await_in_sync(topic)


def produce(cluster: ClusterProcesses, topics: Sequence[str]) -> None:
    """Records in batches of their own, each acknowledged by all replicas."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "all",
        "linger.ms": 0,
        "batch.num.messages": 1,
    }
    producer = Producer({**settings, **QUIET})
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    for number in range(RECORDS):
        for topic in topics:
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=delivered)
            producer.poll(0)
    assert (producer.flush(30), errors) == (0, [])


def kill_all(cluster: ClusterProcesses, topics: Sequence[str]) -> None:
    """Node 1 first, which the others notice; they go on without it until they are killed too."""
    cluster.nodes[1].kill()
    for topic in topics:
        until(lambda topic=topic: _isr(cluster, topic) == {2, 3}, f"{topic} goes on without node 1")  # type: ignore[misc]
    produce(cluster, topics)
    for number in (2, 3):
        cluster.nodes[number].kill()


def _isr(cluster: ClusterProcesses, topic: str) -> set[int]:
    found = cluster.partitions(topic, 2).get(0)
    return set() if found is None else set(found.isr_nodes)


def start_with_one_late(cluster: ClusterProcesses, topics: Sequence[str], late: int) -> None:
    """Start all nodes, and let one of them go on only when the others have missed it."""
    node = cluster.nodes[late]
    node.launch()
    until(lambda: _listens(cluster, late), f"node {late} runs")
    node.pause()
    others = [number for number in cluster.nodes if number != late]
    for number in others:
        cluster.nodes[number].launch()
    for number in others:
        cluster.nodes[number].await_ready()
    for topic in topics:
        until(lambda topic=topic: _leader(cluster, topic, 1) != late, f"{topic} is not led by node {late}")  # type: ignore[misc]
    node.resume()
    node.await_ready()


def _leader(cluster: ClusterProcesses, topic: str, number: int) -> int:
    return cluster.partitions(topic, number)[0].leader_id


def _listens(cluster: ClusterProcesses, number: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(cluster.listener(number, "http"), timeout=1):
        return True
    return False


def count_values(cluster: ClusterProcesses, topic: str) -> int:
    return len(read_everything(cluster.bootstrap, topic, 1)[0])


@pytest.mark.parametrize("late", [3, DAMAGED], ids=["before the whole one", "after the whole one"])
def test_a_whole_copy_outlives_a_damaged_one_whichever_comes_back_first(tmp_path: Path, late: int) -> None:
    topics = list(DAMAGE)
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        create(cluster, topics)
        produce(cluster, topics)
        kill_all(cluster, topics)
        for topic, damage in DAMAGE.items():
            damage(cluster.nodes[DAMAGED].data_dir / "logs" / topic / "0")

        start_with_one_late(cluster, topics, late)
        for topic in topics:
            cluster.await_in_sync(topic, 60)

        assert {topic: count_values(cluster, topic) for topic in topics} == dict.fromkeys(topics, 2 * RECORDS)


def test_with_interval_syncs_a_crash_of_all_processes_costs_nothing(tmp_path: Path) -> None:
    topics = ["interval"]
    with cluster_of(tmp_path, *SETTINGS, "storage.fsync.mode=interval") as cluster:
        create(cluster, topics)
        produce(cluster, topics)
        for node in cluster.nodes.values():
            node.kill()

        cluster.start()
        cluster.await_in_sync("interval", 60)

        assert count_values(cluster, "interval") == RECORDS
        told = "".join(node.events.read_text() for node in cluster.nodes.values())
        assert "partition.elected_with_loss" not in told
