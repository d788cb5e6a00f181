"""Batches that librdkafka really sends, caught by a broker of a hundred lines.

The broker speaks just enough of the protocol, written out by hand, so that these bytes
owe nothing to our own codec.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from confluent_kafka import Producer

from penstock.core.records import (
    BatchHeader,
    CompressionType,
    Record,
    check_batches,
    read_records,
    validate_records,
)

TOPIC = "caught"
SECONDS_MAX = 30
PRODUCER_ID, PRODUCER_EPOCH = 4_711, 3
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22
# What a broker of Kafka 2.3 offers, as far as librdkafka looks at it: a shorter list
# makes it fall back to old message formats without a word. No version here has the
# flexible encoding, apart from ApiVersions 3.
API_RANGES = {
    PRODUCE: (0, 7),
    FETCH: (0, 11),
    LIST_OFFSETS: (0, 5),
    METADATA: (0, 4),
    8: (0, 7),  # OffsetCommit
    9: (0, 5),  # OffsetFetch
    10: (0, 2),  # FindCoordinator
    11: (0, 5),  # JoinGroup
    12: (0, 3),  # Heartbeat
    13: (0, 2),  # LeaveGroup
    14: (0, 3),  # SyncGroup
    17: (0, 1),  # SaslHandshake
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
    23: (0, 3),  # OffsetForLeaderEpoch
    24: (0, 1),  # AddPartitionsToTxn
    25: (0, 1),  # AddOffsetsToTxn
    26: (0, 1),  # EndTxn
    28: (0, 2),  # TxnOffsetCommit
}


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class CatchingBroker:
    """One thread per connection; keeps the record bytes of every Produce request."""

    def __init__(self) -> None:
        self.caught: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(SECONDS_MAX)
        self._listener.close()
        for connection in self._connections:
            with closing(connection), suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(SECONDS_MAX)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as stream:
                while size := stream.read(4):
                    request = stream.read(struct.unpack(">i", size)[0])
                    answer = self._answer(request)
                    if answer is not None:
                        connection.sendall(struct.pack(">i", len(answer) + 4) + request[4:8] + answer)
        except OSError:
            return  # the client hung up

    def _answer(self, request: bytes) -> bytes | None:
        api, version, _, name_length = struct.unpack_from(">hhih", request)
        body = request[10 + max(0, name_length) :]
        if api == API_VERSIONS:
            return self._api_versions(version)
        if api == METADATA:
            return self._metadata()
        if api == INIT_PRODUCER_ID:
            return struct.pack(">ihqh", 0, 0, PRODUCER_ID, PRODUCER_EPOCH)
        assert (api, version) == (PRODUCE, 7), f"unexpected request: api {api} version {version}"
        return self._produce(body)

    def _api_versions(self, version: int) -> bytes:
        if version > API_RANGES[API_VERSIONS][1]:
            return struct.pack(">hi", 35, 0)
        assert version == 3
        rows = b"".join(struct.pack(">hhhb", api, *span, 0) for api, span in API_RANGES.items())
        return struct.pack(">hB", 0, len(API_RANGES) + 1) + rows + struct.pack(">ib", 0, 0)

    def _metadata(self) -> bytes:
        broker = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        topic = struct.pack(">h", 0) + text(TOPIC) + struct.pack(">bi", 0, 1) + partition
        return struct.pack(">ii", 0, 1) + broker + text("cluster") + struct.pack(">ii", 1, 1) + topic

    def _produce(self, body: bytes) -> bytes:
        (transactional_id_length,) = struct.unpack_from(">h", body)
        position = 2 + max(0, transactional_id_length)
        _, _, topics = struct.unpack_from(">hii", body, position)
        position += 10 + 2 + len(TOPIC)
        partitions, index, length = struct.unpack_from(">iii", body, position)
        assert (topics, partitions, index) == (1, 1, 0)
        self.caught.append(body[position + 12 : position + 12 + length])
        answer = struct.pack(">iihqqq", 1, 0, 0, 100 * len(self.caught), -1, 0)
        return struct.pack(">i", 1) + text(TOPIC) + answer + struct.pack(">i", 0)


@contextmanager
def catching_broker() -> Iterator[CatchingBroker]:
    broker = CatchingBroker()
    with closing(broker):
        yield broker


RECORDS = [
    Record(
        offset,
        1_700_000_000_000 + 7 * offset,
        None if offset % 5 == 0 else b"key-%d" % (offset % 3),
        None if offset % 7 == 3 else b"value %d, padded so that packing pays " % offset * (offset % 11),
        (("trace", b"%d" % offset), ("nothing", None), ("blank", b"")) if offset % 2 else (),
    )
    for offset in range(200)
]


def caught_from_librdkafka(**settings: object) -> bytes:
    failures: list[object] = []
    with catching_broker() as broker:
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.port}",
                "linger.ms": 50,
                "max.in.flight": 1,
                "enable.metrics.push": False,
                "log_level": 2,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        for record in RECORDS:
            producer.produce(
                TOPIC,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp,
                headers=list(record.headers),
                partition=0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        left = producer.flush(SECONDS_MAX)
        del producer
    assert (left, failures) == (0, [])
    return b"".join(broker.caught)


def split(caught: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    position = 0
    for header in check_batches(caught):
        yield header, caught[position : position + header.size_bytes]
        position += header.size_bytes


def decoded(caught: bytes) -> list[Record]:
    """Every record caught, numbered on from batch to batch as a broker would."""
    records = [record for _, batch in split(caught) for record in read_records(batch)]
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


@pytest.mark.parametrize("codec", CompressionType)
def test_what_librdkafka_sends_is_what_we_read(codec: CompressionType) -> None:
    caught = caught_from_librdkafka(compression_type=codec.name.lower())

    assert decoded(caught) == RECORDS
    assert codec in {header.codec for header, _ in split(caught)}
    for header, batch in split(caught):
        assert validate_records(batch) == header
        assert (header.base_offset, header.producer_id) == (0, -1)


def test_librdkafka_sends_bare_snappy() -> None:
    caught = caught_from_librdkafka(compression_type="snappy")

    packed = [batch[61:] for header, batch in split(caught) if header.codec is CompressionType.SNAPPY]
    assert packed
    assert not any(records.startswith(b"\x82SNAPPY\x00") for records in packed)


def test_an_idempotent_producer_numbers_its_batches() -> None:
    caught = caught_from_librdkafka(enable_idempotence=True, batch_num_messages=60)

    headers = check_batches(caught)

    assert decoded(caught) == RECORDS
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(PRODUCER_ID, PRODUCER_EPOCH)}
    assert len(headers) > 1
    assert [h.base_sequence for h in headers[1:]] == [h.last_sequence + 1 for h in headers[:-1]]
