"""Connections that cost a node much and give nothing: the node bounds them, and serves the others."""

import contextlib
import itertools
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from tests.support.clusters import until
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire, frame_of

TOPIC = "wanted"
NOW = 1_700_000_000_000
IN_FLIGHT_BYTES_MAX = 32 << 20
REQUEST_BYTES_MAX = IN_FLIGHT_BYTES_MAX // 2
ANNOUNCED_BYTES = 100 << 20
GHOSTS = 200
FETCH_VERSION, PRODUCE_VERSION = 11, 9


@pytest.fixture(scope="module")
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(f"listen.in_flight_bytes_max={IN_FLIGHT_BYTES_MAX}")


@pytest.fixture
def neighbour(node: NodeProcess) -> Iterator[Wire]:
    with closing(Wire(node.address)) as wire:
        topic = CreateTopicsRequestTopic(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
        yield wire


def produce(size: int) -> ProduceRequest:
    batch = write_batch([Record(0, NOW, None, b"v" * size)])
    data = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(data,))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))


def error_of_produce(wire: Wire, size: int) -> int:
    answer = wire.ask(produce(size), ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code


def long_poll(end_offset: int) -> bytes:
    """Ask for what comes behind the end of the log: the answer waits for more than there will be."""
    part = FetchRequestPartition(partition=0, fetch_offset=end_offset, partition_max_bytes=1 << 20)
    return frame_of(
        FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=1 << 30,
            max_bytes=1 << 20,
            topics=(FetchRequestTopic(topic=TOPIC, partitions=(part,)),),
        ),
        FETCH_VERSION,
    )


def figure(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.ready['metrics']}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def requests_bytes(node: NodeProcess) -> float:
    """How much requests hold of the room for them."""
    return figure(node, 'penstock_in_flight_bytes{kind="requests"}')


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("polls", [1, 600], ids=["one parked request", "more than may wait"])
def test_a_parked_request_whose_client_is_gone_does_not_keep_its_connection(
    node: NodeProcess, neighbour: Wire, polls: int
) -> None:
    before = figure(node, "penstock_connections{")
    last = neighbour.ask(produce(10), ProduceResponse, PRODUCE_VERSION)
    question = long_poll(last.responses[0].partition_responses[0].base_offset + 1)

    for _ in range(GHOSTS // polls + 1):
        client = socket.create_connection(node.address)
        client.sendall(question * polls)
        reset(client)

    # A page of figures may be some seconds old.
    until(lambda: figure(node, "penstock_connections{") <= before, "the connections are gone")
    assert error_of_produce(neighbour, 10) == 0


def test_a_frame_that_is_only_announced_costs_no_memory(node: NodeProcess, neighbour: Wire) -> None:
    assert error_of_produce(neighbour, 10) == 0
    before = node.resident_bytes()

    with ExitStack() as held:
        for _ in range(10):
            liar = held.enter_context(closing(Wire(node.address)))
            liar.socket.sendall(struct.pack(">i", ANNOUNCED_BYTES) + bytes(4))
        assert error_of_produce(neighbour, 10) == 0
        growth = node.resident_bytes() - before
        # A page of figures may be some seconds old, and tell of clients that were there before.
        until(lambda: requests_bytes(node) < 1 << 20, "what was announced takes no room")

    assert growth < 20 << 20


def test_clients_that_send_most_of_a_large_request_and_then_hardly_anything_are_given_up(
    node: NodeProcess, neighbour: Wire
) -> None:
    done = threading.Event()

    def drip() -> None:
        """Send what fills the node's memory for requests, and then a byte at a time."""
        with closing(socket.create_connection(node.address)) as slow, contextlib.suppress(OSError):
            slow.sendall(struct.pack(">i", ANNOUNCED_BYTES) + bytes(REQUEST_BYTES_MAX // 2))
            while not done.wait(0.1):
                slow.sendall(b"x")

    droppers = [threading.Thread(target=drip) for _ in range(3)]
    for dropper in droppers:
        dropper.start()
    until(lambda: requests_bytes(node) > REQUEST_BYTES_MAX // 4, "they fill a good part of the room")
    errors = [error_of_produce(neighbour, 900_000) for _ in range(20)]
    small = [error_of_produce(neighbour, 50_000) for _ in range(20)]
    done.set()
    for dropper in droppers:
        dropper.join()

    assert set(errors + small) == {0}


def test_what_was_sent_without_waiting_for_an_answer_is_served_though_its_sender_left(
    node: NodeProcess, neighbour: Wire
) -> None:
    batch = write_batch([Record(0, NOW, None, b"unacknowledged")])
    data = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(data,))
    request = frame_of(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=(topic,)), PRODUCE_VERSION)
    first = neighbour.ask(produce(10), ProduceResponse, PRODUCE_VERSION)
    start = first.responses[0].partition_responses[0].base_offset

    with closing(socket.create_connection(node.address)) as client:
        client.sendall(request * 500)

    ours = itertools.count(1)

    def are_all_there() -> bool:
        last = neighbour.ask(produce(10), ProduceResponse, PRODUCE_VERSION)
        return last.responses[0].partition_responses[0].base_offset - start - next(ours) == 500

    until(are_all_there, "no record is lost that had reached the node")


def test_the_limits_of_connections_are_settings_with_kafkas_names(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node(
        "node.kafka_settings=[max.connections.per.ip=10, socket.request.max.bytes=2097152]",
        "rest.enabled=false",
    )

    with ExitStack() as held:
        wires = [held.enter_context(closing(Wire(node.address))) for _ in range(11)]
        wires[0].socket.sendall(struct.pack(">i", (2 << 20) + 1))

        assert wires[10].is_closed_by_the_node()
        assert wires[0].is_closed_by_the_node()
        assert figure(node, "penstock_connections_refused") == 1
        assert wires[1].ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_the_number_of_connections_of_an_address_can_be_changed_while_the_node_runs(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node("rest.enabled=false")
    with ExitStack() as held:
        wires = [held.enter_context(closing(Wire(node.address))) for _ in range(10)]
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=4,
            resource_name="",
            configs=(
                IncrementalAlterConfigsRequestConfig(
                    name="max.connections.per.ip", config_operation=0, value="10"
                ),
            ),
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = wires[0].ask(request, IncrementalAlterConfigsResponse, 1)

        assert answer.responses[0].error_code == 0
        assert held.enter_context(closing(Wire(node.address))).is_closed_by_the_node()
