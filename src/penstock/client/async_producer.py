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
from typing import Any, Generic, Self, Unpack

from penstock.client.async_transaction import AsyncOffsetSource, AsyncTransaction
from penstock.client.client_metrics import ClientMetrics
from penstock.client.endpoint import ClientError
from penstock.client.errors import DeliveryFailed
from penstock.client.message import Delivery, delivery
from penstock.client.partitioner import Partitioner
from penstock.client.properties import ProducerSettings
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V
from penstock.client.serialization import Serde
from penstock.client.sync_producer import HeadersLike, Producer, delivery_failed, raise_first

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
    ) -> AsyncTransaction[K, V]:
        """A transaction as an async context manager; with `consumer` its offsets are part of it."""
        seconds = self._producer.transaction_seconds if timeout is None else timeout
        return AsyncTransaction(self, self._producer, consumer, seconds)

    def forget_failures(self) -> None:
        """Raise none of the failures that nobody has taken."""
        self._reports.untaken()
