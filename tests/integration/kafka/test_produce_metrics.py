"""What a producer does shows in the node's metrics."""

import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "data", "topics.partitions=1").start()
    yield node
    assert node.stop() == 0


def metric(node: NodeProcess, line: str) -> float:
    with urllib.request.urlopen(f"http://{node.ready['metrics']}/metrics", timeout=60) as page:
        found = [row for row in page.read().decode().splitlines() if row.startswith(line + " ")]
    assert len(found) == 1, f"{line} is there {len(found)} times"
    return float(found[0].rpartition(" ")[2])


def test_messages_bytes_errors_and_acknowledgements_are_counted_by_topic(node: NodeProcess) -> None:
    batch = write_batch([Record(0, 1_700_000_000_000, None, b"x")] * 7)
    broken = bytearray(batch)
    broken[-1] ^= 1
    with closing(Wire(node.address)) as wire:
        wire.ask(
            MetadataRequest(topics=(MetadataRequestTopic(name="counted"),), allow_auto_topic_creation=True),
            MetadataResponse,
            9,
        )
        for records in (batch, batch, broken):
            part = ProduceRequestPartition(index=0, records=bytes(records))
            topic = ProduceRequestTopic(name="counted", partition_data=(part,))
            wire.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,)), ProduceResponse, 9)

    assert metric(node, 'penstock_messages_produced_total{topic="counted"}') == 14
    assert metric(node, 'penstock_bytes_produced_total{topic="counted"}') == 2 * len(batch)
    assert metric(node, 'penstock_produce_errors_total{error="corrupt_batch",topic="counted"}') == 1
    assert metric(node, 'penstock_produce_seconds_count{topic="counted"}') == 2
    assert metric(node, 'penstock_request_seconds_count{api="Produce",stage="total"}') == 3
