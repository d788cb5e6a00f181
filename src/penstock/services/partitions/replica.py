"""One log of this node, and what the node is to it."""

from collections.abc import Callable
from typing import Protocol

from penstock.core.model import PenstockError, StorageError, TopicId, TopicPartition
from penstock.services.partitions.syncing import SyncPolicy
from penstock.storage.log import PartitionLog


class PartitionStopped(PenstockError):
    """The partition is gone from this node, or its disk failed: ask the leader anew."""


class Role(Protocol):
    """Leader or follower, in one leader epoch."""

    def configure(self, policy: SyncPolicy) -> None: ...

    def sync_behind(self) -> None: ...

    def log_start_moved(self) -> None: ...

    def stop(self, reason: str, *, wanted: bool = False) -> None: ...


class Replica:
    """A log, which outlives roles: they come and go with leader epochs, and there may be none for a while."""

    __slots__ = ("in_trouble", "log", "name", "policy", "role", "topic_id")

    def __init__(
        self, name: TopicPartition, topic_id: TopicId, log: PartitionLog, policy: SyncPolicy
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.policy = policy
        self.role: Role | None = None
        # Told when something was not written: the disk is full, or failed.
        self.in_trouble: Callable[[], None] = _nobody_minds

    @property
    def is_usable(self) -> bool:
        """Whether the log has neither failed nor been removed."""
        return self.log.stopped is None

    def configure(self, policy: SyncPolicy) -> None:
        """Go on under another policy."""
        self.policy = policy
        if self.role is not None:
            self.role.configure(policy)

    def sync_behind(self) -> None:
        """Bring what was appended to the device, without anybody waiting for it."""
        if self.role is not None:
            self.role.sync_behind()
        elif self.log.stopped is None:
            self.log.sync(_ended)

    def log_start_moved(self) -> None:
        """Records were deleted from the front."""
        if self.role is not None:
            self.role.log_start_moved()

    def stop(self, reason: str) -> None:
        """The log failed: whoever uses it must hear of it."""
        if self.role is not None:
            self.role.stop(reason)

    def leave(self, reason: str) -> None:
        """Give the role up, if there is one; the log stays."""
        role, self.role = self.role, None
        if role is not None:
            role.stop(reason, wanted=True)


def _nobody_minds() -> None:
    """There is nobody who could take over."""


def _ended(_: StorageError | None) -> None:
    """A log that nobody uses has been synced, or has stopped; the next role finds out."""
