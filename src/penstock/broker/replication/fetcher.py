"""The follower's side of replication: fetches from one leader node the partitions it leads.

One fetch is in flight at a time, for all partitions together. Each fetch names the partitions whose
position or synced position has changed since the last one. A response names the position it is for,
and is used if the log still ends there. A fetch without a response in time, or one that is rejected,
restarts the session with all partitions.

When partitions come or go, a fetch is sent at once, even if one is in flight: the leader responds to
the last one it got, so that a partition with a new leader does not wait for a long poll to end. But
the leader may have responded to the earlier one too. If that response was lost, the leader waits for
a move that never comes. So responses are numbered, and where one is missing, the session is restarted.

A restart costs both sides a look at every partition, and what is under way is lost: megabytes, which the
leader would have to send again before anything else. So a response of which a part is here is waited for;
and each one that comes after its session was given up gives the leader more time for the next ones, or a
leader whose responses take longer than a follower waits would see nothing but restarts.
"""

import enum
from collections.abc import Callable, Mapping

from penstock.broker.partitions import FollowerPartition, SegmentVerifier
from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions
from penstock.broker.replication.protocol import (
    CorruptBatchReport,
    FollowerProgress,
    FollowerProgressPartition,
    ReplicaFetch,
    ReplicaFetchPartition,
    ReplicaFetchResponse,
    ReplicaFetchResponsePartition,
    ReplicaFetchStatus,
    RestartSession,
    encode_corrupt_batch_report,
    encode_fetch,
    encode_progress,
)
from penstock.core.model import (
    MILLISECOND,
    BrokerEpoch,
    CorruptionError,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.core.records import BatchHeader, CorruptBatch, check_batches
from penstock.core.replica import DivergingEpoch, truncation_offset
from penstock.observability import log as events
from penstock.runtime import Buffer, Runtime, Timer
from penstock.storage.log import OffsetsNotIncreasing, SuspectSegment

# Retry after this while there is no link; the peer manager also calls when it opens.
NO_LINK_MS = 500
# The time that a response may take doubles with each one that is late, so often at most.
DOUBLINGS_MAX = 3


class ApplyResult(enum.Enum):
    """The outcome of a response for one partition."""

    QUIET = enum.auto()
    # Its position changed: the leader must learn of it.
    MOVED = enum.auto()
    # Likewise, and its log was truncated.
    WENT_BACK = enum.auto()
    # Unchanged, and not what the leader thinks: it must be sent again.
    STALE = enum.auto()
    # An error here or at the leader: wait before the next fetch.
    TROUBLE = enum.auto()
    # The batches were damaged, most likely on the leader's disk, since links have checksums.
    DAMAGED = enum.auto()


def apply(
    followed: FollowerPartition,
    answer: ReplicaFetchResponsePartition,
    batches: memoryview,
    verifier: SegmentVerifier,
) -> ApplyResult:
    """Apply one row of the leader's response to the log; if the log is in the way, have it verified."""
    if answer.leader_epoch != followed.leader_epoch or answer.position != followed.log.end:
        # Sent before the leader knew our current position, which was sent or is about to be. To send
        # it once more would bring another such response, and so on.
        return ApplyResult.QUIET
    if answer.status == ReplicaFetchStatus.FENCED:
        # Our metadata will show the new leader soon.
        return ApplyResult.QUIET
    try:
        return _obey(followed, answer, batches)
    except StorageError as error:
        events.error("replica.append_failed", partition=str(followed.name), error=error)
    except SuspectSegment as error:
        # Our own log makes no sense where it has to be cut.
        events.warning("replica.truncation_failed", partition=str(followed.name), error=error)
        verifier.suspect(followed, max(error.segment, followed.log.start))
    except (CorruptionError, OffsetsNotIncreasing) as error:
        events.warning("replica.corrupt_batch_received", partition=str(followed.name), error=error)
        return ApplyResult.DAMAGED
    except PenstockError as error:
        # For example, the role has ended.
        events.warning("replica.batches_rejected", partition=str(followed.name), error=error)
    return ApplyResult.TROUBLE


def _obey(
    followed: FollowerPartition, answer: ReplicaFetchResponsePartition, batches: memoryview
) -> ApplyResult:
    match answer.status:
        case ReplicaFetchStatus.OK:
            outcome = _append(followed, answer, batches) if len(batches) else ApplyResult.QUIET
            followed.advance_high_watermark(Offset(answer.high_watermark))
            followed.advance_start(Offset(answer.log_start))
            return outcome
        case ReplicaFetchStatus.DIVERGED:
            return _cut(followed, answer)
        case ReplicaFetchStatus.OUT_OF_RANGE:
            return _begin_anew(followed, answer)
        case ReplicaFetchStatus.DAMAGED:
            events.error(
                "replica.leader_log_corrupt",
                partition=str(followed.name),
                offset=answer.position,
                leader=followed.leader,
            )
            return ApplyResult.TROUBLE
        case _:
            events.warning("replica.unknown_status", partition=str(followed.name), status=answer.status)
            return ApplyResult.TROUBLE


def _append(
    followed: FollowerPartition, answer: ReplicaFetchResponsePartition, batches: memoryview
) -> ApplyResult:
    # The leader checked them when they came in; since then they were on its disk and on the wire.
    headers = check_batches(batches, compacted=True)
    last = headers[-1]
    if last.next_offset > answer.end or last.leader_epoch > answer.leader_epoch:
        # Both are outside the CRC, and compaction leaves gaps between offsets: no more can be checked.
        raise CorruptBatch(
            f"offset {last.last_offset} of epoch {last.leader_epoch} is not in the leader's log"
        )
    _make_room(followed, headers)
    followed.append(batches, headers)
    return ApplyResult.MOVED


def _make_room(followed: FollowerPartition, headers: list[BatchHeader]) -> None:
    """Restart an empty log that starts within the leader's first batch at that batch's base offset.

    Only the leader's log start can be in the middle of a batch, after a deletion by offset.
    """
    first, log = Offset(headers[0].base_offset), followed.log
    if first < log.end and log.start == log.end:
        followed.restart_at(first)


def _cut(followed: FollowerPartition, answer: ReplicaFetchResponsePartition) -> ApplyResult:
    log = followed.log
    cut = truncation_offset(
        log.epochs, log.end, DivergingEpoch(LeaderEpoch(answer.epoch), Offset(answer.end))
    )
    end, high_watermark = log.end, log.high_watermark
    if cut >= end:
        # Never true of two logs with a common prefix.
        events.error("replica.nothing_to_truncate", partition=str(followed.name), end=end, epoch=answer.epoch)
        return ApplyResult.TROUBLE
    followed.truncate_to(cut)
    tell = events.warning if cut < high_watermark else events.info
    tell(
        "replica.truncated",
        partition=str(followed.name),
        end=end,
        to=cut,
        epoch=answer.epoch,
        high_watermark=high_watermark,
    )
    return ApplyResult.WENT_BACK


def _begin_anew(followed: FollowerPartition, answer: ReplicaFetchResponsePartition) -> ApplyResult:
    log = followed.log
    start, end = log.start, log.end
    if answer.log_start <= end <= answer.end:
        # It is in range again.
        return ApplyResult.STALE
    followed.restart_at(Offset(answer.log_start))
    events.warning(
        "replica.restarted_empty",
        partition=str(followed.name),
        start=start,
        end=end,
        leader_start=answer.log_start,
        leader_end=answer.end,
    )
    return ApplyResult.WENT_BACK


class ReplicaFetcher:
    """Follows one leader node."""

    def __init__(  # noqa: PLR0913, PLR0917  (one more than the rule: two for the link to the leader)
        self,
        runtime: Runtime,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        send: Callable[[Buffer], bool],
        is_receiving: Callable[[], bool],
        options: ReplicationOptions,
        metrics: ReplicationMetrics,
    ) -> None:
        """`is_receiving` tells whether a part of a frame of the leader is here."""
        self._runtime = runtime
        self._node = node
        self._broker_epoch = broker_epoch
        self._send = send
        self._is_receiving = is_receiving
        self._metrics = metrics
        self._verifier = SegmentVerifier(runtime)
        self._fetch_wait_ns = options.fetch_wait_ms * MILLISECOND
        self._answer_timeout_ns = options.answer_timeout_ms * MILLISECOND
        self._trouble_ns = options.trouble_ms * MILLISECOND
        self._followed: dict[bytes, FollowerPartition] = {}
        self._session = 0
        self._sequence = -1
        self._progress_number = 0
        # How many responses of the session were sent, as far as is known here.
        self._responses = 0
        # Partitions to name in the next fetch, and those to forget.
        self._unsaid: dict[bytes, None] = {}
        # Where the leader was told that logs start.
        self._said_starts: dict[bytes, Offset] = {}
        self._forgotten: dict[bytes, None] = {}
        self._resting: dict[bytes, Timer] = {}
        self._synced: dict[bytes, None] = {}
        self._is_waiting = False
        # How many responses were late, less those that were not; and the last session that was given up.
        self._late = 0
        self._given_up = -1
        self._asked_at = self._answer_by = self._timer_at = Instant(0)
        self._timer: Timer | None = None
        self._telling: Timer | None = None
        self._begin_session()

    def set_partitions(self, followed: Mapping[bytes, FollowerPartition]) -> None:
        """Set the partitions to fetch from this leader."""
        changed = False
        for key, old in list(self._followed.items()):
            if followed.get(key) is not old:
                self._let_go(key, old)
                changed = True
        for key, new in followed.items():
            if key not in self._followed:
                self._take_up(key, new)
                changed = True
        if changed:
            self.fetch()

    def fetch(self) -> None:
        """Send a fetch now, even if one is in flight."""
        if not self._followed and not self._forgotten:
            self._is_waiting = False
            return
        rows = [self._row(key) for key in self._unsaid if key in self._followed]
        fetch = ReplicaFetch(
            self._broker_epoch, self._session, self._sequence + 1, rows, list(self._forgotten)
        )
        now = self._runtime.clock.now()
        if self._send(encode_fetch(fetch)):
            if not self._is_waiting:
                self._await_response(now)
            self._sequence += 1
            self._unsaid.clear()
            self._forgotten.clear()
            self._synced.clear()
            self._is_waiting = True
        else:
            self._is_waiting = False
            self._answer_by = Instant(now + NO_LINK_MS * MILLISECOND)
        self._arm()

    def reached(self) -> None:
        """The link is open: frames on the previous one are lost."""
        self._begin_session()
        self.fetch()

    def drained(self) -> None:
        """The link takes frames again."""
        if not self._is_waiting:
            self.fetch()

    def answered(self, answer: ReplicaFetchResponse) -> None:
        if answer.session != self._session or answer.sequence > self._sequence:
            if answer.session <= self._given_up:
                self._given_up = -1
                self._late = min(self._late + 1, DOUBLINGS_MAX)
            return
        is_one_missing = self._count_response(answer)
        went_back = False
        for row, batches in answer.rows:
            followed = self._followed.get(row.key)
            self._metrics.bytes_received.count += len(batches)
            if followed is not None and row.key not in self._resting:
                outcome = apply(followed, row, batches, self._verifier)
                went_back = went_back or outcome is ApplyResult.WENT_BACK
                self._settle(row.key, followed, outcome)
        if went_back or is_one_missing:
            # Frames with the old positions may still be in flight.
            self._begin_session()
        if not self._is_waiting or self._unsaid:
            self.fetch()

    def _count_response(self, answer: ReplicaFetchResponse) -> bool:
        """Note that a response has come; returns whether one before it is missing."""
        now = self._runtime.clock.now()
        if self._late and now - self._asked_at < self._patience_ns(self._late - 1):
            self._late -= 1
        if answer.sequence == self._sequence:
            self._is_waiting = False
        else:
            self._await_response(now)
        is_one_missing = answer.number > self._responses
        self._responses = max(self._responses, answer.number + 1)
        return is_one_missing

    def restarted(self, restart: RestartSession) -> None:
        """The leader does not know the session."""
        if restart.session == self._session:
            self._begin_session()
            self.fetch()

    def stop(self) -> None:
        for key, followed in list(self._followed.items()):
            self._let_go(key, followed)
        for timer in (self._timer, self._telling):
            if timer is not None:
                timer.cancel()

    def _settle(self, key: bytes, followed: FollowerPartition, outcome: ApplyResult) -> None:
        if followed.stopped:
            # Its log has failed, and takes no more writes.
            self._let_go(key, followed)
        elif outcome is ApplyResult.MOVED or outcome is ApplyResult.STALE:
            self._unsaid[key] = None
            # The leader begins with the first of a session: the next one begins with those that waited.
            self._followed[key] = self._followed.pop(key)
        elif outcome is ApplyResult.QUIET and self._said_starts.get(key) != followed.log.start:
            # By the leader's response, or by the retention of this node: the leader waits to hear of it.
            self._unsaid[key] = None
        elif outcome is ApplyResult.TROUBLE or outcome is ApplyResult.DAMAGED:
            if outcome is ApplyResult.DAMAGED:
                self._send(
                    encode_corrupt_batch_report(
                        CorruptBatchReport(key, followed.leader_epoch, followed.log.end)
                    )
                )
            deadline = Instant(self._runtime.clock.now() + self._trouble_ns)
            self._resting[key] = self._runtime.timers.at(deadline, lambda: self._rested(key))

    def _rested(self, key: bytes) -> None:
        """Fetch the partition again after its pause."""
        del self._resting[key]
        self._unsaid[key] = None
        self.fetch()

    def _take_up(self, key: bytes, followed: FollowerPartition) -> None:
        self._followed[key] = followed
        self._unsaid[key] = None
        self._forgotten.pop(key, None)
        followed.on_synced = lambda: self._has_synced(key)

    def _let_go(self, key: bytes, followed: FollowerPartition) -> None:
        del self._followed[key]
        followed.on_synced = None
        self._unsaid.pop(key, None)
        self._said_starts.pop(key, None)
        self._synced.pop(key, None)
        self._forgotten[key] = None
        if key in self._resting:
            self._resting.pop(key).cancel()

    def _row(self, key: bytes) -> ReplicaFetchPartition:
        followed = self._followed[key]
        log = followed.log
        last_epoch = log.epochs.epoch_at(Offset(log.end - 1))
        self._said_starts[key] = log.start
        return ReplicaFetchPartition(
            key, followed.leader_epoch, log.end, last_epoch, followed.synced, log.start
        )

    def _has_synced(self, key: bytes) -> None:
        """Report progress to the leader at the end of this turn, in one frame."""
        self._synced[key] = None
        # Also with the next fetch, since progress frames are not acknowledged.
        self._unsaid[key] = None
        if self._telling is None:
            self._telling = self._runtime.timers.soon(self._notify)

    def _notify(self) -> None:
        self._telling = None
        if self._synced and self._is_waiting:
            followed = self._followed
            rows = [
                FollowerProgressPartition(key, followed[key].leader_epoch, followed[key].synced)
                for key in self._synced
            ]
            self._synced.clear()
            self._progress_number += 1
            progress = FollowerProgress(self._broker_epoch, self._session, self._progress_number, rows)
            self._send(encode_progress(progress))

    def _begin_session(self) -> None:
        self._session += 1
        self._sequence = -1
        self._progress_number = 0
        self._responses = 0
        self._is_waiting = False
        self._forgotten.clear()
        self._unsaid = {key: None for key in self._followed if key not in self._resting}

    def _await_response(self, now: Instant) -> None:
        """Set the time by which a response has to come: one to any of the fetches under way."""
        self._asked_at = now
        self._answer_by = Instant(now + self._patience_ns(self._late))

    def _patience_ns(self, late: int) -> int:
        return self._fetch_wait_ns + (self._answer_timeout_ns << late)

    def _arm(self) -> None:
        """Set the one timer. It is not put off with every fetch, but checks again when it fires."""
        if self._timer is not None and self._answer_by < self._timer_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer_at = self._answer_by
            self._timer = self._runtime.timers.at(self._answer_by, self._fired)

    def _fired(self) -> None:
        self._timer = None
        if not self._followed:
            return
        now = self._runtime.clock.now()
        if now >= self._answer_by and self._is_waiting and self._is_receiving():
            self._await_response(now)
        if now < self._answer_by:
            self._arm()
            return
        if self._is_waiting:
            self._given_up = self._session
            events.info("replica.fetch_timeout", peer=self._node, session=self._session)
        self._begin_session()
        self.fetch()
