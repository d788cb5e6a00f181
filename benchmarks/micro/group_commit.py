"""Group commit on a saturated loop, beside the disk's own fdatasync in the same run.

The loop is kept busy with callbacks of some 30 µs each, as a broker serving Fetch is, while
one client appends a small batch, waits until it is durable, and appends the next. The same
is done with a thread in place of the helper process, which shows what the process is for.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import uvloop

from penstock.core.model import StorageError
from penstock.runtime.sync_helper import SyncHelper
from penstock.storage.commit import FileSyncer, GroupCommit, SyncableFile
from penstock.storage.disk import File, PosixDisk

BATCH = bytes(161)
BLOCKS = 12
ROUNDS_PER_BLOCK = 60
BUSY_NS = 30_000
FILES_TOGETHER = 100


class ThreadSyncs:
    """What the helper replaces: one thread that syncs and reports back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(1)

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        descriptors = [file.fileno() for file in files]

        def work() -> None:
            for descriptor in descriptors:
                os.fdatasync(descriptor)
            self._loop.call_soon_threadsafe(done, None)

        self._pool.submit(work)

    def close(self) -> None:
        self._pool.shutdown()


def saturate(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Keep the loop busy until the answer is called."""
    busy = True

    def burn() -> None:
        end = time.perf_counter_ns() + BUSY_NS
        while time.perf_counter_ns() < end:
            pass
        if busy:
            loop.call_soon(burn)

    def stop() -> None:
        nonlocal busy
        busy = False

    loop.call_soon(burn)
    return stop


def commit_times(loop: asyncio.AbstractEventLoop, syncs: FileSyncer, files: list[File]) -> list[int]:
    """Append to every file and wait until all are durable, again and again; nanoseconds each."""
    times: list[int] = []
    commit = GroupCommit(syncs)
    waiting = 0
    started = 0

    def durable(error: StorageError | None) -> None:
        nonlocal waiting
        assert error is None
        waiting -= 1
        if waiting == 0:
            times.append(time.perf_counter_ns() - started)
            loop.call_soon(write if len(times) < ROUNDS_PER_BLOCK else loop.stop)

    def write() -> None:
        nonlocal started, waiting
        started = time.perf_counter_ns()
        waiting = len(files)
        for file in files:
            file.append(BATCH)
        for file in files:
            commit.request(file, durable)

    loop.call_soon(write)
    loop.run_forever()
    return times


def raw_times(file: File) -> list[int]:
    times: list[int] = []
    for _ in range(ROUNDS_PER_BLOCK):
        started = time.perf_counter_ns()
        file.append(BATCH)
        os.fdatasync(file.fileno())
        times.append(time.perf_counter_ns() - started)
    return times


def percentiles(name: str, times: list[int]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        f"{name}_p50_us": ordered[len(ordered) // 2] / 1e3,
        f"{name}_p99_us": ordered[len(ordered) * 99 // 100] / 1e3,
    }


def run() -> dict[str, float]:
    """Measure all forms in turns, so that they share the machine's good and bad moments."""
    loop = uvloop.new_event_loop()
    helper, threads = SyncHelper.start(loop), ThreadSyncs(loop)
    times: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("PENSTOCK_BENCH_DIR", ".")) as root:
        disk = PosixDisk(root)
        one = [disk.open("one", create=True)]
        many = [disk.open(f"many-{number}", create=True) for number in range(FILES_TOGETHER)]

        def saturated(syncs: FileSyncer, files: list[File]) -> list[int]:
            stop = saturate(loop)
            try:
                return commit_times(loop, syncs, files)
            finally:
                stop()

        measured: dict[str, Callable[[], list[int]]] = {
            "raw_fdatasync": lambda: raw_times(one[0]),
            "idle_helper": lambda: commit_times(loop, helper, one),
            "saturated_helper": lambda: saturated(helper, one),
            "saturated_thread": lambda: saturated(threads, one),
            "saturated_helper_100_files": lambda: saturated(helper, many)[:10],
        }
        for _ in range(BLOCKS):
            for name, measure in measured.items():
                times.setdefault(name, []).extend(measure())
        for file in one + many:
            file.close()
    helper.close()
    threads.close()
    loop.close()
    figures = {key: value for name, each in times.items() for key, value in percentiles(name, each).items()}
    figures["saturated_helper_p99_ratio"] = (
        figures["saturated_helper_p99_us"] / figures["raw_fdatasync_p99_us"]
    )
    return figures


if __name__ == "__main__":
    for figure, value in run().items():
        print(f"{figure:40} {value:12.1f}")
