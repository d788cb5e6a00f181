"""A node that is stopped while clients still have requests under way."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

TOPIC = "busy"
PARTITIONS = 50
NOW = 1_700_000_000_000
LARGE = 900_000
OVERDUE = ("node.stop_timeout", "node.stop_aborted", "node.logs_not_closed")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "data").start()
    topic = CreateTopicsRequestTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=()
    )
    with closing(Wire(node.address)) as wire:
        wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
    yield node
    node.kill()


def produce_to_all(value: bytes) -> ProduceRequest:
    parts = tuple(
        ProduceRequestPartition(index=index, records=bytes(write_batch([Record(0, NOW, None, value)])))
        for index in range(PARTITIONS)
    )
    data = (ProduceRequestTopic(name=TOPIC, partition_data=parts),)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)


def fetch(offset: int, max_wait_ms: int) -> FetchRequest:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=(FetchRequestTopic(topic=TOPIC, partitions=(part,)),),
    )


def produce_until_the_node_is_gone(wire: Wire, under_way: threading.Event) -> None:
    request = produce_to_all(b"v" * 100)
    with suppress(AssertionError, OSError):
        while True:
            wire.ask(request, ProduceResponse, 9)
            under_way.set()


def test_long_polls_slow_readers_and_busy_producers_do_not_keep_a_node_from_leaving_in_order(
    node: NodeProcess,
) -> None:
    with ExitStack() as held:
        wires = [held.enter_context(closing(Wire(node.address))) for _ in range(16)]
        pollers, slow, producers = wires[:8], wires[8:12], wires[12:]
        wires[0].ask(produce_to_all(b"v" * LARGE), ProduceResponse, 9)
        for wire in pollers:
            wire.send(fetch(1 << 40, 600_000), 11)
            wire.send(fetch(1, 600_000), 11)
        for wire in slow:
            for _ in range(40):
                wire.send(fetch(0, 0), 11)
        under_way = threading.Event()
        threads = [
            threading.Thread(target=produce_until_the_node_is_gone, args=(wire, under_way))
            for wire in producers
        ]
        for thread in threads:
            thread.start()
        assert under_way.wait(30)

        code = node.stop()
        for thread in threads:
            thread.join()

    told = node.events.read_text()
    assert code == 0
    assert "node.stopped" in told
    assert [event for event in OVERDUE if event in told] == []
