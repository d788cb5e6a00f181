"""`Consumer`: records of topics, alone or in a group, and how far they were processed.

A message counts as processed when the next one is asked for, when `commit` is called, or when a
`with` block ends without an exception. Only what is processed is committed: in the background every
`auto.commit.interval.ms`, when partitions are taken away, and at the end. A program that fails in the
middle of a message therefore gets that message again.

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="mail", topics=["orders"]) as consumer:
        for message in consumer:
            print(message.id, message.value)

A consumer belongs to one thread, as librdkafka's does; `stop` may be called from any.

Left out: subscribing without a group; share groups.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from penstock.client.client_metrics import ClientMetrics, StatisticsReceiver
from penstock.client.consumed_offsets import ConsumedOffsets
from penstock.client.endpoint import ClientError, opened, reason
from penstock.client.errors import HOPELESS, InvalidProperty, TransactionAborted, failure, kafka_error
from penstock.client.message import Message, RawMessage, TopicPartition, raw_message
from penstock.client.offset_store import OffsetStore
from penstock.client.properties import ConsumerSettings, read_properties
from penstock.client.record_types import ReadKey as K
from penstock.client.record_types import ReadValue as V
from penstock.client.serialization import Serde, decode_message
from penstock.client.worker_pool import ProcessOptions, ProcessSettings, WorkerPool

RebalanceListener = Callable[[list[TopicPartition]], None]

TURN_SECONDS = 0.1
# How often what was processed is handed to librdkafka, which commits it in the background.
STORE_SECONDS = 0.1
# How long a program may be busy with messages at hand before librdkafka is asked again.
POLL_SECONDS = 0.5
GROUPLESS = "penstock-consumer"
# The member is out of its group, which it is told by on_lost; it joins again by itself.
_PASSED_BY = frozenset({"_PARTITION_EOF", "_MAX_POLL_EXCEEDED"})
_NOT_OURS = frozenset({"_STATE", "_UNKNOWN_PARTITION"})


class Consumer(Generic[K, V]):
    """Reads records.

    Settings are Kafka's own, in a mapping by their names (`{"group.id": "mail"}`) or as keywords with
    underscores (`group_id="mail"`). With `topics` it subscribes at once.
    """

    def __init__(
        self,
        properties: Mapping[str, Any] | None = None,
        /,
        *,
        topics: str | Iterable[str] | None = None,
        key_deserializer: Serde[K] | None = None,
        value_deserializer: Serde[V] | None = None,
        offset_store: OffsetStore | None = None,
        metrics: ClientMetrics | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        from confluent_kafka import Consumer as LibrdkafkaConsumer
        from confluent_kafka import KafkaException

        self._properties = read_properties("consumer", properties, settings)
        librdkafka = dict(self._properties.librdkafka)
        self.group: str | None = librdkafka.get("group.id")
        self._offset_store = offset_store
        self._auto_commit = _commits_itself(librdkafka, offset_store)
        # Without a group nobody subscribes, but librdkafka wants a name.
        librdkafka["group.id"] = self.group or GROUPLESS
        librdkafka["enable.auto.commit"] = self._auto_commit and offset_store is None
        self._on_error = librdkafka.get("error_cb")
        librdkafka["error_cb"] = self._note_error
        self._statistics = None if metrics is None else StatisticsReceiver(metrics, librdkafka)
        self._store_seconds = STORE_SECONDS
        if offset_store is not None:
            self._store_seconds = int(librdkafka.get("auto.commit.interval.ms", 5_000)) / 1_000
        self._is_incremental = (
            "cooperative" in str(librdkafka.get("partition.assignment.strategy", ""))
            or librdkafka.get("group.protocol") == "consumer"
        )
        self._exception = KafkaException
        self._keys = key_deserializer
        self._values = value_deserializer
        self._api_seconds = self._properties.own["default.api.timeout.ms"] / 1_000
        self._on_assign: RebalanceListener | None = None
        self._on_revoke: RebalanceListener | None = None
        self._on_lost: RebalanceListener | None = None
        self._consumed: ConsumedOffsets[K, V] = ConsumedOffsets()
        self._stored_at = self._polled_at = time.perf_counter()
        # Fetched from librdkafka, and not handed out yet.
        self._fetched: deque[Any] = deque()
        # What librdkafka complained of last; it goes on trying, so this may be history.
        self.last_error = ""
        self._hopeless: ClientError | None = None
        self._stopped = threading.Event()
        self._pool: WorkerPool | None = None
        self._is_closing = self._is_closed = False
        self.client: Any = opened(LibrdkafkaConsumer, librdkafka)
        if topics is not None:
            self.subscribe(topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.settle()
            self.close()
            return
        # The body's exception says more; what was in hand is not processed.
        with suppress(ClientError):
            self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[K, V]:
        message = self.poll(None)
        if message is None:
            raise StopIteration
        return message

    def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics; a name that starts with ^ is a pattern.

        `on_revoke` may still commit what it has; with `on_lost` others have the partitions already.
        """
        if self.group is None:
            raise ClientError("subscribe needs group_id=; a consumer without a group takes assign()")
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        names = [topics] if isinstance(topics, str) else list(topics)
        self._call(
            "subscribe",
            self.client.subscribe,
            names,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, without the group having a say; a mapping says from which offsets."""
        offsets = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        self._forget(self._consumed.partitions())
        self._call("assign", self.client.assign, self._starts(offsets))

    def poll(self, timeout: float | None = 1.0) -> Message[K, V] | None:
        """The next message, waiting up to `timeout` seconds, or for ever with None.

        What was returned before counts as processed. None if there is nothing, or after `stop`.
        """
        messages = self.poll_batch(1, timeout)
        return messages[0] if messages else None

    def poll_batch(self, records_max: int | None = None, timeout: float | None = 1.0) -> list[Message[K, V]]:
        """Up to `records_max` messages (`max.poll.records` by default), as many as there are.

        It waits only while there is none. What was returned before counts as processed.
        """
        self.settle()
        self.fill(self.batch_records, timeout)
        return self.take(records_max or self.batch_records)

    def commit(self, offsets: Message[Any, Any] | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit, and wait until that is done: everything handed out, up to one message, or these offsets.

        An offset is that of the next message to be read.
        """
        if offsets is None:
            self.settle()
            wanted = self.positions()
        elif isinstance(offsets, Message):
            wanted = {offsets.topic_partition: offsets.offset + 1}
        else:
            wanted = dict(offsets)
        if wanted:
            self._commit(wanted)
            self.committed_elsewhere(wanted)

    def positions(self) -> dict[TopicPartition, int]:
        """Of every partition that messages were returned of since the last commit: the next offset."""
        return self._consumed.uncommitted()

    def uncommitted(self) -> dict[TopicPartition, int]:
        """As `positions`, for a transaction; TransactionAborted if some are somebody else's by now."""
        if self._auto_commit:
            raise ClientError("a consumer whose offsets a transaction commits needs enable_auto_commit=False")
        if self._consumed.has_lost:
            raise TransactionAborted("partitions were taken away before their offsets were committed")
        return self.positions()

    def rewind(self) -> None:
        """Read again what was returned and does not count as processed, or is not committed.

        With a store that is what it says: a transaction that was rolled back has committed nothing.
        A consumer that commits by itself goes back to what it returned last.
        """
        if self._auto_commit:
            targets = self._consumed.drop_in_hand()
        elif self._offset_store is not None:
            assigned = self._consumed.first_assigned()
            stored = self._offset_store.load(list(assigned))
            self._consumed.drop_in_hand()
            targets = {one: stored.get(one, first) for one, first in assigned.items()}
        else:
            targets = self._consumed.drop_uncommitted()
        for partition, offset in targets.items():
            self.seek(partition, offset)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._drop_fetched((partition,))
        self._call("seek", self.client.seek, _native(partition, offset))
        self._consumed.moved(partition, offset)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        found = self._call("assignment", self.client.assignment)
        return sorted(TopicPartition(one.topic, one.partition) for one in found)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        wanted = [_native(one) for one in partitions]
        found = self._call("committed", self.client.committed, wanted, timeout=self._api_seconds)
        return {TopicPartition(one.topic, one.partition): _offset(one) for one in found}

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset that is kept, and the one after the last."""
        start, end = self._call(
            "watermarks", self.client.get_watermark_offsets, _native(partition), timeout=self._api_seconds
        )
        return start, end

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no messages of these partitions until they are resumed."""
        paused = list(partitions)
        self._call("pause", self.client.pause, [_native(one) for one in paused])
        for partition, offset in self._drop_fetched(paused).items():
            self._call("pause", self.client.seek, _native(partition, offset))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._call("resume", self.client.resume, [_native(one) for one in partitions])

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End iteration and waiting; may be called from any thread, or from a signal handler."""
        self._stopped.set()

    def close(self) -> None:
        """Commit what was processed and leave the group. What is in hand is not processed: see `commit`."""
        if self._is_closing:
            return
        self._is_closing = True
        self._stopped.set()
        try:
            self._store()
        finally:
            try:
                # Takes the partitions away first: `on_revoke` may still commit.
                self._call("close", self.client.close)
            finally:
                self._is_closed = True
                if self._statistics is not None:
                    self._statistics.close()

    def process(self, handler: Callable[[Message[K, V]], object], **options: Unpack[ProcessSettings]) -> int:
        """Handle messages with several threads, in order per key, until `stop`; returns how many.

        Only finished messages are committed. A handler that raises is called again, `retries` times;
        then the message goes to `dead_letter_topic`, or HandlerFailed comes out. See ProcessOptions.
        """
        return self.run_pool(WorkerPool(self, handler, ProcessOptions(**options)))

    def run_pool(self, pool: WorkerPool) -> int:
        """Run a pool, which takes part in rebalances."""
        if self._offset_store is not None and self._offset_store.is_transactional:
            raise ClientError("process cannot commit offsets in the program's transactions: poll instead")
        self._pool = pool
        try:
            return pool.run()
        finally:
            self._pool = None

    def receive_raw(self, records_max: int, timeout: float | None) -> list[RawMessage]:
        """The next messages in bytes, which are nobody's yet: nothing of them counts as processed."""
        self.fill(records_max, timeout)
        messages: list[RawMessage] = []
        while self._fetched and len(messages) < records_max:
            if (trouble := self._fetched[0].error()) is not None:
                if messages:
                    break
                raise failure(_where(self._fetched.popleft()), trouble)
            messages.append(raw_message(self._fetched.popleft()))
        return messages

    def decode(self, message: RawMessage) -> Message[K, V]:
        """The message with its key and value as objects; may be called from any thread."""
        return decode_message(message, self._keys, self._values)

    @property
    def has_fetched(self) -> bool:
        """Whether there are messages at hand."""
        return bool(self._fetched)

    @property
    def must_poll(self) -> bool:
        """Whether librdkafka has to be asked, though there are messages at hand."""
        return time.perf_counter() - self._polled_at > POLL_SECONDS

    @property
    def batch_records(self) -> int:
        return self._properties.own["max.poll.records"]

    def take(self, records_max: int) -> list[Message[K, V]]:
        """Hand out messages that are at hand."""
        messages: list[Message[K, V]] = []
        while self._fetched and len(messages) < records_max:
            try:
                messages.append(self._decoded(self._fetched[0]))
            except ClientError:
                # The good ones first; the error is met again by whoever asks for more.
                if messages:
                    break
                self._fetched.popleft()
                raise
            self._fetched.popleft()
        self._consumed.hand_out(messages)
        return messages

    def fill(self, records_max: int, timeout: float | None) -> None:
        """Fetch messages if there are none at hand, waiting up to `timeout` seconds for the first."""
        if self._fetched:
            if self.must_poll:
                # A slow program with much at hand is still alive, and hears of rebalances.
                self._fetch(1, 0.0)
            if self._fetched:
                return
            # All of it was of partitions that were taken away just now.
        deadline = None if timeout is None else time.perf_counter() + timeout
        while not self._fetched and not self._stopped.is_set():
            if self._hopeless is not None:
                raise self._hopeless
            self._store_in_time()
            left = TURN_SECONDS if deadline is None else deadline - time.perf_counter()
            is_empty = self._fetch(records_max, max(0.0, min(TURN_SECONDS, left)))
            if is_empty and left <= 0:
                return

    def _fetch(self, records_max: int, seconds: float) -> bool:
        """Ask librdkafka, which serves rebalances as well; returns whether it had nothing."""
        self._polled_at = time.perf_counter()
        first = self._call("poll", self.client.poll, seconds)
        if first is None:
            return True
        # At hand at once: its partition may be taken away while the others are asked for.
        self._keep_fetched((first,))
        if records_max > 1:
            # librdkafka's own batches would wait for the last of them.
            self._keep_fetched(self._call("poll", self.client.consume, records_max - 1, 0))
        return False

    def _keep_fetched(self, messages: Iterable[Any]) -> None:
        self._fetched.extend(one for one in messages if not _is_passed_by(one))

    def processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Messages before these offsets need not come again: the next commit in the background has them."""
        self._consumed.processed(offsets)

    def commit_processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as this consumer does: in the background, or at once if it does not by itself."""
        if self._auto_commit:
            self.processed(offsets)
        else:
            self.commit(offsets)

    def shared_properties(self) -> dict[str, Any]:
        """The settings that a producer for the same cluster has as well."""
        return self._properties.shared()

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed: a rewind goes back to them."""
        self._consumed.committed(offsets)

    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for this member of the group."""
        return self._call("group metadata", self.client.consumer_group_metadata)

    def settle(self) -> None:
        """What was handed out is processed."""
        self._consumed.settle()

    def _decoded(self, message: Any) -> Message[K, V]:
        if (trouble := message.error()) is not None:
            raise failure(_where(message), trouble)
        return decode_message(raw_message(message), self._keys, self._values)

    def _drop_fetched(self, partitions: Container[TopicPartition]) -> dict[TopicPartition, int]:
        """Drop what was fetched of partitions; returns the first offset dropped of each."""
        dropped: dict[TopicPartition, int] = {}
        kept: deque[Any] = deque()
        for message in self._fetched:
            partition = TopicPartition(message.topic(), message.partition())
            if partition in partitions:
                dropped.setdefault(partition, message.offset())
            else:
                kept.append(message)
        self._fetched = kept
        return dropped

    def _store_in_time(self) -> None:
        now = time.perf_counter()
        if self._consumed.has_processed and now - self._stored_at >= self._store_seconds:
            self._stored_at = now
            self._store()

    def _store(self) -> None:
        """Hand over what was processed; librdkafka commits it in the background and at the end."""
        processed = self._consumed.take_processed()
        if not self._auto_commit or not processed:
            return
        if self._offset_store is not None:
            self._offset_store.save(processed)
            return
        for partition, offset in processed.items():
            try:
                self.client.store_offsets(offsets=[_native(partition, offset)])
            except self._exception as error:
                # A partition that was taken away meanwhile: somebody else reads it from the last commit on.
                if kafka_error(error).name() not in _NOT_OURS:
                    raise failure(f"{partition}: storing the offset", error) from None

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._offset_store is not None:
            self._offset_store.save(offsets)
            return
        if self.group is None:
            raise ClientError("commit needs group_id= or offset_store=")
        answers = self._call(
            f"group {self.group}: committing",
            self.client.commit,
            offsets=[_native(one, offset) for one, offset in offsets.items()],
            asynchronous=False,
        )
        for one in answers or ():
            if one.error is not None:
                raise failure(f"group {self.group}: committing {one.topic}/{one.partition}", one.error)

    def _assigned(self, client: Any, assigned: list[Any]) -> None:
        partitions = _partitions(assigned)
        self._forget(partitions)
        starts = self._starts(dict.fromkeys(partitions))
        if self._is_incremental:
            client.incremental_assign(starts)
        else:
            client.assign(starts)
        if self._on_assign is not None:
            self._on_assign(partitions)

    def _revoked(self, _client: Any, revoked: list[Any]) -> None:
        partitions = _partitions(revoked)
        if self._pool is not None:
            self._pool.drain(partitions)
        if self._on_revoke is not None:
            self._on_revoke(partitions)
        self._store()
        self._forget(partitions)

    def _lost(self, _client: Any, lost: list[Any]) -> None:
        partitions = _partitions(lost)
        if self._pool is not None:
            self._pool.discard(partitions)
        self._forget(partitions)
        if self._on_lost is not None:
            self._on_lost(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        self._drop_fetched(partitions)
        self._consumed.forget(partitions)

    def _starts(self, offsets: Mapping[TopicPartition, int | None]) -> list[Any]:
        """Where to begin: at offsets that were asked for, or where the store or the group is."""
        stored: Mapping[TopicPartition, int] = {}
        if self._offset_store is not None:
            stored = self._offset_store.load(list(offsets))
        return [
            _native(one, stored.get(one) if offset is None else offset) for one, offset in offsets.items()
        ]

    def _call(self, what: str, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if self._is_closed:
            raise ClientError(f"{what}: the consumer is closed")
        try:
            return call(*arguments, **keywords)
        except self._exception as error:
            raise failure(what, error) from None

    def _note_error(self, error: Any) -> None:
        self.last_error = reason(error)
        if error.fatal() or error.name() in HOPELESS:
            self._hopeless = failure("the consumer cannot go on", error)
        if self._on_error is not None:
            self._on_error(error)


def _native(partition: TopicPartition, offset: int | None = None) -> Any:
    from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition

    if offset is None:
        return LibrdkafkaTopicPartition(partition.topic, partition.partition)
    return LibrdkafkaTopicPartition(partition.topic, partition.partition, offset)


def _partitions(native: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in native]


def _offset(native: Any) -> int | None:
    return native.offset if native.offset >= 0 else None


def _where(message: Any) -> str:
    topic, partition = message.topic(), message.partition()
    return str(topic) if partition is None or partition < 0 else f"{topic}/{partition}"


def _is_passed_by(message: Any) -> bool:
    error = message.error()
    return error is not None and error.name() in _PASSED_BY


def _commits_itself(librdkafka: Mapping[str, Any], store: OffsetStore | None) -> bool:
    asked = librdkafka.get("enable.auto.commit")
    if store is not None and store.is_transactional:
        if asked is not None and _is_true(asked):
            raise InvalidProperty(
                "enable.auto.commit: the program commits these offsets, with its transactions"
            )
        return False
    has_place = store is not None or librdkafka.get("group.id") is not None
    return has_place and (asked is None or _is_true(asked))


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"
