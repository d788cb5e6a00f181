"""When the image is written down, and how much of the log may go then."""

from penstock.core.metadata import MetadataImage, snapshot
from penstock.core.model import LeaderEpoch, Offset
from penstock.observability import log as events
from penstock.runtime import Job, Lane, Spawn
from penstock.services.cluster.snapshots import KEPT, encode_snapshot, keep_newest, write_snapshot
from penstock.storage.disk import Disk
from penstock.storage.log import PartitionLog


class Snapshotting:
    """Writes snapshots off the loop and cuts the log behind them.

    An image never changes, so a disk thread may walk it while the loop goes on. The log
    keeps everything from the older of two snapshots on: the newer one may turn out damaged.
    """

    def __init__(
        self,
        spawn: Spawn,
        side_disk: Disk,
        log: PartitionLog,
        offsets: list[Offset],
        last_facts: int,
        facts_min: int,
    ) -> None:
        self._spawn = spawn
        self._disk = side_disk
        self._log = log
        self._offsets = offsets
        self._last_facts = last_facts
        self._facts_min = facts_min
        self._tried = offsets[-1] if offsets else log.start
        self._job: Job | None = None

    def consider(self, end: Offset, term: LeaderEpoch, image: MetadataImage) -> None:
        """Begin a snapshot if enough has happened since the last one."""
        # A large image is not written anew for every few facts.
        due = end - self._tried >= max(self._facts_min, self._last_facts // 2)
        if due and self._job is None:
            self._begin(end, term, image)

    def _begin(self, end: Offset, term: LeaderEpoch, image: MetadataImage) -> None:
        disk, good = self._disk, [*self._offsets, end]
        self._tried = end

        def work() -> int:
            facts = list(snapshot(image))
            write_snapshot(disk, end, encode_snapshot(end, term, facts))
            keep_newest(disk, good)
            return len(facts)

        def written(facts: int) -> None:
            self._job = None
            self._last_facts = facts
            self._offsets = good[-KEPT:]
            events.info("metadata.snapshot_taken", end=end, facts=facts)
            self._trim()

        def failed(error: Exception) -> None:
            self._job = None
            events.warning("metadata.snapshot_failed", end=end, error=error)

        self._job = self._spawn.spawn(work, written, failed, Lane.DISK)

    def _trim(self) -> None:
        """Drop what both snapshots cover, once a whole segment of it can go: this blocks."""
        segments = self._log.segments()
        keep_from = self._offsets[0]
        if len(self._offsets) == KEPT and len(segments) > 1 and segments[1].base_offset <= keep_from:
            self._log.delete_records(keep_from)

    def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
