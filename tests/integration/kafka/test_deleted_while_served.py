"""Topics that go away while clients are being served from them."""

import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

BATCH_BYTES, BATCHES = 900_000, 30


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("gone") / "data").start()
    yield node
    assert node.stop() == 0


@pytest.fixture
def wire(node: NodeProcess) -> Iterator[Wire]:
    with closing(Wire(node.address)) as wire:
        yield wire


def create(wire: Wire, topic: str) -> None:
    wanted = CreateTopicsRequestTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    answer = wire.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=10_000), CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0


def delete(wire: Wire, topic: str) -> None:
    answer = wire.ask(DeleteTopicsRequest(topic_names=(topic,), timeout_ms=10_000), DeleteTopicsResponse, 5)
    assert answer.responses[0].error_code == 0


def produce(wire: Wire, topic: str, value: bytes) -> None:
    partition = ProduceRequestPartition(index=0, records=bytes(write_batch([Record(0, 0, None, value)])))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(ProduceRequestTopic(name=topic, partition_data=(partition,)),),
    )
    answer = wire.ask(request, ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch_of(topic: str, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 30,
        session_id=0,
        session_epoch=-1,
        topics=(FetchRequestTopic(topic=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def test_a_slow_reader_gets_the_rest_of_an_answer_though_its_topic_is_deleted(
    node: NodeProcess, wire: Wire
) -> None:
    create(wire, "slow")
    for number in range(BATCHES):
        produce(wire, "slow", bytes([number]) * BATCH_BYTES)
    with closing(Wire(node.address)) as reader:
        reader.send(fetch_of("slow"), 11)
        (size,) = struct.unpack(">i", reader._exactly(4))

        delete(wire, "slow")

        answer = reader._exactly(size)
    assert size > BATCH_BYTES * BATCHES
    assert answer.count(bytes([BATCHES - 1]) * BATCH_BYTES) == 1


def test_a_waiting_fetch_returns_at_once_when_its_topic_is_deleted(node: NodeProcess, wire: Wire) -> None:
    create(wire, "waiting")
    produce(wire, "waiting", b"one")
    with closing(Wire(node.address)) as reader:
        reader.send(fetch_of("waiting", offset=1, max_wait_ms=600_000), 11)
        # Served in the order they came: when this one has its response, the node has seen the one above.
        with closing(Wire(node.address)) as other:
            other.ask(fetch_of("waiting"), FetchResponse, 11)

        delete(wire, "waiting")

        (row,) = reader.read(FetchResponse, 11).responses[0].partitions
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_is_made_again_under_the_same_name_is_empty_and_takes_records_at_once(
    wire: Wire,
) -> None:
    for round_number in range(5):
        create(wire, "phoenix")
        produce(wire, "phoenix", b"%d" % round_number)

        (row,) = wire.ask(fetch_of("phoenix"), FetchResponse, 11).responses[0].partitions

        assert row.high_watermark == 1
        delete(wire, "phoenix")
