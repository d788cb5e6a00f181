"""One partition that this node follows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from penstock.broker.partitions.leader_partition import (
    PartitionStopped,
    PartitionWatcher,
    Replica,
    SyncPolicy,
)
from penstock.core.metadata import NO_LEADER_EPOCH
from penstock.core.model import (
    ApiError,
    ErrorKind,
    LeaderEpoch,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.core.records import BatchHeader
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.storage.disk import Disk
from penstock.storage.log import KeptTail, ProducerRebuild, SegmentDraft

# How much of what an unclean election costs is kept, of each partition.
KEPT_BYTES_MAX = 64 << 20
# How often a copy is tried.
COPIES_MAX = 5
# Has a thread copy something, on a view of the disk of its own.
Offload: TypeAlias = Callable[
    [Callable[[Disk], KeptTail], Callable[[KeptTail], None], Callable[[Exception], None]], None
]


class TruncationRefused(PenstockError):
    """The leader asked a follower to truncate committed records."""


class TailNotKept(PenstockError):
    """What would be cut has to be copied first: try again in a moment."""


class FollowerPartition:
    """A follower's view of its log, in one leader epoch.

    The fetcher appends the leader's batches here and reports `synced` to the leader;
    `on_synced` is called after every sync.

    Committed records are never truncated, unless an unclean election has taken place since the last
    record here was written; then they go to the quarantine first. In any other case a leader without
    them has lost them, and this log may be the last that has them.

    Consumers may read it up to its high watermark, as they read a `LeaderPartition`.
    """

    __slots__ = (
        "_clock",
        "_copies_failed",
        "_is_keeping",
        "_kept",
        "_offload",
        "_on_divergence",
        "_on_storage_error",
        "_policy",
        "_sync_requested",
        "_timers",
        "_unclean_epoch",
        "_wake_set",
        "_watchers",
        "leader",
        "leader_epoch",
        "log",
        "name",
        "needs_refill",
        "on_synced",
        "stopped",
        "topic_id",
    )

    def __init__(
        self,
        replica: Replica,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        runtime: Runtime,
        offload: Offload,
        unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        self.name = replica.name
        self.topic_id = replica.topic_id
        self.log = log = replica.log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.stopped: ApiError | None = None
        # Whether damaged segments have to be filled from other replicas before anything is fetched: a
        # follower that has caught up would join the ISR, and could be elected with a hole in its log.
        self.needs_refill = False
        self.on_synced: Callable[[], None] | None = None
        self._clock = runtime.clock
        self._timers = runtime.timers
        # Consumers that wait for more; an ordered set, so that a run can be repeated exactly.
        self._watchers: dict[PartitionWatcher, None] = {}
        self._wake_set = False
        self._offload = offload
        # Of what an unclean election costs: from where to where, and what was kept of it.
        self._kept: tuple[tuple[Offset, Offset], KeptTail] | None = None
        self._is_keeping = False
        self._copies_failed = 0
        self._unclean_epoch = unclean_epoch
        self._on_storage_error = replica.on_storage_error
        self._on_divergence = replica.on_divergence
        self._policy = replica.policy
        self._sync_requested = log.synced
        # An epoch in which this node led and wrote nothing must not stand behind the records of
        # an earlier one, which the new leader may have more of.
        log.truncate_to(log.end)
        if self._policy.before_acknowledging:
            self.sync_behind()

    @property
    def high_watermark(self) -> Offset:
        """Up to where everything is committed, as far as this follower knows."""
        return self.log.high_watermark

    @property
    def has_other_replicas(self) -> bool:
        return True

    @property
    def is_established(self) -> bool:
        """Whether an offset beyond the end is out of range: then the consumer asks the leader."""
        return True

    @property
    def synced(self) -> Offset:
        """The end of what survives a power cut, or of as much as the fsync mode guarantees."""
        return self.log.synced if self._policy.before_acknowledging else self.log.end

    def append(self, batches: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append what the leader sent, and start a sync if the policy asks for one."""
        log = self.log
        with self._stopping_if_failed():
            log.append_replica(batches, headers, self._clock.wall())
        if self._policy.before_acknowledging:
            log.sync_shared(self._sync_ended)
        elif log.end - self._sync_requested >= self._policy.flush_messages:
            self.sync_behind()

    def truncate_to(self, offset: Offset) -> Offset:
        """Truncate every batch that reaches `offset`, producers and epochs with it; returns the new end.

        Blocks until it is durable. Raises TruncationRefused and stops this role if committed
        records would be removed.
        """
        self._check_cut(offset)
        with self._stopping_if_failed():
            end = self.log.truncate_to(offset)
        self._sync_requested = min(self._sync_requested, end)
        return end

    def restart_at(self, offset: Offset) -> None:
        """Delete everything and continue at `offset`. Blocks until it is durable.

        Raises TruncationRefused as `truncate_to` does. A leader whose log starts above what is
        committed here has deleted the records between, which it may.
        """
        self._check_cut(offset)
        with self._stopping_if_failed():
            self.log.truncate_fully(offset)
        self._sync_requested = offset

    def finish_refill(self, draft: SegmentDraft) -> bool:
        """Put a segment in place that was written anew, or return False if the log has changed. Blocks."""
        with self._stopping_if_failed():
            return self.log.finish_refill(draft)

    def finish_producer_rebuild(self, rebuild: ProducerRebuild) -> bool:
        """Use the producers that were rebuilt, or return False if the log has changed. Blocks."""
        with self._stopping_if_failed():
            return rebuild.finish()

    def _check_cut(self, offset: Offset) -> None:
        log = self.log
        if offset >= log.high_watermark or log.start == log.end:
            return
        fields: dict[str, object] = {
            "partition": str(self.name),
            "offset": offset,
            "high_watermark": log.high_watermark,
            "end": log.end,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "unclean_epoch": self._unclean_epoch,
        }
        if self._unclean_epoch > log.epochs.epoch_at(Offset(log.end - 1)):
            kept = self._keep_tail(offset)
            events.warning(
                "partition.committed_records_truncated",
                **fields,
                lost_bytes=kept.size_bytes,
                kept=kept.path,
                kept_bytes=kept.kept_bytes,
            )
            return
        events.error("replica.truncation_refused", **fields)
        # The replica does not resign: what it has must not be given up.
        self.stop("its leader lacks committed records", wanted=True)
        self._on_divergence(self.leader_epoch, offset)
        raise TruncationRefused(
            f"{self.name}: leader {self.leader} asks for a cut at {offset}, below the high watermark "
            f"{log.high_watermark}"
        )

    def _keep_tail(self, offset: Offset) -> KeptTail:
        """What was copied to the quarantine; raises TailNotKept until that is done."""
        tail = (offset, self.log.end)
        if self._kept is not None and self._kept[0] == tail:
            return self._kept[1]

        def done(kept: KeptTail) -> None:
            self._is_keeping = False
            self._kept = (tail, kept)

        def failed(error: Exception) -> None:
            self._is_keeping = False
            self._copies_failed += 1
            events.warning("partition.tail_not_kept", partition=str(self.name), error=error)
            if self._copies_failed >= COPIES_MAX:
                # It cannot be read: the replica must not stay out for ever because of that.
                self._kept = (tail, KeptTail(None, 0, size_bytes))

        if not self._is_keeping:
            copy = self.log.tail_copy(offset, KEPT_BYTES_MAX)
            size_bytes = copy.size_bytes
            self._is_keeping = True
            self._offload(copy.work, done, failed)
        raise TailNotKept(f"{self.name}: what lies behind {offset} is being copied to the quarantine")

    def advance_high_watermark(self, offset: Offset) -> None:
        """Take over the leader's high watermark, as far as this log goes."""
        log = self.log
        reached = min(offset, log.end)
        if reached > log.high_watermark:
            log.set_high_watermark(reached)
            if self._watchers:
                self._wake_soon()

    def watch(self, watcher: PartitionWatcher) -> None:
        """Call `watcher` when the high watermark has moved, and when this role ends."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: PartitionWatcher) -> None:
        self._watchers.pop(watcher, None)

    def _wake_soon(self) -> None:
        if not self._wake_set:
            self._wake_set = True
            self._timers.soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        for watcher in list(self._watchers):
            watcher(self)

    def advance_start(self, offset: Offset) -> None:
        """Take over the leader's log start; uncommitted records stay. Blocks if files are removed."""
        log = self.log
        start = min(offset, log.high_watermark)
        if start > log.start:
            with self._stopping_if_failed():
                log.delete_records(start)

    def sync_behind(self) -> None:
        """Sync what was appended to the device."""
        if not self.stopped and self._sync_requested < self.log.end:
            self._sync_requested = self.log.end
            self.log.sync(self._sync_ended)

    def configure(self, policy: SyncPolicy) -> None:
        """Switch to another sync policy."""
        self._policy = policy
        self._sync_requested = max(self._sync_requested, self.log.synced)
        if policy.before_acknowledging:
            self.sync_behind()

    def on_damage(self) -> None:
        """More damage was found: let nobody rely on this replica."""
        self._on_storage_error()

    def log_start_moved(self) -> None:
        """Do nothing: nobody waits for that on a follower."""

    def stop(self, reason: str, *, wanted: bool = False) -> None:
        """End this role: follow no more in this leader epoch."""
        if self.stopped:
            return
        self.stopped = ApiError(ErrorKind.NOT_LEADER, f"{self.name}: {reason}")
        self.on_synced = None
        if self._watchers:
            self._wake_soon()
        tell = events.debug if wanted else events.error
        tell("partition.follower_stopped", partition=str(self.name), reason=reason)
        if not wanted:
            self._on_storage_error()

    def _sync_ended(self, error: StorageError | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self.stop(str(error))
        elif self.on_synced is not None:
            self.on_synced()

    @contextmanager
    def _stopping_if_failed(self) -> Iterator[None]:
        """End this role if the log takes no more writes; the error is raised either way."""
        if self.stopped:
            raise PartitionStopped(f"{self.name}: not followed any more in leader epoch {self.leader_epoch}")
        try:
            yield
        except StorageError as error:
            if self.log.stopped is not None:
                self.stop(str(error))
            else:
                self._on_storage_error()
            raise
