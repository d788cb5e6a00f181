"""Putting load on a broker, with a stock client and with none.

    MetricShape                   what a fleet of hosts measures, for records that look like something
    flood                         as many records as librdkafka can send, or so many a second
    drain                         as many records as librdkafka can read
    BlockProducer                 blocks of the caller's own records, each acknowledged before the next
    send_stamped, await_stamped   one record at a time at a rate, and a consumer in another process
    publish, fetch_empty          one request after the other on plain sockets, without a client

librdkafka can be pointed at a broker inside its own process (`mock_endpoint`): what it
reaches there is its own limit, and the yardstick for what it reaches elsewhere.

A stamped record starts with the time of its sending on the machine's monotonic clock, which every
process of a machine shares. Every function is bounded in records and in time, and returns plain
figures; `penstock bench` makes them into a report.
"""

import hashlib
import json
import math
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.client.connection import BrokerConnection
from penstock.client.connection_security import ConnectionSecurity
from penstock.client.endpoint import ClientError, Endpoint, client_error, opened, reason
from penstock.core.protocol import ErrorCode, api, decode_whole, read_response_header
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch

BATCH_RECORDS = 10_000
CONSUME_TURN_SECONDS = 0.1
REGIONS = ("eu-west", "us-east", "ap-south")
SERVICES = ("checkout", "search", "accounts", "mail")
DAY_MS = 86_400_000
CHUNK_RECORDS = 5_000
DISTINCT_VALUES = 50
PRODUCE_TURN_SECONDS = 0.05
STATISTICS_MS = 250
_STAMP = struct.Struct(">q")
TURN_SECONDS = 0.1
WARM_UP = 100
# The last versions that name topics instead of numbering them.
PRODUCE_VERSION_MAX = 12
FETCH_VERSION_MAX = 12
SAMPLE_EVERY = 50
POLL_EVERY = 1_000
BLOCK_TURN_SECONDS = 0.05
Measured = tuple[bytes, bytes, int]


@dataclass(slots=True)
class ConsumeReport:
    """What was read, and what it took from the first fetch on."""

    records: int = 0
    value_bytes: int = 0
    elapsed_ns: int = 0
    first_ns: int = 0
    client_cpu_ns: int = 0


def drain(
    endpoint: Endpoint, topic: str, partitions: Sequence[int], records: int, seconds_max: float
) -> ConsumeReport:
    """Read so many records of a topic from its beginning."""
    from confluent_kafka import Consumer, TopicPartition

    settings = endpoint.settings(
        group_id="penstock-bench",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_wait_max_ms=100,
        queued_min_messages=500_000,
        queued_max_messages_kbytes=512 << 10,
        max_partition_fetch_bytes=8 << 20,
        check_crcs=False,
    )
    consumer: Any = opened(Consumer, settings)
    result = ConsumeReport()
    began, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while result.records < records:
            messages = consumer.consume(BATCH_RECORDS, CONSUME_TURN_SECONDS)
            now = time.perf_counter_ns()
            if messages:
                result.first_ns = result.first_ns or now - began
                _count(result, messages)
                result.elapsed_ns = now - began
            elif now - began > seconds_max * 1e9:
                raise ClientError(f"{topic}: {result.records} of {records} records read in {seconds_max} s")
        result.elapsed_ns = time.perf_counter_ns() - began
        result.client_cpu_ns = time.process_time_ns() - cpu
    finally:
        consumer.close()
    return result


def _count(result: ConsumeReport, messages: list[Any]) -> None:
    for message in messages:
        if message.error() is not None:
            raise client_error(message.topic() or "", message.error())
    result.records += len(messages)
    # Records of a load are all of one size; asking each would cost as much as reading it.
    result.value_bytes += len(messages) * len(messages[0])


class MetricShape(NamedTuple):
    """How one kind of metric moves: around a level, with the time of day, and with noise."""

    name: str
    level: float
    swing: float
    noise: float
    digits: int
    counts_up: bool = False


SHAPES = (
    MetricShape("cpu_usage_percent", 42, 25, 8, 1),
    MetricShape("memory_used_bytes", 6.2e9, 4e8, 5e7, 0),
    MetricShape("http_requests_total", 120, 80, 20, 0, counts_up=True),
    MetricShape("http_latency_ms", 18, 9, 6, 2),
    MetricShape("queue_depth", 40, 35, 15, 0),
    MetricShape("disk_io_bytes_per_second", 3.1e7, 2e7, 6e6, 0),
)


class HostSeries(NamedTuple):
    """One metric of one host, with the JSON around its value and its time."""

    host: int
    shape: MetricShape
    key: bytes
    labels: dict[str, str]
    client: str
    before_value: str
    before_time: str
    after_time: str


def series_of(host: int, shape: MetricShape) -> HostSeries:
    labels = {
        "host": f"host-{host:02d}",
        "region": REGIONS[host % len(REGIONS)],
        "service": SERVICES[host % len(SERVICES)],
    }
    client = f"agent-{host:02d}"
    measurement = {"name": shape.name, "value": "@", "labels": labels, "timestamp": "@", "client": client}
    parts = json.dumps(measurement, separators=(",", ":")).split('"@"')
    return HostSeries(host, shape, f"{shape.name}@{labels['host']}".encode(), labels, client, *parts)


def value_at(shape: MetricShape, phase: float, timestamp: int, chance: float) -> float:
    """The value at a time: `phase` shifts a host's day, `chance` is between -1 and 1."""
    turn = 2 * math.pi * (timestamp % DAY_MS / DAY_MS + phase)
    return max(0.0, shape.level + shape.swing * math.sin(turn) + shape.noise * chance)


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """What to send: how many records, how large, and how they are put together."""

    records: int
    value_bytes: int
    codec: str = "none"
    acks: str = "1"
    linger_ms: float = 5
    batch_bytes: int = 1_000_000
    rate: int | None = None
    partition: int = -1
    seconds_max: float = 60


@dataclass(slots=True)
class ProduceReport:
    """What it took. Latencies are those of a sample, from handing over to acknowledgement."""

    records: int = 0
    elapsed_ns: int = 0
    client_cpu_ns: int = 0
    requests: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    failure: str = ""


def mock_endpoint() -> Endpoint:
    """A broker inside the client's own process, which keeps nothing."""
    return Endpoint("127.0.0.1:1", {"test.mock.num.brokers": "1"})


def flood(endpoint: Endpoint, topic: str, load: ProduceLoad) -> ProduceReport:
    """Send the load, wait for every acknowledgement, and say what it took; ClientError if any is missing."""
    from confluent_kafka import Producer

    result = ProduceReport()
    settings = endpoint.settings(
        acks=load.acks,
        compression_type=load.codec,
        linger_ms=load.linger_ms,
        batch_size=load.batch_bytes,
        batch_num_messages=1_000_000,
        queue_buffering_max_messages=1_000_000,
        queue_buffering_max_kbytes=512 << 10,
        message_timeout_ms=int(load.seconds_max * 1_000),
        statistics_interval_ms=STATISTICS_MS,
        stats_cb=lambda text: _note_statistics(result, text),
    )
    producer: Any = opened(Producer, settings)
    chunk = _chunk(load, result)
    deadline = time.perf_counter() + load.seconds_max
    producer.poll(0)
    began, cpu = time.perf_counter_ns(), time.process_time_ns()
    _send(producer, topic, chunk, load, deadline)
    while producer.flush(PRODUCE_TURN_SECONDS):
        _check(result, deadline)
    result.elapsed_ns = time.perf_counter_ns() - began
    result.client_cpu_ns = time.process_time_ns() - cpu
    result.records = load.records
    _check(result, deadline)
    # The number of requests comes with the client's next report.
    producer.poll(2 * STATISTICS_MS / 1_000)
    return result


def _send(producer: Any, topic: str, chunk: list[dict[str, Any]], load: ProduceLoad, deadline: float) -> None:
    began = time.perf_counter()
    sent = 0
    while sent < load.records:
        now = time.perf_counter()
        if now > deadline:
            raise ClientError(f"{topic}: {sent} of {load.records} records sent within {load.seconds_max} s")
        due = load.records if load.rate is None else min(load.records, int((now - began) * load.rate))
        wanted = min(due - sent, len(chunk))
        if wanted <= 0:
            producer.poll(0.001)
            continue
        queued = producer.produce_batch(topic, chunk[:wanted], partition=load.partition)
        sent += queued
        # Acknowledgements are served here; a full queue is given a moment to drain.
        producer.poll(0.002 if queued < wanted else 0)


def _chunk(load: ProduceLoad, result: ProduceReport) -> list[dict[str, Any]]:
    """Records that are sent over and over; one in a hundred reports when it arrived."""

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            result.failure = result.failure or reason(error)
        elif (latency := message.latency()) is not None:
            result.latencies_ns.append(int(latency * 1e9))

    values = [_value(number, load.value_bytes) for number in range(DISTINCT_VALUES)]
    every = 20 if load.rate is not None else 500
    chunk: list[dict[str, Any]] = [
        {"value": values[number % DISTINCT_VALUES]} for number in range(CHUNK_RECORDS)
    ]
    for number in range(0, CHUNK_RECORDS, every):
        chunk[number] = {**chunk[number], "callback": delivered}
    return chunk


def _value(number: int, size: int) -> bytes:
    """Text that a codec can halve, but not make disappear."""
    text = b"".join(
        hashlib.blake2b(b"%d %d" % (number, part), digest_size=32).hexdigest().encode()
        for part in range(size // 64 + 1)
    )
    return text[:size]


def _check(result: ProduceReport, deadline: float) -> None:
    if result.failure:
        raise ClientError(f"a record was not delivered: {result.failure}")
    if time.perf_counter() > deadline:
        raise ClientError("the load was not acknowledged in time; raise its time limit or send less")


def _note_statistics(result: ProduceReport, text: str) -> None:
    brokers = json.loads(text).get("brokers", {}).values()
    result.requests = sum(broker.get("req", {}).get("Produce", 0) for broker in brokers)


def send_stamped(
    endpoint: Endpoint, topic: str, records: int, rate: int, value_bytes: int, acks: str = "1"
) -> int:
    """Send stamped records at a rate, each at once; returns how many ns the latest one was late."""
    from confluent_kafka import Producer

    failures: list[str] = []

    def failed(error: Any) -> None:
        failures.append(reason(error))

    settings = endpoint.settings(acks=acks, linger_ms=0, message_timeout_ms=30_000, error_cb=failed)
    producer: Any = opened(Producer, settings)
    producer.list_topics(topic, timeout=5)
    padding = b"x" * max(0, value_bytes - _STAMP.size)
    began = time.perf_counter_ns()
    sent = late_ns = 0
    while sent < records:
        now = time.perf_counter_ns()
        due = began + sent * 1_000_000_000 // rate
        if now < due:
            # Sleeping and not spinning: the core belongs to the broker and the consumer too.
            time.sleep((due - now) / 1e9)
            continue
        late_ns = max(late_ns, now - due)
        producer.produce(topic, _STAMP.pack(now) + padding, partition=0)
        sent += 1
        if not sent % 100:
            producer.poll(0)
    deadline = time.perf_counter() + 30
    while producer.flush(TURN_SECONDS):
        if time.perf_counter() > deadline or failures:
            raise ClientError(f"{topic}: {failures[0] if failures else 'not delivered within 30 s'}")
    return late_ns


def await_stamped(
    endpoint: Endpoint, topic: str, records: int, seconds_max: float, ready: Callable[[], None]
) -> list[int]:
    """Wait at the end of a topic for stamped records; returns how old each was when it came, in ns."""
    from confluent_kafka import Consumer, TopicPartition

    settings = endpoint.settings(
        group_id="penstock-bench",
        enable_auto_commit=False,
        auto_offset_reset="latest",
        enable_partition_eof=True,
        fetch_min_bytes=1,
        fetch_wait_max_ms=500,
    )
    consumer: Any = opened(Consumer, settings)
    ages: list[int] = []
    deadline = time.perf_counter() + seconds_max
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(ages) < records:
            message = consumer.poll(TURN_SECONDS)
            now = time.perf_counter_ns()
            if message is None:
                if time.perf_counter() > deadline:
                    raise ClientError(
                        f"{topic}: {len(ages)} of {records} records arrived within {seconds_max} s"
                    )
            elif message.error() is None:
                ages.append(now - _STAMP.unpack_from(message.value())[0])
            elif message.error().name() == "_PARTITION_EOF":
                if not ages:
                    ready()
            else:
                raise client_error(topic, message.error())
    finally:
        consumer.close()
    return ages


@dataclass(slots=True)
class RoundTripLatencies:
    """How long each took."""

    latencies_ns: list[int] = field(default_factory=list)
    elapsed_ns: int = 0


def open_connections(
    address: tuple[str, int], count: int, security: ConnectionSecurity | None = None
) -> list[BrokerConnection]:
    """So many connections; only the first asks what the broker speaks."""
    first = BrokerConnection(address, security=security)
    versions = dict(first.versions)
    versions[0] = min(versions[0], PRODUCE_VERSION_MAX)
    versions[1] = min(versions[1], FETCH_VERSION_MAX)
    first.close()
    return [BrokerConnection(address, versions=versions, security=security) for _ in range(count)]


def publish_frames(
    connection: BrokerConnection, topic: str, partitions: int, value_bytes: int, acks: int
) -> list[bytearray]:
    """A Produce request of one record for each partition, ready to be sent."""
    batch = bytes(write_batch([Record(0, int(time.time_ns() // 1_000_000), None, b"x" * value_bytes, ())]))
    return [produce_frame(connection, topic, partition, batch, acks) for partition in range(partitions)]


def produce_frame(
    connection: BrokerConnection, topic: str, partition: int, batch: bytes, acks: int
) -> bytearray:
    """A Produce request of one batch, ready to be sent."""
    data = ProduceRequestTopic(
        name=topic, partition_data=(ProduceRequestPartition(index=partition, records=batch),)
    )
    return connection.frame(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(data,)))


def publish(
    connections: Sequence[BrokerConnection], frames: Sequence[bytearray], count: int, seconds_max: float
) -> RoundTripLatencies:
    """Send the frames in turn over the connections in turn, each after the response to the last."""
    version = connections[0].versions[0]
    for index in range(min(WARM_UP, count)):
        check_response(version, connections[index % len(connections)].exchange(frames[index % len(frames)]))
    result = RoundTripLatencies()
    took = result.latencies_ns
    response = b""
    deadline = time.perf_counter_ns() + int(seconds_max * 1e9)
    began = time.perf_counter_ns()
    for index in range(count):
        connection, frame = connections[index % len(connections)], frames[index % len(frames)]
        start = time.perf_counter_ns()
        response = connection.exchange(frame)
        end = time.perf_counter_ns()
        took.append(end - start)
        if end > deadline:
            break
    result.elapsed_ns = time.perf_counter_ns() - began
    check_response(version, response)
    return result


def check_response(version: int, response: bytes) -> None:
    """Raise if the first partition of a Produce response has an error."""
    _, position = read_response_header(api(0), version, response)
    answer = decode_whole(ProduceResponse, response, version, position)
    code = answer.responses[0].partition_responses[0].error_code
    if code != ErrorCode.NONE:
        raise ClientError(f"a Produce request failed with error {code}")


def fetch_frame(connection: BrokerConnection, topic: str, offset: int, max_wait_ms: int = 0) -> bytearray:
    """A Fetch request for partition 0."""
    partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return connection.frame(
        FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(FetchRequestTopic(topic=topic, partitions=(partition,)),),
        )
    )


def fetch_empty(connection: BrokerConnection, topic: str, offset: int, count: int) -> RoundTripLatencies:
    """Ask at the end of a partition, where there is nothing, without waiting."""
    frame = fetch_frame(connection, topic, offset)
    for _ in range(min(WARM_UP, count)):
        connection.exchange(frame)
    result = RoundTripLatencies()
    began = time.perf_counter_ns()
    for _ in range(count):
        start = time.perf_counter_ns()
        connection.exchange(frame)
        result.latencies_ns.append(time.perf_counter_ns() - start)
    result.elapsed_ns = time.perf_counter_ns() - began
    return result


def fetch_for(connection: BrokerConnection, topic: str, seconds: float) -> int:
    """Read the start of a partition over and over, to keep a broker busy; returns the bytes."""
    frame = fetch_frame(connection, topic, 0)
    deadline = time.perf_counter() + seconds
    received = 0
    while time.perf_counter() < deadline:
        received += len(connection.exchange(frame))
    return received


class BlockProducer:
    """Sends blocks of key, value and timestamp to one topic; time counts only while it sends."""

    def __init__(self, endpoint: Endpoint, topic: str, seconds_max: float = 60) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._seconds_max = seconds_max
        self._failure = ""
        self.elapsed_ns = 0
        self.latencies_ns: list[int] = []
        settings = endpoint.settings(
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=5,
            batch_size=256 << 10,
            queue_buffering_max_messages=1_000_000,
            partitioner="murmur2_random",
            message_timeout_ms=int(seconds_max * 1_000),
        )
        self._producer: Any = opened(Producer, settings)
        self._producer.list_topics(topic, timeout=5)

    def send(self, block: Sequence[Measured]) -> None:
        """Send a block and wait until all of it is acknowledged; ClientError if it is not."""
        produce, topic = self._producer.produce, self._topic
        began = time.perf_counter_ns()
        for number, (key, value, timestamp_ms) in enumerate(block):
            callback = self._delivered if not number % SAMPLE_EVERY else self._failed_only
            while True:
                try:
                    produce(topic, value, key, timestamp=timestamp_ms, on_delivery=callback)
                    break
                except BufferError:
                    self._producer.poll(BLOCK_TURN_SECONDS)
            if not number % POLL_EVERY:
                self._producer.poll(0)
        while self._producer.flush(BLOCK_TURN_SECONDS):
            if time.perf_counter_ns() - began > self._seconds_max * 1e9:
                raise ClientError(f"{topic}: a block was not acknowledged in {self._seconds_max} s")
        self.elapsed_ns += time.perf_counter_ns() - began
        if self._failure:
            raise ClientError(f"{topic}: a record was not delivered: {self._failure}")

    def _failed_only(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = self._failure or reason(error)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or reason(error)
        elif (latency := message.latency()) is not None:
            self.latencies_ns.append(int(latency * 1e9))
