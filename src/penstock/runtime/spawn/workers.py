"""Worker processes, one job at a time each, over a socket pair."""

import asyncio
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.core.model import ProtocolError
from penstock.runtime.peers.frames import LENGTH, FrameReader
from penstock.runtime.port import LaneFull, WorkerDied
from penstock.runtime.spawn.job import SpawnedJob

RESULT_BYTES_MAX = 1 << 30
_READ_BYTES = 256 * 1024


class WorkerLane:
    """Starts workers when work comes, and replaces those that die."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int, queue_max: int) -> None:
        self._loop = loop
        self._workers_max = workers
        self._queue_max = queue_max
        self._queue: deque[tuple[bytes, SpawnedJob]] = deque()
        self._idle: list[Worker] = []
        self._all: list[Worker] = []

    def submit(self, work: Callable[[], Any], job: SpawnedJob) -> None:
        if len(self._queue) >= self._queue_max:
            self._loop.call_soon(job.fail, LaneFull(f"{len(self._queue)} jobs wait for a worker"))
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
                started = Worker(self._loop, self._is_idle, self._died)
                self._all.append(started)
                self._idle.append(started)
            self._idle.pop().start(request, job)

    def _is_idle(self, worker: "Worker") -> None:
        self._idle.append(worker)
        self._go_on()

    def _died(self, worker: "Worker") -> None:
        self._all.remove(worker)
        self._go_on()


class Worker:
    """One child process, and the job it is busy with."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        idle: Callable[["Worker"], None],
        died: Callable[["Worker"], None],
    ) -> None:
        self._loop = loop
        self._tell_idle = idle
        self._tell_died = died
        self._job: SpawnedJob | None = None
        self._unsent = memoryview(b"")
        self._reader = FrameReader(RESULT_BYTES_MAX)
        self._socket, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock.runtime.spawn.worker", str(descriptor)],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
            )
        self._socket.setblocking(False)
        loop.add_reader(self._socket, self._readable)

    def start(self, request: bytes, job: SpawnedJob) -> None:
        assert self._job is None
        self._job = job
        self._unsent = memoryview(LENGTH.pack(len(request)) + request)
        self._write()

    def kill(self) -> None:
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
            return  # it died; the reader will tell
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
            self._lost(f"worker {self._child.pid} died")
            return
        self._reader.feed(received)
        try:
            answer = self._reader.next_frame()
        except ProtocolError as broken:
            self._lost(f"worker {self._child.pid}: {broken}")
            return
        if answer is not None:
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        assert self._job is not None
        job, self._job = self._job, None
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
