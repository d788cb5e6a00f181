"""Records block by block through a stock client, each block acknowledged before the next."""

import time
from collections.abc import Sequence
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.client.errors import ClientError, reason

SAMPLE_EVERY = 50
POLL_EVERY = 1_000
TURN_SECONDS = 0.05
Measured = tuple[bytes, bytes, int]


class Stream:
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
                    self._producer.poll(TURN_SECONDS)
            if not number % POLL_EVERY:
                self._producer.poll(0)
        while self._producer.flush(TURN_SECONDS):
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
