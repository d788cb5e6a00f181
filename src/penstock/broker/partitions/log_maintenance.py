"""Periodic work on logs: checkpoints, background syncs, retention.

    look ── checkpoints that are due ──► some ── some ── some ── … ── look

A node may have thousands of logs that were all written at the same time: their checkpoints are spread
over the time until the next look, so that nobody's sync waits behind all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.broker.partitions.leader_partition import FsyncMode, Replica
from penstock.broker.partitions.segment_verifier import SegmentVerifier
from penstock.core.model import MILLISECOND, Instant, StorageError, Timestamp
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.storage.log import SuspectSegment

# How many portions the checkpoints of one look are taken in.
PORTIONS = 10


@dataclass(frozen=True, slots=True)
class LogMaintenanceOptions:
    """How often each kind of work is done."""

    fsync: FsyncMode = FsyncMode.EVERY
    fsync_interval_ms: int = 1_000
    retention_check_ms: int = 300_000
    # How often logs are asked whether a checkpoint, or a sync of `flush.ms`, is due.
    look_ms: int = 1_000


class LogMaintenance:
    """Maintains every log that `all_of_them` returns, by timers."""

    def __init__(
        self, runtime: Runtime, all_of_them: Callable[[], list[Replica]], options: LogMaintenanceOptions
    ) -> None:
        self._runtime = runtime
        self._all = all_of_them
        self._options = options
        self._timers: dict[str, Timer] = {}
        self._verifier = SegmentVerifier(runtime)
        # Partitions with unsynced records whose topic sets `flush.ms`, and since when.
        self._dirty_since: dict[Replica, Instant] = {}
        # Logs whose checkpoint is due, and how many are begun at a time.
        self._due: list[Replica] = []
        self._portion = 0

    def start(self) -> None:
        self._every("look", self._options.look_ms, self._check)
        self._every("retention", self._options.retention_check_ms, self.enforce_retention)
        if self._options.fsync is FsyncMode.INTERVAL:
            self._every("fsync", self._options.fsync_interval_ms, self._sync_all)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _every(self, name: str, interval_ms: int, act: Callable[[], None]) -> None:
        def fire() -> None:
            act()
            self._every(name, interval_ms, act)

        deadline = Instant(self._runtime.clock.now() + interval_ms * MILLISECOND)
        self._timers[name] = self._runtime.timers.at(deadline, fire)

    def _check(self) -> None:
        now = self._runtime.clock.now()
        # Built again each time, so that removed partitions are forgotten.
        before, self._dirty_since = self._dirty_since, {}
        is_underway = bool(self._due)
        self._due = []
        for replica in self._all():
            if replica.log.is_checkpoint_due(now):
                self._due.append(replica)
            if replica.policy.before_acknowledging or replica.log.synced == replica.log.end:
                continue
            since = before.get(replica, now)
            if now - since >= replica.policy.flush_ms * MILLISECOND:
                since = now
                replica.sync_behind()
            self._dirty_since[replica] = since
        self._portion = -(-len(self._due) // PORTIONS)
        if self._due and not is_underway:
            self._checkpoint_some()

    def _checkpoint_some(self) -> None:
        """Take the checkpoints of a portion of the logs, and of the next one a little later."""
        now = self._runtime.clock.now()
        taken, self._due = self._due[: self._portion], self._due[self._portion :]
        for replica in taken:
            # It may have been removed, or have stopped.
            replica.log.maybe_checkpoint(now)
        if self._due:
            pause = self._options.look_ms * MILLISECOND // PORTIONS
            self._timers["checkpoints"] = self._runtime.timers.at(Instant(now + pause), self._checkpoint_some)

    def _sync_all(self) -> None:
        for replica in self._all():
            if replica.log.synced < replica.log.end:
                replica.sync_behind()

    def enforce_retention(self) -> None:
        """Apply retention to every log: one log per turn of the loop, since deleting waits for the device."""
        self._expire_on(iter(self._all()), self._runtime.clock.wall())

    def _expire_on(self, replicas: Iterator[Replica], now: Timestamp) -> None:
        for replica in replicas:
            if self._expire(replica, now):
                self._timers["expiring"] = self._runtime.timers.soon(lambda: self._expire_on(replicas, now))
                return

    def _expire(self, replica: Replica, now: Timestamp) -> bool:
        """Apply retention to one log; returns whether something was deleted."""
        if not replica.is_usable:
            return False
        try:
            deleted = replica.log.expire(now)
        except SuspectSegment as error:
            events.warning("partition.retention_failed", partition=str(replica.name), error=error)
            self._verifier.suspect(replica, max(error.segment, replica.log.start))
            return False
        except StorageError as error:
            if replica.log.stopped is not None:
                replica.stop(str(error))
            else:
                # Perhaps the disk is full: nothing was changed, and there may be room next time.
                events.warning("partition.retention_failed", partition=str(replica.name), error=error)
            return False
        if deleted:
            events.info("partition.segments_deleted", partition=str(replica.name), segments=len(deleted))
            replica.log_start_moved()
        return bool(deleted)
