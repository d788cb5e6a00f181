"""Every partition that this node holds, kept in step with the cluster's metadata."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.metadata import MetadataImage, Topic, broker_setting, options_of
from penstock.core.metadata.configs import NOTHING, Cleanup, TopicOptions
from penstock.core.model import (
    MILLISECOND,
    Instant,
    LeaderEpoch,
    NodeId,
    StorageError,
    TopicId,
    TopicPartition,
)
from penstock.observability import log as events
from penstock.runtime import Lane, Runtime, Timer
from penstock.services.partitions.compacting import Compactor
from penstock.services.partitions.discarding import Discarding
from penstock.services.partitions.housekeeping import Housekeeping, HousekeepingOptions
from penstock.services.partitions.leftovers import doomed_path, find_leftovers
from penstock.services.partitions.making import LogMaker, Order
from penstock.services.partitions.partition import Partition, SyncPolicy
from penstock.storage.commit import GroupCommit
from penstock.storage.directory import DataDirectory, partition_path
from penstock.storage.disk import Disk
from penstock.storage.log import CompactionRules, LogOptions, PartitionLog, RecoveryReport, cleaner_for

MAKING_RETRY_MS = 1_000
# A negative retention keeps everything.
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class LogStore:
    """Where the logs are: `disk` belongs to the loop.

    New logs are made off the loop, on `side_disk`: a second view of the same directory that
    shares no state with the first.
    """

    disk: Disk
    side_disk: Disk
    commit: GroupCommit


@dataclass(frozen=True, slots=True)
class PartitionsOptions:
    """How the node keeps its logs; `static` holds its broker settings under Kafka's names."""

    static: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    housekeeping: HousekeepingOptions = field(default_factory=HousekeepingOptions)
    time_index_interval_ms: int = 1_000


class Partitions:
    """Opens, makes, serves and removes the logs of this node."""

    def __init__(
        self, node_id: NodeId, runtime: Runtime, store: LogStore, options: PartitionsOptions | None = None
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._store = store
        self._options = options or PartitionsOptions()
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[TopicId, int], Partition] = {}
        self._topic_options: dict[str, TopicOptions] = {}
        self._image: MetadataImage | None = None
        # By name: of two topics of one name, the second waits until the first is out of the way.
        self._making: dict[TopicPartition, None] = {}
        self._maker = LogMaker(runtime.spawn, store.side_disk)
        self._discarding = Discarding(runtime.spawn, store.disk, store.side_disk)
        self._when_settled: list[Callable[[], None]] = []
        self._retry: Timer | None = None
        self.housekeeping = Housekeeping(runtime, self._all, self._options.housekeeping)
        self.compactor = Compactor(runtime, cleaner_for(store.side_disk), self._compacted)

    def _all(self) -> list[Partition]:
        return list(self._by_name.values())

    def _compacted(self) -> list[tuple[Partition, CompactionRules]]:
        """The partitions whose topics ask for compaction, and how."""
        found = []
        for partition in self:
            options = self.options(partition.name.topic)
            if options.compacted:
                rules = CompactionRules(
                    options.min_cleanable_dirty_ratio,
                    options.delete_retention_ms,
                    options.min_compaction_lag_ms,
                    options.max_compaction_lag_ms,
                )
                found.append((partition, rules))
        return found

    def find(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def find_by_id(self, topic_id: TopicId, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def options(self, topic: str) -> TopicOptions:
        """A topic's options, kept until the metadata changes."""
        found = self._topic_options.get(topic)
        if found is None:
            assert self._image is not None
            found = options_of(self._image, topic, self._node_id, self._options.static)
            self._topic_options[topic] = found
        return found

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def open_all(self, image: MetadataImage, directory: DataDirectory) -> list[RecoveryReport]:
        """Open every log that the metadata knows, before anybody is served. Blocks.

        Directories that the metadata does not know are set aside.
        """
        self._image = image
        reports = []
        for found in directory.partitions():
            topic = image.topic(found.partition.topic)
            wanted = topic.partition(found.partition.partition) if topic is not None else None
            if topic is None or wanted is None or found.topic_id != topic.id:
                place = directory.set_aside(found)
                events.warning("partition.set_aside", partition=str(found.partition), place=place)
                continue
            reports.append(self._open(topic, found.partition, wanted.leader_epoch))
        for leftover in find_leftovers(self._store.disk, lambda name: image.topic(name) is not None):
            self._remove(leftover)
        self.housekeeping.start()
        self._start_compactor(image)
        # A crash may have come between a topic and its logs.
        self._make_missing(image)
        return reports

    def _start_compactor(self, image: MetadataImage) -> None:
        static = self._options.static
        if broker_setting(image, "log.cleaner.enable", self._node_id, static):
            backoff_ms = broker_setting(image, "log.cleaner.backoff.ms", self._node_id, static)
            assert isinstance(backoff_ms, int)
            self.compactor.start(backoff_ms)

    def follow(self, image: MetadataImage) -> None:
        """Bring the logs in step with a new image."""
        before, self._image = self._image, image
        if before is not None and before.configs is not image.configs:
            self._topic_options.clear()
            self._apply_options()
        if before is not image:
            self._remove_unwanted(image)
            self._make_missing(image)

    def when_settled(self, done: Callable[[], None]) -> None:
        """Call `done` when every log that the metadata asks for is there; perhaps at once."""
        if self._making:
            self._when_settled.append(done)
        else:
            done()

    def _open(self, topic: Topic, name: TopicPartition, epoch: LeaderEpoch) -> RecoveryReport:
        log, report = PartitionLog.open(
            self._store.disk,
            partition_path(name),
            topic.id,
            self._log_options(topic.name),
            commit=self._store.commit,
            ticks=self._runtime.clock.now,
        )
        _tell(name, report)
        log.discard_with(self._discarding.discard)
        partition = Partition(
            name, topic.id, log, epoch, timers=self._runtime.timers, policy=self._policy(topic.name)
        )
        self._by_name[name.topic, name.partition] = partition
        self._by_id[topic.id, name.partition] = partition
        return report

    def _policy(self, topic: str) -> SyncPolicy:
        options = self.options(topic)
        return SyncPolicy(self._options.housekeeping.fsync, options.flush_messages, options.flush_ms)

    def _log_options(self, topic: str) -> LogOptions:
        options = self.options(topic)
        deletes = Cleanup.DELETE in options.cleanup
        return LogOptions(
            segment_bytes=options.segment_bytes,
            # What is still growing cannot be compacted.
            segment_ms=min(options.segment_ms, options.max_compaction_lag_ms)
            if options.compacted
            else options.segment_ms,
            index_interval_bytes=options.index_interval_bytes,
            index_bytes_max=options.segment_index_bytes,
            time_index_interval_ms=self._options.time_index_interval_ms,
            retention_ms=options.retention_ms if deletes else FOR_EVER,
            retention_bytes=options.retention_bytes if deletes else FOR_EVER,
            message_bytes_max=options.max_message_bytes,
        )

    def _apply_options(self) -> None:
        for partition in self:
            if self._image is not None and self._image.topic_by_id(partition.topic_id) is not None:
                partition.log.configure(self._log_options(partition.name.topic))
                partition.configure(self._policy(partition.name.topic))

    def _make_missing(self, image: MetadataImage) -> None:
        for topic, wanted in image.partitions_of(self._node_id):
            name = TopicPartition(topic.name, wanted.index)
            if (topic.id, wanted.index) not in self._by_id and name not in self._making:
                self._make(topic, name, wanted.leader_epoch)

    def _make(self, topic: Topic, name: TopicPartition, epoch: LeaderEpoch) -> None:
        self._making[name] = None

        def made() -> None:
            assert self._image is not None
            del self._making[name]
            if self._image.topic_by_id(topic.id) is None:
                self._discard(name)
                # Perhaps a topic of the same name has been waiting for this one to go.
                self._make_missing(self._image)
            else:
                self._open_made(topic, name, epoch)
            self._settle()

        def failed(error: Exception) -> None:
            del self._making[name]
            self._not_made(name, error)
            self._settle()

        options = self._log_options(topic.name)
        self._maker.make(Order(partition_path(name), topic.id, options, made, failed))

    def _open_made(self, topic: Topic, name: TopicPartition, epoch: LeaderEpoch) -> None:
        try:
            self._open(topic, name, epoch)
        except StorageError as error:
            # Without descriptors, say. It is empty, so it can be made again.
            self._discard(name)
            self._not_made(name, error)

    def _not_made(self, name: TopicPartition, error: Exception) -> None:
        events.error("partition.not_made", partition=str(name), error=error)
        self._try_again_later()

    def _try_again_later(self) -> None:
        """A full disk may have room again, and a topic of the same name may be gone for good."""

        def again() -> None:
            if self._image is not None:
                self._make_missing(self._image)

        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._runtime.timers.at(
            Instant(self._runtime.clock.now() + MAKING_RETRY_MS * MILLISECOND), again
        )

    def _settle(self) -> None:
        if not self._making:
            waiting, self._when_settled = self._when_settled, []
            for done in waiting:
                done()

    def _remove_unwanted(self, image: MetadataImage) -> None:
        for partition in self:
            if image.topic_by_id(partition.topic_id) is None:
                del self._by_name[partition.name.topic, partition.name.partition]
                del self._by_id[partition.topic_id, partition.name.partition]
                self._topic_options.pop(partition.name.topic, None)
                partition.stop("the topic was deleted", wanted=True)
                partition.log.abandon()
                self._discard(partition.name)

    def _discard(self, name: TopicPartition) -> None:
        """Remove a deleted topic's directory; under another name first, so that it may be made anew."""
        doomed = doomed_path(name, self._runtime.entropy)
        self._store.disk.rename(partition_path(name), doomed)
        self._remove(doomed)

    def _remove(self, doomed: str) -> None:
        disk = self._store.side_disk

        def work() -> None:
            disk.remove_tree(doomed)

        def failed(error: Exception) -> None:
            events.warning("partition.not_removed", path=doomed, error=error)

        self._runtime.spawn.spawn(work, lambda _: None, failed, Lane.DISK)

    def checkpoint_all(self, done: Callable[[], None]) -> None:
        """Take a checkpoint of every log that needs one, side by side; `done` hears when they have ended.

        Syncs are shared that way, and `close` finds nothing left to wait for.
        """
        logs = [log for log in (partition.log for partition in self) if log.stopped is None]
        logs = [log for log in logs if not log.is_checkpointed]
        left = len(logs)

        def ended(_: StorageError | None) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for log in logs:
            log.checkpoint(ended)
        if not logs:
            done()

    def close(self) -> None:
        """Make every log durable and close it. Blocks."""
        self.housekeeping.stop()
        self.compactor.stop()
        if self._retry is not None:
            self._retry.cancel()
        for partition in self:
            if partition.log.stopped is None:
                partition.log.close()


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
