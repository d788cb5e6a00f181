"""The follower's side: fetching from one leader node what it has of the partitions it leads.

One fetch is on its way at a time, for all partitions together. Each fetch names the partitions whose
position or synced position has changed since the last one. Nothing is assumed of an answer: it
names the position that it answers, and is good if that is still where the log ends. A fetch
that is not answered in time, or turned away, makes the session begin anew with all partitions.

When partitions come or go, a fetch is sent at once, whether or not one is on its way: the leader
answers the last one it got. A partition that has just got a new leader does not wait for a
long poll to end. But the leader may have answered the earlier one too, and if that answer got lost,
the leader waits for a move that never comes: so a session in which a fetch was overtaken and not
answered is not trusted for long.
"""

import enum
from collections.abc import Callable, Mapping

from penstock.broker.partitions import FollowerPartition
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
from penstock.storage.log import OffsetsNotIncreasing

# A link that is not there is tried again after this; the hub tells when it opens.
NO_LINK_MS = 500


class ApplyResult(enum.Enum):
    """How a partition fares after an answer."""

    QUIET = enum.auto()
    # Its position is another one: the leader must be told.
    MOVED = enum.auto()
    # Likewise, and some of what it had is gone.
    WENT_BACK = enum.auto()
    # As before, and not as the leader thinks: it must be told again.
    STALE = enum.auto()
    # Something is wrong here or there: better to wait a while.
    TROUBLE = enum.auto()
    # What came was damaged, on the leader's disk most likely, since links check what they carry.
    DAMAGED = enum.auto()


def apply(
    followed: FollowerPartition, answer: ReplicaFetchResponsePartition, batches: memoryview
) -> ApplyResult:
    """Bring the log where the leader's answer says."""
    if answer.leader_epoch != followed.leader_epoch or answer.position != followed.log.end:
        # Sent before the leader knew where we are by now, which it was told, or is about to be. To tell
        # it once more would bring another such answer, and so on.
        return ApplyResult.QUIET
    if answer.status == ReplicaFetchStatus.FENCED:
        # Our metadata will say so too, before long.
        return ApplyResult.QUIET
    try:
        return _obey(followed, answer, batches)
    except StorageError as error:
        events.error("replica.append_failed", partition=str(followed.name), error=error)
    except (CorruptionError, OffsetsNotIncreasing) as error:
        events.warning("replica.corrupt_batch_received", partition=str(followed.name), error=error)
        return ApplyResult.DAMAGED
    except PenstockError as error:
        # The role is over, say.
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
    # The leader has checked them when they came in; since then they were on its disk and on the wire.
    headers = check_batches(batches, compacted=True)
    last = headers[-1]
    if last.next_offset > answer.end or last.leader_epoch > answer.leader_epoch:
        # Both stand outside the CRC, and there may be holes between offsets: this is all that is certain.
        raise CorruptBatch(
            f"offset {last.last_offset} of epoch {last.leader_epoch} is not in the leader's log"
        )
    _make_room(followed, headers)
    followed.append(batches, headers)
    return ApplyResult.MOVED


def _make_room(followed: FollowerPartition, headers: list[BatchHeader]) -> None:
    """An empty log that begins within the leader's first batch begins with that batch instead.

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
        # Never true of two logs that have a beginning in common.
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
        # It is in range by now.
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

    def __init__(
        self,
        runtime: Runtime,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        send: Callable[[Buffer], bool],
        options: ReplicationOptions,
        metrics: ReplicationMetrics,
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._broker_epoch = broker_epoch
        self._send = send
        self._metrics = metrics
        self._answer_ns = (options.fetch_wait_ms + options.answer_timeout_ms) * MILLISECOND
        self._trouble_ns = options.trouble_ms * MILLISECOND
        self._followed: dict[bytes, FollowerPartition] = {}
        self._session = 0
        self._sequence = -1
        self._progress_number = 0
        # Partitions that the leader does not know as they are, or not at all, or need not know.
        self._unsaid: dict[bytes, None] = {}
        self._forgotten: dict[bytes, None] = {}
        self._resting: dict[bytes, Timer] = {}
        self._synced: dict[bytes, None] = {}
        self._is_waiting = False
        # Fetches that another one followed before they were answered, and how long that is put up with.
        self._overtaken: dict[int, None] = {}
        self._doubt_from = Instant(0)
        self._answer_by = Instant(0)
        self._timer: Timer | None = None
        self._telling: Timer | None = None
        self._begin_session()

    def set_partitions(self, followed: Mapping[bytes, FollowerPartition]) -> None:
        """These are the partitions that the node leads."""
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
        """Send a fetch now, whatever is on its way."""
        if not self._followed and not self._forgotten:
            self._is_waiting = False
            return
        rows = [self._row(key) for key in self._unsaid if key in self._followed]
        fetch = ReplicaFetch(
            self._broker_epoch, self._session, self._sequence + 1, rows, list(self._forgotten)
        )
        now = self._runtime.clock.now()
        if self._send(encode_fetch(fetch)):
            if self._is_waiting:
                self._overtake(now)
            self._sequence += 1
            self._unsaid.clear()
            self._forgotten.clear()
            self._synced.clear()
            self._is_waiting = True
            self._answer_by = Instant(now + self._answer_ns)
        else:
            self._is_waiting = False
            self._answer_by = Instant(now + NO_LINK_MS * MILLISECOND)
        self._arm()

    def reached(self) -> None:
        """The link is there (again): what was on the old one is lost."""
        self._begin_session()
        self.fetch()

    def drained(self) -> None:
        """The link takes frames again."""
        if not self._is_waiting:
            self.fetch()

    def answered(self, answer: ReplicaFetchResponse) -> None:
        if answer.session != self._session or answer.sequence > self._sequence:
            return
        self._overtaken.pop(answer.sequence, None)
        if answer.sequence == self._sequence:
            self._is_waiting = False
        went_back = False
        for row, batches in answer.rows:
            followed = self._followed.get(row.key)
            self._metrics.bytes_received.count += len(batches)
            if followed is not None and row.key not in self._resting:
                outcome = apply(followed, row, batches)
                went_back = went_back or outcome is ApplyResult.WENT_BACK
                self._settle(row.key, followed, outcome)
        if went_back:
            # What was said before is no longer true, and may still be on its way.
            self._begin_session()
        if not self._is_waiting or self._unsaid:
            self.fetch()

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
            # Its log has failed, and takes nothing any more.
            self._let_go(key, followed)
        elif outcome is ApplyResult.MOVED or outcome is ApplyResult.STALE:
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
        """Perhaps the trouble is over."""
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
        self._synced.pop(key, None)
        self._forgotten[key] = None
        if key in self._resting:
            self._resting.pop(key).cancel()

    def _row(self, key: bytes) -> ReplicaFetchPartition:
        followed = self._followed[key]
        log = followed.log
        last_epoch = log.epochs.epoch_at(Offset(log.end - 1))
        return ReplicaFetchPartition(key, followed.leader_epoch, log.end, last_epoch, followed.synced)

    def _has_synced(self, key: bytes) -> None:
        """Tell the leader soon: what was synced in one turn goes into one frame."""
        self._synced[key] = None
        # Also with the next fetch, since nobody answers what is said here.
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
        self._is_waiting = False
        self._overtaken.clear()
        self._forgotten.clear()
        self._unsaid = {key: None for key in self._followed if key not in self._resting}

    def _overtake(self, now: Instant) -> None:
        if not self._overtaken:
            self._doubt_from = Instant(now + self._answer_ns)
        self._overtaken[self._sequence] = None

    def _arm(self) -> None:
        """One timer. It is not moved with every fetch, but looks again when it fires."""
        if self._timer is None:
            self._timer = self._runtime.timers.at(self._answer_by, self._fired)

    def _fired(self) -> None:
        self._timer = None
        if not self._followed:
            return
        now = self._runtime.clock.now()
        is_doubtful = bool(self._overtaken) and now >= self._doubt_from
        if now < self._answer_by and not is_doubtful:
            self._arm()
            return
        if self._is_waiting and not is_doubtful:
            events.info("replica.fetch_timeout", peer=self._node, session=self._session)
        self._begin_session()
        self.fetch()
