"""The lanes of a node: disk threads and worker processes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_never

from penstock.runtime.port import Lane, LaneFull, T
from penstock.runtime.spawn.job import SpawnedJob
from penstock.runtime.spawn.workers import WorkerLane
from penstock.runtime.timers import Deliver


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """How wide the lanes are, and how many jobs may wait on each."""

    disk_threads: int = 4
    disk_queue_max: int = 1024
    # Compaction keeps one of them busy for minutes; others must not wait for that.
    workers: int = 2
    worker_queue_max: int = 256


class ThreadLane:
    """Runs work on a few threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, queue_max: int) -> None:
        self._loop = loop
        self._limit = threads + queue_max
        self._underway = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="penstock-disk")

    def submit(self, work: Callable[[], Any], job: SpawnedJob) -> None:
        if self._underway >= self._limit:
            self._loop.call_soon(job.fail, LaneFull(f"{self._underway} disk jobs underway"))
            return
        self._underway += 1

        def ended(future: "Future[Any]") -> None:
            # Runs on the disk thread; a cancelled future means that the node is closing.
            if not future.cancelled():
                self._loop.call_soon_threadsafe(self._ended, future, job)

        self._executor.submit(work).add_done_callback(ended)

    def _ended(self, future: "Future[Any]", job: SpawnedJob) -> None:
        self._underway -= 1
        failure = future.exception()
        if failure is None:
            job.succeed(future.result())
        elif isinstance(failure, Exception):
            job.fail(failure)
        else:
            raise failure

    def close(self) -> None:
        """Wait for the work that runs, drop what waits."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class Lanes:
    """The spawn port of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Deliver, options: LaneOptions) -> None:
        self._deliver = deliver
        self._disk = ThreadLane(loop, options.disk_threads, options.disk_queue_max)
        self._workers = WorkerLane(loop, options.workers, options.worker_queue_max)

    def spawn(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        lane: Lane,
    ) -> SpawnedJob:
        job = SpawnedJob(self._deliver, done, failed)
        match lane:
            case Lane.DISK:
                self._disk.submit(work, job)
            case Lane.WORKER:
                self._workers.submit(work, job)
            case _:
                assert_never(lane)
        return job

    def close(self) -> None:
        self._workers.close()
        self._disk.close()
