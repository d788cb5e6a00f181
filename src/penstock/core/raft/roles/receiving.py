"""A snapshot that arrives in pieces."""

from penstock.core.raft.effects import InstallSnapshot, StoreChunk
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.identity import Member
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import ChunkAnswer, SnapshotChunk


class Receiving:
    """How much of whose snapshot is here. It outlives roles and terms, so a transfer can go on.

    Two members may write the same state differently: another sender means to start over.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sender: Member | None = None
        self._snapshot: SnapshotMeta | None = None
        self._position = 0
        self.is_installing = False

    def take(self, sender: Member, chunk: SnapshotChunk) -> None:
        """Keep the chunk if it is the next one; say which one we want."""
        ledger = self._ledger
        if sender != self._sender or chunk.snapshot != self._snapshot:
            self._sender, self._snapshot, self._position = sender, chunk.snapshot, 0
        if chunk.position == self._position:
            if chunk.content or not chunk.position:
                ledger.effects.append(StoreChunk(chunk.snapshot, chunk.position, chunk.content))
            self._position += len(chunk.content)
            if chunk.is_last:
                self.is_installing = True
                ledger.effects.append(InstallSnapshot(chunk.snapshot))
        ledger.send(sender, ChunkAnswer(ledger.term, chunk.snapshot.index, self._position))

    def finish(self, snapshot: SnapshotMeta) -> None:
        assert self.is_installing
        assert snapshot == self._snapshot
        self._sender = self._snapshot = None
        self._position = 0
        self.is_installing = False
