"""`AsyncProducer`: the producer for asyncio.

`send` puts the record into librdkafka's queue on the loop, for that asks nobody; it waits only while
the queue is full, or for a partitioner that has to know how many partitions there are. Delivery reports
come in on the producer's thread and reach the loop in bursts: one wake-up for many.

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        future = await producer.send("orders", "3 apples")        # handed over
        print((await future).id)                                  # stored
        await producer.send_and_wait("orders", "2 pears")         # both

Made and used on one loop.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, Unpack

from penstock.client.client_metrics import ClientMetrics
from penstock.client.endpoint import ClientError
from penstock.client.errors import (
    DeadlineExceeded,
    DeliveryFailed,
    FatalFailure,
    RequestFailed,
    TransactionAborted,
)
from penstock.client.message import Delivery, TopicPartition, delivery
from penstock.client.partitioner import Partitioner
from penstock.client.properties import ProducerSettings
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V
from penstock.client.serialization import Serde
from penstock.client.sync_producer import HeadersLike, Producer, delivery_failed, raise_first
from penstock.client.transaction import begin, finish, send_offsets

FULL_SECONDS = 0.01


class _Reports:
    """Delivery reports on their way from the producer's thread to the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._arrived: deque[tuple[asyncio.Future[Delivery], Any, Any]] = deque()
        self._is_scheduled = False
        self.failed: list[asyncio.Future[Delivery]] = []

    def report(self, future: asyncio.Future[Delivery], error: Any, message: Any) -> None:
        """Called on the producer's thread."""
        outcome = delivery(message) if error is None else delivery_failed(message.topic(), error)
        self._arrived.append((future, error, outcome))
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                self.loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        # First, so that whatever comes from now on is taken along or wakes us again.
        self._is_scheduled = False
        while self._arrived:
            future, error, outcome = self._arrived.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(outcome)
            else:
                self.failed.append(future)
                future.set_exception(outcome)

    def untaken(self) -> list[DeliveryFailed]:
        """The failures that nobody has looked at, once each."""
        failed, self.failed = self.failed, []
        # asyncio notes whether an exception was retrieved, to complain at the end if not.
        untaken = [future for future in failed if getattr(future, "_log_traceback", False)]
        errors = [future.exception() for future in untaken]
        return [error for error in errors if isinstance(error, DeliveryFailed)]


class AsyncOffsetSource(Protocol):
    """A consumer, as a transaction sees it."""

    def uncommitted(self) -> dict[TopicPartition, int]: ...

    def group_metadata(self) -> Any: ...

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    async def rewind(self) -> None: ...


class AsyncProducer(Generic[K, V]):
    """Sends records; see `Producer` for settings, serializers and partitioners."""

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
        self._reports = _Reports()
        self._producer: Producer[K, V] = Producer(
            properties,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            metrics=metrics,
            **settings,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
            return
        # The body's exception says more than what becomes of its records.
        with suppress(ClientError):
            await self.close()

    @property
    def pending(self) -> int:
        """How many records are on their way."""
        return self._producer.pending

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: HeadersLike | None = None,
    ) -> asyncio.Future[Delivery]:
        """Hand over one record, waiting up to `max.block.ms` while the queue is full.

        The future is done when the record is stored.
        """
        producer = self._producer
        record = producer.serialize(topic, value, key, timestamp, headers)
        if producer.must_ask(topic, partition):
            record = await asyncio.to_thread(producer.place, record, partition)
        else:
            record = producer.place(record, partition)
        future: asyncio.Future[Delivery] = self._reports.loop.create_future()
        report = partial(self._reports.report, future)
        deadline = self._reports.loop.time() + producer.block_seconds
        while not producer.hand_over(record, report):
            if self._reports.loop.time() > deadline:
                raise producer.queue_full(topic)
            await asyncio.sleep(FULL_SECONDS)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: HeadersLike | None = None,
    ) -> Delivery:
        """Send one record, and wait until it is stored."""
        return await (
            await self.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers)
        )

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record was stored; raises the first failure that nobody has taken."""
        await asyncio.to_thread(self._producer.flush, timeout)
        raise_first(self._reports.untaken())

    async def close(self, timeout: float | None = None) -> None:
        """Flush and end. After `timeout` seconds what is left is given up, and DeadlineExceeded says so."""
        await asyncio.to_thread(self._producer.close, timeout)
        raise_first(self._reports.untaken())

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id; the first transaction does so by itself."""
        await asyncio.to_thread(self._producer.init_transactions, timeout)

    def transaction(
        self, consumer: AsyncOffsetSource | None = None, *, timeout: float | None = None
    ) -> "AsyncTransaction[K, V]":
        """A transaction as an async context manager; with `consumer` its offsets are part of it."""
        seconds = self._producer.transaction_seconds if timeout is None else timeout
        return AsyncTransaction(self, self._producer, consumer, seconds)

    def forget_failures(self) -> None:
        """Raise none of the failures that nobody has taken."""
        self._reports.untaken()


class AsyncTransaction(Generic[K, V]):
    """One transaction; what `penstock.client.transaction` says holds for it."""

    def __init__(
        self,
        producer: AsyncProducer[K, V],
        core: Producer[K, V],
        consumer: AsyncOffsetSource | None,
        timeout: float,
    ) -> None:
        self._producer = producer
        self._core = core
        self._consumer = consumer
        self._timeout = timeout
        self._offsets: list[tuple[AsyncOffsetSource, dict[TopicPartition, int]]] = []
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._producer.init_transactions(self._timeout)
        begin(self._core.client)
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            if self._is_open:
                await self.commit()
        elif isinstance(error, FatalFailure):
            self._is_open = False
            await self._rewind()
        elif self._is_open:
            await self.abort()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: HeadersLike | None = None,
    ) -> asyncio.Future[Delivery]:
        """As `AsyncProducer.send`; readers of committed records see it once the transaction is committed."""
        if not self._is_open:
            raise ClientError("the transaction has ended")
        try:
            return await self._producer.send(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers
            )
        except RequestFailed as error:
            if error.name == "_STATE":
                raise TransactionAborted(f"the transaction has failed before: {error}", error.name) from None
            raise

    async def send_offsets(
        self, consumer: AsyncOffsetSource, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction: those of everything it has returned, or these."""
        wanted = consumer.uncommitted() if offsets is None else dict(offsets)
        self._offsets.append((consumer, wanted))
        if wanted:
            await asyncio.to_thread(
                send_offsets, self._core.client, consumer.group_metadata(), wanted, self._timeout
            )

    async def commit(self) -> None:
        """Commit; TransactionAborted if that was refused, and nothing of it is visible."""
        try:
            if self._consumer is not None and all(self._consumer is not one for one, _ in self._offsets):
                await self.send_offsets(self._consumer)
            await asyncio.to_thread(finish, "committing", self._core.client.commit_transaction, self._timeout)
        except (FatalFailure, DeadlineExceeded):
            self._is_open = False
            await self._rewind()
            raise
        except ClientError:
            await self.abort()
            raise
        self._is_open = False
        for consumer, offsets in self._offsets:
            consumer.committed_elsewhere(offsets)

    async def abort(self) -> None:
        """Abort. The consumers read again what the transaction would have committed."""
        self._is_open = False
        try:
            await self._rewind()
        finally:
            await asyncio.to_thread(finish, "aborting", self._core.client.abort_transaction, self._timeout)
        self._producer.forget_failures()

    async def _rewind(self) -> None:
        consumers = [consumer for consumer, _ in self._offsets]
        if self._consumer is not None and all(self._consumer is not one for one in consumers):
            consumers.append(self._consumer)
        for consumer in consumers:
            await consumer.rewind()
