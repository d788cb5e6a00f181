"""Clients that ask for much and read nothing: the node keeps what it may, and serves the others."""

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from penstock.client.coordinator import Deadline
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire, frame_of

TOPIC, GROUP = "wide", "verbose"
# What a group has noted beside its positions: forty bytes ask for all of it.
POSITIONS, NOTE = 60, "n" * 4_000
VERSION = 7

IN_FLIGHT_BYTES_MAX = 16 << 20
SLOW_READERS = 60
# Half of it is for responses; those that were begun when there was room come on top, one of each connection.
RESPONSES_MAX = IN_FLIGHT_BYTES_MAX // 2 + (SLOW_READERS + 2) * POSITIONS * (len(NOTE) + 100)
# Beyond the responses that are kept: what the node needs while it makes them.
MEMORY_GROWTH_MAX = IN_FLIGHT_BYTES_MAX // 2 + (24 << 20)
# More than the kernel's buffers take for anybody.
REQUESTS_EACH = 60
# A page of figures may be five seconds old on a machine that is busy.
SECONDS_MAX = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    settings = (f"listen.in_flight_bytes_max={IN_FLIGHT_BYTES_MAX}", "groups.offsets_partitions=1")
    node = NodeProcess(tmp_path / "data", *settings).start()
    yield node
    assert node.stop() == 0


def write_notes(wire: Wire) -> None:
    topic = CreateTopicsRequestTopic(
        name=TOPIC, num_partitions=POSITIONS, replication_factor=1, assignments=(), configs=()
    )
    wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
    wire.ask(FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, 3)
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=NOTE)
        for index in range(POSITIONS)
    )
    commit = OffsetCommitRequest(
        group_id=GROUP, topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=parts),)
    )
    answer = wire.ask(commit, OffsetCommitResponse, VERSION)
    assert {part.error_code for part in answer.topics[0].partitions} == {0}


def positions_read(wire: Wire) -> int:
    answer = wire.ask(OffsetFetchRequest(group_id=GROUP, topics=None), OffsetFetchResponse, VERSION)
    return sum(len(topic.partitions) for topic in answer.topics)


def figure(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.ready['metrics']}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    # A counter that never counted is not there.
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_many_readers_that_never_read_neither_fill_the_memory_nor_keep_others_from_being_served(
    node: NodeProcess,
) -> None:
    question = frame_of(OffsetFetchRequest(group_id=GROUP, topics=None), VERSION)
    with closing(Wire(node.address)) as neighbour, ExitStack() as held:
        write_notes(neighbour)
        before = node.resident_bytes()

        for _ in range(SLOW_READERS):
            deaf = held.enter_context(closing(Wire(node.address)))
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.socket.sendall(question * REQUESTS_EACH)
        most, held_back, rounds = 0.0, 0.0, 0
        # Those who ask for much wait for their turn: at first the node keeps nothing for them. Then it holds
        # them back, and soon closes those who stand still while others wait.
        deadline = Deadline(SECONDS_MAX)
        while rounds < 5 or (held_back == 0 and not deadline.is_over()):
            rounds += 1
            assert positions_read(neighbour) == POSITIONS
            with closing(Wire(node.address)) as newcomer:
                assert positions_read(newcomer) == POSITIONS
            most = max(most, figure(node, 'penstock_in_flight_bytes{kind="answers"}'))
            held_back = figure(node, 'penstock_connections_held_back_total{kind="answers"}')
        growth = node.resident_bytes() - before

        assert held_back > 0
        assert most <= RESPONSES_MAX
        assert growth < MEMORY_GROWTH_MAX
