"""`AsyncConsumer`: the consumer for asyncio.

librdkafka's consumer belongs to a thread of its own here; messages come to the loop by the hundred and
are handed out one by one. What counts as processed, and what is committed when, is as in `Consumer`.

    async with AsyncConsumer(group_id="mail", topics="orders") as consumer:
        async for message in consumer:
            await handle(message)

Rebalance listeners and offset stores are called on that thread, not on the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from penstock.client.async_worker_pool import AsyncWorkerPool
from penstock.client.client_metrics import ClientMetrics
from penstock.client.endpoint import ClientError
from penstock.client.message import Message, TopicPartition
from penstock.client.offset_store import OffsetStore
from penstock.client.properties import ConsumerSettings
from penstock.client.record_types import ReadKey as K
from penstock.client.record_types import ReadValue as V
from penstock.client.serialization import Serde
from penstock.client.sync_consumer import Consumer, RebalanceListener
from penstock.client.worker_pool import ProcessOptions, ProcessSettings

T = TypeVar("T")
# A call that was cancelled holds up the next one for so long at most.
TURN_SECONDS = 0.1


class AsyncConsumer(Generic[K, V]):
    """Reads records; see `Consumer` for settings and deserializers."""

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
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer[K, V] = Consumer(
            properties,
            topics=topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            offset_store=offset_store,
            metrics=metrics,
            **settings,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-consumer")
        # What the thread is doing, which may outlive whoever asked for it.
        self._busy: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._consumer.settle()
            await self.close()
            return
        # The body's exception says more; what was in hand is not processed.
        with suppress(ClientError):
            await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[K, V]:
        message = await self.poll(None)
        if message is None:
            raise StopAsyncIteration
        return message

    async def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics; a name that starts with ^ is a pattern."""
        await self._run(
            partial(
                self._consumer.subscribe, topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
            )
        )

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, without the group having a say; a mapping says from which offsets."""
        await self._run(partial(self._consumer.assign, partitions))

    async def poll(self, timeout: float | None = 1.0) -> Message[K, V] | None:
        """The next message, waiting up to `timeout` seconds, or for ever with None.

        What was returned before counts as processed. None if there is nothing, or after `stop`.
        """
        messages = await self.poll_batch(1, timeout)
        return messages[0] if messages else None

    async def poll_batch(
        self, records_max: int | None = None, timeout: float | None = 1.0
    ) -> list[Message[K, V]]:
        """Up to `records_max` messages (`max.poll.records` by default), as many as there are."""
        await self._rest()
        consumer = self._consumer
        consumer.settle()
        if consumer.has_fetched and consumer.must_poll:
            await self._run(partial(consumer.fill, 1, 0.0))
        deadline = None if timeout is None else self._loop.time() + timeout
        while not consumer.has_fetched and not consumer.is_stopped:
            left = TURN_SECONDS if deadline is None else deadline - self._loop.time()
            await self._run(partial(consumer.fill, consumer.batch_records, max(0.0, min(TURN_SECONDS, left))))
            if left <= 0:
                break
        return consumer.take(records_max or consumer.batch_records)

    async def commit(self, offsets: Message[Any, Any] | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit, and wait until that is done: everything handed out, up to one message, or these offsets."""
        await self._run(partial(self._consumer.commit, offsets))

    def positions(self) -> dict[TopicPartition, int]:
        """Of every partition that messages were returned of since the last commit: the next offset."""
        return self._consumer.positions()

    async def rewind(self) -> None:
        """Read again everything that was returned since the last commit."""
        await self._run(self._consumer.rewind)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        await self._run(partial(self._consumer.seek, partition, offset))

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no messages of these partitions until they are resumed."""
        await self._run(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        await self._run(partial(self._consumer.resume, partitions))

    async def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return await self._run(self._consumer.assignment)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        return await self._run(partial(self._consumer.committed, partitions))

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset that is kept, and the one after the last."""
        return await self._run(partial(self._consumer.watermarks, partition))

    async def process(
        self, handler: Callable[[Message[K, V]], Awaitable[object]], **options: Unpack[ProcessSettings]
    ) -> int:
        """Handle messages with several tasks, in order per key, until `stop`; returns how many.

        As `Consumer.process`. When it is cancelled, running handlers are waited for.
        """
        pool = AsyncWorkerPool(self._consumer, handler, ProcessOptions(**options))
        async with asyncio.TaskGroup() as workers:
            for _ in range(pool.options.workers):
                workers.create_task(pool.serve())
            run = self._start(partial(self._consumer.run_pool, pool))
            try:
                await asyncio.wait((run,))
            except asyncio.CancelledError:
                pool.end()
                await asyncio.wait((run,))
                raise
            finally:
                pool.release_workers()
        return run.result()

    def stop(self) -> None:
        """End iteration and waiting."""
        self._consumer.stop()

    async def close(self) -> None:
        """Commit what was processed and leave the group."""
        self._consumer.stop()
        try:
            await self._run(self._consumer.close)
        finally:
            self._thread.shutdown(wait=False)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """As `positions`, for a transaction."""
        return self._consumer.uncommitted()

    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for this member of the group."""
        return self._consumer.group_metadata()

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed: a rewind goes back to them."""
        self._consumer.committed_elsewhere(offsets)

    async def _run(self, call: Callable[[], T]) -> T:
        """Call on the consumer's thread; a cancelled caller does not wait for it."""
        await self._rest()
        return await asyncio.shield(self._start(call))

    async def _rest(self) -> None:
        """Wait for the thread: what is at hand must not change meanwhile."""
        while self._busy is not None and not self._busy.done():
            await asyncio.wait((self._busy,))

    def _start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        self._busy = future = self._loop.run_in_executor(self._thread, call)
        # Nobody asks a call whose caller was cancelled how it went.
        future.add_done_callback(_retrieve)
        return future


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
