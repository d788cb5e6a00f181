"""The logs, data directory and metadata snapshots of a node that encrypts, on a disk that may lose power."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID

from penstock.broker.cluster.raft_storage import SnapshotSeal, encode_snapshot, write_snapshot
from penstock.broker.encryption import EncryptedStore, KeyRotation, KeyRotationOptions
from penstock.broker.encryption.key_rotation import Rotated, RotationPhase
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import (
    ApiError,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.raft import Configuration, Index, SnapshotMeta, Term
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime import ExecutorKind
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.sealing import KeyVault
from tests.property.raft.raft_arena import member_of
from tests.support.key_vaults import CountedBytes, FixedKeys
from tests.support.manual_runtime import HandSyncs, HandTimer, HandTimers, InlineSpawn, hand_runtime, settle

TOPIC = TopicId(UUID(int=7))
DIRECTORY_ID = UUID(int=77)
OPTIONS = LogOptions(segment_bytes=600, is_encrypted=True)
SECRET_WORD = b"nobody may read this"
SNAPSHOT = SnapshotMeta(Index(9), Term(5), Configuration((member_of(1),)))

_STARTS = count(1)


@dataclass
class OpenLog:
    """A log as the rotation sees it."""

    name: TopicPartition
    topic_id: TopicId
    log: PartitionLog

    def on_damage(self) -> None:
        """Nobody repairs it here."""


class SlowThreads(InlineSpawn):
    """Threads of which those that do certain work are slow: they go on when the test says so."""

    def __init__(self, timers: HandTimers) -> None:
        super().__init__(timers)
        self._slow: Callable[..., object] | None = None
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Exception], None]]] = []

    @property
    def waiting(self) -> list[Callable[[], Any]]:
        """What the slow threads have still to do."""
        return [work for work, _, _ in self._waiting]

    def hold(self, work: Callable[..., object] | None) -> None:
        """From now on threads that call this function are slow, and no others; who waits goes on waiting."""
        self._slow = work

    def let_go(self, error: Exception | None = None) -> None:
        """Let the threads that wait do their work, in the order of the requests, or fail with an error."""
        waiting, self._waiting = self._waiting, []
        for work, done, failed in waiting:
            if error is None:
                super().spawn(work, done, failed, ExecutorKind.DISK)
            else:
                self._timers.soon(partial(failed, error))

    def spawn(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> HandTimer:
        if self._slow is None or getattr(work, "func", work) is not self._slow:
            return super().spawn(work, done, failed, lane)
        self._waiting.append((work, done, failed))
        return HandTimer(lambda: None)


class EncryptedNode:
    """Opens, or makes, everything that is encrypted; `service` outlives the node, as a keyring does."""

    def __init__(
        self,
        disk: CrashableDisk,
        service: FixedKeys,
        *,
        logs: int = 2,
        options: LogOptions = OPTIONS,
        interval_ms: int = 0,
        reseal_bytes_per_second: int = 32 << 20,
    ) -> None:
        self.disk = disk
        self.service = service
        self.timers, self.syncs = HandTimers(), HandSyncs()
        self.threads = SlowThreads(self.timers)
        self.runtime = replace(hand_runtime(self.timers, self.syncs), spawn=self.threads)
        # Keys of one start are not those of another.
        random = CountedBytes(next(_STARTS) * 10_000)
        self.vault = KeyVault(service, service.load(), random)
        self.directory = DataDirectory.open(disk, DIRECTORY_ID)
        self.directory.unlock(self.vault)
        self.directory.quorum_sealed(self.vault)
        self.seal = SnapshotSeal(self.vault, self.directory.directory_id)
        disk.make_directory("meta/raft")
        disk.sync_directory("meta")
        self.commit = GroupCommit(self.syncs, self.timers.now, self.timers.when_idle)
        self.logs = [self._open(index, options) for index in range(logs)]
        store = EncryptedStore(self.vault, self.directory, disk, lambda: self.seal)
        self.rotation = KeyRotation(
            self.runtime,
            store,
            lambda: list(self.logs),
            KeyRotationOptions("keyring", interval_ms, reseal_bytes_per_second),
        )

    def _open(self, index: int, options: LogOptions) -> OpenLog:
        path, vault = f"logs/orders/{index}", self.vault.of(TOPIC, PartitionIndex(index))
        if self.disk.exists(f"{path}/partition.metadata"):
            log, _ = PartitionLog.open(self.disk, path, TOPIC, options, commit=self.commit, vault=vault)
        else:
            log = PartitionLog.create(self.disk, path, TOPIC, options, commit=self.commit, vault=vault)
        return OpenLog(TopicPartition(TopicName("orders"), PartitionIndex(index)), TOPIC, log)

    def make_again(self, index: int) -> None:
        """Remove a log, and make another one in its place."""
        self.logs[index].log.abandon()
        self.disk.make_directory("deleted")
        self.disk.rename(f"logs/orders/{index}", f"deleted/{index}")
        self.logs[index] = self._open(index, OPTIONS)

    def fill(self, count: int = 10) -> "EncryptedNode":
        """Records in every log, and a metadata snapshot."""
        for one in self.logs:
            for _ in range(count):
                self.put(one.log)
        write_snapshot(
            self.disk,
            SNAPSHOT.index,
            encode_snapshot(SNAPSHOT, Offset(7), [ClusterIdSet(SECRET_WORD.decode())]),
            self.seal,
        )
        self.settle()
        return self

    def put(self, log: PartitionLog) -> None:
        batch = write_batch([Record(0, 1_000, None, SECRET_WORD + b" %d" % log.end, ())])
        log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
        log.sync(lambda _: None)
        self.settle()

    def finish_round(self) -> None:
        """Let one round of syncs end, while they are held."""
        files, done = self.syncs.waiting.pop(0)
        for file in files:
            file.sync()
        done(None)
        self.timers.run()

    def settle(self) -> None:
        settle(self.timers, self.syncs)

    def go_on(self, seconds: int = 60) -> None:
        """Let so much time pass, with everything that happens in it."""
        for _ in range(seconds * 10):
            self.timers.pass_ms(100)
            self.settle()

    def finish(self) -> None:
        """Let time pass until nothing is left to do."""
        for _ in range(600):
            self.timers.pass_ms(100)
            self.settle()
            if self.rotation.status.phase is RotationPhase.IDLE:
                return
        raise AssertionError("it never ends")

    def rotate(self, *, reseal: bool = False) -> Rotated | ApiError:
        """Ask for another key, and let everything happen that follows."""
        replies: list[Rotated | ApiError] = []
        self.rotation.rotate(replies.append, reseal=reseal)
        self.finish()
        (reply,) = replies
        return reply

    def close(self) -> None:
        self.rotation.stop()
        for one in self.logs:
            one.log.close()
        self.directory.close()

    def contents(self) -> list[bytes]:
        """The records of every log as they were sent."""
        return [content_of(one.log) for one in self.logs]

    def keys_on_disk(self) -> list[set[bytes]]:
        """The ids of the data keys of every log."""
        return [set(keys.table.keys) for keys in (one.log.keys for one in self.logs) if keys is not None]

    def bytes_on_disk(self) -> bytes:
        return b"".join(self.disk.read(path) for path in self.disk.files())


def content_of(log: PartitionLog) -> bytes:
    found, offset = b"", log.start
    while offset < log.end:
        content = log.read(offset, 100_000).to_bytes()
        found += content
        offset = Offset(check_batches(content)[-1].next_offset)
    return found


def blank_disk() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory("")
    return disk


def plain(options: LogOptions = OPTIONS) -> LogOptions:
    return replace(options, is_encrypted=False)
