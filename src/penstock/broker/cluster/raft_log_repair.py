"""Repairs the raft log of a running member: what the disk has lost is in memory still.

    scrub finds damage ──► draft of the segment: good parts copied by a thread,
                           damaged ones written from the entries in memory ──► put in place

Nothing was lost: the member has acknowledged these entries and can send them, so it neither doubts its log
nor steps down. If it ends before the repair does, the next start finds the damage and doubts it (see
`raft_recovery`).

Entries that are not in memory any more are covered by a snapshot: the log then starts behind them.
"""

from collections.abc import Callable
from functools import partial

from penstock.broker.cluster.raft_recovery import TOPIC_ID
from penstock.broker.cluster.raft_storage import RaftStorage
from penstock.broker.partitions import SegmentVerifier, VerificationResult
from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.model import (
    SECOND,
    CorruptionError,
    Instant,
    Offset,
    PartitionIndex,
    PenstockError,
    TopicName,
    TopicPartition,
)
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime, Timer
from penstock.storage.disk import Disk
from penstock.storage.log import GoodBytes, MissingRange, PartitionLog, SegmentDraft

NAME = TopicPartition(TopicName(METADATA_TOPIC), PartitionIndex(0))
TOKEN_BYTES = 8
RETRY_NS = 5 * SECOND
UNLIMITED = 2**63 - 1


class RaftLogRepair:
    """The raft log as the scrub sees it, and its repair."""

    name = NAME
    topic_id = TOPIC_ID

    def __init__(self, runtime: Runtime, side_disk: Disk, store: RaftStorage) -> None:
        self._runtime = runtime
        self._disk = side_disk
        self._store = store
        self._verifier = SegmentVerifier(runtime)
        self._draft: SegmentDraft | None = None
        self._is_busy = False
        self._is_closed = False
        self._timer: Timer | None = None

    @property
    def log(self) -> PartitionLog:
        return self._store.log

    def on_damage(self) -> None:
        """Damage was found in the log."""
        if not self._is_busy and not self._is_closed:
            self._is_busy = True
            self._begin()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        if self._is_closed:
            return
        try:
            self._drop_old()
            token = self._runtime.entropy.bytes(TOKEN_BYTES).hex()
            self._draft = self.log.begin_refill(token, may_have_gaps=False)
        except PenstockError as error:
            self._failed(error)
            return
        if self._draft is not None:
            self._next(self._draft)
            return
        self._is_busy = False
        events.warning("quorum.log_repaired", start=self.log.start, end=self.log.end)

    def _drop_old(self) -> None:
        """Have the log start behind damaged entries that a snapshot covers. Blocks if there are any."""
        in_memory = Offset(self._store.first - 1)
        if any(damage.start < in_memory for damage in self.log.corruption) and self.log.start < in_memory:
            events.warning("quorum.old_entries_dropped", up_to=int(in_memory), reason="they are damaged")
            self.log.delete_records(in_memory)

    def _next(self, draft: SegmentDraft) -> None:
        in_memory = Offset(self._store.first - 1)
        match draft.next:
            case GoodBytes():
                self._work(draft, partial(draft.copy, self._disk), self._next)
            case MissingRange(start, _) if start < in_memory:
                draft.deleted_before(in_memory)
                self._next(draft)
            case MissingRange(start, _) if start >= self.log.end:
                # A leader has had it cut meanwhile.
                self._cancel(draft)
                self._begin()
            case MissingRange(start, end):
                batches = self._store.encode(start, min(end, self.log.end), self._runtime.clock.wall())
                self._work(draft, partial(draft.add, self._disk, batches), self._next)
            case None:
                self._work(draft, partial(draft.seal, self._disk), self._put_in_place)

    def _work(
        self, draft: SegmentDraft, work: Callable[[], None], then: Callable[[SegmentDraft], None]
    ) -> None:
        def worked(_: None) -> None:
            if not self._is_closed:
                then(draft)

        def failed(error: Exception) -> None:
            self._cancel(draft)
            if isinstance(error, CorruptionError) and not self._is_closed:
                # More is damaged than was known.
                self._look_again(draft, error)
            else:
                self._failed(error)

        self._runtime.spawn.spawn(work, worked, failed, ExecutorKind.DISK)

    def _put_in_place(self, draft: SegmentDraft) -> None:
        self._draft = None
        try:
            is_done = self.log.finish_refill(draft)
        except PenstockError as error:
            self._failed(error)
            return
        if not is_done:
            # Something was cut or deleted meanwhile.
            self._cancel(draft)
        self._begin()

    def _look_again(self, draft: SegmentDraft, error: Exception) -> None:
        try:
            verification = self.log.verification_at(draft.base_offset, limit_bytes=UNLIMITED)
        except PenstockError as refused:
            self._failed(refused)
            return

        def verified(_: VerificationResult | None) -> None:
            self._failed(error)

        if verification is None:
            self._failed(error)
        else:
            self._verifier.verify(self, verification, verified)

    def _failed(self, error: Exception) -> None:
        """Begin anew after a while."""
        self._draft = None
        events.warning("quorum.log_repair_failed", error=error)
        if not self._is_closed:
            deadline = Instant(self._runtime.clock.now() + RETRY_NS)
            self._timer = self._runtime.timers.at(deadline, self._begin)

    def _cancel(self, draft: SegmentDraft) -> None:
        self._runtime.spawn.spawn(partial(draft.cancel, self._disk), _ignore, _ignore, ExecutorKind.DISK)


def _ignore(_: object) -> None:
    """Do nothing: files that could not be removed are removed at the next start."""
