"""A quorum of one: what is synced on this disk is committed."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.metadata import EMPTY_IMAGE, Fact, MetadataImage, replayed
from penstock.core.model import (
    MILLISECOND,
    CorruptionError,
    Instant,
    LeaderEpoch,
    Offset,
    StorageError,
)
from penstock.runtime import Runtime, Timer
from penstock.services.cluster.ballot import read_ballot, write_ballot
from penstock.services.cluster.metadata_log import (
    append_facts,
    create_metadata_log,
    open_metadata_log,
    read_facts,
)
from penstock.services.cluster.quorum import NotLeading, QuorumEvents, QuorumFailed
from penstock.services.cluster.snapshots import load_snapshots
from penstock.services.cluster.snapshotting import Snapshotting
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.log import PartitionLog

CHECKPOINT_LOOK_MS = 1_000
_NO_TERM = LeaderEpoch(-1)


class MetadataLost(CorruptionError):
    """The directory belongs to a cluster whose metadata is not there any more."""


@dataclass(frozen=True, slots=True)
class QuorumStore:
    """Where the metadata is; `side_disk` is a view of the same directory for work off the loop."""

    disk: Disk
    side_disk: Disk
    commit: GroupCommit


@dataclass(frozen=True, slots=True)
class QuorumOptions:
    """When a snapshot is taken; it also waits for half as many facts as the last one had."""

    snapshot_facts: int = 10_000
    segment_bytes: int = 16 << 20


class SoloQuorum:
    """Keeps the metadata log of a cluster whose only voter is this node.

    `joined` says that this directory has belonged to a cluster before: its metadata must be
    there then, and starting without it would give every log on this disk away.
    """

    def __init__(
        self, runtime: Runtime, store: QuorumStore, *, joined: bool, options: QuorumOptions | None = None
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._joined = joined
        self._options = options or QuorumOptions()
        self._log: PartitionLog
        self._events: QuorumEvents
        self._snapshotting: Snapshotting
        self._uncommitted: deque[tuple[Offset, Sequence[Fact]]] = deque()
        self._timer: Timer | None = None
        self.leader_epoch: LeaderEpoch | None = None
        self.committed = Offset(0)

    @property
    def end(self) -> Offset:
        return self._log.end

    def start(self, events: QuorumEvents) -> None:
        """Recover, take the next term, and lead."""
        self._events = events
        image = self._recover()
        self.committed = self._log.end
        self._log.set_high_watermark(self.committed)
        self.leader_epoch = self._next_term()
        self._look_for_checkpoints()
        events.restored(image)
        events.leadership_gained(self.leader_epoch)

    def _recover(self) -> MetadataImage:
        disk, commit, ticks = self._store.disk, self._store.commit, self._runtime.clock.now
        log = open_metadata_log(disk, commit, ticks, self._options.segment_bytes)
        snapshot, offsets = load_snapshots(disk)
        if log is None:
            if self._joined or snapshot is not None or read_ballot(disk) is not None:
                raise MetadataLost("the metadata log of this data directory is gone")
            log = create_metadata_log(disk, commit, ticks, self._options.segment_bytes)
        start = Offset(0) if snapshot is None else snapshot.end
        if not log.start <= start <= log.end:
            raise MetadataLost(
                f"the newest readable snapshot ends at {start}, the metadata log has {log.start} to {log.end}"
            )
        self._log = log
        size = 0 if snapshot is None else snapshot.facts
        self._snapshotting = Snapshotting(
            self._runtime.spawn, self._store.side_disk, log, offsets, size, self._options.snapshot_facts
        )
        image = replayed(EMPTY_IMAGE if snapshot is None else snapshot.image, read_facts(log, start))
        if self._joined and image.cluster_id is None:
            raise MetadataLost("the metadata log of this data directory is empty")
        return image

    def _next_term(self) -> LeaderEpoch:
        last = read_ballot(self._store.disk)
        term = LeaderEpoch(max(_NO_TERM if last is None else last, self._log.epochs.latest) + 1)
        write_ballot(self._store.disk, term)
        self._log.begin_epoch(term)
        return term

    def _look_for_checkpoints(self) -> None:
        now = self._runtime.clock.now()
        self._log.maybe_checkpoint(now)
        deadline = Instant(now + CHECKPOINT_LOOK_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._look_for_checkpoints)

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset:
        if self.leader_epoch is None or expected_epoch != self.leader_epoch:
            raise NotLeading(f"this node leads in epoch {self.leader_epoch}, not in {expected_epoch}")
        append_facts(self._log, facts, expected_epoch, self._runtime.clock.wall())
        self._uncommitted.append((self._log.end, facts))
        self._log.sync(self._synced)
        return self._log.end

    def _synced(self, error: StorageError | None) -> None:
        if self.leader_epoch is None:
            return
        if error is not None:
            raise QuorumFailed(f"the metadata log could not be synced: {error}") from error
        if self._log.synced <= self.committed:
            return
        self.committed = self._log.synced
        self._log.set_high_watermark(self.committed)
        facts: list[Fact] = []
        while self._uncommitted and self._uncommitted[0][0] <= self.committed:
            facts += self._uncommitted.popleft()[1]
        self._events.facts_committed(facts)
        self._snapshotting.consider(self.committed, self.leader_epoch, self._events.image)

    def close(self) -> None:
        """Close the log; nothing may be proposed from here on."""
        self.leader_epoch = None
        if self._timer is not None:
            self._timer.cancel()
        self._snapshotting.close()
        self._log.close()
