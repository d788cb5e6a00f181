"""Records into a topic at a rate, until it is enough."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.client import BulkProducer, Endpoint
from penstock.pipeline.generator.account import Account
from penstock.pipeline.generator.stream import MetricStream, Pair

CHUNK_RECORDS = 4_096
CHUNK_SECONDS = 0.05
CLOSING_AHEAD_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was sent and confirmed, how long that took, and the account of it."""

    account: Account
    records: int
    value_bytes: int
    seconds: float
    stopped: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast at most, and when to stop; None is no limit."""

    rate: float | None = None
    seconds: float | None = None


def generate(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    limits: Limits | None = None,
    advance: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Send a stream until it ends, the time is up or `stop` says so; ClientError if a record is lost.

    Whatever ends it, all that the account holds was sent and confirmed.
    """
    sending = _Sending(BulkProducer(endpoint), topic, limits or Limits(), advance, stop)
    stopped = False
    for pairs in stream.intervals():
        sending.add(pairs)
        if sending.is_over():
            stopped = True
            sending.add(stream.rest())
            break
    sending.flush()
    records = sending.sender.finish()
    seconds = time.perf_counter() - sending.began
    return Outcome(stream.account, records, sending.value_bytes, seconds, stopped)


def send_closing(endpoint: Endpoint, topic: str, stream: MetricStream) -> int:
    """Send the closing record, a day after everything that was made; answers its time."""
    last = stream.account.last_ms
    after_ms = (stream.timestamp_ms if last is None else last) + CLOSING_AHEAD_MS
    key, value = stream.closing(after_ms)
    sender = BulkProducer(endpoint)
    sender.send(topic, [value], [key])
    sender.finish()
    return after_ms


class _Sending:
    """Gathers records into chunks and hands them over when they are due."""

    def __init__(
        self,
        sender: BulkProducer,
        topic: str,
        limits: Limits,
        advance: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> None:
        self.sender = sender
        self.value_bytes = 0
        self._topic = topic
        self._limits = limits
        self._advance = advance
        self._stop = stop
        self._chunk: list[Pair] = []
        self._sent = 0
        rate = limits.rate
        self._chunk_records = (
            CHUNK_RECORDS if rate is None else max(1, min(CHUNK_RECORDS, int(rate * CHUNK_SECONDS)))
        )
        sender.partitions(topic)
        self.began = time.perf_counter()

    def add(self, pairs: list[Pair]) -> None:
        self._chunk += pairs
        while len(self._chunk) >= self._chunk_records:
            due, self._chunk = self._chunk[: self._chunk_records], self._chunk[self._chunk_records :]
            self._send(due)

    def flush(self) -> None:
        if self._chunk:
            due, self._chunk = self._chunk, []
            self._send(due)

    def is_over(self) -> bool:
        seconds = self._limits.seconds
        return self._stop() or (seconds is not None and time.perf_counter() - self.began >= seconds)

    def _send(self, pairs: list[Pair]) -> None:
        self._wait_for_turn()
        values = [value for _, value in pairs]
        self.sender.send(self._topic, values, [key for key, _ in pairs])
        self.value_bytes += sum(len(value) for value in values if value)
        self._sent += len(pairs)
        self._advance(len(pairs))

    def _wait_for_turn(self) -> None:
        if self._limits.rate is None:
            return
        due = self.began + self._sent / self._limits.rate
        while (left := due - time.perf_counter()) > 0 and not self.is_over():
            # In pieces, so that a signal does not have to wait for a slow rate.
            time.sleep(min(left, CHUNK_SECONDS))
