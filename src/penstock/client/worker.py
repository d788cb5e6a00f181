"""`Worker`: runs the calls of a `TaskQueue`.

    worker = Worker(queue, concurrency=8)
    worker.run()                    # until SIGTERM or SIGINT, then what runs is finished

    receive ──► task of the record ──► thread (a plain function) or the loop (an async one)
                                          │ returned: ack      │ raised: nack, the group's backoff
                                          │ Reject: dead letter│ RetryLater: nack with that delay
    meanwhile, every third of a lease: renew what runs

A call is delivered at least once: it may run again if the worker dies, or if its lease was lost, which
`current_task().is_lease_lost` tells and the log. A task that is not known to this program, and a record
that is no call, are dead letters at once: more tries do not help.

While it drains, the worker receives nothing new. Calls that do not finish in time go back to the queue
and are delivered to another worker, so that they may run twice.
"""

import asyncio
import contextvars
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.client.backoff import Backoff
from penstock.client.cluster import ClusterClient, ClusterError, QueueClient, cluster_security
from penstock.client.received import ReceivedRecord
from penstock.client.task_queue import TaskQueue, UnknownTask
from penstock.core.protocol import ErrorCode

_log = logging.getLogger("penstock.worker")
DRAIN_SECONDS = 30.0
WAIT_MS = 1_000
REASON_CHARS_MAX = 500
# A lease is renewed when a third of it is over: two tries may fail.
RENEWALS_PER_LEASE = 3
BACKOFF_MAX_MS = 5_000
# After these a request may have been carried out.
_UNCERTAIN = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
_current: "contextvars.ContextVar[RunningTask]" = contextvars.ContextVar("penstock_task")


class Reject(Exception):
    """Raised by a task that no other try can help: its record becomes a dead letter."""


class RetryLater(Exception):
    """Raised by a task that wants to be tried again after a time of its own choice."""

    def __init__(self, delay_ms: int, reason: str = "") -> None:
        super().__init__(reason or f"again in {delay_ms} ms")
        self.delay_ms = delay_ms


class RunningTask:
    """The record that a task runs for."""

    def __init__(self, record: ReceivedRecord, lease_until: float) -> None:
        self.id = f"{record.topic}/{record.partition}/{record.offset}"
        self.attempt = record.attempt
        self.receipt = record.receipt
        # By the clock of the loop; a little early.
        self.lease_until = lease_until
        self._is_lost = threading.Event()

    @property
    def is_lease_lost(self) -> bool:
        """Whether another worker may have the record by now: what is done from here on may be done twice."""
        return self._is_lost.is_set()

    def wait_for_loss(self, seconds: float) -> bool:
        """Wait in a thread until the lease is lost, or the time is over; whether it is lost."""
        return self._is_lost.wait(seconds)

    def lose_lease(self) -> None:
        self._is_lost.set()


def current_task() -> RunningTask:
    """The record that the calling task runs for; LookupError outside of a task."""
    return _current.get()


class Worker:
    """Runs tasks of one queue, so many at a time."""

    def __init__(
        self,
        queue: TaskQueue,
        *,
        concurrency: int = 8,
        lease_ms: int = -1,
        drain_seconds: float = DRAIN_SECONDS,
        name: str | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, not 1 or more")
        self.name = name or f"worker-{os.getpid()}-{os.urandom(4).hex()}"
        self._queue = queue
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._drain_seconds = drain_seconds
        self._lock = threading.Lock()
        self._is_stopped = False
        self._run: _WorkerRun | None = None

    def run(self) -> None:
        """Work until SIGTERM or SIGINT (in the main thread) or `stop`, then drain."""
        asyncio.run(self.run_async())

    async def run_async(self) -> None:
        """The same inside an event loop, which async tasks share."""
        run = _WorkerRun(self.name, self._queue, self._concurrency, self._lease_ms, self._drain_seconds)
        with self._lock:
            self._run = run
            if self._is_stopped:
                run.stopping.set()
        loop = asyncio.get_running_loop()
        handled = (
            (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        )
        for number in handled:
            loop.add_signal_handler(number, run.stopping.set)
        try:
            await run.work()
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
            with self._lock:
                self._run = None

    def stop(self) -> None:
        """Begin to drain; any thread."""
        with self._lock:
            self._is_stopped = True
            if self._run is not None:
                self._run.stop()


class _WorkerRun:
    """A worker at work: its connections, its threads, and what runs."""

    def __init__(
        self, name: str, queue: TaskQueue, concurrency: int, lease_ms: int, drain_seconds: float
    ) -> None:
        self._name = name
        self._queue = queue
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        self._running: dict[asyncio.Task[None], RunningTask] = {}
        self._has_room = asyncio.Event()
        self._threads = ThreadPoolExecutor(concurrency, f"{queue.topic}-task")
        self._acks: list[RunningTask] = []
        self._acking: asyncio.Task[None] | None = None
        self._leased_ms = 0

    def stop(self) -> None:
        """Called on any thread."""
        self._loop.call_soon_threadsafe(self.stopping.set)

    async def work(self) -> None:
        try:
            async with ClusterClient(
                self._queue.endpoint.addresses(),
                client_id=self._name,
                security=cluster_security(self._queue.endpoint),
            ) as cluster:
                await cluster.topic(self._queue.topic, create=True)
                self._queues = QueueClient(cluster)
                renewing = self._loop.create_task(self._renew())
                try:
                    await self._receive()
                    await self._drain()
                finally:
                    renewing.cancel()
                    await asyncio.wait([renewing])
        finally:
            # A thread cannot be stopped: the process waits for it at its end, and not here.
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _receive(self) -> None:
        backoff = Backoff(max_ms=BACKOFF_MAX_MS)
        while not self.stopping.is_set():
            room = self._concurrency - len(self._running)
            if not room:
                self._has_room.clear()
                await self._first_of(self._has_room, self.stopping)
                continue
            asked_at = self._loop.time()
            try:
                received = await self._queues.receive(
                    self._queue.group,
                    self._name,
                    [self._queue.topic],
                    records_max=room,
                    wait_ms=WAIT_MS,
                    lease_ms=self._lease_ms,
                )
            except ClusterError as error:
                if not error.is_retriable:
                    raise
                _log.warning("queue %s: no records: %s", self._queue.topic, error.detail)
                await asyncio.sleep(backoff.next_seconds())
                continue
            backoff.tries = 0
            self._leased_ms = received.lease_ms
            self._begin(received.records, asked_at + received.lease_ms / 1_000)

    async def _first_of(self, *events: asyncio.Event) -> None:
        waits = [self._loop.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _begin(self, records: Iterable[ReceivedRecord], lease_until: float) -> None:
        for record in records:
            running = RunningTask(record, lease_until)
            task = self._loop.create_task(self._handle(running, record))
            self._running[task] = running
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self._has_room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task could not be settled", exc_info=error)

    async def _handle(self, running: RunningTask, record: ReceivedRecord) -> None:
        group = self._queue.group
        try:
            await self._call(running, record)
        except (UnknownTask, Reject) as error:
            _log.warning("%s is rejected: %s", running.id, error)
            await self._settle(running, self._queues.reject, group, reason=_reason(error))
        except RetryLater as error:
            await self._settle(
                running, self._queues.nack, group, delay_ms=error.delay_ms, reason=_reason(error)
            )
        except Exception as error:
            _log.warning("%s failed at attempt %d", running.id, running.attempt, exc_info=error)
            await self._settle(running, self._queues.nack, group, reason=_reason(error))
        else:
            self._ack(running)

    async def _call(self, running: RunningTask, record: ReceivedRecord) -> None:
        task, args, kwargs = self._queue.call_of(record.value)
        context = contextvars.copy_context()
        context.run(_current.set, running)
        if inspect.iscoroutinefunction(task.function):
            await self._loop.create_task(task.function(*args, **kwargs), context=context)
        else:
            call: Callable[[], Any] = lambda: context.run(task.function, *args, **kwargs)  # noqa: E731
            await self._loop.run_in_executor(self._threads, call)

    def _ack(self, running: RunningTask) -> None:
        """Calls that finish together are acknowledged together."""
        self._acks.append(running)
        if self._acking is None:
            self._acking = self._loop.create_task(self._send_acks())

    async def _send_acks(self) -> None:
        try:
            while self._acks:
                acks, self._acks = self._acks, []
                await self._settle_all(acks, self._queues.ack, self._queue.group)
        finally:
            self._acking = None

    async def _settle(
        self, running: RunningTask, action: Callable[..., Any], group: str, **choices: Any
    ) -> None:
        await self._settle_all([running], action, group, **choices)

    async def _settle_all(
        self, tasks: list[RunningTask], action: Callable[..., Any], group: str, **choices: Any
    ) -> None:
        """Say what became of tasks; again while the leases last, if nobody says whether that was heard."""
        backoff, may_be_settled = Backoff(max_ms=BACKOFF_MAX_MS), False
        lease_until = max(one.lease_until for one in tasks)
        while True:
            try:
                results = await action(group, [one.receipt for one in tasks], **choices)
                break
            except ClusterError as error:
                pause = backoff.next_seconds()
                if not error.is_retriable or self._loop.time() + pause >= lease_until:
                    # Their leases end, and they are delivered again.
                    ids = ", ".join(one.id for one in tasks)
                    _log.error("%s could not be settled and will run again: %s", ids, error.detail)
                    return
                may_be_settled |= error.code in _UNCERTAIN
                await asyncio.sleep(pause)
        now = self._loop.time()
        for one, refused in zip(tasks, results, strict=True):
            # While the lease lasts nobody else can have settled it: an earlier try did.
            was_settled = may_be_settled and now < one.lease_until
            if refused is not None and not (was_settled and refused.code is ErrorCode.INVALID_RECORD_STATE):
                one.lose_lease()
                _log.error("%s lost its lease and may run twice: %s", one.id, refused.detail)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(max(self._leased_ms, WAIT_MS) / 1_000 / RENEWALS_PER_LEASE)
            kept = [one for one in self._running.values() if not one.is_lease_lost]
            asked_at = self._loop.time()
            try:
                results = await self._queues.renew(self._queue.group, [one.receipt for one in kept])
            except ClusterError as error:
                _log.warning("leases could not be renewed: %s", error.detail)
                continue
            still = {id(one) for one in self._running.values()}
            for one, refused in zip(kept, results, strict=True):
                if refused is None:
                    one.lease_until = asked_at + self._leased_ms / 1_000
                # One that has been settled meanwhile has no lease to lose.
                elif id(one) in still:
                    one.lose_lease()
                    _log.error("%s lost its lease while it runs: %s", one.id, refused.detail)

    async def _drain(self) -> None:
        """Wait for what runs; what takes too long goes back to the queue."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=self._drain_seconds)
        late = dict(self._running)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(list(late))
            _log.warning("%d tasks did not finish in time and go back to the queue", len(late))
            await self._settle_all(
                list(late.values()),
                self._queues.nack,
                self._queue.group,
                delay_ms=0,
                reason="the worker ended",
            )
        if self._acking is not None:
            await asyncio.wait([self._acking])


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
