"""A bit flips in an old segment: readers get what was written or an error, and the copy is repaired."""

import json
import threading
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from tests.cluster.load import QUIET
from tests.cluster.stage import SETTINGS
from tests.support.clusters import ClusterProcesses, cluster_of, until

TOPIC = "rotten"
RECORDS = 800
SEGMENT_BYTES = 32_768
READ_SECONDS = 60.0
# Positions in a batch: in the base offset, outside of the CRC, and among the records.
BASE_OFFSET, RECORD = 1, 200


def values() -> list[bytes]:
    return [b"value-%06d-" % number + b"x" * 200 for number in range(RECORDS)]


def fill(bootstrap: str, replicas: int) -> None:
    """Records in several segments, each acknowledged by all replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    config = {"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": str(min(2, replicas))}

    def is_there() -> bool:
        # Again, if the controller changes just then.
        made = admin.create_topics([NewTopic(TOPIC, 1, replicas, config=config)], request_timeout=10)[TOPIC]
        try:
            made.result(timeout=15)
        except (KafkaException, TimeoutError) as error:
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    until(is_there, f"{TOPIC} is created")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 5, "linger.ms": 1, **QUIET}
    )
    outcomes: list[object] = []
    for number, value in enumerate(values()):
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
        if number % 5 == 4:
            producer.flush()
    producer.flush()
    assert outcomes == [None] * RECORDS


def segments(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "logs" / TOPIC / "0").glob("*.log"))


def rot(data_dir: Path, byte: int) -> Path:
    """Flip a bit in the first batch of the second segment, as a bad device does."""
    files = segments(data_dir)
    assert len(files) > 3
    with files[1].open("r+b") as file:
        file.seek(byte)
        (old,) = file.read(1)
        file.seek(byte)
        file.write(bytes([old ^ 0x10]))
    return files[1]


def read_with_librdkafka(bootstrap: str, *, check_crcs: bool) -> list[bytes]:
    """Everything, by a client that by default believes what it gets."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": check_crcs, **QUIET}
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[bytes] = []

    def is_complete() -> bool:
        messages = consumer.consume(RECORDS, timeout=0.5)
        found.extend(message.value() for message in messages if message.error() is None)
        return len(found) >= RECORDS

    try:
        until(is_complete, f"{RECORDS} records were read, not {len(found)}", READ_SECONDS)
    finally:
        consumer.close()
    return found


def read_with_kafka_python(bootstrap: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([PythonTopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    found: list[bytes] = []

    def is_complete() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(record.value for record in records)
        return len(found) >= RECORDS

    try:
        until(is_complete, f"{RECORDS} records were read, not {len(found)}", READ_SECONDS)
    finally:
        consumer.close()
    return found


def events(cluster_events: Path, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in cluster_events.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def content(data_dir: Path) -> bytes:
    return b"".join(path.read_bytes() for path in segments(data_dir))


def lead(cluster: ClusterProcesses, number: int) -> None:
    """Have the first replica lead again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def leads() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(timeout=20)
        return cluster.leader_of(TOPIC) == number

    until(leads, f"node {number} leads")


@pytest.mark.parametrize("byte", [BASE_OFFSET, RECORD], ids=["offset", "record"])
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
def test_a_leader_with_a_rotten_segment_serves_nothing_wrong_and_is_repaired(
    tmp_path: Path, byte: int, is_down: bool
) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        fill(cluster.bootstrap, 3)
        cluster.await_in_sync(TOPIC)
        number = cluster.leader_of(TOPIC)
        node = cluster.nodes[number]
        whole = content(node.data_dir)

        if is_down:
            node.stop()
            segment = rot(node.data_dir, byte)
            node.start()
            cluster.await_in_sync(TOPIC)
            lead(cluster, number)
        else:
            segment = rot(node.data_dir, byte)

        readings: dict[str, list[bytes]] = {}

        def read(name: str) -> None:
            if name == "kafka-python":
                readings[name] = read_with_kafka_python(cluster.bootstrap)
            else:
                readings[name] = read_with_librdkafka(cluster.bootstrap, check_crcs=name == "checking")

        readers = [
            threading.Thread(target=read, args=(name,)) for name in ("believing", "checking", "kafka-python")
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert readings == dict.fromkeys(("believing", "checking", "kafka-python"), values())

        (found,) = events(node.events, "partition.corrupt_range")
        first = int(segment.stem)
        assert found["partition"] == f"{TOPIC}/0"
        assert (found["segment"], found["start"], found["end"]) == (first, first, first + 5)

        def is_repaired() -> bool:
            return all(content(one.data_dir) == whole for one in cluster.nodes.values())

        until(is_repaired, "all copies are whole and equal")
        cluster.await_in_sync(TOPIC)


def test_the_only_replica_names_what_is_lost_and_serves_the_rest(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS, count=1) as cluster:
        fill(cluster.bootstrap, 1)
        node = cluster.nodes[1]
        node.stop()
        segment = rot(node.data_dir, RECORD)
        node.start()
        first = int(segment.stem)

        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", **QUIET})
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        errors: list[KafkaError] = []

        def is_complete() -> bool:
            for message in consumer.consume(RECORDS, timeout=0.5):
                error = message.error()
                if error is None:
                    found.append(message.value())
                else:
                    errors.append(error)
                    consumer.seek(TopicPartition(TOPIC, 0, first + 5))
            return len(found) >= RECORDS - 5

        until(is_complete, "all but the damaged records were read", READ_SECONDS)
        consumer.close()

        expected = values()
        assert found == expected[:first] + expected[first + 5 :]
        assert {error.code() for error in errors} == {KafkaError.INVALID_MSG}
        (told,) = events(node.events, "partition.corrupt_range")
        assert (told["start"], told["end"]) == (first, first + 5)
