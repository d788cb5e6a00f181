"""Fills the damaged ranges of a log with the records of other replicas, segment by segment.

    draft of the segment ── a good part ──► copied by a thread ─────────────────────┐
            ▲               a damaged one ► RangeFetch to a replica ► written by a thread ─┤
            └──────────────────────────────────────────────────────────────────────┘
                            nothing left ─► sealed by a thread ► put in place ► the next segment
            no segment left ─► producers rebuilt by threads, if the log was opened without these records

The leader is asked first, then the other replicas: each has what is below its high watermark, and the
offsets and epochs of what it sends must be those that this log has had there. Replicas that cannot help
now are asked again later; meanwhile this one does not follow, so that nobody relies on it.

Where the leader has other records, or none, those of this log were never committed: the log is cut in front
of the damage, as a follower's is that differs from the leader's.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.broker.cluster.peers import Peer
from penstock.broker.partitions import (
    FollowerPartition,
    LeaderPartition,
    Replica,
    ReplicaManager,
    SegmentVerifier,
    VerificationResult,
)
from penstock.broker.replication.fetch_server import ReplicationThrottle
from penstock.broker.replication.protocol import (
    RangeFetch,
    RangeFetchResponse,
    ReplicaFetchStatus,
    encode_range_fetch,
    encode_range_response,
    key_of,
    partition_of,
)
from penstock.core.model import (
    MILLISECOND,
    CorruptionError,
    Instant,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.observability import log as events
from penstock.runtime import Buffer, ExecutorKind, Runtime, Timer
from penstock.storage.disk import Disk
from penstock.storage.log import GoodBytes, MissingRange, OtherRecords, ProducerRebuild, SegmentDraft

NO_BYTES = b""
ANSWER_MS = 3_000
# After every replica was asked in vain, or the disk refused.
PAUSE_MS = 1_000
TOKEN_BYTES = 8


class SegmentRefill:
    """The repair of one followed partition. Stops by itself when nothing is damaged any more."""

    def __init__(  # noqa: PLR0913 - what it reads, whom it asks, and whom it tells
        self,
        runtime: Runtime,
        side_disk: Disk,
        followed: FollowerPartition,
        sources: Callable[[], Sequence[NodeId]],
        send: Callable[[NodeId, Buffer], bool],
        done: Callable[[], None],
        *,
        may_have_gaps: bool,
    ) -> None:
        self._runtime = runtime
        self._disk = side_disk
        self.followed = followed
        self._key = key_of(followed.topic_id, followed.name.partition)
        self._sources = sources
        self._send = send
        self._done = done
        self._may_have_gaps = may_have_gaps
        self._draft: SegmentDraft | None = None
        self._rebuild: ProducerRebuild | None = None
        self._is_working = False
        self._number = 0
        # How many replicas were asked in vain since something was last written.
        self._in_vain = 0
        self._asked: NodeId | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        ranges = [(damage.start, damage.end) for damage in self.followed.log.corruption]
        events.info("partition.refill_started", partition=str(self.followed.name), ranges=ranges)
        self._begin()

    def stop(self) -> None:
        """Give up: the role has ended."""
        self._is_stopped = True
        self._set_timer(None)
        unfinished = self._draft or self._rebuild
        if unfinished is not None and not self._is_working:
            self._discard(unfinished)

    def answered(self, node: NodeId, response: RangeFetchResponse) -> None:
        """A replica has responded."""
        draft = self._draft
        if self._is_stopped or draft is None or self._is_working or self._asked != node:
            return
        if response.number != self._number:
            return
        self._asked = None
        self._set_timer(None)
        if response.status == ReplicaFetchStatus.OK and len(response.batches):
            # The frame's buffer is used again after this call.
            self._work(partial(draft.add, self._disk, bytes(response.batches)), source=node)
        elif response.status == ReplicaFetchStatus.OK and draft.nothing_more(
            self.followed.log.high_watermark
        ):
            self._next()
        elif response.status == ReplicaFetchStatus.OK and node == self.followed.leader:
            # It has a batch there that reaches beyond the range: another one than ours was.
            self._cut(draft)
        elif response.status == ReplicaFetchStatus.OUT_OF_RANGE and node == self.followed.leader:
            draft.deleted_before(Offset(response.log_start))
            self._next()
        elif response.status == ReplicaFetchStatus.DIVERGED and node == self.followed.leader:
            self._cut(draft)
        else:
            self._ask_another()

    def _begin(self) -> None:
        if self._is_stopped:
            return
        token = self._runtime.entropy.bytes(TOKEN_BYTES).hex()
        try:
            self._draft = self.followed.log.begin_refill(token, may_have_gaps=self._may_have_gaps)
            if self._draft is None:
                self._rebuild = self.followed.log.begin_producer_rebuild(token)
        except StorageError as error:
            self._failed(error)
            return
        if self._draft is not None:
            self._next()
            return
        if self._rebuild is not None:
            self._rebuild_more()
            return
        self._is_stopped = True
        events.warning("partition.repaired", partition=str(self.followed.name), end=self.followed.log.end)
        self._done()

    def _next(self) -> None:
        draft = self._draft
        assert draft is not None
        match draft.next:
            case GoodBytes():
                self._work(partial(draft.copy, self._disk))
            case MissingRange() as missing:
                self._ask(missing)
            case None:
                self._work(partial(draft.seal, self._disk), self._put_in_place)

    def _rebuild_more(self) -> None:
        rebuild = self._rebuild
        assert rebuild is not None
        if not rebuild.is_done:
            self._work(partial(rebuild.work, self._disk), self._rebuild_more)
            return
        self._rebuild = None
        self._finish(rebuild, partial(self.followed.finish_producer_rebuild, rebuild))

    def _work(
        self,
        work: Callable[[], None],
        then: Callable[[], None] | None = None,
        *,
        source: NodeId | None = None,
    ) -> None:
        """Have a thread do something with the draft, or with what `source` sent."""
        draft = self._draft or self._rebuild

        def worked(_: None) -> None:
            self._is_working = False
            if self._is_stopped:
                assert draft is not None
                self._discard(draft)
                return
            self._in_vain = 0
            (then or self._next)()

        def failed(error: Exception) -> None:
            self._is_working = False
            assert draft is not None
            if self._is_stopped:
                self._discard(draft)
            elif isinstance(error, OtherRecords) and source == self.followed.leader:
                assert isinstance(draft, SegmentDraft)
                self._cut(draft)
            elif isinstance(error, CorruptionError) and source is not None:
                events.warning("partition.refill_rejected", partition=str(self.followed.name), error=error)
                self._ask_another()
            else:
                self._begin_anew(draft, error)

        self._is_working = True
        self._runtime.spawn.spawn(work, worked, failed, ExecutorKind.DISK)

    def _put_in_place(self) -> None:
        draft, self._draft = self._draft, None
        assert draft is not None
        self._finish(draft, partial(self.followed.finish_refill, draft))

    def _finish(self, draft: SegmentDraft | ProducerRebuild, finish: Callable[[], bool]) -> None:
        try:
            is_done = finish()
        except PenstockError as error:
            self._discard(draft)
            self._failed(error)
            return
        if is_done:
            self._begin()
        else:
            # Something was cut or deleted meanwhile, or more is damaged.
            self._discard(draft)
            self._later(PAUSE_MS, self._begin)

    def _failed(self, error: Exception) -> None:
        """Begin anew after a pause, unless the log takes no more writes."""
        events.warning("partition.refill_failed", partition=str(self.followed.name), error=error)
        if self.followed.stopped:
            self.stop()
        else:
            self._later(PAUSE_MS, self._begin)

    def _cut(self, draft: SegmentDraft) -> None:
        """Cut the log in front of damage in what the leader does not have."""
        followed, missing = self.followed, draft.next
        log = followed.log
        assert isinstance(missing, MissingRange)
        before = [damage for damage in log.corruption if damage.start <= missing.start]
        self._draft = None
        self._discard(draft)
        if not before:
            # It was deleted meanwhile.
            self._begin()
            return
        damage = max(before, key=lambda one: one.start)
        try:
            # What is damaged goes with it, also if some of it was committed; nothing else that was.
            end = followed.truncate_to(max(damage.start, min(log.high_watermark, Offset(damage.end - 1))))
        except PenstockError as error:
            self._failed(error)
            return
        events.warning("partition.refill_cut", partition=str(followed.name), end=end)
        self._begin()

    def _begin_anew(self, draft: SegmentDraft | ProducerRebuild, error: Exception) -> None:
        """More is damaged than was known, or the disk is full: look again, after a pause."""
        events.warning("partition.refill_failed", partition=str(self.followed.name), error=error)
        self._draft = self._rebuild = None
        self._discard(draft)
        try:
            verification = self.followed.log.verification_at(draft.base_offset, limit_bytes=2**63 - 1)
        except StorageError as refused:
            self._failed(refused)
            return

        def verified(_: VerificationResult | None) -> None:
            self._later(PAUSE_MS, self._begin)

        if verification is None:
            self._later(PAUSE_MS, self._begin)
        else:
            SegmentVerifier(self._runtime).verify(self.followed, verification, verified)

    def _ask(self, missing: MissingRange) -> None:
        sources = self._sources()
        if not sources:
            self._later(PAUSE_MS, self._next)
            return
        self._asked = sources[self._in_vain % len(sources)]
        self._number += 1
        fetch = RangeFetch(self._key, self._number, missing.start, missing.end)
        self._later(ANSWER_MS, self._ask_another)
        if not self._send(self._asked, encode_range_fetch(fetch)):
            self._ask_another()

    def _ask_another(self) -> None:
        self._asked = None
        self._in_vain += 1
        is_round_over = self._in_vain % max(1, len(self._sources())) == 0
        self._later(PAUSE_MS if is_round_over else 0, self._next)

    def _discard(self, draft: SegmentDraft | ProducerRebuild) -> None:
        self._runtime.spawn.spawn(partial(draft.cancel, self._disk), _ignore, _ignore, ExecutorKind.DISK)

    def _later(self, pause_ms: int, act: Callable[[], None]) -> None:
        deadline = Instant(self._runtime.clock.now() + pause_ms * MILLISECOND)
        self._set_timer(None if self._is_stopped else self._runtime.timers.at(deadline, act))

    def _set_timer(self, timer: Timer | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


class RangeFetchServer:
    """Serves committed records to replicas that repair their logs; this one may lead or follow."""

    def __init__(
        self, runtime: Runtime, partitions: ReplicaManager, bytes_max: int, throttle: ReplicationThrottle
    ) -> None:
        self._partitions = partitions
        self._bytes_max = bytes_max
        self._throttle = throttle
        self._verifier = SegmentVerifier(runtime)

    def fetch(self, peer: Peer, fetch: RangeFetch) -> None:
        """Respond now, or after a verification."""
        replica = self._partitions.find_replica(*partition_of(fetch.key))
        if replica is not None and isinstance(replica.role, LeaderPartition) and fetch.end > replica.log.end:
            # A leader has everything that was ever committed.
            self._answer(peer, fetch, ReplicaFetchStatus.DIVERGED)
        elif replica is None or replica.log.stopped is not None or fetch.end > replica.log.high_watermark:
            # It may ask again: perhaps more is known to be committed then.
            self._answer(peer, fetch, ReplicaFetchStatus.FENCED)
        elif fetch.start < replica.log.start:
            self._answer(peer, fetch, ReplicaFetchStatus.OUT_OF_RANGE, replica.log.start)
        else:
            try:
                self._read(peer, fetch, replica)
            except PenstockError as error:
                events.warning("replication.range_not_readable", partition=str(replica.name), error=error)
                self._answer(peer, fetch, ReplicaFetchStatus.DAMAGED, replica.log.start)

    def _read(self, peer: Peer, fetch: RangeFetch, replica: Replica) -> None:
        log = replica.log
        ranges = log.read(Offset(fetch.start), self._bytes_max, end=Offset(fetch.end)).ranges
        if not ranges:
            self._answer(peer, fetch, ReplicaFetchStatus.OK, log.start)
            return
        verification = None if ranges[0].is_servable() else log.verification(ranges[0])
        if verification is None:
            self._answer(peer, fetch, ReplicaFetchStatus.OK, log.start, ranges[0].to_bytes())
            return

        def verified(result: VerificationResult | None) -> None:
            try:
                content = NO_BYTES if result is None or not result.is_whole else ranges[0].to_bytes()
            except PenstockError:
                content = NO_BYTES
            status = ReplicaFetchStatus.OK if content else ReplicaFetchStatus.DAMAGED
            self._answer(peer, fetch, status, log.start, content)

        self._verifier.verify(replica, verification, verified)

    def _answer(
        self, peer: Peer, fetch: RangeFetch, status: ReplicaFetchStatus, start: int = 0, content: bytes = b""
    ) -> None:
        """Respond; if the link does not take it, the other side asks again."""
        response = RangeFetchResponse(fetch.key, fetch.number, status, start, content)
        if peer.send(*encode_range_response(response)):
            self._throttle.spend(len(content))


def _ignore(_: object) -> None:
    """Do nothing: files that could not be removed are removed at the next start."""
