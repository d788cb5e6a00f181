"""`AsyncConsumer.process`: as the worker pool, with tasks on the loop in place of threads.

The consumer's thread receives and commits; messages and their ends cross between it and the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock.client.backoff import Backoff
from penstock.client.message import Message
from penstock.client.ordered_work import Task
from penstock.client.worker_pool import ProcessOptions, WorkerPool

if TYPE_CHECKING:
    from penstock.client.sync_consumer import Consumer

TURN_SECONDS = 0.1


class AsyncWorkerPool(WorkerPool):
    """Tasks that handle a consumer's messages; `run` is called on the consumer's thread."""

    def __init__(
        self,
        consumer: "Consumer[Any, Any]",
        handler: Callable[[Message[Any, Any]], Awaitable[object]],
        options: ProcessOptions,
    ) -> None:
        super().__init__(consumer, handler, options)
        self._awaited = handler
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.Queue[Task | None] = asyncio.Queue()

    async def serve(self) -> None:
        """A worker: one task after the other."""
        while (task := await self._tasks.get()) is not None:
            is_done = not task.is_cancelled and await self._handle_awaited(task)
            following = self.finish(task, is_done=is_done)
            if following is not None:
                self._tasks.put_nowait(following)

    def release_workers(self) -> None:
        """Let the workers end, on the loop."""
        for _ in range(self.options.workers):
            self._tasks.put_nowait(None)

    def _start_workers(self) -> None:
        """They are tasks of whoever called `process`."""

    def _join_workers(self) -> None:
        """Likewise."""

    def _submit(self, task: Task) -> None:
        self._loop.call_soon_threadsafe(self._tasks.put_nowait, task)

    async def _handle_awaited(self, task: Task) -> bool:
        backoff = Backoff(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms)
        while True:
            try:
                await self._awaited(self.consumer.decode(task.message))
            # Whatever a handler raises is the message's failure, not the pool's.
            except Exception as error:
                if self.is_last_try(backoff, error):
                    return await asyncio.to_thread(self.give_up, task, error)
                await self._wait(backoff.next_seconds())
                if self.is_ending or task.is_cancelled:
                    return False
            else:
                return True

    async def _wait(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        # The end is announced on the consumer's thread, which no event of the loop can be.
        while not self.is_ending and (left := deadline - self._loop.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, TURN_SECONDS))
