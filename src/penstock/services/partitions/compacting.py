"""Compacting logs in the background: the dirtiest one first, one at a time."""

from collections.abc import Callable
from functools import partial

from penstock.core.model import MILLISECOND, Instant, StorageError
from penstock.observability import log as events
from penstock.runtime import Job, Lane, LaneFull, Runtime, Timer, WorkerDied
from penstock.services.partitions.partition import Partition
from penstock.storage.log import Cleaned, Compaction, CompactionOrder, CompactionRules

TOKEN_BYTES = 8


class Compactor:
    """Looks every so often for a log that is worth compacting, and has a worker do it."""

    def __init__(
        self,
        runtime: Runtime,
        clean: Callable[[CompactionOrder], Cleaned],
        candidates: Callable[[], list[tuple[Partition, CompactionRules]]],
    ) -> None:
        self._runtime = runtime
        self._clean = clean
        self._candidates = candidates
        self._backoff_ms = 0
        self._timer: Timer | None = None
        self._job: Job | None = None
        # Damaged logs, and those that nobody can read: to try them again and again would help nobody.
        self._uncleanable: dict[Partition, None] = {}

    def start(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._look_later()

    def stop(self) -> None:
        """What a worker is doing is forgotten; the next start removes its files."""
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.cancel()

    def _look_later(self) -> None:
        self._job = None
        deadline = Instant(self._runtime.clock.now() + self._backoff_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._look)

    def _look(self) -> None:
        """Give the dirtiest log to a worker, if there is one."""
        now = self._runtime.clock.wall()
        best: tuple[float, Partition, CompactionRules] | None = None
        for partition, rules in self._candidates():
            if partition.stopped is not None or partition in self._uncleanable:
                continue
            ratio = partition.log.dirty_ratio(rules, now)
            if ratio > 0 and (best is None or ratio > best[0]):
                best = (ratio, partition, rules)
        token = self._runtime.entropy.bytes(TOKEN_BYTES).hex() if best is not None else ""
        compaction = None if best is None else best[1].log.begin_compaction(best[2], now, token)
        if best is None or compaction is None:
            self._look_later()
        else:
            self._spawn(best[1], compaction)

    def _spawn(self, partition: Partition, compaction: Compaction) -> None:
        def done(cleaned: Cleaned) -> None:
            self._finish(partition, compaction, cleaned)
            self._look_later()

        def failed(error: Exception) -> None:
            self._give_up(partition, compaction, error)
            self._look_later()

        work = partial(self._clean, compaction.order)
        self._job = self._runtime.spawn.spawn(work, done, failed, Lane.WORKER)

    def _finish(self, partition: Partition, compaction: Compaction, cleaned: Cleaned) -> None:
        if partition.stopped is not None:
            compaction.cancel()
            return
        try:
            compacted = partition.log.finish_compaction(compaction, cleaned)
        except StorageError as error:
            self._give_up(partition, compaction, error)
            return
        if compacted is not None:
            events.info("partition.compacted", partition=str(partition.name), **compacted._asdict())

    def _give_up(self, partition: Partition, compaction: Compaction, error: Exception) -> None:
        events.warning("partition.not_compacted", partition=str(partition.name), error=error)
        if not isinstance(error, StorageError | LaneFull | WorkerDied):
            self._uncleanable[partition] = None
        if partition.log.stopped is not None:
            partition.stop(str(error))
        else:
            compaction.cancel()
