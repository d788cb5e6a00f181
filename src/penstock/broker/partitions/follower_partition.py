"""One partition that this node follows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.broker.partitions.leader_partition import PartitionStopped, Replica, SyncPolicy
from penstock.core.metadata import NO_LEADER_EPOCH
from penstock.core.model import LeaderEpoch, NodeId, Offset, PenstockError, StorageError
from penstock.core.records import BatchHeader
from penstock.observability import log as events
from penstock.runtime import Clock


class TruncationRefused(PenstockError):
    """The leader wants a follower to cut off what is committed."""


class FollowerPartition:
    """A follower's view of its log, in one leader epoch.

    Whoever copies the leader's batches appends them here and tells the leader `synced`; with
    each sync that ends, `on_synced` is called.

    What is committed is never cut, unless a leader who may miss committed records was elected knowingly
    since the last record here was written: a leader that lacks them otherwise has lost them, and this log
    may be the last to have them.
    """

    __slots__ = (
        "_clock",
        "_on_storage_error",
        "_policy",
        "_sync_requested",
        "_unclean_epoch",
        "leader",
        "leader_epoch",
        "log",
        "name",
        "on_synced",
        "stopped",
        "topic_id",
    )

    def __init__(
        self,
        replica: Replica,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        clock: Clock,
        unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> None:
        self.name = replica.name
        self.topic_id = replica.topic_id
        self.log = log = replica.log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.stopped = False
        self.on_synced: Callable[[], None] | None = None
        self._clock = clock
        self._unclean_epoch = unclean_epoch
        self._on_storage_error = replica.on_storage_error
        self._policy = replica.policy
        self._sync_requested = log.synced
        # An epoch in which this node led and wrote nothing must not stand behind the records of
        # an earlier one, which the new leader may have more of.
        log.truncate_to(log.end)
        if self._policy.before_acknowledging:
            self.sync_behind()

    @property
    def synced(self) -> Offset:
        """What survives a power cut, or as much as the fsync mode promises."""
        return self.log.synced if self._policy.before_acknowledging else self.log.end

    def append(self, batches: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append what the leader sent, and set its way to the disk going."""
        log = self.log
        with self._stopping_if_failed():
            log.append_replica(batches, headers, self._clock.wall())
        if self._policy.before_acknowledging:
            log.sync_shared(self._sync_ended)
        elif log.end - self._sync_requested >= self._policy.flush_messages:
            self.sync_behind()

    def truncate_to(self, offset: Offset) -> Offset:
        """Cut off every batch that reaches `offset`, producers and epochs with it; answers the new end.

        Blocks until it is durable. Raises TruncationRefused, and follows no more, if what is
        committed would go.
        """
        self._check_cut(offset)
        with self._stopping_if_failed():
            end = self.log.truncate_to(offset)
        self._sync_requested = min(self._sync_requested, end)
        return end

    def restart_at(self, offset: Offset) -> None:
        """Throw everything away and go on at `offset`. Blocks until it is durable.

        Raises TruncationRefused as `truncate_to` does. A leader whose log begins above what is
        committed here has deleted the records between, which is its right.
        """
        self._check_cut(offset)
        with self._stopping_if_failed():
            self.log.truncate_fully(offset)
        self._sync_requested = offset

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
            events.warning("partition.committed_records_truncated", **fields)
            return
        events.error("replica.truncation_refused", **fields)
        # Not resigned: what this replica has must not be written off.
        self.stop("its leader lacks committed records", wanted=True)
        raise TruncationRefused(
            f"{self.name}: leader {self.leader} asks for a cut at {offset}, below the high watermark "
            f"{log.high_watermark}"
        )

    def advance_high_watermark(self, offset: Offset) -> None:
        """The leader says what is committed: it holds here as far as this log goes."""
        log = self.log
        reached = min(offset, log.end)
        if reached > log.high_watermark:
            log.set_high_watermark(reached)

    def advance_start(self, offset: Offset) -> None:
        """The leader's log begins there now; nothing that is not committed goes. Blocks if files go."""
        log = self.log
        start = min(offset, log.high_watermark)
        if start > log.start:
            with self._stopping_if_failed():
                log.delete_records(start)

    def sync_behind(self) -> None:
        """Bring what was appended to the device."""
        if not self.stopped and self._sync_requested < self.log.end:
            self._sync_requested = self.log.end
            self.log.sync(self._sync_ended)

    def configure(self, policy: SyncPolicy) -> None:
        """Go on under another policy."""
        self._policy = policy
        self._sync_requested = max(self._sync_requested, self.log.synced)
        if policy.before_acknowledging:
            self.sync_behind()

    def log_start_moved(self) -> None:
        """Nobody reads here."""

    def stop(self, reason: str, *, wanted: bool = False) -> None:
        """Follow no more, in this epoch at least."""
        if self.stopped:
            return
        self.stopped = True
        self.on_synced = None
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
        """A log that takes no more writes ends this role; the caller hears of the error either way."""
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
