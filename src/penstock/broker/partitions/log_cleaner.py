"""Compacting logs in the background: the dirtiest one first, one at a time.

Only what a checkpoint covers is compacted. Where that is all that is missing, the cleaner asks for one
and looks again soon; it also does after it compacted a log, since there may be more of them.
"""

from collections.abc import Callable
from functools import partial

from penstock.broker.partitions.leader_partition import Replica
from penstock.broker.partitions.segment_verifier import SegmentVerifier
from penstock.core.model import MILLISECOND, Instant, Offset, StorageError, Timestamp
from penstock.observability import log as events
from penstock.runtime import ExecutorFull, ExecutorKind, Job, Runtime, Timer, WorkerDied
from penstock.storage.log import (
    CleaningResult,
    Compaction,
    CompactionRules,
    CompactionTask,
    SuspectSegment,
    Uncleanable,
)

TOKEN_BYTES = 8
SOON_MS = 1_000


class LogCleaner:
    """Checks periodically for a log that is worth compacting, and has a worker compact it."""

    def __init__(
        self,
        runtime: Runtime,
        clean: Callable[[CompactionTask], CleaningResult],
        candidates: Callable[[], list[tuple[Replica, CompactionRules]]],
    ) -> None:
        self._runtime = runtime
        self._clean = clean
        self._candidates = candidates
        self._backoff_ms = 0
        self._verifier = SegmentVerifier(runtime)
        self._timer: Timer | None = None
        self._job: Job | None = None
        # Logs that are damaged or cannot be read: they are not tried again before something was repaired.
        self._uncleanable: dict[Replica, int] = {}

    def start(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._look_later()

    def stop(self) -> None:
        """Stop checking. The result of a running worker is ignored; the next start removes its files."""
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.cancel()

    def _look_later(self, *, soon: bool = False) -> None:
        self._job = None
        wait_ms = min(self._backoff_ms, SOON_MS) if soon else self._backoff_ms
        deadline = Instant(self._runtime.clock.now() + wait_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._check)

    def _check(self) -> None:
        """Give the dirtiest log to a worker, if there is one."""
        now = self._runtime.clock.wall()
        is_one_prepared = False
        best: tuple[float, Replica, CompactionRules] | None = None
        for replica, rules in self._candidates():
            if not replica.is_usable or self._uncleanable.get(replica) == replica.log.stats.repaired_ranges:
                continue
            ratio = self._ratio(replica, rules, now)
            if ratio > 0 and (best is None or ratio > best[0]):
                best = (ratio, replica, rules)
            if not ratio and not is_one_prepared and self._lacks_checkpoint(replica, rules, now):
                replica.log.checkpoint()
                is_one_prepared = True
        token = self._runtime.entropy.bytes(TOKEN_BYTES).hex() if best is not None else ""
        compaction = None if best is None else self._plan(best[1], best[2], now, token)
        if best is None or compaction is None:
            self._look_later(soon=is_one_prepared)
        else:
            self._spawn(best[1], compaction)

    def _ratio(self, replica: Replica, rules: CompactionRules, now: Timestamp) -> float:
        try:
            return replica.log.dirty_ratio(rules, now)
        except SuspectSegment as error:
            self._suspect(replica, error)
            return 0.0

    def _lacks_checkpoint(self, replica: Replica, rules: CompactionRules, now: Timestamp) -> bool:
        try:
            return replica.log.is_due_after_checkpoint(rules, now)
        except SuspectSegment:
            return False

    def _plan(
        self, replica: Replica, rules: CompactionRules, now: Timestamp, token: str
    ) -> Compaction | None:
        try:
            return replica.log.begin_compaction(rules, now, token)
        except SuspectSegment as error:
            self._suspect(replica, error)
            return None

    def _suspect(self, replica: Replica, error: SuspectSegment) -> None:
        events.warning("partition.compaction_failed", partition=str(replica.name), error=error)
        self._verifier.suspect(replica, max(error.segment, replica.log.start))

    def _spawn(self, replica: Replica, compaction: Compaction) -> None:
        def done(cleaned: CleaningResult) -> None:
            self._look_later(soon=self._finish(replica, compaction, cleaned))

        def failed(error: Exception) -> None:
            self._give_up(replica, compaction, error)
            self._look_later()

        work = partial(self._clean, compaction.order)
        self._job = self._runtime.spawn.spawn(work, done, failed, ExecutorKind.WORKER)

    def _finish(self, replica: Replica, compaction: Compaction, cleaned: CleaningResult) -> bool:
        """Put the result in place; returns whether the log is compacted."""
        if not replica.is_usable:
            compaction.cancel()
            return False
        try:
            compacted = replica.log.finish_compaction(compaction, cleaned)
        except StorageError as error:
            self._give_up(replica, compaction, error)
            return False
        if cleaned.first_unreadable is not None:
            offset, reason = cleaned.first_unreadable
            events.warning(
                "partition.batches_unreadable",
                partition=str(replica.name),
                batches=cleaned.unreadable,
                offset=offset,
                reason=reason,
            )
        if compacted is not None:
            events.info("partition.compacted", partition=str(replica.name), **compacted._asdict())
        return compacted is not None

    def _give_up(self, replica: Replica, compaction: Compaction, error: Exception) -> None:
        events.warning("partition.compaction_failed", partition=str(replica.name), error=error)
        if not isinstance(error, StorageError | ExecutorFull | WorkerDied):
            self._uncleanable[replica] = replica.log.stats.repaired_ranges
        if isinstance(error, Uncleanable) and error.segment >= 0:
            self._verifier.suspect(replica, max(Offset(error.segment), replica.log.start))
        if not replica.is_usable:
            replica.stop(str(error))
        else:
            compaction.cancel()
