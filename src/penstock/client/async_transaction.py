"""Transactions of `AsyncProducer`; what `penstock.client.transaction` says holds for them."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from penstock.client.endpoint import ClientError
from penstock.client.errors import DeadlineExceeded, FatalFailure, RequestFailed
from penstock.client.message import Delivery, TopicPartition
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V
from penstock.client.transaction import TransactionOffsets, begin, finish, refusal, send_offsets

if TYPE_CHECKING:
    from penstock.client.async_producer import AsyncProducer
    from penstock.client.sync_producer import HeadersLike, Producer


class AsyncOffsetSource(Protocol):
    """A consumer, as a transaction sees it."""

    def uncommitted(self) -> dict[TopicPartition, int]: ...

    def group_metadata(self) -> Any: ...

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    async def rewind(self) -> None: ...


class AsyncTransaction(Generic[K, V]):
    """One transaction of a producer; made by `AsyncProducer.transaction`."""

    def __init__(
        self,
        producer: "AsyncProducer[K, V]",
        core: "Producer[K, V]",
        consumer: AsyncOffsetSource | None,
        timeout: float,
    ) -> None:
        self._producer = producer
        self._core = core
        self._timeout = timeout
        self._offsets = TransactionOffsets(consumer)
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
        headers: "HeadersLike | None" = None,
    ) -> asyncio.Future[Delivery]:
        """As `AsyncProducer.send`; readers of committed records see it once the transaction is committed."""
        if not self._is_open:
            raise ClientError("the transaction has ended")
        try:
            return await self._producer.send(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers
            )
        except RequestFailed as error:
            raise refusal(error) from None

    async def send_offsets(
        self, consumer: AsyncOffsetSource, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction: those of everything it has returned, or these."""
        wanted = self._offsets.add(consumer, offsets)
        if wanted:
            await asyncio.to_thread(
                send_offsets, self._core.client, consumer.group_metadata(), wanted, self._timeout
            )

    async def commit(self) -> None:
        """Commit; TransactionAborted if that was refused, and nothing of it is visible."""
        try:
            if (consumer := self._offsets.unsent()) is not None:
                await self.send_offsets(consumer)
            await asyncio.to_thread(finish, "committing", self._core.client.commit_transaction, self._timeout)
        except (FatalFailure, DeadlineExceeded):
            self._is_open = False
            await self._rewind()
            raise
        except ClientError:
            await self.abort()
            raise
        self._is_open = False
        self._offsets.committed()

    async def abort(self) -> None:
        """Abort. The consumers read again what the transaction would have committed."""
        self._is_open = False
        try:
            await self._rewind()
        finally:
            await asyncio.to_thread(finish, "aborting", self._core.client.abort_transaction, self._timeout)
        self._producer.forget_failures()

    async def _rewind(self) -> None:
        for consumer in self._offsets.consumers():
            await consumer.rewind()
