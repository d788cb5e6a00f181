"""Periodic work on logs: checkpoints, background syncs, retention, how many producers are remembered.

    look ── checkpoints that are due ──► some ── some ── some ── … ── look

A node may have thousands of logs that were all written at the same time: their checkpoints are spread
over the time until the next look, so that nobody's sync waits behind all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from penstock.broker.partitions.leader_partition import FsyncMode, Replica
from penstock.broker.partitions.segment_verifier import SegmentVerifier
from penstock.core.model import MILLISECOND, Instant, StorageError, Timestamp
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.storage.log import SuspectSegment

# How many portions the checkpoints of one look are taken in, if they are not too large then.
PORTIONS = 10
# Some milliseconds each, whatever a node has.
CHECKPOINTS_PER_TURN = 32
LOGS_PER_TURN = 256
# Each has five files: some milliseconds.
SEGMENTS_AT_ONCE = 16
PRODUCERS_MAX = 100_000
# How often producers are counted.
PRODUCERS_MS = 2_000


def fair_share(counts: Sequence[int], limit: int) -> int:
    """The most that each may keep so that all together keep no more than `limit`."""
    left, share = limit, 0
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        share = left // (len(ordered) - index)
        if count > share:
            return share
        left -= count
    return share


@dataclass(frozen=True, slots=True)
class LogMaintenanceOptions:
    """How often each kind of work is done."""

    fsync: FsyncMode = FsyncMode.EVERY
    fsync_interval_ms: int = 1_000
    retention_check_ms: int = 300_000
    # How often logs are asked whether a checkpoint, or a sync of `flush.ms`, is due.
    look_ms: int = 1_000


class _Round:
    """A look at every log, and what was found so far."""

    __slots__ = ("dirty_since", "due", "is_short", "now", "replicas")

    def __init__(self, replicas: Iterable[Replica], now: Instant, *, is_short: bool) -> None:
        self.replicas = iter(replicas)
        self.now = now
        # Descriptors are short: logs with a new checkpoint need none.
        self.is_short = is_short
        self.due: list[Replica] = []
        self.dirty_since: dict[Replica, Instant] = {}


class LogMaintenance:
    """Maintains every log that `all_of_them` returns, by timers."""

    def __init__(
        self,
        runtime: Runtime,
        all_of_them: Callable[[], list[Replica]],
        options: LogMaintenanceOptions,
        producers_max: Callable[[], int] = lambda: PRODUCERS_MAX,
        take_shortage: Callable[[], bool] = lambda: False,
    ) -> None:
        """`take_shortage` says whether descriptors were short: a log with a new checkpoint needs none."""
        self._runtime = runtime
        self._all = all_of_them
        self._options = options
        self._producers_max = producers_max
        self._take_shortage = take_shortage
        # Producers of all logs when they were last counted, and how many were evicted since the start.
        self.producers = 0
        self.evicted_producers = 0
        self._timers: dict[str, Timer] = {}
        self._verifier = SegmentVerifier(runtime)
        # Partitions with unsynced records whose topic sets `flush.ms`, and since when.
        self._dirty_since: dict[Replica, Instant] = {}
        # Logs whose checkpoint is due, in how many portions they are taken, and how large those are.
        self._due: list[Replica] = []
        self._portions = PORTIONS
        self._portion = 0
        # The round over all logs that is under way.
        self._round: _Round | None = None
        # Whether retention is being applied, and whether producers are counted: either may take many turns.
        self._is_expiring = False
        self._is_counting = False

    def start(self) -> None:
        self._every("look", self._options.look_ms, self._check)
        self._every("retention", self._options.retention_check_ms, self.enforce_retention)
        self._every("producers", PRODUCERS_MS, self.limit_producers)
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
        """Look at every log for what is due, so many of them per turn."""
        if self._round is None:
            self._round = _Round(self._all(), self._runtime.clock.now(), is_short=self._take_shortage())
            self._look_at_some()

    def _look_at_some(self) -> None:
        found = self._round
        assert found is not None
        some = list(islice(found.replicas, LOGS_PER_TURN))
        for replica in some:
            if replica.log.is_open:
                self._look_at(replica, found)
        if len(some) == LOGS_PER_TURN:
            self._timers["round"] = self._runtime.timers.soon(self._look_at_some)
            return
        is_underway = bool(self._due)
        # As it was found now, so that removed partitions are forgotten.
        self._round, self._dirty_since, self._due = None, found.dirty_since, found.due
        self._portions = max(PORTIONS, -(-len(self._due) // CHECKPOINTS_PER_TURN))
        self._portion = -(-len(self._due) // self._portions)
        if self._due and not is_underway:
            self._checkpoint_some()

    def _look_at(self, replica: Replica, found: _Round) -> None:
        log, now = replica.log, found.now
        if log.is_checkpoint_due(now) or (found.is_short and log.stopped is None and not log.is_checkpointed):
            found.due.append(replica)
        if replica.policy.before_acknowledging or log.synced == log.end:
            return
        since = self._dirty_since.get(replica, now)
        if now - since >= replica.policy.flush_ms * MILLISECOND:
            since = now
            replica.sync_behind()
        found.dirty_since[replica] = since

    def _checkpoint_some(self) -> None:
        """Take the checkpoints of a portion of the logs, and of the next one a little later."""
        now = self._runtime.clock.now()
        taken, self._due = self._due[: self._portion], self._due[self._portion :]
        for replica in taken:
            # It may have been removed, or have stopped.
            if replica.log.is_open and replica.log.stopped is None and not replica.log.is_checkpointed:
                replica.log.checkpoint()
        if self._due:
            pause = self._options.look_ms * MILLISECOND // self._portions
            self._timers["checkpoints"] = self._runtime.timers.at(Instant(now + pause), self._checkpoint_some)

    def limit_producers(self) -> None:
        """Have the logs with the most producers forget some, if all of them remember too many together."""
        if not self._is_counting:
            self._is_counting = True
            self._count_producers(iter(self._all()), [])

    def _count_producers(self, replicas: Iterator[Replica], counts: list[tuple[int, Replica]]) -> None:
        """Count those of some logs, and of more in the next turn."""
        some = list(islice(replicas, LOGS_PER_TURN))
        counts += [(len(replica.log.producers), replica) for replica in some]
        if len(some) == LOGS_PER_TURN:
            self._timers["count"] = self._runtime.timers.soon(
                partial(self._count_producers, replicas, counts)
            )
            return
        self._is_counting = False
        self.producers = sum([count for count, _ in counts])
        limit = self._producers_max()
        if self.producers > limit:
            self._evict_producers(counts, limit)

    def _evict_producers(self, counts: list[tuple[int, Replica]], limit: int) -> None:
        most = fair_share([count for count, _ in counts], limit)
        now, evicted = self._runtime.clock.wall(), 0
        for count, replica in counts:
            if count > most:
                evicted += replica.log.producers.evict(most, now)
        self.producers -= evicted
        self.evicted_producers += evicted
        events.warning("partition.producers_evicted", producers=evicted, left=self.producers, limit=limit)

    def _sync_all(self) -> None:
        for replica in self._all():
            if replica.log.synced < replica.log.end:
                replica.sync_behind()

    def enforce_retention(self) -> None:
        """Apply retention to every log: a few segments per turn, since deleting waits for the device.

        A topic with a small `segment.bytes` or `segment.ms` may have thousands of them.
        """
        if not self._is_expiring:
            self._is_expiring = True
            self._expire_on(iter(self._all()), self._runtime.clock.wall())

    def _expire_on(
        self, replicas: Iterator[Replica], now: Timestamp, begun: Replica | None = None, before: int = 0
    ) -> None:
        """Go on with a log that was begun, of which some segments went before, and then with the others."""
        left = LOGS_PER_TURN
        for replica in replicas if begun is None else chain((begun,), replicas):
            left -= 1
            if not left:
                go_on = partial(self._expire_on, replicas, now, replica, before)
                self._timers["expiring"] = self._runtime.timers.soon(go_on)
                return
            count = self._expire(replica, now)
            if count:
                go_on = partial(self._expire_on, replicas, now, replica, before + count)
                self._timers["expiring"] = self._runtime.timers.soon(go_on)
                return
            if before:
                events.info("partition.segments_deleted", partition=str(replica.name), segments=before)
                before = 0
        self._is_expiring = False

    def _expire(self, replica: Replica, now: Timestamp) -> int:
        """Apply retention to one log; returns how many segments were deleted."""
        if not replica.is_usable:
            return 0
        try:
            deleted = replica.log.expire(now, SEGMENTS_AT_ONCE)
        except SuspectSegment as error:
            events.warning("partition.retention_failed", partition=str(replica.name), error=error)
            self._verifier.suspect(replica, max(error.segment, replica.log.start))
            return 0
        except StorageError as error:
            if replica.log.stopped is not None:
                replica.stop(str(error))
            else:
                # Perhaps the disk is full: nothing was changed, and there may be room next time.
                events.warning("partition.retention_failed", partition=str(replica.name), error=error)
            return 0
        if deleted:
            replica.log_start_moved()
        return len(deleted)
