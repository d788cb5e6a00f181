"""Sending records, and keeping account of what became of them."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.endpoint import BrokerUnreachable, ClientError, Endpoint, opened, reason
from penstock.client.transaction import finish

TURN_SECONDS = 0.1
NO_PARTITION = -1
ANY_PARTITION = -1
CHUNK_RECORDS = 4_096
FULL_SECONDS = 0.01
TOPIC_SECONDS = 10.0
MISSING_SECONDS = 2.0
TOPIC_TURN_SECONDS = 0.2
# librdkafka gives up on a record by itself; this is for the case that it does not say so.
GRACE_SECONDS = 10.0
ABORT_SECONDS = 5.0
_AWAY = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"})


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How records are put together and who must have them."""

    acks: str = "all"
    codec: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 16_384
    timeout_ms: int = 30_000


@dataclass(slots=True)
class SendReport:
    """The account: what was handed over, what arrived, and the first reason why something did not."""

    records: int = 0
    value_bytes: int = 0
    delivered: int = 0
    failed: int = 0
    reason: str = ""


class TopicProducer:
    """Sends to one topic; keys go where the Java client would put them."""

    def __init__(self, endpoint: Endpoint, topic: str, options: ProducerOptions) -> None:
        from confluent_kafka import Producer

        settings = endpoint.settings(
            acks=options.acks,
            compression_type=options.codec,
            linger_ms=options.linger_ms,
            batch_size=max(1, options.batch_bytes),
            message_timeout_ms=options.timeout_ms,
            enable_idempotence=options.acks == "all",
            partitioner="murmur2_random",
        )
        self._producer: Any = opened(Producer, settings)
        self._topic = topic
        self.sent = SendReport()

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = NO_PARTITION,
        timestamp_ms: int = 0,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Hand over one record, waiting while the client's queue is full; the first failure ends it."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=timestamp_ms,
                    headers=headers,
                )
                break
            except BufferError:
                self._producer.poll(TURN_SECONDS)
            except KafkaException as error:
                self._note_failure(error)
                break
        self.sent.records += 1
        self.sent.value_bytes += len(value or b"")
        if not self.sent.records % 1_000:
            self._producer.poll(0)
        self._raise_failure()

    def finish(self) -> SendReport:
        """Wait until everything was delivered, or raise the reason why it was not."""
        # librdkafka gives up on a record after `timeout_ms`, so this ends.
        while self._producer.flush(TURN_SECONDS):
            self._raise_failure()
        self._raise_failure()
        return self.sent

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.sent.delivered += 1
        else:
            self._note_failure(error)

    def _note_failure(self, error: Any) -> None:
        self.sent.failed += 1
        self.sent.reason = self.sent.reason or reason(error)

    def _raise_failure(self) -> None:
        sent = self.sent
        if sent.failed:
            # The caller has been given the failure: what is still in flight is dropped.
            self._producer.purge()
            raise ClientError(
                f"{self._topic}: a record was not delivered ({sent.reason}); {sent.delivered} were before it"
            )


@dataclass(frozen=True, slots=True)
class BulkProducerOptions:
    """How much may wait in memory, and for how long a record may be on its way."""

    queue_records: int = 100_000
    queue_kbytes: int = 64 << 10
    linger_ms: int = 5
    timeout_ms: int = 120_000


class SingleRecord(NamedTuple):
    """A record with what librdkafka takes only one by one: headers, a time of its own."""

    value: bytes | None
    key: bytes | None = None
    partition: int = ANY_PARTITION
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] | None = None


class BulkProducer:
    """An idempotent producer for many topics; keys go where the Java client would put them.

    The queue is bounded: `send` waits while it is full. Acknowledgements cost nothing here, for
    librdkafka is asked to report failures alone; what is gone from its queue without one was
    delivered. The first failure ends the sender.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        options: BulkProducerOptions | None = None,
        **callbacks: Callable[[str], None],
    ) -> None:
        from confluent_kafka import Producer

        options = options or BulkProducerOptions()
        settings = endpoint.settings(
            acks="all",
            enable_idempotence=True,
            partitioner="murmur2_random",
            linger_ms=options.linger_ms,
            queue_buffering_max_messages=options.queue_records,
            queue_buffering_max_kbytes=options.queue_kbytes,
            message_timeout_ms=options.timeout_ms,
            **callbacks,
        )
        settings["delivery.report.only.error"] = True
        self._timeout_seconds = int(settings["message.timeout.ms"]) / 1_000
        self._bootstrap = endpoint.bootstrap
        self._producer: Any = opened(Producer, settings)
        self._partitions: dict[str, int] = {}
        self._failure = ""
        self.records = 0

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; ClientError if there is no such topic and none is made."""
        if topic not in self._partitions:
            self._partitions[topic] = self._find(topic)
        return self._partitions[topic]

    def forget_topics(self) -> None:
        """Ask again for every topic: one may have been made anew, or have more partitions."""
        self._partitions.clear()

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partition: int = ANY_PARTITION,
    ) -> None:
        """Hand over a column of values, and of keys, in their order."""
        self._check_partition(topic, partition)
        for start in range(0, len(values), CHUNK_RECORDS):
            some = values[start : start + CHUNK_RECORDS]
            if keys is None:
                chunk: list[dict[str, Any]] = [{"value": value} for value in some]
            else:
                chunk = [
                    {"value": value, "key": key}
                    for value, key in zip(some, keys[start : start + CHUNK_RECORDS], strict=True)
                ]
            self._send_chunk(topic, chunk, partition)

    def send_each(self, topic: str, records: Iterable[SingleRecord]) -> None:
        """Hand over records with headers or times of their own, in their order."""
        from confluent_kafka import KafkaException

        for number, record in enumerate(records):
            self._check_partition(topic, record.partition)
            try:
                self._send_lone(topic, record)
            except (KafkaException, TypeError, ValueError) as error:
                self._note_failure(topic, record.partition, error)
            if not number % 1_000:
                self._producer.poll(0)
                self._raise_failure()
        self._raise_failure()

    def finish(self) -> int:
        """Wait until everything was delivered; returns how many records that were."""
        left = len(self._producer)
        deadline = time.perf_counter() + self._timeout_seconds + GRACE_SECONDS
        while waiting := self._producer.flush(TURN_SECONDS):
            self._raise_failure()
            if waiting < left:
                left, deadline = waiting, time.perf_counter() + self._timeout_seconds + GRACE_SECONDS
            elif time.perf_counter() > deadline:
                self.discard()
                raise ClientError(f"{waiting} records were not confirmed by {self._bootstrap} in time")
        self._raise_failure()
        return self.records

    def discard(self) -> None:
        """Give up on what is still on its way."""
        self._producer.purge()
        self._producer.poll(0)

    def _send_chunk(self, topic: str, chunk: list[dict[str, Any]], partition: int) -> None:
        from confluent_kafka import KafkaException

        while chunk:
            try:
                queued = self._producer.produce_batch(
                    topic, chunk, partition=partition, on_delivery=self._reported
                )
            except BufferError:
                queued = 0
            except (KafkaException, TypeError, ValueError) as error:
                self._note_failure(topic, partition, error)
                break
            self.records += queued
            full = queued < len(chunk)
            if full:
                # When the queue is full, all that follow are left over too, so the order stays.
                chunk = [record for record in chunk if self._left_over(topic, partition, record)]
            self._producer.poll(FULL_SECONDS if full else 0)
            self._raise_failure()
            if not full:
                return
        self._raise_failure()

    def _left_over(self, topic: str, partition: int, record: dict[str, Any]) -> bool:
        error = record.pop("_error", None)
        if error is None:
            return False
        if error.name() != "_QUEUE_FULL":
            self._note_failure(topic, partition, error)
        return True

    def _send_lone(self, topic: str, record: SingleRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=self._reported,
                    timestamp=record.timestamp_ms,
                    headers=record.headers,
                )
            except BufferError:
                self._producer.poll(FULL_SECONDS)
                self._raise_failure()
            else:
                self.records += 1
                return

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self.partitions(topic)
        if partition >= count or partition < ANY_PARTITION:
            raise ClientError(f"{topic}: there is no partition {partition}, only 0 to {count - 1}")

    def _find(self, topic: str) -> int:
        from confluent_kafka import KafkaException

        # A broker that is away comes back, as it may for a record; one that creates topics needs
        # a moment; and one that does not will not change its mind.
        gone_at = time.perf_counter() + self._timeout_seconds
        turn_seconds = min(TOPIC_SECONDS, self._timeout_seconds)
        missing_at = time.perf_counter() + MISSING_SECONDS
        while True:
            try:
                found = self._producer.list_topics(topic, timeout=turn_seconds).topics[topic]
            except KafkaException as error:
                if time.perf_counter() > gone_at or error.args[0].name() not in _AWAY:
                    raise BrokerUnreachable(
                        f"{self._bootstrap} does not say where topic {topic} is: {reason(error)}"
                    ) from None
                continue
            if found.error is None and found.partitions:
                return len(found.partitions)
            _raise_missing(self._bootstrap, topic, found.error, late=time.perf_counter() > missing_at)
            time.sleep(TOPIC_TURN_SECONDS)

    def _reported(self, error: Any, message: Any) -> None:
        if error is not None:
            self._note_failure(message.topic(), message.partition(), error)

    def _note_failure(self, topic: str, partition: int | None, error: Any) -> None:
        where = topic if partition is None or partition < 0 else f"{topic}/{partition}"
        self._failure = self._failure or f"{where}: a record was not delivered: {reason(error)}"

    def _raise_failure(self) -> None:
        if self._failure:
            # The caller has been given the failure: what is still in flight is dropped.
            self.discard()
            raise ClientError(self._failure)


class OpenTransactionProducer(BulkProducer):
    """Writes in one transaction and leaves it open: somebody else commits it, by id, producer and epoch."""

    def __init__(self, endpoint: Endpoint, transactional_id: str, timeout_ms: int = 300_000) -> None:
        ours = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(timeout_ms),
            # librdkafka says which producer it is in its statistics, and nowhere else.
            "statistics.interval.ms": "50",
        }
        self._transactional_id = transactional_id
        self._identities: list[tuple[int, int]] = []
        super().__init__(Endpoint(endpoint.bootstrap, {**ours, **endpoint.options}), stats_cb=self._seen)
        finish(transactional_id, self._producer.init_transactions, self._timeout_seconds)
        self._producer.begin_transaction()

    def identity(self) -> tuple[int, int]:
        """The producer's id and epoch, which stay as they are while the transaction is open."""
        deadline = time.perf_counter() + self._timeout_seconds
        # What was heard before the last record was acknowledged may be out of date.
        self._identities.clear()
        while not self._identities:
            self._producer.poll(FULL_SECONDS)
            if time.perf_counter() > deadline:
                raise ClientError(f"{self._transactional_id}: librdkafka does not say which producer it is")
        return self._identities[-1]

    def discard(self) -> None:
        """Give up: what was written is aborted, now if a broker responds, by its timeout otherwise."""
        from confluent_kafka import KafkaException

        super().discard()
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(ABORT_SECONDS)

    def _seen(self, statistics: str) -> None:
        known = json.loads(statistics).get("eos", {})
        if known.get("producer_id", -1) >= 0:
            self._identities.append((known["producer_id"], known["producer_epoch"]))


def _raise_missing(bootstrap: str, topic: str, error: Any, *, late: bool) -> None:
    """Raise unless the topic may still come."""
    name = "LEADER_NOT_AVAILABLE" if error is None else error.name()
    if name in ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART") and not late:
        return
    why = "does not exist, and the broker does not create it" if name == "UNKNOWN_TOPIC_OR_PART" else None
    why = why or ("has no leader" if error is None else reason(error))
    raise ClientError(f"topic {topic} at {bootstrap}: {why}")


def settings_refused(settings: Mapping[str, str]) -> str | None:
    """The first of the settings that would break what a BulkProducer guarantees."""
    promised = {
        "acks": ("all", "-1"),
        "enable.idempotence": ("true",),
        "request.required.acks": ("all", "-1"),
    }
    for name, allowed in promised.items():
        if settings.get(name, allowed[0]).lower() not in allowed:
            return name
    return "transactional.id" if "transactional.id" in settings else None
