"""Takes, sends and installs snapshots of the metadata.

A snapshot is verified before it is sent, and before it is installed. One that is damaged on the leader's
disk is replaced by a new one, made from the image in memory.
"""

from collections.abc import Callable, Sequence

from penstock.broker.cluster.quorum import QuorumFailed
from penstock.broker.cluster.raft_codec import problem_with_facts
from penstock.broker.cluster.raft_storage import (
    MetadataSnapshot,
    RaftStorage,
    decode_snapshot,
    drop_damaged_snapshots,
    encode_snapshot,
    read_snapshot,
    remove_snapshot,
    write_snapshot,
)
from penstock.core.metadata import Fact, MetadataImage, snapshot
from penstock.core.model import CorruptionError, Offset
from penstock.core.raft import (
    Index,
    InstallSnapshot,
    Member,
    SendSnapshotChunk,
    SnapshotMeta,
    StoreSnapshotChunk,
)
from penstock.core.raft.messages import RaftMessage, SnapshotChunk
from penstock.observability import log as events
from penstock.runtime import Callback, Executor, ExecutorKind, Job
from penstock.storage.disk import Disk


def check_facts(facts: Sequence[Fact], end: Offset) -> None:
    """Raise CorruptionError if a snapshot of another node holds what no node would write."""
    problem = problem_with_facts(facts, end)
    if problem is not None:
        raise CorruptionError(problem)


class SnapshotManager:
    """The slow side of snapshots, off the loop: an image never changes, so a thread may walk it."""

    def __init__(
        self,
        spawn: Executor,
        side_disk: Disk,
        store: RaftStorage,
        facts: int,
        end: Offset,
        on_damaged: Callback,
    ) -> None:
        """The last snapshot has `facts` facts and covers everything before `end`.

        `on_damaged` is called when another one has to be taken in its place.
        """
        self._spawn = spawn
        self._disk = side_disk
        self._store = store
        self._last_facts = facts
        self._last_end = end
        self._on_damaged = on_damaged
        self._seal = store.seal
        self._damaged: Index | None = None
        self._job: Job | None = None
        self._incoming = bytearray()
        # A transfer sends what was verified, not what the file holds later.
        self._outgoing: tuple[SnapshotMeta, bytes] | None = None

    def is_due(self, end: Offset, facts_min: int) -> bool:
        # A large image is not written again for every few facts.
        is_enough = end - self._last_end >= max(facts_min, self._last_facts // 2)
        return self._job is None and (is_enough or self._damaged is not None)

    def take(self, meta: SnapshotMeta, end: Offset, image: MetadataImage) -> None:
        disk, damaged, seal = self._disk, self._damaged, self._seal
        self._last_end = end

        def work() -> int:
            facts = list(snapshot(image))
            if damaged is not None:
                # Otherwise it would be kept as the one to fall back on.
                remove_snapshot(disk, damaged)
            write_snapshot(disk, meta.index, encode_snapshot(meta, end, facts), seal)
            return len(facts)

        def written(facts: int) -> None:
            self._job = self._damaged = None
            self._last_facts = facts
            events.info("metadata.snapshot_taken", index=meta.index, facts=facts)
            if meta.index > self._store.snapshot.index:
                self._store.compact(meta, end)

        def failed(error: Exception) -> None:
            self._job = None
            events.warning("metadata.snapshot_failed", index=meta.index, error=error)

        self._job = self._spawn.spawn(work, written, failed, ExecutorKind.DISK)

    def send(self, effect: SendSnapshotChunk, send: Callable[[Member, RaftMessage], None]) -> None:
        """Send a chunk of the verified snapshot. If that fails, Raft asks for it again."""
        disk, meta, outgoing, seal = self._disk, effect.snapshot, self._outgoing, self._seal

        def ready(content: bytes) -> None:
            end = effect.position + effect.bytes_max
            is_last = end >= len(content)
            self._outgoing = None if is_last else (meta, content)
            send(
                effect.to,
                SnapshotChunk(effect.term, meta, effect.position, content[effect.position : end], is_last),
            )

        def failed(error: Exception) -> None:
            if isinstance(error, CorruptionError):
                self._replace_damaged(meta, error)
            else:
                events.warning("quorum.snapshot_read_failed", index=meta.index, error=error)

        if outgoing is not None and outgoing[0] == meta:
            ready(outgoing[1])
        else:
            self._spawn.spawn(lambda: read_snapshot(disk, meta, seal), ready, failed, ExecutorKind.DISK)

    def verify(self) -> None:
        """Read the snapshots in a thread; if the present one is damaged, another one takes its place."""
        disk, meta, seal = self._disk, self._store.snapshot, self._seal

        def work() -> list[str]:
            dropped = drop_damaged_snapshots(disk, meta.index, seal)
            read_snapshot(disk, meta, seal)
            return dropped

        def verified(dropped: list[str]) -> None:
            if dropped:
                events.warning("metadata.old_snapshots_dropped", names=dropped, reason="they are damaged")

        def failed(error: Exception) -> None:
            if isinstance(error, CorruptionError):
                self._replace_damaged(meta, error)
            else:
                events.warning("quorum.snapshot_read_failed", index=meta.index, error=error)

        if meta.index and self._job is None:
            self._spawn.spawn(work, verified, failed, ExecutorKind.DISK)

    def _replace_damaged(self, meta: SnapshotMeta, error: CorruptionError) -> None:
        if meta != self._store.snapshot or self._job is not None:
            return  # a newer one takes its place
        events.error("metadata.snapshot_damaged", index=meta.index, reason=str(error))
        self._damaged = meta.index
        self._on_damaged()

    def receive(self, effect: StoreSnapshotChunk) -> None:
        assert effect.position <= len(self._incoming)
        del self._incoming[effect.position :]
        self._incoming += effect.content

    def install(
        self, effect: InstallSnapshot, installed: Callable[[MetadataSnapshot], None], rejected: Callback
    ) -> None:
        """Make the received snapshot durable, and let `installed` replace the log by it; or drop it."""
        content, self._incoming = bytes(self._incoming), bytearray()
        disk, meta, seal = self._disk, effect.snapshot, self._seal

        def work() -> MetadataSnapshot:
            received = decode_snapshot(content, check_facts)
            if received.meta != meta:
                raise CorruptionError(f"it covers {received.meta.index}, not {meta.index}")
            write_snapshot(disk, meta.index, content, seal)
            return received

        def written(received: MetadataSnapshot) -> None:
            events.info("metadata.snapshot_installed", index=meta.index, facts=received.facts)
            self._last_facts, self._last_end = received.facts, received.end
            installed(received)

        def failed(error: Exception) -> None:
            if isinstance(error, CorruptionError):
                events.warning("quorum.snapshot_rejected", index=meta.index, reason=str(error))
                rejected()
                return
            raise QuorumFailed(f"a snapshot from the leader could not be installed: {error}") from error

        self._spawn.spawn(work, written, failed, ExecutorKind.DISK)

    def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
