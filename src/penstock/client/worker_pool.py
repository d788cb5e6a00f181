"""`Consumer.process`: messages handled by several threads, in order per key.

    consumer's thread   receive -> OrderedWork.add -> queue -> workers: decode, handler, retries, dead letter
                           ^                                      |
                           +--- commit what is finished <---------+

The consumer's thread never handles messages: it polls, so that the member stays in its group however
long a handler takes. When `pending_max` messages are under way for a while it pauses the partitions,
and resumes them when half are done. When partitions are taken away, messages that were not begun are
dropped, those that run are waited for, and what is finished is committed before the next owner begins.
At the end the consumer goes back to what is not finished: whoever reads on with it gets that first.

Left out: more processes than one; a time limit for a handler, which no thread can be held to.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.client.backoff import Backoff
from penstock.client.dead_letters import DeadLetters
from penstock.client.endpoint import ClientError
from penstock.client.message import Message, RawMessage, TopicPartition
from penstock.client.ordered_work import Order, OrderedWork, Task
from penstock.client.serialization import SerializationFailed

if TYPE_CHECKING:
    from penstock.client.sync_consumer import Consumer

TURN_SECONDS = 0.1
# While partitions are paused: nothing comes, and there may be room at any moment.
PAUSED_SECONDS = 0.01
COMMIT_SECONDS = 1.0
# How long the member does not poll before it pauses its partitions; well within any session.
PATIENCE_SECONDS = 0.5
PENDING_PER_WORKER = 64


class HandlerFailed(ClientError):
    """A handler gave up on a message, and there is no topic for dead letters."""

    def __init__(self, text: str, message: RawMessage) -> None:
        super().__init__(text)
        self.message = message


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How messages are handled."""

    workers: int = 8
    order: Order = "key"
    # How many messages may be under way, handled or waiting; by default 64 per worker.
    pending_max: int | None = None
    # How often a handler is called again after an exception, and the waits between.
    retries: int = 3
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 10_000
    dead_letter_topic: str | None = None
    # How long running handlers are waited for when partitions are taken away, or at the end.
    drain_seconds: float = 30.0
    # End when nothing has come for so long; without it only `stop` ends it.
    idle_seconds: float | None = None

    @property
    def limit(self) -> int:
        return self.pending_max or self.workers * PENDING_PER_WORKER


class ProcessSettings(TypedDict, total=False):
    """The fields of ProcessOptions, as keywords of `Consumer.process`."""

    workers: int
    order: Order
    pending_max: int | None
    retries: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    dead_letter_topic: str | None
    drain_seconds: float
    idle_seconds: float | None


class WorkerPool:
    """Threads that handle a consumer's messages."""

    def __init__(
        self,
        consumer: "Consumer[Any, Any]",
        handler: Callable[[Message[Any, Any]], object],
        options: ProcessOptions,
    ) -> None:
        if options.workers < 1 or options.limit < 1:
            raise ClientError("process needs at least one worker and room for one message")
        self.consumer = consumer
        self._handler = handler
        self.options = options
        self._work = OrderedWork(options.order)
        # Guards the work; told whenever a task ends.
        self._changed = threading.Condition()
        self._ready: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._paused: dict[TopicPartition, None] = {}
        self._committed_at = time.perf_counter()
        self._dead_letters: DeadLetters | None = None
        self.handled = 0

    def run(self) -> int:
        """Handle messages until the consumer is stopped, nothing comes, or a handler gives up."""
        options = self.options
        if options.dead_letter_topic is not None:
            self._dead_letters = DeadLetters(options.dead_letter_topic, self.consumer.shared_properties())
        self._start_workers()
        try:
            self._receive()
        finally:
            self._drain_and_close()
        if self._failure is not None:
            raise self._failure
        return self.handled

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def end(self) -> None:
        """Begin nothing more, and end when what runs is finished."""
        self._ending.set()

    def drain(self, partitions: list[TopicPartition]) -> None:
        """Finish what runs of partitions that are taken away, and commit it."""
        self._finish_running(partitions)
        self.discard(partitions)

    def discard(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that somebody else has already."""
        with self._changed:
            self._work.discard(partitions)
        for partition in partitions:
            self._paused.pop(partition, None)

    def _finish_running(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._work.drain(partitions)
            self._changed.wait_for(lambda: not self._work.running(partitions), self.options.drain_seconds)
        self._commit(wait=True)

    def _receive(self) -> None:
        """The consumer's thread: hand messages to the workers, and commit what they have finished."""
        idle_seconds = self.options.idle_seconds
        heard = time.perf_counter()
        while not self.consumer.is_stopped and not self._ending.is_set():
            room = self._make_room()
            if self._paused:
                messages = self.consumer.receive_raw(1, PAUSED_SECONDS)
            else:
                messages = self.consumer.receive_raw(room, TURN_SECONDS)
            self._begin(messages)
            self._commit(wait=False)
            if messages or self._work.pending:
                heard = time.perf_counter()
            elif idle_seconds is not None and time.perf_counter() - heard >= idle_seconds:
                return

    def _make_room(self) -> int:
        """How many messages may be taken in; partitions are paused while there are none."""
        limit = self.options.limit
        if self._work.pending >= limit and not self._paused:
            # Pausing throws away what librdkafka has fetched, so quick handlers are waited for.
            with self._changed:
                self._changed.wait_for(
                    lambda: self._work.pending <= limit / 2 or self._ending.is_set(), PATIENCE_SECONDS
                )
        room = limit - self._work.pending
        if room <= 0:
            # Those that were assigned meanwhile as well.
            running = [one for one in self.consumer.assignment() if one not in self._paused]
            if running:
                self.consumer.pause(running)
                self._paused.update(dict.fromkeys(running))
        elif self._paused and room >= limit / 2:
            self.consumer.resume(list(self._paused))
            self._paused.clear()
        return room

    def _begin(self, messages: list[RawMessage]) -> None:
        if not messages:
            return
        with self._changed:
            tasks = [self._work.add(message) for message in messages]
        for task in tasks:
            if task is not None:
                self._submit(task)

    def _commit(self, *, wait: bool) -> None:
        """Pass on what is finished: into the background, or with `wait` until it is committed."""
        now = time.perf_counter()
        if not wait and now - self._committed_at < COMMIT_SECONDS:
            return
        self._committed_at = now
        with self._changed:
            offsets = self._work.committable()
        if offsets:
            self.consumer.commit_processed(offsets)

    def _drain_and_close(self) -> None:
        self._ending.set()
        try:
            self._go_back()
        finally:
            self._join_workers()
            if self._paused:
                self.consumer.resume(list(self._paused))
            if self._dead_letters is not None:
                self._dead_letters.close()

    def _go_back(self) -> None:
        """Commit what is finished, and have the consumer return again what is not."""
        partitions = self._work.partitions()
        if not partitions:
            return
        self._finish_running(partitions)
        with self._changed:
            unfinished = self._work.unfinished()
            # Not `discard`: the partitions are still ours, and those that are paused are to be resumed.
            self._work.discard(partitions)
        for partition, offset in unfinished.items():
            self.consumer.seek(partition, offset)

    def _start_workers(self) -> None:
        for number in range(self.options.workers):
            thread = threading.Thread(target=self._serve, name=f"penstock-worker-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _join_workers(self) -> None:
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            # A handler that hangs must not keep the program from ending.
            thread.join(TURN_SECONDS)

    def _submit(self, task: Task) -> None:
        self._ready.put(task)

    def _serve(self) -> None:
        """A worker: one task after the other."""
        while (task := self._ready.get()) is not None:
            is_done = not task.is_cancelled and self._handle(task)
            following = self.finish(task, is_done=is_done)
            if following is not None:
                self._ready.put(following)

    def finish(self, task: Task, *, is_done: bool) -> Task | None:
        """A task has ended; returns the next one of its lane."""
        with self._changed:
            self.handled += is_done
            following = self._work.finish(task, is_done=is_done)
            self._changed.notify_all()
        return following

    def _handle(self, task: Task) -> bool:
        """Handle one message; False if it was given up."""
        backoff = Backoff(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms)
        while True:
            try:
                self._handler(self.consumer.decode(task.message))
            # Whatever a handler raises is the message's failure, not the pool's.
            except Exception as error:
                if self.is_last_try(backoff, error):
                    return self.give_up(task, error)
                if self._ending.wait(backoff.next_seconds()) or task.is_cancelled:
                    return False
            else:
                return True

    def is_last_try(self, backoff: Backoff, error: Exception) -> bool:
        """Whether a handler is not called again after this error."""
        # Bytes do not become better by reading them again.
        return backoff.tries >= self.options.retries or isinstance(error, SerializationFailed)

    def give_up(self, task: Task, error: Exception) -> bool:
        """The message becomes a dead letter, or ends the pool."""
        if self._dead_letters is not None:
            try:
                self._dead_letters.send(task.message, error).result()
            except ClientError as lost:
                error = lost
            else:
                return True
        self._failure = self._failure or handler_failed(task.message, error)
        self._ending.set()
        return False


def handler_failed(message: RawMessage, error: Exception) -> HandlerFailed:
    """The error that ends a pool."""
    text = (str(error) or type(error).__name__).partition("\n")[0]
    failed = HandlerFailed(f"{message.id}: its handler gave up: {text}", message)
    failed.__cause__ = error
    return failed
