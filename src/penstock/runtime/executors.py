"""Slow work off the loop: threads for blocking disk calls, processes for computing.

A thread that computes takes the GIL from the loop for milliseconds at a time, so the
disk executor is for calls that release it. Compaction, backup and search run in worker
processes, which get a pickled function and send back a pickled result; a worker dies
with its node, even when the node is killed, because two writers in one data
directory would be worse than none.

Left out: progress reports from running work, and stopping it half-way (it is killed
with the node).
"""

import asyncio
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_never

from penstock.core.model import ProtocolError
from penstock.runtime.child_command import child_environment
from penstock.runtime.peer_link import LENGTH, PeerFrameReader
from penstock.runtime.port import ExecutorFull, ExecutorKind, T, WorkerDied
from penstock.runtime.timers import Deliver

RESULT_BYTES_MAX = 1 << 30
_READ_BYTES = 256 * 1024


class ExecutorJob:
    """Passes one outcome to its owner, unless the job was cancelled."""

    __slots__ = ("_deliver", "_done", "_failed", "is_cancelled")

    def __init__(
        self, deliver: Deliver, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self._deliver = deliver
        self._done = done
        self._failed = failed
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def succeed(self, result: object) -> None:
        if not self.is_cancelled:
            self._deliver(self._done, result)

    def fail(self, why: Exception) -> None:
        if not self.is_cancelled:
            self._deliver(self._failed, why)


class ProcessExecutor:
    """Starts workers when work comes, ends those that had none for a while, and replaces those that die."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: int,
        queue_max: int,
        idle_seconds: float,
    ) -> None:
        self._loop = loop
        self._idle_seconds = idle_seconds
        self._workers_max = workers
        self._queue_max = queue_max
        self._queue: deque[tuple[bytes, ExecutorJob]] = deque()
        self._idle: list[WorkerProcess] = []
        self._all: list[WorkerProcess] = []

    def submit(self, work: Callable[[], Any], job: ExecutorJob) -> None:
        if len(self._queue) >= self._queue_max:
            self._loop.call_soon(
                job.fail, ExecutorFull(f"{len(self._queue)} jobs already wait for a worker process")
            )
            return
        self._queue.append((pickle.dumps(work), job))
        self._go_on()

    def close(self) -> None:
        self._queue.clear()
        for worker in self._all:
            worker.kill()
        self._all.clear()
        self._idle.clear()

    def _go_on(self) -> None:
        while self._queue and (self._idle or len(self._all) < self._workers_max):
            request, job = self._queue.popleft()
            if job.is_cancelled:
                continue
            if not self._idle:
                started = WorkerProcess(self._loop, self._is_idle, self._died)
                self._all.append(started)
                self._idle.append(started)
            self._idle.pop().start(request, job)

    def _is_idle(self, worker: "WorkerProcess") -> None:
        self._idle.append(worker)
        self._go_on()
        if worker in self._idle:
            worker.idle_timer = self._loop.call_later(self._idle_seconds, self._end_idle, worker)

    def _end_idle(self, worker: "WorkerProcess") -> None:
        """Its memory is worth more than the time that the next one takes to start."""
        self._idle.remove(worker)
        self._all.remove(worker)
        worker.kill()

    def _died(self, worker: "WorkerProcess") -> None:
        self._all.remove(worker)
        if worker in self._idle:
            # Whatever ended it: it must not get the next job.
            self._idle.remove(worker)
        self._go_on()


class WorkerProcess:
    """One child process, and the job it is busy with."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        idle: Callable[["WorkerProcess"], None],
        died: Callable[["WorkerProcess"], None],
    ) -> None:
        self._loop = loop
        self._tell_idle = idle
        self._tell_died = died
        self._job: ExecutorJob | None = None
        # Set while it is idle, by the executor.
        self.idle_timer: asyncio.TimerHandle | None = None
        self._unsent = memoryview(b"")
        self._reader = PeerFrameReader(RESULT_BYTES_MAX)
        self._socket, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock.runtime.worker_process", str(descriptor)],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
        self._socket.setblocking(False)
        loop.add_reader(self._socket, self._readable)

    def start(self, request: bytes, job: ExecutorJob) -> None:
        assert self._job is None
        self._stop_idle_timer()
        self._job = job
        self._unsent = memoryview(LENGTH.pack(len(request)) + request)
        self._write()

    def _stop_idle_timer(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    def kill(self) -> None:
        self._stop_idle_timer()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._child.kill()
        self._child.wait()

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            return  # it died; the reader will notice
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            received = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._lost(f"worker process {self._child.pid} died")
            return
        self._reader.feed(received)
        try:
            answer = self._reader.next_frame()
        except ProtocolError as broken:
            self._lost(f"worker process {self._child.pid}: {broken}")
            return
        if answer is not None:
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        assert self._job is not None
        job, self._job = self._job, None
        # The next answer gets a buffer of its own: this one may have been large.
        self._reader = PeerFrameReader(RESULT_BYTES_MAX)
        succeeded, outcome = pickle.loads(answer)
        self._tell_idle(self)
        if succeeded:
            job.succeed(outcome)
        else:
            job.fail(outcome)

    def _lost(self, why: str) -> None:
        self.kill()
        job, self._job = self._job, None
        self._tell_died(self)
        if job is not None:
            job.fail(WorkerDied(why))


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """How many threads and processes run jobs, and how many jobs may wait for each."""

    disk_threads: int = 4
    disk_queue_max: int = 1024
    # Compaction keeps one of them busy for minutes; others must not wait for that.
    workers: int = 2
    worker_queue_max: int = 256
    # After large batches a worker has tens of megabytes. A new one takes a tenth of a second to start.
    worker_idle_seconds: float = 5.0


class ThreadExecutor:
    """Runs work on a few threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, queue_max: int) -> None:
        self._loop = loop
        self._limit = threads + queue_max
        self._underway = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="penstock-disk")

    def submit(self, work: Callable[[], Any], job: ExecutorJob) -> None:
        if self._underway >= self._limit:
            self._loop.call_soon(
                job.fail, ExecutorFull(f"{self._underway} disk jobs are already queued or running")
            )
            return
        self._underway += 1

        def ended(future: "Future[Any]") -> None:
            # Runs on the disk thread; a cancelled future means that the node is closing.
            if not future.cancelled():
                self._loop.call_soon_threadsafe(self._ended, future, job)

        self._executor.submit(work).add_done_callback(ended)

    def _ended(self, future: "Future[Any]", job: ExecutorJob) -> None:
        self._underway -= 1
        failure = future.exception()
        if failure is None:
            job.succeed(future.result())
        elif isinstance(failure, Exception):
            job.fail(failure)
        else:
            raise failure

    def close(self) -> None:
        """Wait for the running work, drop what waits."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class NodeExecutor:
    """The executors of one node: threads and worker processes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Deliver, options: ExecutorOptions) -> None:
        self._deliver = deliver
        self._disk = ThreadExecutor(loop, options.disk_threads, options.disk_queue_max)
        self._workers = ProcessExecutor(
            loop, options.workers, options.worker_queue_max, options.worker_idle_seconds
        )

    def spawn(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> ExecutorJob:
        job = ExecutorJob(self._deliver, done, failed)
        match lane:
            case ExecutorKind.DISK:
                self._disk.submit(work, job)
            case ExecutorKind.WORKER:
                self._workers.submit(work, job)
            case _:
                assert_never(lane)
        return job

    def close(self) -> None:
        self._workers.close()
        self._disk.close()
