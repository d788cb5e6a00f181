"""Appending batches as a broker does: a few in flight per partition, acknowledged when on disk."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.cli.demo.engine.batches import Batch, Share
from penstock.cli.demo.engine.host import run_on_runtime
from penstock.core.model import LeaderEpoch, StorageError, TopicId
from penstock.runtime import Callback, Runtime
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.log import LogOptions, PartitionLog

IN_FLIGHT = 8
EPOCH = LeaderEpoch(0)
# Small segments, so that even a short demo has several.
OPTIONS = LogOptions(segment_bytes=1 << 17)


@dataclass(slots=True)
class Produced:
    """What appending took."""

    records: int = 0
    appended_bytes: int = 0
    batches: int = 0
    elapsed_ns: int = 0
    sync_rounds: int = 0
    segments: int = 0
    appends_ns: list[int] = field(default_factory=list)


class _Partition:
    """One log, its batches yet to be appended, and those on their way to the disk."""

    def __init__(self, log: PartitionLog, batches: list[Batch]) -> None:
        self.log = log
        self.waiting = deque(batches)
        self.in_flight = 0


class Producer:
    """Keeps every partition busy until all that was given to it is acknowledged."""

    def __init__(self, runtime: Runtime, advance: Callable[[int], None], finished: Callback) -> None:
        self._runtime = runtime
        self._advance = advance
        self._finished = finished
        self._partitions: list[_Partition] = []
        self.produced = Produced()

    def start(self, logs: list[PartitionLog], shares: list[Share]) -> None:
        pairs = zip(logs, shares, strict=True)
        self._partitions = [_Partition(log, share.batches) for log, share in pairs]
        for partition in self._partitions:
            self._pump(partition)
        self._finish_if_done()

    def _pump(self, partition: _Partition) -> None:
        while partition.waiting and partition.in_flight < IN_FLIGHT:
            batch = partition.waiting.popleft()
            began = self._runtime.clock.now()
            partition.log.append(batch.content, (batch.header,), EPOCH, self._runtime.clock.wall())
            self.produced.appends_ns.append(self._runtime.clock.now() - began)
            partition.in_flight += 1
            partition.log.sync(self._acknowledge(partition, batch))

    def _acknowledge(self, partition: _Partition, batch: Batch) -> Callable[[StorageError | None], None]:
        def done(error: StorageError | None) -> None:
            if error is not None:
                raise error
            produced = self.produced
            produced.records += batch.header.record_count
            produced.appended_bytes += len(batch.content)
            produced.batches += 1
            partition.in_flight -= 1
            self._advance(batch.header.record_count)
            self._pump(partition)
            self._finish_if_done()

        return done

    def _finish_if_done(self) -> None:
        if not any(partition.in_flight or partition.waiting for partition in self._partitions):
            self._finished()


def produce(
    disk: Disk, directories: list[str], topic_id: TopicId, shares: list[Share], advance: Callable[[int], None]
) -> Produced:
    """Append each share to the log in its directory, close the logs, and say what it took."""
    results: list[Produced] = []

    def start(runtime: Runtime, stop: Callback) -> None:
        commit = GroupCommit(runtime.sync, runtime.clock.now)
        logs = [
            PartitionLog.create(disk, directory, topic_id, OPTIONS, commit=commit, ticks=runtime.clock.now)
            for directory in directories
        ]
        began = runtime.clock.now()

        def finished() -> None:
            produced = producer.produced
            produced.elapsed_ns = runtime.clock.now() - began
            produced.sync_rounds = commit.counters.rounds
            produced.segments = sum(len(log.segments()) for log in logs)
            for log in logs:
                log.close()
            results.append(produced)
            stop()

        producer = Producer(runtime, advance, finished)
        producer.start(logs, shares)

    run_on_runtime(start)
    return results[0]
