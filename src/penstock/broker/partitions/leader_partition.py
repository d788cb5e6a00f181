"""One partition that this node leads: appends, acknowledgements and the high watermark."""

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    BrokerEpoch,
    ErrorKind,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
    Timestamp,
    TopicId,
    TopicPartition,
)
from penstock.core.records import BatchHeader
from penstock.core.replica import CommittedPartitionState, IsrTracker, MayJoin, ProposedIsrMember
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.storage.log import AppendedRange, PartitionLog

# With NOT_LEADER the records may be in the log or not; with any other error they are in it, and
# may or may not reach the other replicas.
OnAcknowledged: TypeAlias = Callable[[ApiError | None], None]
# Who waits until everything below an offset is durable, and until when; a bare tuple, since every
# small Produce makes one.
Waiter: TypeAlias = tuple[Offset, OnAcknowledged, Instant | None]
NEVER = 2**63 - 1
Watcher: TypeAlias = Callable[[], None]
# Called with the partition that it watches.
PartitionWatcher: TypeAlias = Callable[["ReplicaRole"], None]
# A wait for other replicas may last this much longer than its timeout.
SWEEP_MS = 250
# Clients read from the replica that they were told for five minutes, unless they are set otherwise.
READ_ELSEWHERE_NS = 600 * SECOND


def release(waiting: deque[Waiter], reached: Offset) -> None:
    """Call the waiters whose offset was reached, in offset order."""
    while waiting and waiting[0][0] <= reached:
        waiting.popleft()[1](None)


def take_overdue(waiting: deque[Waiter], now: Instant) -> tuple[list[Waiter], Instant | None]:
    """Remove the waiters whose deadline has passed; returns them and the next deadline of the others."""
    overdue, kept = [], []
    earliest: Instant | None = None
    for waiter in waiting:
        deadline = waiter[2]
        if deadline is not None and deadline <= now:
            overdue.append(waiter)
            continue
        kept.append(waiter)
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    if overdue:
        waiting.clear()
        waiting.extend(kept)
    return overdue, earliest


class FsyncMode(enum.Enum):
    """What an acknowledgement guarantees."""

    EVERY = "every"
    INTERVAL = "interval"
    NONE = "none"


class SyncPolicy(NamedTuple):
    """When a partition's records are synced: what the node does, and what the topic adds.

    A topic with `flush.messages` 1 waits for every sync, whatever the node's mode; a larger
    number, or `flush.ms`, starts syncs that nobody waits for.
    """

    mode: FsyncMode
    flush_messages: int = NEVER
    flush_ms: int = NEVER

    @property
    def before_acknowledging(self) -> bool:
        return self.mode is FsyncMode.EVERY or self.flush_messages <= 1


class PartitionStopped(PenstockError):
    """The partition is gone from this node, or its disk failed: look up the leader again."""


class ReplicaRole(Protocol):
    """Leader or follower, in one leader epoch."""

    def configure(self, policy: SyncPolicy) -> None: ...

    def sync_behind(self) -> None: ...

    def log_start_moved(self) -> None: ...

    def watch(self, watcher: PartitionWatcher) -> None: ...

    def unwatch(self, watcher: PartitionWatcher) -> None: ...

    def stop(self, reason: str, *, wanted: bool = False) -> None: ...


class Replica:
    """A log and its current role, if any: the log outlives roles, which change with leader epochs."""

    __slots__ = ("log", "name", "on_divergence", "on_storage_error", "policy", "role", "topic_id", "unaware")

    def __init__(
        self, name: TopicPartition, topic_id: TopicId, log: PartitionLog, policy: SyncPolicy
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.policy = policy
        log.use_journal(is_on=policy.before_acknowledging)
        self.role: ReplicaRole | None = None
        # Brokers that led in earlier epochs and may not have heard of their successors, and until when.
        self.unaware: dict[NodeId, Instant] = {}
        # Called when a write failed: the disk is full, or broken.
        self.on_storage_error: Callable[[], None] = _ignore
        # Called when the leader of this epoch asked for a cut of committed records at this offset.
        self.on_divergence: Callable[[LeaderEpoch, Offset], None] = _ignore_divergence

    @property
    def is_usable(self) -> bool:
        """Whether the log has neither failed nor been removed."""
        return self.log.stopped is None

    def configure(self, policy: SyncPolicy) -> None:
        """Switch to another sync policy."""
        self.policy = policy
        self.log.use_journal(is_on=policy.before_acknowledging)
        if self.role is not None:
            self.role.configure(policy)

    def sync_behind(self) -> None:
        """Sync what was appended to the device, without anybody waiting for it."""
        if self.role is not None:
            self.role.sync_behind()
        elif self.log.stopped is None:
            self.log.sync(_ended)

    def log_start_moved(self) -> None:
        """Records were deleted from the front."""
        if self.role is not None:
            self.role.log_start_moved()

    def on_damage(self) -> None:
        """Damage was found in the log: let others go on without it."""
        self.on_storage_error()

    def stop(self, reason: str) -> None:
        """The log failed: end the role, so that its users learn of it."""
        if self.role is not None:
            self.role.stop(reason)

    def resign(self, reason: str) -> None:
        """Give up the role, if there is one; the log stays."""
        role, self.role = self.role, None
        if role is not None:
            role.stop(reason, wanted=True)


def _ignore_divergence(_epoch: LeaderEpoch, _offset: Offset) -> None:
    """Do nothing."""


def _ignore() -> None:
    """Do nothing: no other replica could take over."""


def _ended(_: StorageError | None) -> None:
    """Do nothing: a log without a role was synced or failed, which the next role finds out."""


class Leadership(NamedTuple):
    """A node's leadership of a partition: in which epoch, and among which replicas."""

    me: NodeId
    leader_epoch: LeaderEpoch
    assignment: CommittedPartitionState
    lag_max_ns: int = 30 * SECOND
    # Brokers that led before and may not know of this epoch yet, and how long that can last.
    former_leaders: tuple[NodeId, ...] = ()
    session_ns: int = 2 * SECOND

    @classmethod
    def alone(cls, me: NodeId, leader_epoch: LeaderEpoch) -> "Leadership":
        """The only replica."""
        return cls(me, leader_epoch, CommittedPartitionState((me,), (me,), 0, 1))


class LeaderPartition:
    """A leader's view of its log, in one leader epoch.

    Appending is synchronous; being acknowledged is not. Callbacks of producers are called in
    offset order. Watchers are called once per turn of the loop, however many batches became
    visible in it, so that a consumer's fetch finds them all.

    A leadership that was taken from a live broker begins with a handover: until that broker is known to
    have heard of it, or its lease is over, nothing is acknowledged and the high watermark stands still, so
    that whatever the former leader answers meanwhile is true.

    Without other replicas the high watermark is the durable end of this node's own log, and the
    `IsrTracker` is not asked: that case is the hot path.
    """

    __slots__ = (
        "_clock",
        "_deletions",
        "_durable_end",
        "_end_set",
        "_end_watchers",
        "_handover",
        "_is_sole_replica",
        "_me",
        "_on_storage_error",
        "_read_elsewhere_until",
        "_sweep",
        "_sync_requested",
        "_syncs",
        "_timers",
        "_unaware",
        "_waiting",
        "_waiting_here",
        "_wake_set",
        "_watchers",
        "follower_starts",
        "former_leaders",
        "has_min_isr",
        "has_refused_writes",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log",
        "name",
        "policy",
        "skipped",
        "stopped",
        "topic_id",
    )

    def __init__(self, replica: Replica, term: Leadership, runtime: Runtime) -> None:
        self.name = replica.name
        self.topic_id = replica.topic_id
        self.log = log = replica.log
        self.policy = replica.policy
        self._syncs = self.policy.before_acknowledging
        self.leader_epoch = term.leader_epoch
        self.stopped: ApiError | None = None
        # Producers whose last batch was refused for the moment: why, and when. What they had sent behind it
        # is refused for the same reason.
        self.skipped: dict[int, tuple[ApiError, Timestamp]] = {}
        self._on_storage_error = replica.on_storage_error
        self._unaware = replica.unaware
        self._me = term.me
        self._timers = runtime.timers
        self._clock = runtime.clock
        # Up to where a sync was requested that nobody waits for.
        self._sync_requested = log.synced
        # The waiters for all in-sync replicas, and those for this node's log only.
        self._waiting: deque[Waiter] = deque()
        self._waiting_here: deque[Waiter] = deque()
        self._watchers: dict[PartitionWatcher, None] = {}
        self._wake_set = False
        self._end_watchers: dict[Watcher, None] = {}
        self._end_set = False
        self._read_elsewhere_until = Instant(0)
        self._sweep: Timer | None = None
        # Where the logs of followers start, and who waits for them to start further on.
        self.follower_starts: dict[NodeId, Offset] = {}
        self._deletions: list[tuple[Offset, OnAcknowledged, Timer]] = []
        log.begin_epoch(term.leader_epoch)
        self._durable_end = self._own_position()
        self.isr = IsrTracker(
            term.me,
            term.assignment,
            log.end,
            self._durable_end,
            min(log.high_watermark, log.end),
            runtime.clock.now(),
            term.lag_max_ns,
            is_held=bool(term.former_leaders),
        )
        # Those that are waited for; empty nearly always.
        self.former_leaders: dict[NodeId, None] = dict.fromkeys(term.former_leaders)
        self._handover: Timer | None = None
        if self.former_leaders:
            until = Instant(runtime.clock.now() + term.session_ns)
            self._handover = runtime.timers.at(until, self._end_handover)
        self._is_sole_replica = self._is_sole_in(term.assignment)
        # Whether enough replicas are in sync to accept writes with acks=all.
        self.has_min_isr = self.isr.has_min_isr
        # Whether a write was refused for want of replicas in sync, since there were last enough.
        self.has_refused_writes = False
        self.high_watermark = self.isr.high_watermark
        log.set_high_watermark(self.high_watermark)
        if self._syncs:
            # What was appended under an earlier role may not be synced yet.
            self.sync_behind()

    @property
    def has_other_replicas(self) -> bool:
        """Whether another broker keeps this partition, too."""
        return len(self.isr.assignment.replicas) > 1

    def on_damage(self) -> None:
        """Damage was found in the log: let another replica lead."""
        if self.stopped is None:
            self._on_storage_error()

    @property
    def is_established(self) -> bool:
        """Whether everything that earlier leaders may have acknowledged is below the high watermark."""
        return self.high_watermark >= self.isr.epoch_start

    def append(  # noqa: C901 - the hot path, straight on purpose
        self, batches: bytearray | memoryview, headers: Sequence[BatchHeader], now: Timestamp
    ) -> AppendedRange:
        """Append checked batches, and start a sync if the policy asks for one."""
        if self.stopped is not None:
            raise PartitionStopped(str(self.stopped))
        try:
            appended = self.log.append(batches, headers, self.leader_epoch, now)
        except StorageError as error:
            if self.log.stopped is not None:
                self.stop(str(error))
            else:
                self._on_storage_error()
            raise
        if self.skipped:
            self.skipped.pop(headers[0].producer_id, None)
        if not self._is_sole_replica:
            self.isr.grew(appended[0], self._clock.now())
        if self._end_watchers and not self._end_set:
            self._end_set = True
            self._timers.soon(self._notify_end)
        if self._syncs:
            self.log.sync_shared(self.synced)
        else:
            end = Offset(appended[1] + 1)
            if end - self._sync_requested >= self.policy.flush_messages:
                self.sync_behind()
            if self._is_sole_replica:
                self._advance(end)
            else:
                self._reached(end)
        return appended

    def sync_behind(self) -> None:
        """Sync what was appended to the device, without anybody waiting for it."""
        if self.stopped is None and self._sync_requested < self.log.end:
            self._sync_requested = self.log.end
            self.log.sync(self.synced)

    def configure(self, policy: SyncPolicy) -> None:
        """Switch to another sync policy. The high watermark never goes back."""
        self.policy = policy
        self._syncs = policy.before_acknowledging
        self._sync_requested = max(self._sync_requested, self.log.synced)
        if self._syncs:
            self.sync_behind()
        else:
            self._reached(self.log.end)

    def when_acknowledged(self, end: Offset, done: OnAcknowledged, timeout_ms: int | None = None) -> bool:
        """Return whether everything below `end` is acknowledged now; if not, `done` is called when it is.

        With other replicas to wait for, `done` gets TIMED_OUT or NOT_ENOUGH_REPLICAS_AFTER_APPEND at
        the deadline.
        """
        if end <= self.high_watermark:
            return True
        if self.stopped is not None:
            self._fail_soon(done)
        elif timeout_ms is None or self._is_sole_replica:
            self._waiting.append((end, done, None))
        else:
            self._sweep_later()
            self._waiting.append((end, done, Instant(self._clock.now() + timeout_ms * MILLISECOND)))
        return False

    def when_synced(self, end: Offset, done: OnAcknowledged) -> bool:
        """Like `when_acknowledged`, for this node's own log only."""
        alone = self._is_sole_replica
        if end <= (self.high_watermark if alone else self._durable_end):
            return True
        if self.stopped is not None:
            self._fail_soon(done)
        else:
            (self._waiting if alone else self._waiting_here).append((end, done, None))
        return False

    def _fail_soon(self, done: OnAcknowledged) -> None:
        """Call `done` with the error on the next turn: nothing sweeps the waiters of a stopped partition."""
        stopped = self.stopped
        self._timers.soon(lambda: done(stopped))

    def watch(self, watcher: PartitionWatcher) -> None:
        """Call `watcher` with this partition whenever more can be read, until `unwatch`."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: PartitionWatcher) -> None:
        self._watchers.pop(watcher, None)

    @property
    def watchers(self) -> int:
        """How many watchers there are."""
        return len(self._watchers)

    def watch_end(self, watcher: Watcher) -> None:
        """Call `watcher` whenever there is more for followers to copy, until `unwatch_end`."""
        self._end_watchers[watcher] = None

    def unwatch_end(self, watcher: Watcher) -> None:
        self._end_watchers.pop(watcher, None)

    @property
    def is_read_elsewhere(self) -> bool:
        """Whether consumers were sent to followers: those should not be behind with the high watermark."""
        until = self._read_elsewhere_until
        return until > 0 and self._clock.now() < until

    def readers_redirected(self) -> None:
        """A consumer was told to read from a follower."""
        is_news = not self.is_read_elsewhere
        self._read_elsewhere_until = Instant(self._clock.now() + READ_ELSEWHERE_NS)
        if is_news:
            self._notify_end_soon()

    def synced(self, error: StorageError | None) -> None:
        """A sync of the log has ended. Releases producers; the only place where a sync error shows."""
        if error is not None:
            self.stop(str(error))
        elif self._is_sole_replica:
            # With the other fsync modes, producers were acknowledged already.
            self._advance(self.log.synced)
        elif self._syncs:
            self._reached(self.log.synced)

    def follower_fetched(
        self, node: NodeId, broker_epoch: BrokerEpoch, fetched: Offset, synced: Offset
    ) -> None:
        """A follower has this log up to `fetched`, and has synced it up to `synced`."""
        if self.stopped is None and self.isr.follower_fetched(
            node, broker_epoch, fetched, synced, self.log.end, self._clock.now()
        ):
            self._advance(self.isr.high_watermark)

    def assignment_changed(self, assignment: CommittedPartitionState) -> None:
        """The committed metadata has changed the replicas or the ISR, in this leader epoch."""
        insync = self.isr
        if self._is_sole_replica:
            # It was not tracked until now.
            self._durable_end = self._own_position()
            insync.advance_own(self._durable_end)
        self._is_sole_replica = self._is_sole_in(assignment)
        moved = insync.assignment_changed(assignment, self._clock.now())
        self.has_min_isr = insync.has_min_isr
        if self.has_min_isr:
            self.has_refused_writes = False
        if moved:
            self._advance(insync.high_watermark)
        if self._deletions:
            self._release_deletions()

    def former_leader_left(self, node: NodeId) -> None:
        """A former leader knows of this epoch, or is fenced: it does not answer as the leader any more."""
        self._unaware.pop(node, None)
        if node in self.former_leaders:
            del self.former_leaders[node]
            if not self.former_leaders:
                self._end_handover()

    def _end_handover(self) -> None:
        if self._handover is None or self.stopped is not None:
            return
        self._handover.cancel()
        self._handover = None
        self.former_leaders.clear()
        self._is_sole_replica = self._is_sole_in(self.isr.assignment)
        if self.isr.end_hold():
            self._advance(self.isr.high_watermark)
        self._reached(self._own_position())

    @property
    def is_waited_for(self) -> bool:
        """Whether another ISR may help somebody: records are not committed, or were refused."""
        return self.has_refused_writes or self.high_watermark < self.log.end

    def proposal(self, may_join: MayJoin) -> tuple[ProposedIsrMember, ...] | None:
        """The ISR to propose to the controller now, if there is a reason to."""
        if self._is_sole_replica or self.stopped is not None:
            return None
        return self.isr.proposal(self.log.end, self._clock.now(), may_join)

    def proposal_ended(self, *, accepted: bool | None) -> None:
        """The controller has decided, or (None) the outcome of the proposal is unknown."""
        if self.isr.proposal_ended(accepted=accepted):
            self._advance(self.isr.high_watermark)

    def log_start_moved(self) -> None:
        """Records were deleted from the front: tell readers that wait below the new start, and followers."""
        self._wake_soon()
        self._notify_end_soon()

    def when_deleted(self, start: Offset, done: OnAcknowledged, timeout_ms: int) -> None:
        """Call `done` when every log that may be in sync starts at `start` or later, or at the deadline.

        Whoever leads next must not bring back what was deleted: with fewer than the minimum in sync, others
        may, and they are waited for.
        """

        def overdue() -> None:
            self._deletions.remove(deletion)
            done(ApiError(ErrorKind.TIMED_OUT, f"{self.name}: not all replicas start at {start} yet"))

        if self.stopped is not None:
            self._fail_soon(done)
            return
        deadline = Instant(self._clock.now() + timeout_ms * MILLISECOND)
        deletion = (start, done, self._timers.at(deadline, overdue))
        self._deletions.append(deletion)
        self._release_deletions()

    def follower_starts_at(self, node: NodeId, start: Offset) -> None:
        """The log of a follower starts there now."""
        self.follower_starts[node] = start
        if self._deletions:
            self._release_deletions()

    def _release_deletions(self) -> None:
        if not self.has_min_isr:
            return
        followers = [node for node in self.isr.counting if node != self._me]
        starts = [self.follower_starts.get(node, Offset(0)) for node in followers]
        reached = min(starts, default=self.log.start)
        released = [deletion for deletion in self._deletions if deletion[0] <= reached]
        self._deletions = [deletion for deletion in self._deletions if deletion[0] > reached]
        for _, done, timer in released:
            timer.cancel()
            done(None)

    def stop(self, reason: str, *, wanted: bool = False) -> None:
        """Take no more writes; everyone who waits gets NOT_LEADER and looks up the leader again."""
        if self.stopped is not None:
            return
        self.stopped = stopped = ApiError(ErrorKind.NOT_LEADER, f"{self.name}: {reason}")
        tell = events.debug if wanted else events.error
        tell("partition.stopped", partition=str(self.name), reason=reason)
        if not wanted:
            self._on_storage_error()
        for timer in (self._sweep, self._handover):
            if timer is not None:
                timer.cancel()
        waiting, self._waiting = [*self._waiting, *self._waiting_here], deque()
        self._waiting_here = deque()
        for _, done, _ in waiting:
            done(stopped)
        deletions, self._deletions = self._deletions, []
        for _, done, timer in deletions:
            timer.cancel()
            done(stopped)
        self._wake_soon()
        self._notify_end_soon()

    def _own_position(self) -> Offset:
        return self.log.synced if self._syncs else self.log.end

    def _is_sole_in(self, assignment: CommittedPartitionState) -> bool:
        """Whether this node commits alone, and may."""
        alone = (self._me,)
        return assignment.replicas == alone and assignment.isr == alone and not self.former_leaders

    def _reached(self, safe: Offset) -> None:
        """The log of this node is durable up to `safe`."""
        if self._is_sole_replica:
            self._advance(safe)
        elif self.former_leaders:
            self.isr.advance_own(safe)
        elif self.stopped is None:
            self._durable_end = safe
            release(self._waiting_here, safe)
            if self.isr.advance_own(safe):
                self._advance(self.isr.high_watermark)

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
        if self._read_elsewhere_until and self.is_read_elsewhere:
            self._notify_end_soon()

    def _wake_soon(self) -> None:
        if not self._wake_set:
            self._wake_set = True
            self._timers.soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        for watcher in list(self._watchers):
            watcher(self)

    def _notify_end_soon(self) -> None:
        if self._end_watchers and not self._end_set:
            self._end_set = True
            self._timers.soon(self._notify_end)

    def _notify_end(self) -> None:
        self._end_set = False
        for watcher in list(self._end_watchers):
            watcher()

    def _sweep_later(self) -> None:
        if self._sweep is None and self.stopped is None:
            deadline = Instant(self._clock.now() + SWEEP_MS * MILLISECOND)
            self._sweep = self._timers.at(deadline, self._sweep_overdue)

    def _sweep_overdue(self) -> None:
        """Expire waiters in one sweep, which is cheaper than a timer for each."""
        self._sweep = None
        overdue, next_deadline = take_overdue(self._waiting, self._clock.now())
        if next_deadline is not None:
            self._sweep_later()
        for end, done, _ in overdue:
            done(self._overdue(end))

    def _overdue(self, end: Offset) -> ApiError:
        if self.has_min_isr:
            detail = f"the replicas have not confirmed {end - 1} in time"
            return ApiError(ErrorKind.TIMED_OUT, f"{self.name}: {detail}")
        state = self.isr.assignment
        detail = f"{len(state.isr)} in sync, {min(state.minimum, len(state.replicas))} are needed"
        return ApiError(ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"{self.name}: {detail}")
