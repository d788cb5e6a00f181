"""Groups of clients that nobody here wrote, and what a killed node leaves of them."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

from tests.integration.groups.group_node import group_node, make_topic
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

PARTITIONS = 4
# Only there to end a test that has failed: nothing is asserted about time.
POLLS_MAX = 600


def consumer(node: NodeProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
            **settings,
        }
    )


def poll_until(consumers: list[Consumer], enough: Callable[[], bool]) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(POLLS_MAX):
        if enough():
            return values
        for one in consumers:
            message = one.poll(0.05)
            if message is not None and message.error() is None:
                values.append(message.value())
    raise AssertionError("it never came to pass")


def sizes(*consumers: Consumer) -> list[int]:
    return sorted(len(one.assignment()) for one in consumers)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_a_topic_and_one_takes_over(node: NodeProcess, topic: str, strategy: str) -> None:
    settings = {"partition.assignment.strategy": strategy}
    first = consumer(node, f"shared-{strategy}", **settings)
    second = consumer(node, f"shared-{strategy}", **settings)

    first.subscribe([topic])
    poll_until([first], lambda: sizes(first) == [4])
    second.subscribe([topic])
    poll_until([first, second], lambda: sizes(first, second) == [2, 2])
    second.close()
    poll_until([first], lambda: sizes(first) == [4])

    first.close()


def test_a_static_member_that_comes_back_finds_its_partitions(node: NodeProcess, topic: str) -> None:
    def static() -> Consumer:
        member = consumer(node, "static", **{"group.instance.id": "one"})
        member.subscribe([topic])
        return member

    first = static()
    poll_until([first], lambda: sizes(first) == [4])
    first.close()
    again = static()

    poll_until([again], lambda: sizes(again) == [4])
    again.close()


def test_members_of_different_libraries_share_a_group(node: NodeProcess, topic: str) -> None:
    theirs = KafkaConsumer(
        topic,
        bootstrap_servers=node.kafka,
        group_id="mixed",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6_000,
    )
    other = consumer(node, "mixed", **{"partition.assignment.strategy": "range"})
    # One that is left open goes on to connect, and warns in the tests that follow.
    with closing(theirs), closing(other):
        other.subscribe([topic])

        def shared() -> bool:
            # kafka-python joins anew when a poll ends between the responses to JoinGroup and SyncGroup.
            theirs.poll(timeout_ms=1_000)
            return len(theirs.assignment()) == 2 and sizes(other) == [2]

        poll_until([other], shared)


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Callable[[], NodeProcess]]:
    """Starts nodes on one directory, one after another."""
    nodes: list[NodeProcess] = []

    def start() -> NodeProcess:
        nodes.append(group_node(tmp_path / "data").start())
        return nodes[-1]

    yield start
    nodes[-1].stop()


def test_acknowledged_commits_survive_the_death_of_the_node(
    doomed: Callable[[], NodeProcess],
) -> None:
    node = doomed()
    make_topic(node, "orders")
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(40):
        producer.produce("orders", value=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    reader = consumer(node, "survivors")
    reader.subscribe(["orders"])
    read: list[bytes] = []
    for _ in range(POLLS_MAX):
        if len(read) == 40:
            break
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            read.append(message.value())
    told = reader.commit(asynchronous=False)
    assert told is not None
    committed = {part.partition: part.offset for part in told}

    node.kill()
    node = doomed()
    after = consumer(node, "survivors")
    wanted = [TopicPartition("orders", index) for index in range(PARTITIONS)]
    found: dict[int, int] = {}
    for _ in range(POLLS_MAX):
        try:
            found = {part.partition: part.offset for part in after.committed(wanted, timeout=10)}
        except KafkaException:
            continue  # the coordinator may still be reading its log
        break

    assert sorted(read, key=int) == [b"%d" % number for number in range(40)]
    assert found == committed
    after.close()
    reader.close()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_what_a_group_has_consumed_is_counted_from_where_it_began(
    node: NodeProcess, topic: str, reset: str
) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(20):
        producer.produce(topic, value=b"before", partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    group = f"counted-{reset}"
    reader = consumer(node, group, **{"auto.offset.reset": reset})
    reader.subscribe([topic])
    poll_until([reader], lambda: sizes(reader) == [PARTITIONS])

    read = 0
    for _ in range(POLLS_MAX):
        if read:
            break
        # Where a reader of the end begins depends on when it looks: it gets whatever comes behind.
        producer.produce(topic, value=b"behind", partition=0)
        producer.flush(30)
        message = reader.poll(0.5)
        read += message is not None and message.error() is None
    told = reader.commit(asynchronous=False)
    reader.close()

    assert told is not None
    assert read == 1
    labels = f'{{group="{group}",topic="{topic}"}}'

    def is_counted() -> bool:
        with urllib.request.urlopen(f"http://{node.ready['metrics']}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return f"penstock_messages_consumed_total{labels} 1.0" in lines

    # A page of figures may be some seconds old.
    until(is_counted, "the record is counted as consumed")
