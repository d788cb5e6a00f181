"""Takes, sends and installs snapshots of the metadata."""

from collections.abc import Callable

from penstock.broker.cluster.quorum import QuorumFailed
from penstock.broker.cluster.raft_storage import (
    MetadataSnapshot,
    RaftStorage,
    decode_snapshot,
    encode_snapshot,
    read_chunk,
    write_snapshot,
)
from penstock.core.metadata import MetadataImage, snapshot
from penstock.core.model import Offset
from penstock.core.raft import InstallSnapshot, Member, SendSnapshotChunk, SnapshotMeta, StoreSnapshotChunk
from penstock.core.raft.messages import RaftMessage, SnapshotChunk
from penstock.observability import log as events
from penstock.runtime import Executor, ExecutorKind, Job
from penstock.storage.disk import Disk


class SnapshotManager:
    """The slow side of snapshots, off the loop: an image never changes, so a thread may walk it."""

    def __init__(self, spawn: Executor, side_disk: Disk, store: RaftStorage, facts: int, end: Offset) -> None:
        """The last snapshot has `facts` facts and covers everything before `end`."""
        self._spawn = spawn
        self._disk = side_disk
        self._store = store
        self._last_facts = facts
        self._last_end = end
        self._job: Job | None = None
        self._incoming = bytearray()

    def is_due(self, end: Offset, facts_min: int) -> bool:
        # A large image is not written again for every few facts.
        return self._job is None and end - self._last_end >= max(facts_min, self._last_facts // 2)

    def take(self, meta: SnapshotMeta, end: Offset, image: MetadataImage) -> None:
        disk = self._disk
        self._last_end = end

        def work() -> int:
            facts = list(snapshot(image))
            write_snapshot(disk, meta.index, encode_snapshot(meta, end, facts))
            return len(facts)

        def written(facts: int) -> None:
            self._job = None
            self._last_facts = facts
            events.info("metadata.snapshot_taken", index=meta.index, facts=facts)
            if meta.index > self._store.snapshot.index:
                self._store.compact(meta, end)

        def failed(error: Exception) -> None:
            self._job = None
            events.warning("metadata.snapshot_failed", index=meta.index, error=error)

        self._job = self._spawn.spawn(work, written, failed, ExecutorKind.DISK)

    def send(self, effect: SendSnapshotChunk, send: Callable[[Member, RaftMessage], None]) -> None:
        """Read a chunk and send it. If that fails, Raft asks for it again."""
        disk = self._disk

        def work() -> tuple[bytes, bool] | None:
            return read_chunk(disk, effect.snapshot.index, effect.position, effect.bytes_max)

        def read(chunk: tuple[bytes, bool] | None) -> None:
            if chunk is not None:
                content, is_last = chunk
                message = SnapshotChunk(effect.term, effect.snapshot, effect.position, content, is_last)
                send(effect.to, message)

        def failed(error: Exception) -> None:
            events.warning("quorum.snapshot_read_failed", index=effect.snapshot.index, error=error)

        self._spawn.spawn(work, read, failed, ExecutorKind.DISK)

    def receive(self, effect: StoreSnapshotChunk) -> None:
        assert effect.position <= len(self._incoming)
        del self._incoming[effect.position :]
        self._incoming += effect.content

    def install(self, effect: InstallSnapshot, installed: Callable[[MetadataSnapshot], None]) -> None:
        """Make the received snapshot durable; `installed` then replaces the log by it."""
        content, self._incoming = bytes(self._incoming), bytearray()
        disk, meta = self._disk, effect.snapshot

        def work() -> MetadataSnapshot:
            received = decode_snapshot(content)
            write_snapshot(disk, meta.index, content)
            return received

        def written(received: MetadataSnapshot) -> None:
            assert received.meta == meta, "a leader sends the snapshot it says it sends"
            events.info("metadata.snapshot_installed", index=meta.index, facts=received.facts)
            self._last_facts, self._last_end = received.facts, received.end
            installed(received)

        def failed(error: Exception) -> None:
            raise QuorumFailed(f"a snapshot from the leader could not be installed: {error}") from error

        self._spawn.spawn(work, written, failed, ExecutorKind.DISK)

    def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
