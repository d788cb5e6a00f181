"""Compacting logs in the background: the dirtiest one first, one at a time.

A node may have thousands of logs, so that a look at all of them takes several turns of the loop.
Only what a checkpoint covers is compacted. Where that is all that is missing, the cleaner asks for one
and looks again soon; it also does after it compacted a log, since there may be more of them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

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
# How many logs are looked at in one turn.
LOGS_PER_TURN = 128


class _Round:
    """A look at every log, and what was found so far."""

    __slots__ = ("best", "candidates", "is_one_prepared", "now")

    def __init__(self, candidates: Iterable[tuple[Replica, CompactionRules | None]], now: Timestamp) -> None:
        self.candidates = iter(candidates)
        self.now = now
        self.best: tuple[float, Replica, CompactionRules] | None = None
        self.is_one_prepared = False


class LogCleaner:
    """Checks periodically for a log that is worth compacting, and has a worker compact it."""

    def __init__(
        self,
        runtime: Runtime,
        clean: Callable[[CompactionTask], CleaningResult],
        candidates: Callable[[], Iterable[tuple[Replica, CompactionRules | None]]],
    ) -> None:
        """`candidates` yields every log, and how it is compacted, if it is."""
        self._runtime = runtime
        self._clean = clean
        self._candidates = candidates
        self._backoff_ms = 0
        self._verifier = SegmentVerifier(runtime)
        self._timer: Timer | None = None
        self._job: Job | None = None
        self._is_stopped = False
        # Logs that are damaged or cannot be read: they are not tried again before something was repaired.
        self._uncleanable: dict[Replica, int] = {}

    def start(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._look_later()

    def stop(self) -> None:
        """Stop checking. The result of a running worker is ignored; the next start removes its files."""
        self._is_stopped = True
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
        self._look_at_some(_Round(self._candidates(), self._runtime.clock.wall()))

    def _look_at_some(self, found: _Round) -> None:
        some = list(islice(found.candidates, LOGS_PER_TURN))
        for replica, rules in some:
            if rules is not None and replica.is_usable:
                self._look_at(replica, rules, found)
        if len(some) == LOGS_PER_TURN:
            self._timer = self._runtime.timers.soon(partial(self._look_at_some, found))
        else:
            self._begin_best(found)

    def _look_at(self, replica: Replica, rules: CompactionRules, found: _Round) -> None:
        if self._uncleanable.get(replica) == replica.log.stats.repaired_ranges:
            return
        ratio = self._ratio(replica, rules, found.now)
        if ratio > 0 and (found.best is None or ratio > found.best[0]):
            found.best = (ratio, replica, rules)
        if not ratio and not found.is_one_prepared and self._lacks_checkpoint(replica, rules, found.now):
            replica.log.checkpoint()
            found.is_one_prepared = True

    def _begin_best(self, found: _Round) -> None:
        best, compaction = found.best, None
        # It may have been removed, or have failed, since it was looked at.
        if best is not None and best[1].is_usable:
            token = self._runtime.entropy.bytes(TOKEN_BYTES).hex()
            compaction = self._plan(best[1], best[2], found.now, token)
        if best is None or compaction is None:
            self._look_later(soon=found.is_one_prepared)
        else:
            self._spawn(best[1], compaction)

    def _ratio(self, replica: Replica, rules: CompactionRules, now: Timestamp) -> float:
        try:
            return replica.log.dirty_ratio(rules, now)
        except SuspectSegment as error:
            self._suspect(replica, error)
        except StorageError as error:
            # For want of a descriptor, say: it is looked at again in the next round.
            events.warning("partition.compaction_failed", partition=str(replica.name), error=error)
        return 0.0

    def _lacks_checkpoint(self, replica: Replica, rules: CompactionRules, now: Timestamp) -> bool:
        try:
            return replica.log.is_due_after_checkpoint(rules, now)
        except (SuspectSegment, StorageError):
            return False

    def _plan(
        self, replica: Replica, rules: CompactionRules, now: Timestamp, token: str
    ) -> Compaction | None:
        try:
            return replica.log.begin_compaction(rules, now, token)
        except SuspectSegment as error:
            self._suspect(replica, error)
        except StorageError as error:
            # Its directory may be that of a topic that was deleted since.
            events.warning("partition.compaction_failed", partition=str(replica.name), error=error)
        return None

    def _suspect(self, replica: Replica, error: SuspectSegment) -> None:
        events.warning("partition.compaction_failed", partition=str(replica.name), error=error)
        self._verifier.suspect(replica, max(error.segment, replica.log.start))

    def _spawn(self, replica: Replica, compaction: Compaction) -> None:
        def done(cleaned: CleaningResult) -> None:
            if replica.is_usable:
                prepared = partial(self._prepared, replica, compaction, cleaned)
                replica.log.prepare_compaction(compaction, cleaned, prepared)
            else:
                compaction.cancel()
                self._look_later()

        def failed(error: Exception) -> None:
            self._give_up(replica, compaction, error)
            self._look_later()

        work = partial(self._clean, compaction.order)
        self._job = self._runtime.spawn.spawn(work, done, failed, ExecutorKind.WORKER)

    def _prepared(
        self,
        replica: Replica,
        compaction: Compaction,
        cleaned: CleaningResult,
        error: StorageError | None,
    ) -> None:
        """All that takes long is on disk, and the log may have changed meanwhile."""
        if self._is_stopped:
            return
        if error is None:
            self._look_later(soon=self._finish(replica, compaction, cleaned))
        else:
            self._give_up(replica, compaction, error)
            self._look_later()

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
