"""What only bytes on a socket can show of the administrative requests."""

import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from tests.support.nodes import NodeProcess
    from tests.support.wire import Wire


def named(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))


def test_bytes_behind_a_message_are_let_through(node: "NodeProcess") -> None:
    # As librdkafka 2.16 asks for every topic: a null array of four bytes where one is due.
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")

    with socket.create_connection(node.address, timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        received = connection.recv(8, socket.MSG_WAITALL)

    assert struct.unpack(">ii", received)[1] == 3


def test_a_topic_of_many_partitions_is_described_whole(wire: "Wire") -> None:
    wanted = CreateTopicsRequestTopic(
        name="wide", num_partitions=200, replication_factor=1, assignments=(), configs=()
    )
    created = wire.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=60_000), CreateTopicsResponse, 7)

    answer = wire.ask(named("wide"), MetadataResponse, 12)

    assert [row.error_code for row in created.topics] == [0]
    (topic,) = answer.topics
    assert [part.partition_index for part in topic.partitions] == list(range(200))
    assert {(part.error_code, part.leader_id) for part in topic.partitions} == {(0, 1)}


def test_a_topic_comes_into_being_within_the_answer_that_asks_for_it(wire: "Wire") -> None:
    (topic,) = wire.ask(named("asked-for"), MetadataResponse, 9).topics

    assert topic.error_code == 0
    assert {(part.error_code, part.leader_id) for part in topic.partitions} == {(0, 1)}


def test_clients_are_sent_back_to_the_address_they_came_to(
    start_node: Callable[..., "NodeProcess"], connect: Callable[[tuple[str, int]], "Wire"]
) -> None:
    node = start_node("listen.kafka=0.0.0.0:0", "listen.advertised=auto")
    port = int(node.kafka.rpartition(":")[2])

    answers = [
        connect((host, port)).ask(named(), MetadataResponse, 12) for host in ("127.0.0.1", "127.0.0.2")
    ]

    assert [(each.brokers[0].host, each.brokers[0].port) for each in answers] == [
        ("127.0.0.1", port),
        ("127.0.0.2", port),
    ]


@pytest.mark.parametrize("version", range(7))
def test_producer_ids_differ_between_connections(
    node: "NodeProcess", connect: Callable[[tuple[str, int]], "Wire"], version: int
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)

    given = [
        connect(node.address).ask(request, InitProducerIdResponse, version).producer_id for _ in range(3)
    ]

    assert len(set(given)) == 3
