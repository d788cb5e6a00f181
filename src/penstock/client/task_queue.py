"""`TaskQueue`: functions that are called later and elsewhere, by a `Worker`.

    queue = TaskQueue("emails", bootstrap="127.0.0.1:9092")

    @queue.task
    def send_email(to: str, subject: str) -> None: ...

    send_email("me", "now")                                             # a plain call
    send_email.enqueue("me", subject="soon")                            # stored; a worker calls it
    send_email.with_options(delay_ms=60_000, priority=9).enqueue("me", "in a minute")

A call is a record of the queue's topic, in JSON, so that any language can write one:

    {"task": "send_email", "args": ["me"], "kwargs": {"subject": "soon"}}

`enqueue` returns when the record is stored by all replicas in sync. It may be called from any thread;
one thread per queue sends what all have enqueued, and starts with the first call.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

from penstock.client.cluster import (
    ClusterClient,
    ClusterError,
    OutgoingRecord,
    Publisher,
    cluster_security,
)
from penstock.client.endpoint import DEFAULT_BOOTSTRAP, Endpoint
from penstock.core.model import PenstockError

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_GROUP = "workers"
PRIORITY_MAX = 9
# The headers that queues look at; `core.queues.record_headers` explains them.
DELIVER_AT = "penstock-deliver-at"
PRIORITY = "penstock-priority"
START_SECONDS = 30.0


class UnknownTask(PenstockError):
    """A record that is no call of a task that this program has."""


class EnqueuedTask(NamedTuple):
    """Where a call is stored."""

    topic: str
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """The message's id, as every server writes it."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class TaskOptions(NamedTuple):
    """How a call is delivered: how late, how urgent, and where keys have an order, of which key."""

    delay_ms: int = 0
    priority: int = 0
    key: str | None = None


class QueueTask(Generic[P, R]):
    """A function of a queue: called directly, or enqueued."""

    def __init__(self, queue: "TaskQueue", name: str, function: Callable[P, R], options: TaskOptions) -> None:
        self.queue = queue
        self.name = name
        self.function = function
        self.options = options
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def with_options(
        self, *, delay_ms: int = 0, priority: int = 0, key: str | None = None
    ) -> "QueueTask[P, R]":
        """The same task, enqueued with a delay, a priority (0 to 9, the most urgent), a key."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms is {delay_ms}: a task cannot run in the past")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority is {priority}, not 0 to {PRIORITY_MAX}")
        return QueueTask(self.queue, self.name, self.function, TaskOptions(delay_ms, priority, key))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedTask:
        """Store a call for a worker; ClusterError if that fails, TypeError if JSON cannot say an argument."""
        return self.queue.store(self.record(*args, **kwargs)).result()

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedTask:
        """The same for a program with an event loop."""
        return await asyncio.wrap_future(self.queue.store(self.record(*args, **kwargs)))

    def record(self, *args: P.args, **kwargs: P.kwargs) -> OutgoingRecord:
        """The call as a record."""
        value = json.dumps(
            {"task": self.name, "args": args, "kwargs": kwargs}, separators=(",", ":"), allow_nan=False
        )
        headers: list[tuple[str, bytes | None]] = []
        if self.options.delay_ms:
            deliver_at_ms = time.time_ns() // 1_000_000 + self.options.delay_ms
            headers.append((DELIVER_AT, b"%d" % deliver_at_ms))
        if self.options.priority:
            headers.append((PRIORITY, b"%d" % self.options.priority))
        key = None if self.options.key is None else self.options.key.encode()
        return OutgoingRecord(key, value.encode(), tuple(headers))


class TaskQueue:
    """A topic whose records are calls of this program's tasks."""

    def __init__(
        self,
        topic: str,
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        group: str = DEFAULT_GROUP,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are librdkafka's settings of a login, such as `security.protocol` and `sasl.password`."""
        self.topic = topic
        self.group = group
        self.endpoint = Endpoint(bootstrap, dict(options or {}))
        self.endpoint.addresses()
        self._tasks: dict[str, QueueTask[..., Any]] = {}
        self._lock = threading.Lock()
        self._sender: _Sender | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def task(self, function: Callable[P, R]) -> QueueTask[P, R]: ...

    @overload
    def task(self, *, name: str) -> Callable[[Callable[P, R]], QueueTask[P, R]]: ...

    def task(self, function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
        """Make a function, sync or async, a task; its name is what records call it by."""

        def register(written: Callable[..., Any]) -> QueueTask[..., Any]:
            chosen = name or written.__name__
            if chosen in self._tasks:
                raise ValueError(f"the queue {self.topic} has a task {chosen} already")
            made = self._tasks[chosen] = QueueTask(self, chosen, written, TaskOptions())
            return made

        return register if function is None else register(function)

    def call_of(self, value: bytes | None) -> tuple[QueueTask[..., Any], Sequence[Any], dict[str, Any]]:
        """The task and the arguments that a record stands for; UnknownTask if it is none."""
        try:
            call = json.loads(value or b"")
            name, args, kwargs = call["task"], call.get("args", []), call.get("kwargs", {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UnknownTask(
                'the record is no JSON like {"task": "name", "args": [], "kwargs": {}}'
            ) from None
        task = self._tasks.get(name) if isinstance(name, str) else None
        if task is None:
            raise UnknownTask(f"there is no task {name!r} in queue {self.topic}")
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise UnknownTask("args is no list, or kwargs no object")
        return task, args, kwargs

    def store(self, record: OutgoingRecord) -> "Future[EnqueuedTask]":
        """Publish a call; any thread."""
        with self._lock:
            if self._sender is None:
                self._sender = _Sender(self)
            return self._sender.submit(record)

    def close(self) -> None:
        """Send what was enqueued, and end the thread."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


class _Sender:
    """The thread with the event loop that publishes."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._loop = asyncio.new_event_loop()
        self._stopped: asyncio.Event | None = None
        self._publisher: Publisher | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tasks-{queue.topic}", daemon=True)
        self._thread.start()
        self._is_ready.wait(START_SECONDS)

    def submit(self, record: OutgoingRecord) -> "Future[EnqueuedTask]":
        return asyncio.run_coroutine_threadsafe(self._publish(record), self._loop)

    def close(self) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        where = self._queue.endpoint
        async with (
            ClusterClient(where.addresses(), security=cluster_security(where)) as cluster,
            Publisher(cluster) as publisher,
        ):
            self._publisher = publisher
            self._is_ready.set()
            await self._stopped.wait()

    async def _publish(self, record: OutgoingRecord) -> EnqueuedTask:
        assert self._publisher is not None
        (result,) = await self._publisher.publish(self._queue.topic, [record])
        if isinstance(result, ClusterError):
            raise result
        return EnqueuedTask(self._queue.topic, result.partition, result.offset)
