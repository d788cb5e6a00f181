"""One partition that this node leads."""

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PenstockError,
    StorageError,
    Timestamp,
    TopicId,
    TopicPartition,
)
from penstock.core.records import BatchHeader
from penstock.observability import log as events
from penstock.runtime import Timers
from penstock.storage.log import Appended, PartitionLog

Acknowledged: TypeAlias = Callable[[PenstockError | None], None]
Watcher: TypeAlias = Callable[[], None]
NEVER = 2**63 - 1


class Fsync(enum.Enum):
    """What an acknowledgement promises."""

    EVERY = "every"
    INTERVAL = "interval"
    NONE = "none"


class SyncPolicy(NamedTuple):
    """When a partition's records reach the device: what the node does, and what the topic adds.

    A topic with `flush.messages` 1 waits for every sync, whatever the node's mode; a larger
    number, or `flush.ms`, starts syncs that nobody waits for.
    """

    mode: Fsync
    flush_messages: int = NEVER
    flush_ms: int = NEVER

    @property
    def before_acknowledging(self) -> bool:
        return self.mode is Fsync.EVERY or self.flush_messages <= 1


class PartitionStopped(PenstockError):
    """The partition is gone from this node, or its disk failed: ask the leader anew."""


class Partition:
    """A leader's view of its log.

    Appending is synchronous; being acknowledged is not. Callbacks of producers are called in
    offset order. Watchers are told once per turn of the loop, however many batches became
    visible in it, so that a consumer's fetch finds them all.
    """

    __slots__ = (
        "_asked",
        "_timers",
        "_waiting",
        "_wake_set",
        "_watchers",
        "high_watermark",
        "leader_epoch",
        "log",
        "name",
        "policy",
        "stopped",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog,
        leader_epoch: LeaderEpoch,
        *,
        timers: Timers,
        policy: SyncPolicy,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.stopped: PartitionStopped | None = None
        self._timers = timers
        self.policy = policy
        # Up to where somebody has asked for a sync, if nobody waits for it.
        self._asked = log.synced
        self._waiting: deque[tuple[Offset, Acknowledged]] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._wake_set = False
        log.begin_epoch(leader_epoch)
        self.high_watermark = log.synced if policy.before_acknowledging else log.end
        log.set_high_watermark(self.high_watermark)

    def append(
        self, batches: bytearray | memoryview, headers: Sequence[BatchHeader], now: Timestamp
    ) -> Appended:
        """Append checked batches and set their way to the disk going."""
        if self.stopped is not None:
            raise self.stopped
        try:
            appended = self.log.append(batches, headers, self.leader_epoch, now)
        except StorageError as error:
            if self.log.stopped is not None:
                self.stop(str(error))
            raise
        if self.policy.before_acknowledging:
            self.log.sync_shared(self.synced)
        else:
            if self.log.end - self._asked >= self.policy.flush_messages:
                self.sync_behind()
            self._advance(self.log.end)
        return appended

    def sync_behind(self) -> None:
        """Bring what was appended to the device, without anybody waiting for it."""
        if self.stopped is None and self._asked < self.log.end:
            self._asked = self.log.end
            self.log.sync(self.synced)

    def configure(self, policy: SyncPolicy) -> None:
        """Go on under another policy. The high watermark never goes back."""
        self.policy = policy
        self._asked = max(self._asked, self.log.synced)
        if not policy.before_acknowledging:
            self._advance(self.log.end)

    def when_acknowledged(self, end: Offset, done: Acknowledged) -> bool:
        """True: everything below `end` is acknowledged now. False: `done` is called when it is."""
        if end <= self.high_watermark:
            return True
        stopped = self.stopped
        if stopped is not None:
            # Nobody would look at what waits here.
            self._timers.soon(lambda: done(stopped))
        else:
            self._waiting.append((end, done))
        return False

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever more can be read, until `unwatch`."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    @property
    def watchers(self) -> int:
        """How many wait for more."""
        return len(self._watchers)

    def synced(self, error: StorageError | None) -> None:
        """A sync of the log has ended: what producers wait for, and the only way a disk error is heard of."""
        if error is not None:
            self.stop(str(error))
        else:
            self._advance(self.log.synced)

    def _advance(self, offset: Offset) -> None:
        if self.stopped is not None or offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.log.set_high_watermark(offset)
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1](None)
        if self._watchers:
            self._wake_soon()

    def _wake_soon(self) -> None:
        if not self._wake_set:
            self._wake_set = True
            self._timers.soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        for watcher in list(self._watchers):
            watcher()

    def log_start_moved(self) -> None:
        """Records were deleted from the front: whoever waits below the new start must hear of it."""
        self._wake_soon()

    def stop(self, reason: str, *, wanted: bool = False) -> None:
        """Take no more writes; everyone who waits is told to look for the leader again."""
        if self.stopped is not None:
            return
        self.stopped = PartitionStopped(f"{self.name}: {reason}")
        tell = events.info if wanted else events.error
        tell("partition.stopped", partition=str(self.name), reason=reason)
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(self.stopped)
        self._wake_soon()
