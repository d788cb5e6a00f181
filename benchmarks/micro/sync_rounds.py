"""What a sync round costs by the number of partitions that were written, with the journal and without.

One small batch is appended to each of N logs, all of them are to be durable, and the next round
begins when they are. CPU is that of this process and of the sync helper in the best block of rounds,
less what the same appends cost without a sync; latency is the time from the first request to the last
callback. All forms take turns on the same logs:

    journal    one frame, synced by the helper
    on loop    one frame, synced on the loop: without the way to the helper and back
    unsynced   one frame, and no sync: what the round costs us
    files      the files of all logs, synced by the helper
    raw        the same bytes to one preallocated file and its fdatasync: what it costs the kernel

    python -m benchmarks.micro.sync_rounds [--partitions 1 6 50] [--directory D]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import uvloop

from benchmarks.micro.group_commit import percentiles
from penstock.cli.bench.scenarios import usage_of
from penstock.core.model import LeaderEpoch, PartitionIndex, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime.port import DiskSync, SyncTarget
from penstock.runtime.sync_helper import InlineSync, SyncHelper
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import PosixDisk
from penstock.storage.journal import CommitJournal, JournalFile, JournalPlace
from penstock.storage.log import LogOptions, PartitionLog

PARTITIONS = (1, 6, 50, 200, 1_000)
BLOCKS = 10
# Of a block: fewer with many partitions, so that every number takes about as long.
APPENDS_PER_BLOCK = 4_000
ROUNDS_PER_BLOCK_MAX = 200
VALUE = bytes(100)
FORMS = ("journal", "on loop", "unsynced", "files")
TOPIC = TopicId(UUID(int=7))


class NoSync:
    """Says that files are synced, and does not sync them."""

    def __init__(self, loop: uvloop.Loop) -> None:
        self._loop = loop

    def sync(self, _: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        self._loop.call_soon(done, None)


class ChosenSync:
    """One of several ways to sync."""

    def __init__(self, way: DiskSync) -> None:
        self.way = way

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        self.way.sync(files, done)


class Rounds:
    """N logs of one node, and rounds that write to all of them."""

    def __init__(self, loop: uvloop.Loop, helper: SyncHelper, disk: PosixDisk, count: int) -> None:
        self._loop = loop
        self._helper = helper
        self._syncs = ChosenSync(helper)
        self._ways: dict[str, DiskSync] = {"on loop": InlineSync(loop.call_soon), "unsynced": NoSync(loop)}
        disk.make_directory("meta")

        def spawn(
            work: Callable[[], JournalFile],
            done: Callable[[JournalFile], None],
            _: Callable[[Exception], None],
        ) -> None:
            loop.call_soon(lambda: done(work()))

        place = JournalPlace(disk, disk, lambda: int.from_bytes(os.urandom(4), "little"), spawn)
        self._journal = CommitJournal.open(place)
        self._commit = GroupCommit(self._syncs, time.perf_counter_ns, loop.call_soon, self._journal)
        self._logs = [
            PartitionLog.create(
                disk,
                f"logs/bench/{number}",
                TOPIC,
                LogOptions(),
                commit=self._commit,
                journal=self._journal.of(TOPIC, PartitionIndex(number)),
            )
            for number in range(count)
        ]
        self.rounds = max(10, min(ROUNDS_PER_BLOCK_MAX, APPENDS_PER_BLOCK // count))

    def use(self, form: str) -> None:
        """Sync in this form from now on."""
        for log in self._logs:
            log.use_journal(is_on=form != "files")
        self._syncs.way = self._helper
        self.settle()
        self._syncs.way = self._ways.get(form, self._helper)

    def append(self) -> None:
        for log in self._logs:
            batch = write_batch([Record(0, 1_000, None, VALUE, ())])
            log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))

    def cpu_ns(self) -> int:
        return time.process_time_ns() + usage_of(self._helper.pid).cpu_ns

    def cached(self) -> float:
        """CPU per round of the appends alone, in nanoseconds."""
        began = self.cpu_ns()
        for _ in range(self.rounds):
            self.append()
        return (self.cpu_ns() - began) / self.rounds

    def durable(self) -> tuple[list[int], float]:
        """How long each round took, and CPU per round with the appends, in nanoseconds."""
        times: list[int] = []
        waiting = started = 0

        def ended(error: StorageError | None) -> None:
            nonlocal waiting
            assert error is None, error
            waiting -= 1
            if waiting == 0:
                times.append(time.perf_counter_ns() - started)
                self._loop.call_soon(write if len(times) < self.rounds else self._loop.stop)

        def write() -> None:
            nonlocal waiting, started
            self.append()
            waiting, started = len(self._logs), time.perf_counter_ns()
            for log in self._logs:
                log.sync_shared(ended)

        began = self.cpu_ns()
        self._loop.call_soon(write)
        self._loop.run_forever()
        return times, (self.cpu_ns() - began) / self.rounds

    def settle(self) -> None:
        """Make everything durable, so that no form pays for the other."""
        for log in self._logs:
            log.sync_shared(lambda _: None)
        while not self._commit.is_idle:
            self._loop.call_later(0.001, self._loop.stop)
            self._loop.run_forever()

    def close(self) -> None:
        for log in self._logs:
            log.close()
        self._journal.close()


def raw_rounds(file: int, count: int, rounds: int) -> tuple[list[int], float]:
    """The same bytes to one file that was written before, and one fdatasync."""
    content, times = bytes(count * 168), []
    began = time.process_time_ns()
    for number in range(rounds):
        started = time.perf_counter_ns()
        os.pwrite(file, content, number % 8 * len(content))
        os.fdatasync(file)
        times.append(time.perf_counter_ns() - started)
    return times, (time.process_time_ns() - began) / rounds


def measure(count: int, directory: str) -> dict[str, float]:
    """CPU and latency per round, in microseconds."""
    loop = uvloop.new_event_loop()
    helper = SyncHelper.start(loop)
    cpu: dict[str, list[float]] = {name: [] for name in (*FORMS, "raw", "cached")}
    times: dict[str, list[int]] = {name: [] for name in (*FORMS, "raw")}
    with tempfile.TemporaryDirectory(dir=directory) as root:
        rounds = Rounds(loop, helper, PosixDisk(root), count)
        preallocated = os.open(Path(root) / "raw", os.O_RDWR | os.O_CREAT)
        os.pwrite(preallocated, bytes(count * 168 * 8), 0)
        os.fsync(preallocated)
        for _ in range(BLOCKS):
            for name in FORMS:
                rounds.use(name)
                took, used = rounds.durable()
                times[name] += took
                cpu[name].append(used)
            rounds.use("journal")
            cpu["cached"].append(rounds.cached())
            rounds.settle()
            took, used = raw_rounds(preallocated, count, rounds.rounds)
            times["raw"] += took
            cpu["raw"].append(used)
        os.close(preallocated)
        rounds.close()
    helper.close()
    loop.close()
    # The best block: whatever else runs on the machine only adds to it.
    best = {name: min(each) / 1e3 for name, each in cpu.items()}
    figures = {f"{name}_cpu_us": best[name] - best["cached"] for name in FORMS}
    figures["raw_cpu_us"] = best["raw"]
    for name, each in times.items():
        figures |= percentiles(name, each)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--directory", default=os.environ.get("PENSTOCK_BENCH_DIR", "."))
    arguments = parser.parse_args()
    names = (*FORMS, "raw")
    print(
        f"{'partitions':>10}"
        + "".join(f"{f'{name} CPU µs':>16}{'p50 µs':>10}{'p99 µs':>10}" for name in names)
    )
    for count in arguments.partitions:
        found = measure(count, arguments.directory)
        cells = (
            f"{found[f'{name}_cpu_us']:16.0f}{found[f'{name}_p50_us']:10.0f}{found[f'{name}_p99_us']:10.0f}"
            for name in names
        )
        print(f"{count:10,}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
