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

A log is deleted by giving its directory another name, a topic with all its partitions by one rename into
`deleted/`. What has such a name is removed by a thread, a few directories at a time, and by the next start
if the node ends before that is done.

A directory whose identity is missing or damaged is the log that was made in its place, if `meta/replicas`
or the journal knows that one was made for the topic: then it gets its identity back. Everything else about
an identity is for an operator to decide.

Left out: logs whose disk failed are not opened again before the node starts again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.model import (
    MILLISECOND,
    CorruptionError,
    Instant,
    Offset,
    PartitionIndex,
    StorageError,
    TopicId,
    TopicPartition,
)
from penstock.observability import log as events
from penstock.runtime import Entropy, Executor, ExecutorFull, ExecutorKind, Runtime
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import (
    ACCEPT_IDENTITY,
    LOGS,
    CreatedReplicas,
    ReplicaKey,
    identify,
    partition_path,
)
from penstock.storage.disk import Disk, File, NoSuchFile
from penstock.storage.journal import NO_POSITION, CommitJournal, JournalPosition
from penstock.storage.log import (
    CorruptFile,
    IncompleteLog,
    LogOptions,
    PartitionLog,
    RecoveryReport,
    WrongTopic,
)
from penstock.storage.log.file_names import IDENTITY
from penstock.storage.log.files import encode_identity, replace_durably
from penstock.storage.log.recovery import parents_of
from penstock.storage.sealing import KeyUnavailable, KeyVault, LogVault, MasterKeys

# A topic may have thousands of partitions, and others need the disk executor and the interpreter too. What
# one piece of work has created is opened in one turn of the loop.
CREATIONS_AT_ONCE = 2
LOGS_PER_CREATION = 4
# Of those whose topic was deleted meanwhile, so many are told in one turn.
UNWANTED_AT_ONCE = 64
DELETED = ".deleted"
# Topics that were deleted: what is here belongs to nobody.
DELETED_TOPICS = "deleted"
# How many directories are removed by one piece of work, and how soon it is tried again.
REMOVALS_AT_ONCE = 64
REMOVAL_RETRY_MS, FULL_RETRY_MS = 30_000, 100
# Of deleted segments: so many are open, and leave their directories in one turn of the loop.
FILES_AT_ONCE = 32


class LogCreation(NamedTuple):
    """A log to create, and the callbacks for the outcome."""

    path: str
    topic_id: TopicId
    partition: PartitionIndex
    options: LogOptions
    position: JournalPosition
    made: Callable[[JournalPosition], None]
    failed: Callable[[Exception], None]
    # Whether its topic is there still: others wait for what is created in vain.
    is_wanted: Callable[[], bool]

    @property
    def key(self) -> ReplicaKey:
        return self.topic_id, self.partition


class LogNotWanted(StorageError):
    """The topic was deleted before its log was created."""


class LogCreator:
    """Creates empty logs, a few at a time; topics take turns.

    So a topic with one partition does not wait for another one's thousands. Those of one piece of work share
    the syncs of the directories above them, and are passed on in one turn of the loop.
    """

    def __init__(self, spawn: Executor, side_disk: Disk, vault: KeyVault | None = None) -> None:
        self._spawn = spawn
        self._disk = side_disk
        self._vault = vault
        self._created = CreatedReplicas(side_disk)
        # By topic, the next one first; none is empty.
        self._orders: dict[TopicId, deque[LogCreation]] = {}
        self._underway = 0

    def create(self, order: LogCreation) -> None:
        """Create a log; either `made` or `failed` is called later."""
        self._orders.setdefault(order.topic_id, deque()).append(order)
        self._begin()

    def _begin(self) -> None:
        while self._orders and self._underway < CREATIONS_AT_ONCE:
            self._underway += 1
            self._make_some()

    def _make_some(self) -> None:
        orders, unwanted = self._next()

        def made(errors: list[Exception | None]) -> None:
            self._underway -= 1
            self._begin()
            for order, error in zip(orders, errors, strict=True):
                if error is None:
                    order.made(order.position)
                else:
                    order.failed(error)
            for order in unwanted:
                order.failed(LogNotWanted(f"the topic of {order.path} was deleted"))

        def failed(error: Exception) -> None:
            made([error] * len(orders))

        self._spawn.spawn(lambda: self._create(orders), made, failed, ExecutorKind.DISK)

    def _next(self) -> tuple[list[LogCreation], list[LogCreation]]:
        """Take the next one of each topic in turn, as many as are made at once; and those nobody wants."""
        wanted: list[LogCreation] = []
        unwanted: list[LogCreation] = []
        while self._orders and len(wanted) < LOGS_PER_CREATION and len(unwanted) < UNWANTED_AT_ONCE:
            topic_id = next(iter(self._orders))
            orders = self._orders.pop(topic_id)
            order = orders.popleft()
            if orders:
                self._orders[topic_id] = orders
            (wanted if order.is_wanted() else unwanted).append(order)
        return wanted, unwanted

    def _create(self, orders: list[LogCreation]) -> list[Exception | None]:
        """Create the logs, and return why some could not be. Runs on a thread."""
        disk = self._disk
        errors: list[Exception | None] = []
        for path, topic_id, partition, options, position, *_ in orders:
            try:
                PartitionLog.create(
                    disk,
                    path,
                    topic_id,
                    options,
                    position=position,
                    is_synced_later=True,
                    vault=_vault_of(self._vault, topic_id, partition),
                ).close()
            except (StorageError, CorruptionError) as error:
                errors.append(error)
            else:
                errors.append(None)
        created = [order for order, error in zip(orders, errors, strict=True) if error is None]
        if not created:
            return errors
        try:
            for parent in dict.fromkeys(parent for order in created for parent in parents_of(order.path)):
                disk.sync_directory(parent)
            self._created.add(order.key for order in created)
        except StorageError:
            # Nothing has been written to them: they are created and noted again.
            for order in created:
                disk.remove_tree(order.path)
            raise
        return errors


class DirectoryRemovals:
    """Removes directories that nobody uses any more, in the order of the requests, off the loop."""

    def __init__(self, runtime: Runtime, side_disk: Disk) -> None:
        self._runtime = runtime
        self._disk = side_disk
        self._created = CreatedReplicas(side_disk)
        self._waiting: deque[tuple[str, tuple[ReplicaKey, ...]]] = deque()
        self._is_underway = False
        # What could not be removed, so that it is said once.
        self._failed: dict[str, None] = {}

    def add(self, path: str, replicas: Iterable[ReplicaKey] = ()) -> None:
        """Remove a directory, and the notes that these replicas have logs."""
        self._waiting.append((path, tuple(replicas)))
        self._begin()

    def _begin(self) -> None:
        if self._waiting and not self._is_underway:
            self._is_underway = True
            path, replicas = self._waiting.popleft()
            self._remove(path, replicas)

    def _remove(self, path: str, replicas: tuple[ReplicaKey, ...]) -> None:
        """Remove some of it; the next piece of work does the rest, so that a stop need not wait long."""
        created, some = self._created, replicas[:REMOVALS_AT_ONCE]

        def work() -> bool:
            for key in some:
                created.discard(key)
            return _remove_some(self._disk, path) and some == replicas

        def worked(is_done: bool) -> None:
            if is_done:
                self._failed.pop(path, None)
            else:
                self._waiting.appendleft((path, replicas[REMOVALS_AT_ONCE:]))
            self._is_underway = False
            self._begin()

        def failed(error: Exception) -> None:
            is_full = isinstance(error, ExecutorFull)
            if not is_full and path not in self._failed:
                self._failed[path] = None
                events.warning("partition.remove_failed", path=path, error=error)
            self._waiting.append((path, replicas))
            pause_ms = FULL_RETRY_MS if is_full else REMOVAL_RETRY_MS
            deadline = Instant(self._runtime.clock.now() + pause_ms * MILLISECOND)
            self._runtime.timers.at(deadline, again)

        def again() -> None:
            self._is_underway = False
            self._begin()

        self._runtime.spawn.spawn(work, worked, failed, ExecutorKind.DISK)


def _remove_some(disk: Disk, path: str) -> bool:
    """Remove some of the directories below this one, and then this one; returns whether that is done."""
    names = disk.listdir(path) if disk.is_directory(path) else []
    for name in names[:REMOVALS_AT_ONCE]:
        disk.remove_tree(f"{path}/{name}")
    if len(names) > REMOVALS_AT_ONCE:
        return False
    disk.remove_tree(path)
    return True


class LogRemover:
    """Removes files that are no longer part of a log, a few at a time.

    Threads hold them open while their names go, and close them: whoever closes a file last waits for the
    device.
    """

    def __init__(self, runtime: Runtime, disk: Disk, side_disk: Disk) -> None:
        self._runtime = runtime
        self._spawn = runtime.spawn
        self._disk = disk
        self._side_disk = side_disk
        self._waiting: deque[str] = deque()
        self._is_underway = False

    def remove(self, paths: list[str], delay_ms: int) -> None:
        """Remove the files after `delay_ms`."""
        if delay_ms == 0:
            self._discard(paths)
            return
        deadline = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self._discard(paths))

    def _discard(self, paths: list[str]) -> None:
        self._waiting.extend(paths)
        self._begin()

    def _begin(self) -> None:
        if not self._waiting or self._is_underway:
            return
        self._is_underway = True
        side_disk = self._side_disk
        paths = [self._waiting.popleft() for _ in range(min(FILES_AT_ONCE, len(self._waiting)))]

        def hold() -> list[File]:
            held = []
            for path in paths:
                # Its topic, and with it the directory, may have been deleted meanwhile. Not as readers, which
                # share descriptors: those belong to one thread.
                with suppress(NoSuchFile):
                    held.append(side_disk.open(path))
            return held

        def failed(error: Exception) -> None:
            events.warning("partition.deleted_files_not_kept", error=error)
            self._remove(paths)
            self._go_on()

        def held(files: list[File]) -> None:
            self._remove(paths)
            self._let_go(files)

        self._spawn.spawn(hold, held, failed, ExecutorKind.DISK)

    def _go_on(self) -> None:
        self._is_underway = False
        self._begin()

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

        def closed(_: object) -> None:
            self._go_on()

        def failed(_: Exception) -> None:
            close()
            self._go_on()

        self._spawn.spawn(close, closed, failed, ExecutorKind.DISK)


def deleted_log_path(partition: TopicPartition, entropy: Entropy) -> str:
    """The name under which a deleted partition's directory waits for its removal."""
    return f"{partition_path(partition)}.{entropy.bytes(8).hex()}{DELETED}"


def find_stray_logs(disk: Disk, is_topic: Callable[[str], bool]) -> Iterator[str]:
    """The directories that wait for removal; removes empty directories of deleted topics at once."""
    if disk.is_directory(DELETED_TOPICS):
        yield from (f"{DELETED_TOPICS}/{name}" for name in disk.listdir(DELETED_TOPICS))
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
    shares no state with the first. With a `vault` logs are encrypted if their topics are to be.
    """

    disk: Disk
    side_disk: Disk
    commit: GroupCommit
    journal: CommitJournal | None = None
    vault: KeyVault | None = None


class LogManager:
    """Creates, opens and removes logs."""

    def __init__(self, runtime: Runtime, store: LogStore) -> None:
        self._runtime = runtime
        self._store = store
        # The replicas that have had a log here.
        self.created = CreatedReplicas(store.disk)
        self._creator = LogCreator(runtime.spawn, store.side_disk, store.vault)
        self._remover = LogRemover(runtime, store.disk, store.side_disk)
        self._removals = DirectoryRemovals(runtime, store.side_disk)

    def open(
        self, name: TopicPartition, topic_id: TopicId, options: LogOptions, *, is_synced_later: bool = False
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open an existing log; see `PartitionLog.open`. Blocks.

        Raises DiskFull if there is no room for what the journal has of it: a leader that went on without that
        would lose it. Raises CorruptFile, IncompleteLog or WrongTopic if it may be the log of another topic.
        """
        try:
            return self._open(name, topic_id, options, is_synced_later=is_synced_later)
        except (CorruptFile, IncompleteLog, WrongTopic):
            if not self._restore_identity(name, topic_id):
                raise
        return self._open(name, topic_id, options, is_synced_later=is_synced_later)

    def open_created(
        self, name: TopicPartition, topic_id: TopicId, options: LogOptions, position: JournalPosition
    ) -> tuple[PartitionLog, RecoveryReport]:
        """Open a log that `create` has made, and nobody has used. Blocks, for a moment."""
        journal = self._store.journal
        log, report = PartitionLog.open_created(
            self._store.disk,
            partition_path(name),
            options,
            position,
            commit=self._store.commit,
            ticks=self._runtime.clock.now,
            now=self._runtime.clock.wall(),
            journal=None if journal is None else journal.of(topic_id, name.partition),
            vault=_vault_of(self._store.vault, topic_id, name.partition),
        )
        self._opened(log, name, report)
        return log, report

    def _restore_identity(self, name: TopicPartition, topic_id: TopicId) -> bool:
        """Write a directory's identity anew, if it is the topic's for certain, or an operator says so."""
        disk, path = self._store.disk, partition_path(name)
        found = identify(disk, name)
        if found.is_unreadable or (found.topic_id == topic_id):
            return False
        accepted = disk.exists(f"{path}/{ACCEPT_IDENTITY}")
        if not accepted and (found.topic_id is not None or not self.had_log((topic_id, name.partition))):
            return False
        if disk.is_directory(f"{path}/{IDENTITY}"):
            disk.remove_tree(f"{path}/{IDENTITY}")
        replace_durably(disk, path, IDENTITY, encode_identity(topic_id))
        if accepted:
            disk.remove(f"{path}/{ACCEPT_IDENTITY}")
            self.created.add([(topic_id, name.partition)])
        events.warning(
            "partition.identity_restored",
            partition=str(name),
            damage=found.damage or f"it said topic {found.topic_id}",
            reason=f"{ACCEPT_IDENTITY} is there" if accepted else "this node made a log for the topic here",
        )
        return True

    def had_log(self, key: ReplicaKey) -> bool:
        """Whether this node made a log for the partition, as far as anything says so."""
        return key in self.created or self.durable_end(key) > 0

    def _open(
        self, name: TopicPartition, topic_id: TopicId, options: LogOptions, *, is_synced_later: bool
    ) -> tuple[PartitionLog, RecoveryReport]:
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
            vault=_vault_of(self._store.vault, topic_id, name.partition),
        )
        self._opened(log, name, report)
        return log, report

    def _opened(self, log: PartitionLog, name: TopicPartition, report: RecoveryReport) -> None:
        _report(name, report)
        log.set_file_remover(self._remover.remove)
        vault = self._store.vault
        if vault is not None and log.keys is not None and log.keys.master_key != vault.keys.current:
            vault.on_old_table()

    def reload_keys(self, done: Callable[[], None]) -> None:
        """Get the master keys again, since one was missing, and call `done` later."""
        vault = self._store.vault
        if vault is None:
            done()
            return
        former = vault.keys.current

        def loaded(keys: MasterKeys) -> None:
            try:
                vault.adopt_read(keys, former)
            except KeyUnavailable as error:
                failed(error)
                return
            done()

        def failed(error: Exception) -> None:
            events.warning("keys.not_reloaded", error=error)
            done()

        self._runtime.spawn.spawn(vault.service.load, loaded, failed, ExecutorKind.DISK)

    def settle(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Bring a log that is not to be opened up to date, so that the journal need not keep it. Blocks."""
        try:
            options = LogOptions(
                retention_ms=-1, may_have_gaps=True, is_encrypted=self._store.vault is not None
            )
            log, _ = self.open(name, topic_id, options)
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
        made: Callable[[JournalPosition], None],
        failed: Callable[[Exception], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Create an empty log, if it is still wanted in its turn; either `made` or `failed` is called later.

        `made` gets what `open_created` needs.
        """
        journal = self._store.journal
        # What the journal has said so far is about a former log of the same topic, if any.
        position = NO_POSITION if journal is None else journal.position()
        path = partition_path(name)
        self._creator.create(
            LogCreation(path, topic_id, name.partition, options, position, made, failed, is_wanted)
        )

    def delete(self, name: TopicPartition, topic_id: TopicId) -> None:
        """Remove a log's directory. It is renamed first, so that the log may be created again."""
        with suppress(NoSuchFile):
            self._removals.add(self.mark_deleted(name, topic_id))

    def delete_topic(self, topic: str, replicas: Iterable[ReplicaKey]) -> None:
        """Remove the directories of a topic that was deleted, whose logs are not used any more."""
        doomed = f"{DELETED_TOPICS}/{topic}.{self._runtime.entropy.bytes(8).hex()}"
        self._store.disk.make_directory(DELETED_TOPICS)
        with suppress(NoSuchFile):
            self._store.disk.rename(f"{LOGS}/{topic}", doomed)
        # Also for logs that were lost, and have no directory.
        self._removals.add(doomed, replicas)

    def removed(self, replica: ReplicaKey) -> None:
        """The log of a topic that was deleted is not used any more."""
        if self._store.journal is not None:
            self._store.journal.removed(*replica)

    def mark_deleted(self, name: TopicPartition, topic_id: TopicId) -> str:
        """Rename a log's directory for the next `remove_stray_logs`; returns its new name."""
        doomed = deleted_log_path(name, self._runtime.entropy)
        self.forget(name, topic_id)
        self._store.disk.rename(partition_path(name), doomed)
        return doomed

    def forget(self, name: TopicPartition, topic_id: TopicId) -> None:
        """A log that was made for the partition is not expected to be there any more."""
        self.created.discard((topic_id, name.partition))
        if self._store.journal is not None:
            self._store.journal.removed(topic_id, name.partition)

    def remove_stray_logs(self, is_topic: Callable[[str], bool]) -> None:
        """Remove the directories that a stop or a crash left behind."""
        for leftover in find_stray_logs(self._store.disk, is_topic):
            self._removals.add(leftover)


def _vault_of(vault: KeyVault | None, topic_id: TopicId, partition: PartitionIndex) -> LogVault | None:
    return None if vault is None else vault.of(topic_id, partition)


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
