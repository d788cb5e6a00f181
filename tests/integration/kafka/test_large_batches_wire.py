"""Large batches that a worker compresses anew, and what is sent behind them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import CompressionType, Record, check_batches, write_batch
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

TOPIC = "packed"
NOW = 1_700_000_000_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "data").start()
    yield node
    assert node.stop() == 0


@pytest.fixture
def wire(node: NodeProcess) -> Iterator[Wire]:
    with closing(Wire(node.address)) as wire:
        configs = (CreateTopicsRequestConfig(name="compression.type", value="zstd"),)
        topic = CreateTopicsRequestTopic(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=configs
        )
        wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
        yield wire


def produce(sequence: int, size: int) -> ProduceRequest:
    batch = write_batch(
        [Record(0, NOW, None, b"v" * size)], producer_id=3, producer_epoch=0, base_sequence=sequence
    )
    data = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(data,))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))


def test_requests_behind_a_large_batch_are_answered_behind_it_and_keep_their_order(
    wire: Wire, tmp_path: Path
) -> None:
    sizes = (300_000, 10, 700_000, 10, 10)

    for sequence, size in enumerate(sizes):
        wire.send(produce(sequence, size), 9)
    rows = [wire.read(ProduceResponse, 9).responses[0].partition_responses[0] for _ in sizes]

    assert [(row.error_code, row.base_offset) for row in rows] == [(0, offset) for offset in range(5)]
    (log,) = (tmp_path / "data" / "logs" / TOPIC / "0").glob("*.log")
    assert {header.codec for header in check_batches(log.read_bytes())} == {CompressionType.ZSTD}


def test_a_time_inside_a_batch_that_a_worker_looks_through_is_found_beside_the_ends_of_the_log(
    wire: Wire,
) -> None:
    records = [Record(0, NOW + number, None, bytes(10_000)) for number in range(900)]
    batch = write_batch(records, codec=CompressionType.ZSTD)
    data = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(data,))
    stored = wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,)), ProduceResponse, 9)
    assert stored.responses[0].partition_responses[0].error_code == 0

    moments = (-1, NOW + 700, -2, NOW + 5)
    parts = tuple(ListOffsetsRequestPartition(partition_index=0, timestamp=moment) for moment in moments)
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsRequestTopic(name=TOPIC, partitions=parts),)
    )
    answer = wire.ask(request, ListOffsetsResponse, 7)

    rows = answer.topics[0].partitions
    assert [(row.error_code, row.offset) for row in rows] == [(0, 900), (0, 700), (0, 0), (0, 5)]
