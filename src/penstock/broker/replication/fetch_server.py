"""The leader's side of replication: serves the fetches of followers.

A session belongs to one follower node. It starts with a fetch that names every partition and continues
with fetches that name those whose position changed. `number` and `sequence` only grow, so that late and
duplicate frames are recognised; a gap means that a frame was lost, and the session has to start again.

A leader verifies what it sends as it does for consumers (see `broker.fetch`). A follower that gets something
damaged all the same reports it, and the leader verifies that segment, a little at a time. Damaged ranges are
refused to readers from then on, and the replica resigns (see `broker.partitions`); the next leader has an
intact copy.
"""

from collections.abc import Callable
from functools import partial

from penstock.broker.cluster.peers import Peer
from penstock.broker.partitions import (
    LeaderPartition,
    ReplicaManager,
    SegmentVerifier,
    VerificationResult,
)
from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions
from penstock.broker.replication.protocol import (
    CorruptBatchReport,
    FollowerProgress,
    ReplicaFetch,
    ReplicaFetchPartition,
    ReplicaFetchResponsePartition,
    ReplicaFetchStatus,
    RestartSession,
    encode_response,
    encode_restart,
    partition_of,
)
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    BrokerEpoch,
    CorruptionError,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.core.replica import diverging_epoch
from penstock.observability import log as events
from penstock.runtime import Buffer, Runtime, Timer
from penstock.storage.log import DamagedRange, FileRange, PartitionLog

# No sequence follows this: the next fetch has to start a session.
ENDED = -2
NEVER_TOLD = -1
UNLIMITED = 2**63 - 1
NO_BYTES = b""
NO_EPOCH = -1
# Batches that are encrypted on disk are opened on the loop before they are sent: an answer has fewer of them.
SEALED_WEIGHT = 4
# A link whose buffer is full is tried again, at first after longer and longer pauses: ten seconds in all.
FULL_LINK_MS, FULL_LINK_DOUBLINGS_MAX = 4, 6
FULL_LINK_TRIES = 45
# A follower that was silent for this long is gone, or follows others now.
SILENCE_NS = 60 * SECOND
# How often followers outside the ISR that do not move are checked, and how many in one turn of the loop:
# there may be thousands.
OUTSIDE_NS = 250 * MILLISECOND
OUTSIDE_AT_ONCE = 256
# After this many idle rounds, all partitions are checked for a log start that moved.
ROUNDS_BETWEEN_LOOKS = 10


class FollowerSessionPartition:
    """One partition that a follower fetches."""

    __slots__ = (
        "_more",
        "is_sent",
        "is_warming",
        "key",
        "last_epoch",
        "leader_epoch",
        "log_start",
        "partition",
        "position",
        "synced",
        "told_start",
        "told_watermark",
        "verdict",
        "verified",
    )

    def __init__(self, key: bytes, more: Callable[["FollowerSessionPartition"], None]) -> None:
        self.key = key
        self._more = more
        self.leader_epoch = self.position = self.last_epoch = self.synced = self.log_start = -1
        # None while this node does not lead it in the follower's epoch: then it waits.
        self.partition: LeaderPartition | None = None
        # What is wrong with the position; such a position does not count as a prefix of our log.
        self.verdict: tuple[ReplicaFetchStatus, int, int] | None = None
        self.told_watermark = self.told_start = NEVER_TOLD
        # Whether batches are on their way: before the follower has said where it is, it would get the same.
        self.is_sent = False
        self.is_warming = False
        # The range that was read and verified last, to be sent next.
        self.verified: tuple[object, int, int] | None = None

    def on_fetch(self, said: ReplicaFetchPartition) -> None:
        """Take over the follower's position."""
        self.is_sent = False
        _, self.leader_epoch, self.position, self.last_epoch, self.synced, self.log_start = said

    def attach(self, partition: LeaderPartition | None) -> None:
        """Watch this partition, and no other."""
        if partition is self.partition:
            return
        if self.partition is not None:
            self.partition.unwatch_end(self.woken)
        self.partition = partition
        self.told_watermark = self.told_start = NEVER_TOLD
        if partition is not None:
            partition.watch_end(self.woken)

    def woken(self) -> None:
        """There is more in the log."""
        self._more(self)

    @property
    def has_news(self) -> bool:
        """Whether high watermark or log start differ from what was last sent."""
        partition = self.partition
        return partition is not None and (
            partition.isr.high_watermark != self.told_watermark or partition.log.start != self.told_start
        )

    def answered(
        self, status: ReplicaFetchStatus, epoch: int = -1, end: int = -1
    ) -> ReplicaFetchResponsePartition:
        """The response row for the follower."""
        partition = self.partition
        if partition is None:
            return ReplicaFetchResponsePartition(
                self.key, status, self.leader_epoch, self.position, 0, 0, epoch, end
            )
        watermark, start = partition.isr.high_watermark, partition.log.start
        return ReplicaFetchResponsePartition(
            self.key, status, self.leader_epoch, self.position, watermark, start, epoch, end
        )

    def on_sent(self, row: ReplicaFetchResponsePartition) -> None:
        """The follower was sent this."""
        if self.partition is not None:
            self.told_watermark, self.told_start = row.high_watermark, row.log_start


class FollowerSession:
    """One follower node."""

    __slots__ = (
        "broker_epoch",
        "deadline",
        "heard_at",
        "is_waking",
        "news_at",
        "node",
        "number",
        "outside",
        "outside_at",
        "pending",
        "progress_number",
        "ready",
        "responses",
        "rows",
        "sequence",
        "timer",
        "turned_away",
        "unsettled",
    )

    def __init__(self, node: NodeId, first: ReplicaFetch) -> None:
        self.node = node
        self.broker_epoch = first.broker_epoch
        self.number = first.session
        self.sequence = first.sequence - 1
        self.progress_number = -1
        # How many responses it was sent.
        self.responses = 0
        self.rows: dict[bytes, FollowerSessionPartition] = {}
        # Partitions that may have something to send, the longest-waiting first.
        self.ready: dict[FollowerSessionPartition, None] = {}
        # Partitions whose follower does not know yet that all it has is below the high watermark.
        self.unsettled: dict[FollowerSessionPartition, None] = {}
        # Partitions whose follower is not in the ISR: any fetch may change that, even one without them.
        self.outside: dict[FollowerSessionPartition, None] = {}
        # The fetch that waits for a response, if there is one.
        self.pending: Peer | None = None
        self.deadline = self.heard_at = self.news_at = self.outside_at = Instant(0)
        # How often in a row its link did not take the response.
        self.turned_away = 0
        self.timer: Timer | None = None
        self.is_waking = False

    def is_older_than(self, broker_epoch: int, number: int) -> bool:
        return (self.broker_epoch, self.number) < (broker_epoch, number)

    def forget(self, key: bytes) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            row.attach(None)
            self.ready.pop(row, None)
            self.unsettled.pop(row, None)
            self.outside.pop(row, None)

    def end(self) -> None:
        """End the session. Its number is kept, so that a late frame does not revive it."""
        for key in list(self.rows):
            self.forget(key)
        self.pending = None
        self.sequence = ENDED
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReplicationThrottle:
    """A limit in bytes per second; a sender may overdraw once, and then waits until it is paid back."""

    def __init__(self, runtime: Runtime, bytes_per_second: int = UNLIMITED) -> None:
        self._runtime = runtime
        self._rate = bytes_per_second
        self._free_at = runtime.clock.now()
        self._waiting: dict[object, Callable[[], None]] = {}
        self._timer: Timer | None = None

    def configure(self, bytes_per_second: int) -> None:
        """Switch to another rate."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._free_at = self._runtime.clock.now()
            self._notify()

    def has_room(self, asker: object, tell: Callable[[], None]) -> bool:
        """Return whether something may be sent now; if not, `tell` is called when it may, once per asker."""
        now = self._runtime.clock.now()
        if self._free_at <= now:
            return True
        self._waiting[asker] = tell
        if self._timer is None:
            self._timer = self._runtime.timers.at(self._free_at, self._notify)
        return False

    def spend(self, size_bytes: int) -> None:
        now = self._runtime.clock.now()
        # Unused allowance expires: a pause must not become a burst.
        self._free_at = Instant(max(self._free_at, now) + size_bytes * SECOND // self._rate)

    def _notify(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for tell in waiting.values():
            tell()


class ResponseBuilder:
    """Reads for followers. Sending changes no state: only the next fetch shows what arrived."""

    def __init__(
        self,
        runtime: Runtime,
        options: ReplicationOptions,
        throttle: ReplicationThrottle,
        verifier: SegmentVerifier,
        wake: Callable[[FollowerSession], None],
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._throttle = throttle
        self._verifier = verifier
        self._wake = wake

    def collect(
        self, session: FollowerSession, *, time_is_up: bool
    ) -> tuple[list[ReplicaFetchResponsePartition], list[Buffer]]:
        """Rows and their batches; without any, the fetch should wait."""
        rows: list[ReplicaFetchResponsePartition] = []
        contents: list[Buffer] = []
        left = self._options.answer_bytes_max
        for row in list(session.ready):
            if left <= 0:
                break
            if row.is_warming:
                continue
            answer, content = self._read(session, row, left)
            if answer is None:
                continue
            rows.append(answer)
            contents.append(content)
            left -= len(content)
            if content and row.partition is not None and row.partition.log.is_sealed:
                left -= (SEALED_WEIGHT - 1) * len(content)
        now = self._runtime.clock.now()
        if time_is_up or (rows and now >= session.news_at):
            session.news_at = Instant(now + self._options.fetch_wait_ms * MILLISECOND)
            self._collect_news(session, rows, contents)
        return rows, contents

    def sent(
        self, session: FollowerSession, rows: list[ReplicaFetchResponsePartition], contents: list[Buffer]
    ) -> None:
        """The response was sent: these rows have nothing to send until the follower has moved."""
        for answer, content in zip(rows, contents, strict=True):
            row = session.rows[answer.key]
            row.on_sent(answer)
            session.ready.pop(row, None)
            row.is_sent = bool(content)
            if _is_catching_up(session, row):
                self._throttle.spend(len(content))

    def _read(
        self, session: FollowerSession, row: FollowerSessionPartition, left: int
    ) -> tuple[ReplicaFetchResponsePartition | None, Buffer]:
        if row.verdict is not None:
            return row.answered(*row.verdict), NO_BYTES
        partition = row.partition
        if partition is None or partition.stopped is not None or row.position >= partition.log.end:
            if partition is not None and partition.stopped is None and _is_urgent(row, partition):
                return row.answered(ReplicaFetchStatus.OK, end=partition.log.end), NO_BYTES
            del session.ready[row]
            return None, NO_BYTES
        if _is_catching_up(session, row) and not self._throttle.has_room(
            session, partial(self._wake, session)
        ):
            return None, NO_BYTES
        try:
            limit = min(left, self._options.partition_bytes_max)
            if partition.log.is_sealed:
                limit = min(limit, self._options.partition_bytes_max // SEALED_WEIGHT)
            ranges = partition.log.read(Offset(row.position), limit).ranges
            if not ranges or not self._is_verified(session, row, partition, ranges[0]):
                return None, NO_BYTES
            content = ranges[0].to_bytes()
        except PenstockError as error:
            return self._unreadable(row, partition, error), NO_BYTES
        session.unsettled[row] = None
        return row.answered(ReplicaFetchStatus.OK, end=partition.log.end), content

    def _is_verified(
        self,
        session: FollowerSession,
        row: FollowerSessionPartition,
        partition: LeaderPartition,
        piece: FileRange,
    ) -> bool:
        """Whether the range may be sent; if not, a thread reads and verifies it first."""
        place = (piece.file, piece.position, piece.length)
        if row.verified == place or piece.is_servable():
            row.verified = None
            return True
        verification = partition.log.verification(piece)
        assert verification is not None, "nothing has changed since the read"

        def ready(result: VerificationResult | None) -> None:
            row.is_warming = False
            if result is not None and result.is_whole:
                # It is read again, and goes out as it is then.
                row.verified = place
            self._wake(session)

        row.is_warming = True
        self._verifier.verify(partition, verification, ready)
        return False

    def _unreadable(
        self, row: FollowerSessionPartition, partition: LeaderPartition, error: PenstockError
    ) -> ReplicaFetchResponsePartition | None:
        is_damage = isinstance(error, CorruptionError)
        if not is_damage and not isinstance(error, StorageError):
            # The log start has moved past the follower since its position was checked.
            return row.answered(ReplicaFetchStatus.OUT_OF_RANGE, end=partition.log.end)
        if not isinstance(error, DamagedRange):
            self._verifier.suspect(partition, Offset(row.position))
        events.error("replication.read_failed", partition=str(partition.name), error=error)
        return row.answered(ReplicaFetchStatus.DAMAGED)

    def _collect_news(
        self, session: FollowerSession, rows: list[ReplicaFetchResponsePartition], contents: list[Buffer]
    ) -> None:
        """High watermarks and log starts that moved without new records."""
        named = {answer.key for answer in rows}
        for row in list(session.unsettled):
            if row.key in named or row in session.ready:
                # Ready partitions get this with their batches.
                continue
            if row.has_news and row.verdict is None:
                rows.append(row.answered(ReplicaFetchStatus.OK))
                contents.append(NO_BYTES)
            elif row.partition is None or row.told_watermark >= row.position:
                del session.unsettled[row]


def _is_urgent(row: FollowerSessionPartition, partition: LeaderPartition) -> bool:
    """Whether a follower that has everything should hear at once of what moved without new records."""
    if row.told_start < partition.log.start:
        return True
    return row.told_watermark < partition.isr.high_watermark and partition.is_read_elsewhere


def _is_catching_up(session: FollowerSession, row: FollowerSessionPartition) -> bool:
    return row.partition is not None and session.node not in row.partition.isr.assignment.isr


def check_position(
    log: PartitionLog, position: Offset, last_epoch: LeaderEpoch
) -> tuple[ReplicaFetchStatus, int, int] | None:
    """What a follower has to do first, if it cannot continue from its position."""
    if position >= log.start:
        parting = diverging_epoch(log.epochs, log.end, position, last_epoch)
        if parting is not None:
            return ReplicaFetchStatus.DIVERGED, *parting
        if position <= log.end:
            return None
    return ReplicaFetchStatus.OUT_OF_RANGE, NO_EPOCH, log.end


class ReplicaFetchServer:
    """Keeps one session per follower node, and at most one fetch of each waiting."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: ReplicaManager,
        options: ReplicationOptions,
        metrics: ReplicationMetrics,
        approach: Callable[[LeaderPartition], None],
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._wait_ns = options.fetch_wait_ms * MILLISECOND
        # Called when a follower outside the ISR has come closer.
        self._approach = approach
        self._metrics = metrics
        self._sessions: dict[NodeId, FollowerSession] = {}
        self._rounds = 0
        self.throttle = ReplicationThrottle(runtime)
        self._verifier = SegmentVerifier(runtime)
        self._response_builder = ResponseBuilder(runtime, options, self.throttle, self._verifier, self._wake)

    def fetch(self, peer: Peer, fetch: ReplicaFetch) -> None:
        """A follower asks for more."""
        session = self._session_of(peer, fetch)
        if session is None:
            return
        session.sequence = fetch.sequence
        session.heard_at = self._runtime.clock.now()
        for key in fetch.forgotten:
            session.forget(key)
        for said in fetch.rows:
            row = session.rows.get(said.key)
            if row is None:
                row = session.rows[said.key] = self._new_row(session, said.key)
            row.on_fetch(said)
            self._look_at(session, row)
        if session.outside and session.heard_at >= session.outside_at:
            session.outside_at = Instant(session.heard_at + OUTSIDE_NS)
            self._count_outside(session, list(session.outside))
        if session.pending is None:
            # Of fetches that overtake one another, the first one says how long there is.
            session.deadline = Instant(session.heard_at + self._wait_ns)
            session.turned_away = 0
        session.pending = peer
        self._answer(session)

    def progress(self, peer: Peer, progress: FollowerProgress) -> None:
        """A follower has synced more of its log."""
        session = self._sessions.get(peer.node_id)
        if (
            session is None
            or (session.broker_epoch, session.number) != (progress.broker_epoch, progress.session)
            or progress.number <= session.progress_number
        ):
            return
        session.progress_number = progress.number
        for said in progress.rows:
            row = session.rows.get(said.key)
            if row is not None and row.leader_epoch == said.leader_epoch:
                row.synced = said.synced
                self._count(session, row)

    def on_corrupt_batch(self, doubt: CorruptBatchReport) -> None:
        """A follower reports damaged batches from this node."""
        partition = self._partitions.find_by_id(*partition_of(doubt.key))
        if partition is not None and partition.leader_epoch == doubt.leader_epoch:
            self._verifier.suspect(partition, Offset(doubt.position))

    def roles_changed(self) -> None:
        """Look up every partition again: this node may have started or stopped leading it."""
        for session in self._sessions.values():
            for row in session.rows.values():
                if _is_stale(row):
                    self._look_at(session, row)
            self._wake(session)

    def check_out_of_sync(self) -> None:
        """Find followers that left the ISR silently: their next fetch may bring them back."""
        for session in self._sessions.values():
            for row in session.rows.values():
                if row.partition is not None and session.node not in row.partition.isr.assignment.isr:
                    session.outside[row] = None

    def stop(self) -> None:
        for session in self._sessions.values():
            session.end()

    def _session_of(self, peer: Peer, fetch: ReplicaFetch) -> FollowerSession | None:
        """The session that a fetch belongs to; None if it is late, or has to start one."""
        session = self._sessions.get(peer.node_id)
        if session is None or session.is_older_than(fetch.broker_epoch, fetch.session):
            if fetch.sequence != 0:
                peer.send(encode_restart(RestartSession(fetch.session, fetch.sequence)))
                return None
            if session is not None:
                session.end()
            session = self._sessions[peer.node_id] = FollowerSession(peer.node_id, fetch)
        elif (session.broker_epoch, session.number) != (fetch.broker_epoch, fetch.session):
            return None
        if fetch.sequence != session.sequence + 1:
            if fetch.sequence > session.sequence + 1:
                session.end()
                peer.send(encode_restart(RestartSession(fetch.session, fetch.sequence)))
            return None
        return session

    def _new_row(self, session: FollowerSession, key: bytes) -> FollowerSessionPartition:
        def more(row: FollowerSessionPartition) -> None:
            if not row.is_sent:
                session.ready[row] = None
                self._wake(session)

        return FollowerSessionPartition(key, more)

    def _look_at(self, session: FollowerSession, row: FollowerSessionPartition) -> None:
        """Check a follower's position against our log."""
        found = self._partitions.find_by_id(*partition_of(row.key)) if _is_stale(row) else row.partition
        row.verdict = None
        if found is None or found.stopped is not None or found.leader_epoch != row.leader_epoch:
            row.attach(None)
            session.ready.pop(row, None)
            if found is not None and found.leader_epoch > row.leader_epoch:
                row.verdict = ReplicaFetchStatus.FENCED, found.leader_epoch, -1
                session.ready[row] = None
            # Otherwise the follower's metadata is newer: it waits until ours is as new.
            return
        row.attach(found)
        if found.former_leaders:
            found.former_leader_left(session.node)
        row.verdict = check_position(found.log, Offset(row.position), LeaderEpoch(row.last_epoch))
        self._count(session, row)
        if found.follower_starts.get(session.node) != row.log_start:
            found.follower_starts_at(session.node, Offset(row.log_start))
        if row.verdict is None and row.position >= found.log.end:
            session.ready.pop(row, None)
        else:
            session.ready[row] = None
        session.unsettled[row] = None

    def _count_outside(self, session: FollowerSession, rows: list[FollowerSessionPartition]) -> None:
        """Count the positions of followers outside the ISR, the rest of very many in the next turn."""
        for row in rows[:OUTSIDE_AT_ONCE]:
            if row in session.outside:
                self._count(session, row)
        if rest := rows[OUTSIDE_AT_ONCE:]:
            # Not while the rest is under way.
            session.outside_at = Instant(self._runtime.clock.now() + OUTSIDE_NS)
            self._runtime.timers.soon(partial(self._count_outside, session, rest))

    def _count(self, session: FollowerSession, row: FollowerSessionPartition) -> None:
        """Count the follower's position, if it is in our log."""
        node, partition = session.node, row.partition
        if partition is None or row.verdict is not None:
            session.outside.pop(row, None)
            return
        partition.follower_fetched(
            node, BrokerEpoch(session.broker_epoch), Offset(row.position), Offset(row.synced)
        )
        if node in partition.isr.assignment.isr:
            session.outside.pop(row, None)
        else:
            session.outside[row] = None
            self._approach(partition)

    def _wake(self, session: FollowerSession) -> None:
        """Respond at the end of this turn, with all that becomes ready in it."""
        if session.pending is not None and not session.is_waking:
            session.is_waking = True
            self._runtime.timers.soon(lambda: self._woken(session))

    def _woken(self, session: FollowerSession) -> None:
        session.is_waking = False
        self._answer(session)

    def _answer(self, session: FollowerSession, *, time_is_up: bool = False) -> None:
        """Respond to the fetch that waits, if there is a reason to."""
        peer = session.pending
        if peer is None or (session.turned_away and self._runtime.clock.now() < session.deadline):
            # The link is full: it would be read in vain.
            return
        rows, contents = self._response_builder.collect(session, time_is_up=time_is_up)
        if not rows and not time_is_up:
            self._arm(session, session.deadline)
        elif peer.send(*encode_response(session.number, session.sequence, session.responses, rows, contents)):
            session.pending = None
            session.responses += 1
            session.turned_away = 0
            self._metrics.fetches.count += 1
            self._metrics.bytes_sent.count += sum(map(len, contents))
            self._response_builder.sent(session, rows, contents)
        else:
            self._try_later(session)

    def _try_later(self, session: FollowerSession) -> None:
        """Retry: the link's buffer is full, or the link is gone and the follower will fetch again."""
        pause_ms = FULL_LINK_MS << min(session.turned_away, FULL_LINK_DOUBLINGS_MAX)
        session.turned_away += 1
        if session.turned_away > FULL_LINK_TRIES:
            session.pending = None
            session.turned_away = 0
        else:
            session.deadline = Instant(self._runtime.clock.now() + pause_ms * MILLISECOND)
            if session.timer is not None:
                session.timer.cancel()
                session.timer = None
            self._arm(session, session.deadline)

    def _arm(self, session: FollowerSession, deadline: Instant) -> None:
        """Set the session's one timer. It is not moved with every fetch, but checks again when it fires."""
        if session.timer is None:
            session.timer = self._runtime.timers.at(deadline, lambda: self._fired(session))

    def _fired(self, session: FollowerSession) -> None:
        session.timer = None
        now = self._runtime.clock.now()
        if session.pending is None:
            return
        if now < session.deadline:
            self._arm(session, session.deadline)
            return
        self._rounds += 1
        if self._rounds % ROUNDS_BETWEEN_LOOKS == 0:
            session.unsettled.update((row, None) for row in session.rows.values() if row.has_news)
            self._dismiss_silent(now)
        self._answer(session, time_is_up=True)

    def _dismiss_silent(self, now: Instant) -> None:
        for session in self._sessions.values():
            if session.rows and now - session.heard_at > SILENCE_NS:
                events.info("replication.follower_disconnected", peer=session.node)
                session.end()


def _is_stale(row: FollowerSessionPartition) -> bool:
    """Whether the partition must be looked up again."""
    partition = row.partition
    return partition is None or partition.stopped is not None or partition.leader_epoch != row.leader_epoch
