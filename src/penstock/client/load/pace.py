"""One record at a time at a rate, and a consumer in another process that waits for them.

The value of a record starts with the time of its sending on the machine's monotonic clock,
which every process of a machine shares.
"""

import struct
import time
from collections.abc import Callable
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.client.errors import ClientError, reason, refused

_STAMP = struct.Struct(">q")
TURN_SECONDS = 0.1


def send_stamped(endpoint: Endpoint, topic: str, records: int, rate: int, value_bytes: int) -> int:
    """Send stamped records at a rate, each at once; answers how many ns the latest one was late."""
    from confluent_kafka import Producer

    failures: list[str] = []

    def failed(error: Any) -> None:
        failures.append(reason(error))

    settings = endpoint.settings(acks="1", linger_ms=0, message_timeout_ms=30_000, error_cb=failed)
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
    """Wait at the end of a topic for stamped records; answers how old each was when it came, in ns."""
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
                    raise ClientError(f"{topic}: {len(ages)} of {records} records came in {seconds_max} s")
            elif message.error() is None:
                ages.append(now - _STAMP.unpack_from(message.value())[0])
            elif message.error().name() == "_PARTITION_EOF":
                if not ages:
                    ready()
            else:
                raise refused(topic, message.error())
    finally:
        consumer.close()
    return ages
