"""The port between the controller and the metadata log."""

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from penstock.core.metadata import Fact, MetadataImage
from penstock.core.model import ApiError, CorruptionError, LeaderEpoch, Offset, PenstockError, StorageError
from penstock.core.values import dataclass
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.journal import CommitJournal
from penstock.storage.sealing import KeyVault

NO_DIRECTORY = UUID(int=0)


class NotQuorumLeader(PenstockError):
    """Facts were proposed under an epoch in which this node does not lead."""


class QuorumFailed(StorageError):
    """The metadata log can no longer be trusted on this node: the node ends."""


class MetadataLost(CorruptionError):
    """The data directory belongs to a cluster, but its metadata is missing."""


@dataclass(frozen=True, slots=True)
class QuorumStore:
    """Where the metadata is; `side_disk` is a view of the same directory for work off the loop.

    With a `vault` it is encrypted; in a directory that was in clear so far, it `may_be_plain` at the start.
    """

    disk: Disk
    side_disk: Disk
    commit: GroupCommit
    journal: CommitJournal | None = None
    vault: KeyVault | None = None
    directory_id: UUID = NO_DIRECTORY
    may_be_plain: bool = False


@dataclass(frozen=True, slots=True)
class QuorumOptions:
    """When a snapshot is taken; it also waits for half as many facts as the last one had."""

    snapshot_facts: int = 10_000
    segment_bytes: int = 16 << 20


class QuorumEvents(Protocol):
    """The host's side. Called on the loop, in this order, never inside a call to the quorum."""

    @property
    def image(self) -> MetadataImage:
        """All committed facts, applied: what a snapshot is made of."""

    def restored(self, image: MetadataImage) -> None:
        """Replace all state by this image; called once at the start, and after a leader's snapshot."""

    def facts_committed(self, facts: Sequence[Fact]) -> None:
        """These facts follow, and will never be undone. `Quorum.committed` covers them already."""

    def leadership_gained(self, epoch: LeaderEpoch) -> None:
        """The node may propose; everything in the log so far is committed and was delivered."""

    def leadership_lost(self) -> None:
        """Nothing more may be proposed, and what was not committed may never be."""


class Quorum(Protocol):
    """Keeps facts in an order that every node agrees on."""

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """The epoch under which this node leads; None if it does not."""

    @property
    def end(self) -> Offset:
        """The offset that the next fact gets."""

    @property
    def committed(self) -> Offset:
        """Every fact below this offset survives whatever a minority of nodes goes through."""

    def start(self, events: QuorumEvents) -> None:
        """Recover what is on disk and take part. Blocks on the disk; events may come at once."""

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset | ApiError:
        """Append facts that are committed together or not at all; returns the log end behind them.

        Returns an error while too much waits to be committed, or leadership is being handed over:
        nothing was appended, as with a StorageError. Raises NotQuorumLeader if the epoch is not the
        current one.
        """

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Call `done` with whether a majority still takes this node for the leader, now or later."""

    def close(self) -> None:
        """Make everything durable and stop taking part. Blocks on the disk."""
