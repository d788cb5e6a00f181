"""Whatever a client sends costs at most its own connection; everyone else goes on."""

import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
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
    ProduceResponsePartition,
)
from penstock.core.records import HEADER_BYTES, Record, read_header, write_batch
from penstock.core.records.batch import LAYOUT, seal
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire, frame_of

TOPIC = "bad-input"
NOW = 1_700_000_000_000
MEMORY_GROWTH_MAX = 64 << 20
GIVE_BACK_SECONDS = 60.0
IDLE_CONNECTIONS = 5_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("bad") / "data", "topics.partitions=1").start()
    with closing(Wire(node.address)) as wire:
        topic = CreateTopicsRequestTopic(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        created = wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
        assert created.topics[0].error_code == 0
    yield node
    assert node.stop() == 0


@pytest.fixture
def wire(node: NodeProcess) -> Iterator[Wire]:
    """The client that is up to no good."""
    with closing(Wire(node.address)) as wire:
        yield wire


@pytest.fixture(autouse=True)
def others_go_on(node: NodeProcess) -> Iterator[None]:
    """A client that was connected all along, and one that comes afterwards, are served as ever."""
    with closing(Wire(node.address)) as neighbour:
        before = node.resident_bytes()
        assert produced(neighbour, good_batch()).error_code == 0
        yield
        assert produced(neighbour, good_batch()).error_code == 0
        with closing(Wire(node.address)) as newcomer:
            assert produced(newcomer, good_batch()).error_code == 0
        # The node may hear later that others have hung up than that these two ask for something.
        deadline = time.monotonic() + GIVE_BACK_SECONDS
        while node.resident_bytes() - before >= MEMORY_GROWTH_MAX and time.monotonic() < deadline:
            time.sleep(0.05)
        assert node.resident_bytes() - before < MEMORY_GROWTH_MAX


def good_batch() -> bytearray:
    return write_batch([Record(0, NOW, b"key", b"value")])


def produce_of(batch: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    partition = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name=TOPIC, partition_data=(partition,))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(topic,))


def produced(wire: Wire, batch: bytes | bytearray) -> ProduceResponsePartition:
    answer = wire.ask(produce_of(batch), ProduceResponse, 9)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_end_the_connection(wire: Wire, seed: int) -> None:
    noise = random.Random(seed).randbytes(4096)
    size = struct.pack(">i", len(noise))

    wire.socket.sendall(size + noise)

    assert wire.is_closed_by_the_node()


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, (100 << 20) + 1])
def test_an_impossible_frame_size_ends_the_connection(wire: Wire, size: int) -> None:
    wire.socket.sendall(struct.pack(">i", size))

    assert wire.is_closed_by_the_node()


def test_a_large_frame_that_is_announced_and_never_sent_costs_no_memory(node: NodeProcess) -> None:
    liars = [Wire(node.address) for _ in range(50)]
    for liar in liars:
        liar.socket.sendall(struct.pack(">i", 90 << 20) + b"x" * 1000)

    with closing(Wire(node.address)) as other:
        assert produced(other, good_batch()).error_code == 0

    for liar in liars:
        liar.close()


@pytest.mark.parametrize("cut", [1, 3, 5, 9, 12, 40, 100])
def test_a_frame_that_is_cut_short_by_a_close_does_nothing(wire: Wire, cut: int) -> None:
    frame = frame_of(produce_of(good_batch()), 9)

    wire.socket.sendall(frame[:cut])
    wire.socket.shutdown(socket.SHUT_WR)

    assert wire.is_closed_by_the_node()


@pytest.mark.parametrize("position", range(8, 60, 3))
def test_hostile_lengths_inside_a_frame_end_the_connection_or_are_answered(wire: Wire, position: int) -> None:
    frame = bytearray(frame_of(produce_of(good_batch()), 9))
    frame[position : position + 4] = b"\xff\xff\xff\x7f"

    wire.socket.sendall(frame)
    wire.socket.shutdown(socket.SHUT_WR)
    answer = wire.socket.recv(1 << 16)

    assert len(answer) < 1 << 16


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (0, 99), (1, -1), (3, 1000), (0, 2), (1, 3)])
def test_an_unknown_api_or_version_ends_the_connection(wire: Wire, key: int, version: int) -> None:
    body = struct.pack(">hhih", key, version, 1, -1) + bytes(20)

    wire.socket.sendall(struct.pack(">i", len(body)) + body)

    assert wire.is_closed_by_the_node()


def test_an_unknown_version_of_api_versions_is_answered_with_what_there_is(wire: Wire) -> None:
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\x00"

    wire.socket.sendall(struct.pack(">i", len(body)) + body)
    answer = wire.read(ApiVersionsResponse, 0)

    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {api.api_key for api in answer.api_keys} >= {0, 1, 2, 3, 18}
    assert (
        wire.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"),
            ApiVersionsResponse,
            3,
        ).error_code
        == ErrorCode.NONE
    )


def damaged(position: int, flip: int) -> bytearray:
    batch = good_batch()
    batch[position] ^= flip
    return batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (damaged(-1, 0x01), ErrorCode.CORRUPT_MESSAGE),
        (damaged(17, 0xFF), ErrorCode.CORRUPT_MESSAGE),
        (damaged(60, 0x07), ErrorCode.CORRUPT_MESSAGE),
        (damaged(26, 0x07), ErrorCode.CORRUPT_MESSAGE),
        (damaged(16, 2), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(16, 3), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(16, 5), ErrorCode.CORRUPT_MESSAGE),
        (good_batch()[:-5], ErrorCode.CORRUPT_MESSAGE),
        (good_batch() + good_batch(), ErrorCode.INVALID_RECORD),
        (good_batch() + b"\0" * 20, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (write_batch([Record(0, NOW, None, bytes(1 << 21))]), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "last byte",
        "crc",
        "record count",
        "last offset delta",
        "magic 0",
        "magic 1",
        "magic 7",
        "cut short",
        "two batches",
        "trailing bytes",
        "empty",
        "too large",
    ],
)
def test_a_bad_batch_is_refused_with_its_code_and_the_connection_goes_on(
    wire: Wire, batch: bytes | bytearray, code: ErrorCode
) -> None:
    refused = produced(wire, batch)

    assert refused.error_code == code
    assert refused.error_message
    assert produced(wire, good_batch()).error_code == ErrorCode.NONE


def lie(payload: bytes = b"", **fields: int) -> bytearray:
    """A batch whose CRC is right and whose header says something else than its records."""
    batch = good_batch()
    header = read_header(batch)._replace(batch_length=49 + len(payload), **fields)
    told = bytearray(LAYOUT.pack(*header) + payload)
    seal(told, 0, len(told))
    return told


ONE_RECORD = bytes(good_batch()[HEADER_BYTES:])


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (lie(random.Random(1).randbytes(500)), ErrorCode.INVALID_RECORD),
        (lie(b""), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, record_count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
        (lie(b"\x28\xb5\x2e" + bytes(50), attributes=4), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (lie(ONE_RECORD, attributes=0x20), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, attributes=0x40), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, attributes=0x100), ErrorCode.INVALID_RECORD),
        (lie(ONE_RECORD, base_timestamp=-(2**62)), ErrorCode.INVALID_TIMESTAMP),
        (lie(ONE_RECORD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
    ids=[
        "noise",
        "nothing",
        "a record that is not there",
        "two billion records",
        "broken zstd",
        "append time",
        "control batch",
        "delete horizon",
        "unused bit",
        "long ago",
        "no such codec",
    ],
)
def test_a_batch_that_is_not_what_it_says_is_refused_and_moves_nothing(
    wire: Wire, batch: bytes | bytearray, code: ErrorCode
) -> None:
    before = produced(wire, good_batch()).base_offset

    refused = produced(wire, batch)

    assert refused.error_code == code
    assert refused.error_message
    assert produced(wire, good_batch()).base_offset == before + 1


def test_five_thousand_idle_connections_are_held_and_cost_little(node: NodeProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 6_000)), hard))
    idle: list[socket.socket] = []
    try:
        while len(idle) < IDLE_CONNECTIONS:
            idle.append(socket.create_connection(node.address, timeout=30))
        idle[-1].sendall(frame_of(produce_of(good_batch()), 9))

        assert idle[-1].recv(1 << 12)
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reader_that_never_reads_is_paused_without_filling_the_memory(node: NodeProcess) -> None:
    with closing(Wire(node.address)) as writer:
        for _ in range(64):
            assert produced(writer, write_batch([Record(0, NOW, None, bytes(500_000))])).error_code == 0
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    topic = FetchRequestTopic(topic=TOPIC, partitions=(part,))
    request = frame_of(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=(topic,)), 11)
    deaf = Wire(node.address)
    deaf.socket.settimeout(2)
    many, rounds = request * 1000, 0
    try:
        while rounds < 2_000:
            deaf.socket.sendall(many)
            rounds += 1
    except TimeoutError:
        pass

    # The node stopped reading from a client that does not read: its requests pile up on its own side.
    assert rounds < 2_000
    deaf.close()


def test_a_producer_without_acks_is_cut_off_when_its_batch_is_bad(wire: Wire) -> None:
    wire.send(produce_of(damaged(-1, 1), acks=0), 9)

    assert wire.is_closed_by_the_node()


def test_acks_that_do_not_exist_are_refused(wire: Wire) -> None:
    answer = wire.ask(produce_of(good_batch(), acks=7), ProduceResponse, 9)

    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_clients_do_not_write_to_internal_topics(wire: Wire) -> None:
    partition = ProduceRequestPartition(index=0, records=bytes(good_batch()))
    topic = ProduceRequestTopic(name="__consumer_offsets", partition_data=(partition,))

    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,)), ProduceResponse, 9)

    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_node_reports_no_failure_of_its_own(node: NodeProcess) -> None:
    assert "handler_failed" not in Path(node.events).read_text()
