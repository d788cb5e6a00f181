"""Encryption at rest, with a node in a process of its own: what stands on disk, and which keys it needs."""

import base64
import itertools
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from penstock.client import Endpoint, TopicAdmin
from penstock.client.delays import DelayAdmin, LaterRecord
from penstock.client.queues import GroupQueues
from penstock.core.model import LeaderEpoch, Timestamp
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
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
from penstock.core.records import (
    HEADER_BYTES,
    CompressionType,
    Record,
    check_batches,
    read_records,
    write_batch,
)
from penstock.security.key_services import KeyringKeys
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.log.files import decode_identity
from tests.support.clusters import until
from tests.support.nodes import NodeProcess
from tests.support.share_consumer import REJECT, SharedRecord, WireShareConsumer
from tests.support.wire import Wire

NOW_MS = 1_794_997_800_000
MARKER = b"nobody may read this"
ON = "security.encryption.enabled=true"
Start = Callable[..., NodeProcess]


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    """A keyring with one key."""
    path = tmp_path / "keyring"
    KeyringKeys(str(path)).create(NOW_MS)
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Launches nodes on the same data directory, with these settings, one after the other."""
    started: list[NodeProcess] = []

    def launch(*settings: str) -> NodeProcess:
        node = NodeProcess(tmp_path / "data", *settings)
        started.append(node)
        node.launch()
        return node

    yield launch
    for node in started:
        node.kill()


def with_keyring(path: Path) -> tuple[str, ...]:
    return ON, f"security.encryption.keyring={path}"


def last_line(node: NodeProcess) -> str:
    """What a node said that could not start: one line, and nothing of a traceback."""
    assert node.await_end() == 1
    assert "Traceback" not in node.said()
    return node.said().splitlines()[-1]


def test_a_node_needs_the_keys_of_its_directory_and_says_so_in_one_line(
    start: Start, keyring: Path, tmp_path: Path
) -> None:
    start(*with_keyring(keyring)).await_ready().stop()
    other = tmp_path / "other"
    KeyringKeys(str(other)).create(NOW_MS)

    assert "the data directory is encrypted, and no keys are configured" in last_line(start())
    assert "is not there, and it is needed" in last_line(start(*with_keyring(other)))
    missing = last_line(start(*with_keyring(tmp_path / "nothing")))
    assert "no master key, which security.encryption needs: the keyring cannot be used" in missing
    keyring.chmod(0o644)
    assert "others may read it: chmod 600" in last_line(start(*with_keyring(keyring)))

    keyring.chmod(0o600)
    assert start(*with_keyring(keyring)).await_ready().stop() == 0


def test_a_directory_that_was_in_use_is_encrypted_from_the_next_start_on(start: Start, keyring: Path) -> None:
    node = start().await_ready()
    node.kill()
    snapshots = list((node.data_dir / "meta/raft").glob("*.snapshot"))
    before = [path.read_bytes() for path in snapshots]

    start(*with_keyring(keyring)).await_ready().kill()

    assert all(path.read_bytes() not in before for path in snapshots)
    assert start(*with_keyring(keyring)).await_ready().stop() == 0
    assert "the data directory is encrypted" in last_line(start())


def test_keys_may_come_from_a_command_or_a_variable(start: Start, keyring: Path, tmp_path: Path) -> None:
    keys = KeyringKeys(str(keyring)).load()
    text = f"{keys.current}:{keys.secrets[keys.current].hex()}"
    secret = tmp_path / "secret"
    secret.write_text(text)
    start(*with_keyring(keyring)).await_ready().stop()

    command = (ON, "security.encryption.service=command", f"security.encryption.command=cat,{secret}")
    assert start(*command).await_ready().stop() == 0

    node = NodeProcess(tmp_path / "data", ON, "security.encryption.service=environment")
    node.variables = {"PENSTOCK_MASTER_KEYS": text}
    assert node.start().stop() == 0


def create_topic(node: NodeProcess) -> None:
    topic = CreateTopicsRequestTopic(
        name="orders", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    with closing(Wire(node.address)) as wire:
        wire.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)


def marked(number: int) -> bytes:
    """A batch with the marker in key, value and header, in one codec after the other."""
    text = MARKER + b" %d" % number
    record = Record(0, NOW_MS, text, text, (("trace", text),))
    return bytes(write_batch([record], codec=CompressionType(number % len(CompressionType))))


def produce_until_it_is_gone(node: NodeProcess, acknowledged: list[int], enough: threading.Event) -> None:
    with suppress(AssertionError, OSError), closing(Wire(node.address)) as wire:
        for number in itertools.count():
            part = ProduceRequestPartition(index=0, records=marked(number))
            data = (ProduceRequestTopic(name="orders", partition_data=(part,)),)
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)
            response = wire.ask(request, ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].error_code == 0
            acknowledged.append(number)
            if number == 60:
                enough.set()


def read_all(node: NodeProcess, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with closing(Wire(node.address)) as wire:
        while len(values) < count:
            part = FetchRequestPartition(partition=0, fetch_offset=len(values), partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=(FetchRequestTopic(topic="orders", partitions=(part,)),),
            )
            found = wire.ask(request, FetchResponse, 11).responses[0].partitions[0]
            assert found.error_code == 0
            assert found.records
            assert isinstance(found.records, bytes | memoryview)
            content, position = memoryview(found.records), 0
            for header in check_batches(content):
                batch = content[position : position + header.size_bytes]
                values += [record.value for record in read_records(batch)]
                position += header.size_bytes
    return values


def forms(text: bytes) -> dict[str, bytes]:
    """What somebody would search a disk for who looks for a text: as it is, and as it may be written down."""
    encoded = {f"base64 at {skip}": base64.b64encode(b"." * skip + text)[4:-4] for skip in range(3)}
    return {
        "as it is": text,
        "UTF-16": text.decode().encode("utf-16-le"),
        "hexadecimal": text.hex().encode(),
        "backwards": text[::-1],
        **encoded,
    }


def places_in_clear(node: NodeProcess, wanted: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Every file below the directory of a node, and that with its events, in which one of these stands."""
    found: dict[str, list[str]] = {}
    for path in [*node.data_dir.rglob("*"), node.events]:
        # Some are replaced meanwhile.
        with suppress(FileNotFoundError, IsADirectoryError):
            content = path.read_bytes()
            for name, one in wanted.items():
                if one in content:
                    found.setdefault(name, []).append(path.name)
    return found


# What clients write in each place where a broker keeps something of theirs.
PLACES = (
    "plain",
    "gzip",
    "committed",
    "aborted",
    "unfinished",
    "offset-metadata",
    "transaction-offset-metadata",
    "compacted-old",
    "compacted-last",
    "delayed-due",
    "delayed-pending",
    "queued",
    "release-reason",
    "reject-reason",
    "dead-letter",
    "shared",
)
SECRETS = {place: f"nobody may read this of {place}".encode() for place in PLACES}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
CLIENT_SECONDS = 30


class Clients:
    """Write the secrets to a node in every way that clients have."""

    def __init__(self, node: NodeProcess) -> None:
        self.bootstrap = node.kafka
        self.endpoint = Endpoint(node.kafka)

    def produce(self, topic: str, *places: str, **settings: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **settings})
        for place in places:
            self._send(producer, topic, place)
            producer.flush(CLIENT_SECONDS)

    @staticmethod
    def _send(producer: Producer, topic: str, place: str) -> None:
        text = SECRETS[place]
        producer.produce(topic, key=text, value=text, headers=[("trace", text)], partition=0)

    def create_topics(self) -> None:
        admin = TopicAdmin(self.endpoint)
        for topic in ("orders", "jobs", "later", "shared"):
            admin.create(topic, 1, 1, {})
        admin.create("prices", 1, 1, COMPACTED)

    def commit_offsets(self, group: str, place: str) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        with closing(consumer):
            offset = TopicPartition("orders", 0, 1, metadata=SECRETS[place].decode())
            consumer.commit(offsets=[offset], asynchronous=False)

    def transactions(self) -> Producer:
        """One that is committed, with offsets, one that is aborted, and one that has not ended."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "t", "linger.ms": 0})
        producer.init_transactions(CLIENT_SECONDS)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "g2"})
        with closing(consumer):
            group = consumer.consumer_group_metadata()
            for place, end in (
                ("committed", producer.commit_transaction),
                ("aborted", producer.abort_transaction),
            ):
                producer.begin_transaction()
                self._send(producer, "orders", place)
                producer.flush(CLIENT_SECONDS)
                text = SECRETS["transaction-offset-metadata"].decode()
                offset = TopicPartition("orders", 0, 1, metadata=text)
                producer.send_offsets_to_transaction([offset], group, CLIENT_SECONDS)
                end(CLIENT_SECONDS)
        producer.begin_transaction()
        self._send(producer, "orders", "unfinished")
        producer.flush(CLIENT_SECONDS)
        return producer

    def delay(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.delayed = [
            LaterRecord("later", now_ms + wait_ms, text, text, 0, (("trace", text),))
            for wait_ms, text in ((200, SECRETS["delayed-due"]), (3_600_000, SECRETS["delayed-pending"]))
        ]
        DelayAdmin(self.endpoint).schedule(self.delayed)

    def work_on_queue(self) -> None:
        """Records that were given back, given up, and are leased."""
        self.produce("jobs", "queued", "dead-letter", "queued")
        queues = GroupQueues(self.endpoint, "workers")
        received = queues.receive([("jobs", ())], consumer="w", wait_ms=10_000, lease_ms=60_000)
        while len(received) < 3:
            received += queues.receive([("jobs", ())], consumer="w", wait_ms=10_000, lease_ms=60_000)
        queues.release([received[0].receipt], delay_ms=0, reason=SECRETS["release-reason"].decode())
        queues.reject([received[1].receipt], reason=SECRETS["reject-reason"].decode())

    def share(self) -> None:
        """A member of a share group (KIP-932) that has acquired two records, and given up one."""
        self.produce("shared", "shared", "shared")
        host, _, port = self.bootstrap.rpartition(":")
        consumer = WireShareConsumer([(host, int(port))], "sharers", str(uuid.UUID(int=7)), "shared")
        with closing(consumer):
            found: list[SharedRecord] = []
            while len(found) < 2:
                found += consumer.fetch(10, 1_000)
            assert consumer.acknowledge(0, [found[0].offset], REJECT) == ErrorCode.NONE

    def compact(self) -> None:
        for _ in range(30):
            self.produce("prices", "compacted-old")
        self.produce("prices", "compacted-last")

    def values(self, topic: str) -> list[bytes]:
        """Every record of a topic's first partition that is committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        found: list[bytes] = []
        with closing(consumer):
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(CLIENT_SECONDS)
                assert message is not None
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    return found
                found.append(message.value() or b"")


def records_as_sent(node: NodeProcess, offset: int) -> bytes:
    """What stands behind the header of the batch at an offset of `orders`, compressed as it is."""
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=(FetchRequestTopic(topic="orders", partitions=(part,)),)
    )
    with closing(Wire(node.address)) as wire:
        content = wire.ask(request, FetchResponse, 11).responses[0].partitions[0].records
    assert isinstance(content, bytes | memoryview)
    return bytes(content[HEADER_BYTES : next(iter(check_batches(memoryview(content)))).size_bytes])


def spoil_end(node: NodeProcess) -> None:
    """Put a damaged batch behind the end of a partition, and good ones behind that."""
    segment = max((node.data_dir / "logs/orders/0").glob("*.log"))
    content = segment.read_bytes()
    first = content[: 12 + int.from_bytes(content[8:12], "big")]
    with segment.open("ab") as file:
        file.write(first[:-1] + bytes([first[-1] ^ 1]) + content)


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_nothing_that_clients_give_to_a_node_stands_in_clear_below_its_directory(
    start: Start, keyring: Path, is_encrypted: bool
) -> None:
    settings = (
        *(with_keyring(keyring) if is_encrypted else ()),
        "storage.compaction_interval_ms=200",
        "groups.offsets_partitions=1",
        "groups.initial_rebalance_delay_ms=0",
    )
    node = start(*settings).await_ready()
    clients = Clients(node)
    clients.create_topics()
    clients.produce("orders", "plain")
    clients.produce("orders", "gzip", **{"compression.type": "gzip"})
    clients.commit_offsets("g1", "offset-metadata")
    unfinished = clients.transactions()
    clients.delay()
    clients.work_on_queue()
    clients.share()
    clients.compact()
    wanted = {
        f"{name}, {form}": content for name, text in SECRETS.items() for form, content in forms(text).items()
    }
    wanted["gzip, compressed"] = records_as_sent(node, 1)
    found = places_in_clear(node, wanted)

    node.kill()
    found |= places_in_clear(node, wanted)
    spoil_end(node)
    node = start(*settings).await_ready()
    clients = Clients(node)
    until(lambda: SECRETS["delayed-due"] in clients.values("later"), "what was delayed is there")
    until(lambda: len(clients.values("prices")) < 10, "the topic is compacted")
    until(lambda: SECRETS["dead-letter"] in clients.values("jobs.dlq"), "a dead letter is there")
    assert list((node.data_dir / "logs/orders/0/quarantine").iterdir())
    for topic, places in (("orders", ("plain", "gzip", "committed")), ("prices", ("compacted-last",))):
        values = clients.values(topic)
        assert [place for place in places if SECRETS[place] not in values] == []
    found |= places_in_clear(node, wanted)

    node.kill()
    found |= places_in_clear(node, wanted)
    assert start(*settings).await_ready().stop() == 0
    found |= places_in_clear(node, wanted)

    del unfinished
    if is_encrypted:
        assert found == {}
    else:
        # The same search finds all of it.
        assert {name.partition(",")[0] for name in found} == {*PLACES}
        assert "gzip, compressed" in found


def fetch_error(node: NodeProcess) -> int:
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=(FetchRequestTopic(topic="orders", partitions=(part,)),)
    )
    with closing(Wire(node.address)) as wire:
        return wire.ask(request, FetchResponse, 11).responses[0].partitions[0].error_code


@pytest.mark.parametrize("was_in_use", [True, False])
def test_a_partition_in_clear_that_was_put_in_the_place_of_an_encrypted_one_is_not_served(
    start: Start, keyring: Path, was_in_use: bool
) -> None:
    if was_in_use:
        node = start().await_ready()
        create_topic(node)
        assert node.stop() == 0
    node = start(*with_keyring(keyring)).await_ready()
    if not was_in_use:
        create_topic(node)
    Clients(node).produce("orders", "plain")
    if was_in_use:
        until(lambda: "encryption.tables_complete" in node.events.read_text(), "every log has a key table")
    assert node.stop() == 0
    directory = node.data_dir / "logs/orders/0"
    identity = decode_identity((directory / "partition.metadata").read_bytes())
    shutil.rmtree(directory)
    forged = PartitionLog.create(PosixDisk(str(node.data_dir)), "logs/orders/0", identity, LogOptions())
    batch = bytearray(marked(0))
    forged.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(NOW_MS))
    forged.close()

    node = start(*with_keyring(keyring)).await_ready()

    assert fetch_error(node) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "the key table of the log logs/orders/0 is missing" in node.events.read_text()


def files_with_the_marker(node: NodeProcess) -> list[str]:
    files = [path for path in node.data_dir.rglob("*") if path.is_file()]
    return [str(path.relative_to(node.data_dir)) for path in files if MARKER in path.read_bytes()]


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_what_was_acknowledged_before_a_kill_is_read_after_it_and_stands_in_no_file(
    start: Start, keyring: Path, is_encrypted: bool
) -> None:
    settings = with_keyring(keyring) if is_encrypted else ()
    node = start(*settings).await_ready()
    create_topic(node)
    acknowledged, enough = list[int](), threading.Event()
    load = threading.Thread(target=produce_until_it_is_gone, args=(node, acknowledged, enough))
    load.start()
    assert enough.wait(60)
    node.kill()
    load.join()
    when_killed = files_with_the_marker(node)

    node = start(*settings).await_ready()
    values = read_all(node, len(acknowledged))

    assert values[: len(acknowledged)] == [MARKER + b" %d" % number for number in acknowledged]
    assert node.stop() == 0
    if is_encrypted:
        assert when_killed == files_with_the_marker(node) == []
    else:
        # The same search finds it: in the log, and in the journal while that has it.
        assert any(path.startswith("logs/orders/0/") for path in when_killed)
