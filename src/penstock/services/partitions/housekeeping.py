"""What must be done for logs every now and then: checkpoints, syncs behind, retention."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.core.model import MILLISECOND, Instant, StorageError, Timestamp
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.services.partitions.partition import Fsync, Partition

LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class HousekeepingOptions:
    """How often."""

    fsync: Fsync = Fsync.EVERY
    fsync_interval_ms: int = 1_000
    retention_check_ms: int = 300_000


class Housekeeping:
    """Looks after every partition that `all_of_them` answers, by timers."""

    def __init__(
        self, runtime: Runtime, all_of_them: Callable[[], list[Partition]], options: HousekeepingOptions
    ) -> None:
        self._runtime = runtime
        self._all = all_of_them
        self._options = options
        self._timers: dict[str, Timer] = {}
        # Partitions with unsynced records whose topic sets `flush.ms`, and since when.
        self._dirty_since: dict[Partition, Instant] = {}

    def start(self) -> None:
        self._every("look", LOOK_MS, self._look)
        self._every("retention", self._options.retention_check_ms, self.enforce_retention)
        if self._options.fsync is Fsync.INTERVAL:
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

    def _look(self) -> None:
        now = self._runtime.clock.now()
        # Made anew, so that partitions which are gone are forgotten.
        before, self._dirty_since = self._dirty_since, {}
        for partition in self._all():
            partition.log.maybe_checkpoint(now)
            if partition.policy.before_acknowledging or partition.log.synced == partition.log.end:
                continue
            since = before.get(partition, now)
            if now - since >= partition.policy.flush_ms * MILLISECOND:
                since = now
                partition.sync_behind()
            self._dirty_since[partition] = since

    def _sync_all(self) -> None:
        for partition in self._all():
            if partition.log.synced < partition.log.end:
                partition.sync_behind()

    def enforce_retention(self) -> None:
        """Delete what is too old or too much: of one log per turn, since that waits for the device."""
        self._expire_on(iter(self._all()), self._runtime.clock.wall())

    def _expire_on(self, partitions: Iterator[Partition], now: Timestamp) -> None:
        for partition in partitions:
            if self._expire(partition, now):
                self._timers["expiring"] = self._runtime.timers.soon(lambda: self._expire_on(partitions, now))
                return

    def _expire(self, partition: Partition, now: Timestamp) -> bool:
        """Whether something was deleted."""
        if partition.stopped is not None:
            return False
        try:
            deleted = partition.log.expire(now)
        except StorageError as error:
            if partition.log.stopped is not None:
                partition.stop(str(error))
            else:
                # A disk that is full, say: nothing was changed, and there may be room next time.
                events.warning("partition.retention_failed", partition=str(partition.name), error=error)
            return False
        if deleted:
            events.info("partition.segments_deleted", partition=str(partition.name), segments=len(deleted))
            partition.log_start_moved()
        return bool(deleted)
