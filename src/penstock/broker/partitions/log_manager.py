"""Creates, opens and removes the log directories of a node, whatever the node's role is.

Logs are created off the loop, and the files of deleted records are removed without making the
loop wait for the device:

    loop      files are renamed ─────────────────┬ names are removed ┐
    thread             files are opened, so that │                   │ files are closed: the file
                       removing a name frees no  │                   └ system frees the space
                       space on the loop ────────┘

Names are removed through the loop's own view of the disk, which keeps a file readable for clients
that are being sent a part of it. Files that a stop or a crash left behind are removed at the next
start.

Left out: logs whose disk failed are not opened again before the node starts again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.model import (
    MILLISECOND,
    Instant,
    Offset,
    PartitionIndex,
    StorageError,
    TopicId,
    TopicPartition,
)
from penstock.observability import log as events
from penstock.runtime import Entropy, Executor, ExecutorKind, Runtime
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import LOGS, CreatedReplicas, ReplicaKey, partition_path
from penstock.storage.disk import Disk, File, NoSuchFile
from penstock.storage.journal import NO_POSITION, CommitJournal, JournalPosition
from penstock.storage.log import LogOptions, PartitionLog, RecoveryReport

# A topic may have thousands of partitions, and others need the disk executor too.
AT_ONCE = 32
DELETED = ".deleted"


class LogCreation(NamedTuple):
    """A log to create, and the callbacks for the outcome."""

    path: str
    topic_id: TopicId
    partition: PartitionIndex
    options: LogOptions
    position: JournalPosition
    made: Callable[[], None]
    failed: Callable[[Exception], None]


class LogCreator:
    """Creates empty logs in the order of the requests, a few at a time."""

    def __init__(self, spawn: Executor, side_disk: Disk) -> None:
        self._spawn = spawn
        self._disk = side_disk
        self._created = CreatedReplicas(side_disk)
        self._orders: deque[LogCreation] = deque()
        self._underway = 0

    def create(self, order: LogCreation) -> None:
        """Create a log; either `made` or `failed` is called later."""
        self._orders.append(order)
        self._begin()

    def _begin(self) -> None:
        while self._orders and self._underway < AT_ONCE:
            self._underway += 1
            self._make(self._orders.popleft())

    def _make(self, order: LogCreation) -> None:
        disk, created = self._disk, self._created

        def work() -> None:
            PartitionLog.create(
                disk, order.path, order.topic_id, order.options, position=order.position
            ).close()
            try:
                created.add(((order.topic_id, order.partition),))
            except StorageError:
                # Nothing has been written to it: it is created and noted again.
                disk.remove_tree(order.path)
                raise

        def made(_: None) -> None:
            self._underway -= 1
            self._begin()
            order.made()

        def failed(error: Exception) -> None:
            self._underway -= 1
            self._begin()
            order.failed(error)

        self._spawn.spawn(work, made, failed, ExecutorKind.DISK)


class LogRemover:
    """Removes files that are no longer part of a log."""

    def __init__(self, runtime: Runtime, disk: Disk, side_disk: Disk) -> None:
        self._runtime = runtime
        self._spawn = runtime.spawn
        self._disk = disk
        self._side_disk = side_disk

    def remove(self, paths: list[str], delay_ms: int) -> None:
        """Remove the files after `delay_ms`."""
        if delay_ms == 0:
            self._discard(paths)
            return
        deadline = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self._discard(paths))

    def _discard(self, paths: list[str]) -> None:
        side_disk = self._side_disk

        def hold() -> list[File]:
            held = []
            for path in paths:
                # Its topic, and with it the directory, may have been deleted meanwhile.
                with suppress(NoSuchFile):
                    held.append(side_disk.open(path, readonly=True))
            return held

        def failed(error: Exception) -> None:
            events.warning("partition.deleted_files_not_kept", error=error)
            self._remove(paths)

        def held(files: list[File]) -> None:
            self._remove(paths)
            self._let_go(files)

        self._spawn.spawn(hold, held, failed, ExecutorKind.DISK)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            try:
                with suppress(NoSuchFile):
                    self._disk.remove(path)
            except StorageError as error:
                events.warning("partition.file_remove_failed", path=path, error=error)

    def _let_go(self, files: list[File]) -> None:
        def close() -> None:
            for file in files:
                file.close()

        self._spawn.spawn(close, lambda _: None, lambda _: close(), ExecutorKind.DISK)


def deleted_log_path(partition: TopicPartition, entropy: Entropy) -> str:
    """The name under which a deleted partition's directory waits for its removal."""
    return f"{partition_path(partition)}.{entropy.bytes(8).hex()}{DELETED}"


def find_stray_logs(disk: Disk, is_topic: Callable[[str], bool]) -> Iterator[str]:
    """The directories that wait for removal; removes empty directories of deleted topics at once."""
    if not disk.is_directory(LOGS):
        return
    for topic in disk.listdir(LOGS):
        path = f"{LOGS}/{topic}"
        if not disk.is_directory(path):
            continue
        names = disk.listdir(path)
        if not names and not is_topic(topic):
            disk.remove_tree(path)
        yield from (f"{path}/{name}" for name in names if name.endswith(DELETED))


@dataclass(frozen=True, slots=True)
class LogStore:
    """Where the logs are: `disk` belongs to the loop.

    New logs are created off the loop, on `side_disk`: a second view of the same directory that
    shares no state with the first.
    """

    disk: Disk
    side_disk: Disk
    commit: GroupCommit
    journal: CommitJournal | None = None


class LogManager:
    """Creates, opens and removes logs."""

    def __init__(self, runtime: Runtime, store: LogStore) -> None:
        self._runtime = runtime
        self._store = store
        # The replicas that have had a log here.
        self.created = CreatedReplicas(store.disk)
        self._creator = LogCreator(runtime.spawn, store.side_disk)
        self._remover = LogRemover(runtime, store.disk, store.side_disk)

    def open(
        self, name: TopicPartition, topic_id: TopicId, options: LogOptions, *, is_synced_later: bool = False
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open an existing log; see `PartitionLog.open`. Blocks.

        Raises DiskFull if there is no room for what the journal has of it: a leader that went on without that
        would lose it.
        """
        journal = self._store.journal
        log, report = PartitionLog.open(
            self._store.disk,
            partition_path(name),
            topic_id,
            options,
            commit=self._store.commit,
            ticks=self._runtime.clock.now,
            now=self._runtime.clock.wall(),
            journal=None if journal is None else journal.of(topic_id, name.partition),
            is_synced_later=is_synced_later,
        )
        _report(name, report)
        log.set_file_remover(self._remover.remove)
        return log, report

    def settle(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Bring a log that is not to be opened up to date, so that the journal need not keep it. Blocks."""
        try:
            log, _ = self.open(name, topic_id, LogOptions(retention_ms=-1, may_have_gaps=True))
            log.close()
        finally:
            if self._store.journal is not None:
                self._store.journal.closed(topic_id, name.partition)

    def durable_end(self, key: ReplicaKey) -> Offset:
        """Up to where a log that is missing was durable, as far as the journal knows."""
        journal = self._store.journal
        return Offset(0) if journal is None else journal.durable_end(*key)

    def forget_others(self, keys: Iterable[ReplicaKey]) -> None:
        """All logs are open, and only these are still this node's: the journal keeps nothing for others."""
        if self._store.journal is not None:
            self._store.journal.forget_others(keys)
            self._store.journal.logs_opened()

    def create(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        options: LogOptions,
        made: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Create an empty log; either `made` or `failed` is called later."""
        journal = self._store.journal
        # What the journal has said so far is about a former log of the same topic, if any.
        position = NO_POSITION if journal is None else journal.position()
        self._creator.create(
            LogCreation(partition_path(name), topic_id, name.partition, options, position, made, failed)
        )

    def delete(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Remove a log's directory. It is renamed first, so that the log may be created again."""
        self._remove(self.mark_deleted(name, topic_id))

    def mark_deleted(self, name: TopicPartition, topic_id: TopicId) -> str:
        """Rename a log's directory for the next `remove_stray_logs`; returns its new name."""
        doomed = deleted_log_path(name, self._runtime.entropy)
        self.created.discard((topic_id, name.partition))
        if self._store.journal is not None:
            self._store.journal.removed(topic_id, name.partition)
        self._store.disk.rename(partition_path(name), doomed)
        return doomed

    def remove_stray_logs(self, is_topic: Callable[[str], bool]) -> None:
        """Remove the directories that a stop or a crash left behind."""
        for leftover in find_stray_logs(self._store.disk, is_topic):
            self._remove(leftover)

    def _remove(self, doomed: str) -> None:
        disk = self._store.side_disk

        def work() -> None:
            disk.remove_tree(doomed)

        def failed(error: Exception) -> None:
            events.warning("partition.remove_failed", path=doomed, error=error)

        self._runtime.spawn.spawn(work, lambda _: None, failed, ExecutorKind.DISK)


def _report(name: TopicPartition, report: RecoveryReport) -> None:
    """Log what an operator should know about a log that was opened."""
    if (cut := report.cut) is not None:
        events.warning(
            "partition.tail_truncated",
            partition=str(name),
            offset=cut.offset,
            lost_bytes=cut.lost_bytes,
            reason=cut.reason,
            kept=cut.kept,
        )
    if (restored := report.restored) is not None:
        events.warning(
            "partition.restored_from_journal", partition=str(name), start=restored.start, end=restored.end
        )
    if (lost := report.lost) is not None:
        events.error(
            "partition.records_lost", partition=str(name), start=lost.start, end=lost.end, reason=lost.reason
        )
    if report.doubt:
        events.error("partition.end_in_doubt", partition=str(name), end=report.end, reason=report.doubt)
    for damage in report.corruption:
        events.error(
            "partition.corrupt_range",
            partition=str(name),
            start=damage.start,
            end=damage.end,
            reason=damage.reason,
        )
