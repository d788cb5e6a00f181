"""`Producer`: records to any topic, each with a future that says where it was stored.

    send  -> serialize -> choose the partition -> librdkafka's queue (waits while it is full)
                                                        |  batches, compression, retries
    future, flush, close  <-  delivery reports  <-  a thread that polls librdkafka

Nothing is lost in silence: a failure that nobody has taken from its future is raised by the next
`flush` or `close`. Records with an equal key go to the partition that the Java client would choose,
and by default every record is acknowledged by all in-sync replicas, once and in order.

Left out: changing settings while it runs; interceptors.
"""

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, Unpack

from penstock.client.client_metrics import ClientMetrics, StatisticsReceiver
from penstock.client.endpoint import ClientError, opened, reason
from penstock.client.errors import (
    DeadlineExceeded,
    DeliveryFailed,
    FatalFailure,
    failure,
    is_retriable,
    kafka_error,
)
from penstock.client.message import Delivery, delivery
from penstock.client.partitioner import PartitionCounts, Partitioner, choose
from penstock.client.properties import ProducerSettings, read_properties
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V
from penstock.client.serialization import BytesSerde, Serde, encode_part
from penstock.client.transaction import OffsetSource, Transaction, finish

HeadersLike = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
DeliveryReport = Callable[[Any, Any], None]

TURN_SECONDS = 0.1
SERVE_EVERY = 100
BUSY_RECORDS = 1_000
BUSY_SECONDS = 0.01
FORGOTTEN_SECONDS = 5.0
ANY_PARTITION = -1
BYTES = BytesSerde()


class DeliveryFuture(Future[Delivery]):
    """Where a record was stored, once it is; the exception is a DeliveryFailed."""

    def __init__(self, untaken: dict[int, DeliveryFailed]) -> None:
        super().__init__()
        # By the failure's own id: this future may be gone, and another one in its place in memory.
        self._untaken = untaken
        self._failed: DeliveryFailed | None = None

    def result(self, timeout: float | None = None) -> Delivery:
        """The delivery; raises what went wrong, which `flush` then does not raise again."""
        try:
            return super().result(timeout)
        finally:
            self._untaken.pop(id(self._failed), None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, which `flush` then does not raise."""
        try:
            return super().exception(timeout)
        finally:
            self._untaken.pop(id(self._failed), None)

    def report(self, error: Any, message: Any) -> None:
        """Take librdkafka's delivery report."""
        if error is None:
            self.set_result(delivery(message))
            return
        failed = delivery_failed(message.topic(), error)
        # Before the callbacks run: one that looks at the exception has taken it.
        self._failed = failed
        self._untaken[id(failed)] = failed
        self.set_exception(failed)


def delivery_failed(topic: str, error: Any) -> DeliveryFailed:
    """The exception for a delivery report with an error."""
    error = kafka_error(error)
    text = f"{topic}: a record was not stored: {reason(error)}"
    name = error.name() if hasattr(error, "name") else ""
    return DeliveryFailed(text, name, retriable=is_retriable(error), topic=topic)


def raise_first(failures: list[DeliveryFailed]) -> None:
    """Raise the first of the failures, if there are any, and say how many there are."""
    if failures:
        first = failures[0]
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise DeliveryFailed(f"{first}{more}", first.name, retriable=first.retriable, topic=first.topic)


class ProducerRecord(NamedTuple):
    """A record as librdkafka takes it."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None


class Producer(Generic[K, V]):
    """Sends records; threads may share one.

    Settings are Kafka's own, in a mapping by their names (`{"linger.ms": 5}`) or as keywords with
    underscores (`linger_ms=5`). As a context manager it closes at the end, which waits for every record.
    """

    def __init__(
        self,
        properties: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Serde[K] | None = None,
        value_serializer: Serde[V] | None = None,
        partitioner: str | Partitioner | None = None,
        metrics: ClientMetrics | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import Producer as LibrdkafkaProducer

        name, self._partitioner = choose(partitioner)
        self._properties = read_properties("producer", properties, {**settings, "partitioner": name})
        librdkafka = dict(self._properties.librdkafka)
        self._complaints = librdkafka["error_cb"] = _Complaints(librdkafka.get("error_cb"))
        self._statistics = None if metrics is None else StatisticsReceiver(metrics, librdkafka)
        self._keys: Serde[Any] = key_serializer or BYTES
        self._values: Serde[Any] = value_serializer or BYTES
        # Looked up once: an import statement on the way of every record costs as much as a tenth of it.
        self._exception = KafkaException
        self._sent = 0
        self._untaken: dict[int, DeliveryFailed] = {}
        self.client: Any = opened(LibrdkafkaProducer, librdkafka)
        self._is_transactional = "transactional.id" in librdkafka
        self._is_initialized = False
        self._initializing = threading.Lock()
        self.transaction_seconds = int(librdkafka.get("transaction.timeout.ms", 60_000)) / 1_000
        self._counts = PartitionCounts(self.client, self.bootstrap)
        self._ended = threading.Event()
        self._poller = threading.Thread(
            target=_poll, args=(self.client, self._ended), name="penstock-producer", daemon=True
        )
        self._poller.start()
        # The poller knows librdkafka alone, so that a producer that is forgotten ends it.
        weakref.finalize(self, _end_forgotten, self.client, self._ended)

    @property
    def bootstrap(self) -> str:
        return self._properties.bootstrap

    @property
    def last_error(self) -> str:
        """What librdkafka complained of last; it goes on trying, so this may be history."""
        return self._complaints.last

    @property
    def block_seconds(self) -> float:
        """How long `send` waits while the queue is full."""
        return self._properties.own["max.block.ms"] / 1_000

    @property
    def is_closed(self) -> bool:
        return self._ended.is_set()

    @property
    def pending(self) -> int:
        """How many records are on their way."""
        return len(self.client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        # The body's exception says more than what becomes of its records.
        with suppress(ClientError):
            self.close()

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: HeadersLike | None = None,
    ) -> DeliveryFuture:
        """Hand over one record, waiting up to `max.block.ms` while the queue is full.

        DeliveryFailed if it is known already that it cannot be stored, as one that is too large.
        `timestamp` is a time or Unix milliseconds; without one the record gets the time of sending.
        """
        record = self.serialize(topic, value, key, timestamp, headers)
        record = self.place(record, partition)
        future = DeliveryFuture(self._untaken)
        deadline = time.perf_counter() + self.block_seconds
        while not self.hand_over(record, future.report):
            if time.perf_counter() > deadline:
                raise self.queue_full(topic)
            self._ended.wait(TURN_SECONDS / 10)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record was stored; raises the first failure that nobody has taken.

        DeadlineExceeded after `timeout` seconds; without one it ends when librdkafka has given up on
        a record (`delivery.timeout.ms`).
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        while left := self._flush_once(_turn(deadline)):
            if deadline is not None and time.perf_counter() >= deadline:
                raise DeadlineExceeded(f"{left} records were not stored within {timeout} s{self._why()}")
        self._raise_untaken()

    def close(self, timeout: float | None = None) -> None:
        """Flush and end. After `timeout` seconds what is left is given up, and DeadlineExceeded says so."""
        if self.is_closed:
            return
        try:
            self.flush(timeout)
        except DeadlineExceeded:
            self.client.purge()
            self._flush_once(TURN_SECONDS)
            self._untaken.clear()
            raise
        finally:
            self._ended.set()
            self._poller.join()
            if self._statistics is not None:
                self._statistics.close()

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: whoever had it before is fenced, its open transaction aborted.

        The first `transaction` does so by itself; call it earlier to know early.
        """
        if not self._is_transactional:
            raise ClientError("transactions need transactional_id=")
        with self._initializing:
            if not self._is_initialized:
                finish(
                    "taking over the transactional id",
                    self.client.init_transactions,
                    self.transaction_seconds if timeout is None else timeout,
                )
                self._is_initialized = True

    def transaction(
        self, consumer: OffsetSource | None = None, *, timeout: float | None = None
    ) -> "Transaction[K, V]":
        """A transaction as a context manager; with `consumer` its offsets are part of it.

        Beginning, committing and aborting take up to `timeout` seconds each, by default
        `transaction.timeout.ms`.
        """
        self.init_transactions(timeout)
        return Transaction(self, consumer, self.transaction_seconds if timeout is None else timeout)

    def forget_failures(self) -> None:
        """Raise none of the failures that nobody has taken."""
        self._untaken.clear()

    def serialize(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        timestamp: datetime | int | None,
        headers: HeadersLike | None,
    ) -> ProducerRecord:
        """A record in bytes, without a partition."""
        if self.is_closed:
            raise ClientError("the producer is closed")
        return ProducerRecord(
            topic,
            encode_part("value", topic, self._values, value),
            encode_part("key", topic, self._keys, key),
            ANY_PARTITION,
            _milliseconds(timestamp),
            None if headers is None else header_list(headers),
        )

    def place(self, record: ProducerRecord, partition: int | None) -> ProducerRecord:
        """The record with its partition, for which the broker may have to be asked."""
        if partition is None:
            if self._partitioner is None:
                return record
            count = self._counts.known(record.topic) or self._counts.look_up(record.topic)
            partition = self._partitioner(record.topic, record.key, count)
            if not 0 <= partition < count:
                raise ClientError(f"{record.topic}: the partitioner chose {partition} of {count} partitions")
        elif partition < 0:
            raise ClientError(f"{record.topic}: there is no partition {partition}")
        return record._replace(partition=partition)

    def must_ask(self, topic: str, partition: int | None) -> bool:
        """Whether `place` has to ask the broker."""
        return partition is None and self._partitioner is not None and not self._counts.known(topic)

    def hand_over(self, record: ProducerRecord, report: DeliveryReport) -> bool:
        """Put a record into librdkafka's queue; False if that is full."""
        try:
            self.client.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=report,
                timestamp=record.timestamp_ms,
                headers=record.headers,
            )
        except BufferError:
            return False
        except self._exception as error:
            refused = failure(record.topic, error)
            if isinstance(refused, FatalFailure) or refused.name == "_STATE":
                raise refused from None
            raise delivery_failed(record.topic, error) from None
        self._sent += 1
        if not self._sent % SERVE_EVERY:
            # Reports are cheapest here: the poller's thread would have to wait for ours at each of them.
            self.poll()
        return True

    def poll(self) -> None:
        """Serve delivery reports that have come; a thread of the producer's does so by itself."""
        with suppress(self._exception):
            self.client.poll(0)

    def queue_full(self, topic: str) -> DeadlineExceeded:
        """The error for a queue that stays full."""
        waited = self._properties.own["max.block.ms"]
        return DeadlineExceeded(f"{topic}: the producer's queue was full for {waited} ms{self._why()}")

    def _flush_once(self, seconds: float) -> int:
        # A fatal error comes out wherever librdkafka is called; the next send raises it for what it is.
        with suppress(self._exception):
            self.client.flush(seconds)
        return self.pending

    def _raise_untaken(self) -> None:
        untaken = list(self._untaken.values())
        self._untaken.clear()
        raise_first(untaken)

    def _why(self) -> str:
        return f": {self.last_error}" if self.last_error else ""


class _Complaints:
    """What librdkafka complained of; it must not know the producer, or that would never be forgotten."""

    def __init__(self, on_error: Callable[[Any], None] | None) -> None:
        self._on_error = on_error
        self.last = ""

    def __call__(self, error: Any) -> None:
        self.last = reason(error)
        if self._on_error is not None:
            self._on_error(error)


def header_list(headers: HeadersLike) -> list[tuple[str, bytes | None]]:
    """Headers as librdkafka takes them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _poll(client: Any, ended: threading.Event) -> None:
    """Serve delivery reports until the producer has ended."""
    from confluent_kafka import KafkaException

    while not ended.is_set():
        # Whoever sends a lot serves the reports as well, and is not disturbed.
        is_busy = len(client) > BUSY_RECORDS
        if is_busy:
            ended.wait(BUSY_SECONDS)
        with suppress(KafkaException):
            client.poll(0 if is_busy else TURN_SECONDS)


def _end_forgotten(client: Any, ended: threading.Event) -> None:
    """A producer that nobody has closed: its records are given a moment, and its program a warning."""
    if ended.is_set():
        return
    ended.set()
    if left := len(client):
        warnings.warn(f"a producer with {left} records on their way was not closed", ResourceWarning, 2)
        client.flush(FORGOTTEN_SECONDS)


def _turn(deadline: float | None) -> float:
    # librdkafka waits in C, where Ctrl-C cannot reach.
    if deadline is None:
        return TURN_SECONDS
    return max(0.0, min(TURN_SECONDS, deadline - time.perf_counter()))


def _milliseconds(timestamp: datetime | int | None) -> int:
    if timestamp is None:
        return 0
    return int(timestamp.timestamp() * 1_000) if isinstance(timestamp, datetime) else timestamp
