"""The directories of a node's logs."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.model import TopicId, TopicPartition
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime
from penstock.services.partitions.upkeep.discarding import Discarding
from penstock.services.partitions.upkeep.leftovers import doomed_path, find_leftovers
from penstock.services.partitions.upkeep.making import LogMaker, Order
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import CreatedReplicas, partition_path
from penstock.storage.disk import Disk
from penstock.storage.log import LogOptions, PartitionLog, RecoveryReport


@dataclass(frozen=True, slots=True)
class LogStore:
    """Where the logs are: `disk` belongs to the loop.

    New logs are made off the loop, on `side_disk`: a second view of the same directory that
    shares no state with the first.
    """

    disk: Disk
    side_disk: Disk
    commit: GroupCommit


class Shelf:
    """Makes, opens and removes logs."""

    def __init__(self, runtime: Runtime, store: LogStore) -> None:
        self._runtime = runtime
        self._store = store
        # Which replicas have had a log here.
        self.created = CreatedReplicas(store.disk)
        self._maker = LogMaker(runtime.spawn, store.side_disk)
        self._discarding = Discarding(runtime, store.disk, store.side_disk)

    def open(
        self, name: TopicPartition, topic_id: TopicId, options: LogOptions
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open a log that is there. Blocks."""
        log, report = PartitionLog.open(
            self._store.disk,
            partition_path(name),
            topic_id,
            options,
            commit=self._store.commit,
            ticks=self._runtime.clock.now,
        )
        _tell(name, report)
        log.discard_with(self._discarding.discard)
        return log, report

    def make(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        options: LogOptions,
        made: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Make an empty log; either `made` or `failed` is called later."""
        self._maker.make(Order(partition_path(name), topic_id, name.partition, options, made, failed))

    def discard(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Remove a log's directory; under another name first, so that it may be made anew."""
        self._remove(self.condemn(name, topic_id))

    def condemn(self, name: TopicPartition, topic_id: TopicId) -> str:
        """Leave a log's directory to the next `remove_leftovers`; answers its new name."""
        doomed = doomed_path(name, self._runtime.entropy)
        self.created.discard((topic_id, name.partition))
        self._store.disk.rename(partition_path(name), doomed)
        return doomed

    def remove_leftovers(self, is_topic: Callable[[str], bool]) -> None:
        """Remove what a stop or a crash came before."""
        for leftover in find_leftovers(self._store.disk, is_topic):
            self._remove(leftover)

    def _remove(self, doomed: str) -> None:
        disk = self._store.side_disk

        def work() -> None:
            disk.remove_tree(doomed)

        def failed(error: Exception) -> None:
            events.warning("partition.not_removed", path=doomed, error=error)

        self._runtime.spawn.spawn(work, lambda _: None, failed, ExecutorKind.DISK)


def _tell(name: TopicPartition, report: RecoveryReport) -> None:
    """What an operator should know of a log that was opened."""
    if (cut := report.cut) is not None:
        events.warning(
            "partition.tail_cut",
            partition=str(name),
            offset=cut.offset,
            lost_bytes=cut.lost_bytes,
            reason=cut.reason,
            kept=cut.kept,
        )
    for damage in report.corruption:
        events.error(
            "partition.damaged", partition=str(name), start=damage.start, end=damage.end, reason=damage.reason
        )
