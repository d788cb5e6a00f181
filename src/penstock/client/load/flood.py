"""As many records as librdkafka can send."""

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.client.errors import ClientError, reason

CHUNK_RECORDS = 5_000
DISTINCT_VALUES = 50
TURN_SECONDS = 0.05
STATISTICS_MS = 250


@dataclass(frozen=True, slots=True)
class Load:
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
class Flooded:
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


def flood(endpoint: Endpoint, topic: str, load: Load) -> Flooded:
    """Send the load, wait for every acknowledgement, and say what it took; ClientError if any is missing."""
    from confluent_kafka import Producer

    result = Flooded()
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
    while producer.flush(TURN_SECONDS):
        _check(result, deadline)
    result.elapsed_ns = time.perf_counter_ns() - began
    result.client_cpu_ns = time.process_time_ns() - cpu
    result.records = load.records
    _check(result, deadline)
    # The number of requests comes with the client's next report.
    producer.poll(2 * STATISTICS_MS / 1_000)
    return result


def _send(producer: Any, topic: str, chunk: list[dict[str, Any]], load: Load, deadline: float) -> None:
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


def _chunk(load: Load, result: Flooded) -> list[dict[str, Any]]:
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


def _check(result: Flooded, deadline: float) -> None:
    if result.failure:
        raise ClientError(f"a record was not delivered: {result.failure}")
    if time.perf_counter() > deadline:
        raise ClientError("the time for this load is up")


def _note_statistics(result: Flooded, text: str) -> None:
    brokers = json.loads(text).get("brokers", {}).values()
    result.requests = sum(broker.get("req", {}).get("Produce", 0) for broker in brokers)
