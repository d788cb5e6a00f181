"""The leader's side: answering the fetches of followers."""

from collections.abc import Callable

from penstock.core.model import MILLISECOND, SECOND, BrokerEpoch, Instant, LeaderEpoch, NodeId, Offset
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.partitions import Partition, Partitions
from penstock.services.peering import Peer
from penstock.services.replication.answering import Answering, judge
from penstock.services.replication.codec import (
    Doubt,
    Fetch,
    Progress,
    Restart,
    Status,
    encode_answer,
    encode_restart,
    partition_of,
)
from penstock.services.replication.metrics import ReplicationMetrics
from penstock.services.replication.options import ReplicationOptions
from penstock.services.replication.sessions import Row, Session
from penstock.services.replication.throttle import Throttle
from penstock.services.replication.verifying import Verifying

# A link whose buffer is full is tried again, after a longer pause each time: two seconds in all.
FULL_LINK_MS = 4
FULL_LINK_TRIES = 9
# A follower that has not been heard of for so long has gone, or follows others now.
SILENCE_NS = 60 * SECOND
# Followers outside the ISR that do not move are thought of again so often: there may be thousands.
OUTSIDE_NS = 250 * MILLISECOND
# Every so many idle rounds all partitions are looked at for a log start that moved.
ROUNDS_BETWEEN_LOOKS = 10


class Serving:
    """Keeps one session per follower node, and at most one fetch of each waiting."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Partitions,
        options: ReplicationOptions,
        metrics: ReplicationMetrics,
        approach: Callable[[Partition], None],
    ) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._wait_ns = options.fetch_wait_ms * MILLISECOND
        # Told when a follower outside the ISR has come closer.
        self._approach = approach
        self._metrics = metrics
        self._sessions: dict[NodeId, Session] = {}
        self._rounds = 0
        self.throttle = Throttle(runtime)
        self._verifying = Verifying(runtime)
        self._answering = Answering(runtime, options, self.throttle, self._wake)

    def fetch(self, peer: Peer, fetch: Fetch) -> None:
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
            row.say(said)
            self._look_at(session, row)
        if session.outside and session.heard_at >= session.outside_at:
            session.outside_at = Instant(session.heard_at + OUTSIDE_NS)
            for row in list(session.outside):
                self._count(session, row)
        session.pending = peer
        session.turned_away = 0
        session.deadline = Instant(session.heard_at + self._wait_ns)
        self._answer(session)

    def progress(self, peer: Peer, progress: Progress) -> None:
        """A follower has made more of its log safe."""
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

    def doubt(self, doubt: Doubt) -> None:
        """A follower got damaged batches from us."""
        partition = self._partitions.find_by_id(*partition_of(doubt.key))
        if partition is not None and partition.leader_epoch == doubt.leader_epoch:
            self._verifying.doubt(partition, Offset(doubt.position))

    def roles_changed(self) -> None:
        """What was not led here may be now, and the other way round."""
        for session in self._sessions.values():
            for row in session.rows.values():
                if _is_stale(row):
                    self._look_at(session, row)
            self._wake(session)

    def look_outside(self) -> None:
        """Find followers that left the ISR without a word of theirs: their next fetch may bring them back."""
        for session in self._sessions.values():
            for row in session.rows.values():
                if row.partition is not None and session.node not in row.partition.insync.assignment.isr:
                    session.outside[row] = None

    def stop(self) -> None:
        for session in self._sessions.values():
            session.end()

    def _session_of(self, peer: Peer, fetch: Fetch) -> Session | None:
        """The session that a fetch belongs to; None if it is late, or has to begin one."""
        session = self._sessions.get(peer.node_id)
        if session is None or session.is_older_than(fetch.broker_epoch, fetch.session):
            if fetch.sequence != 0:
                peer.send(encode_restart(Restart(fetch.session, fetch.sequence)))
                return None
            if session is not None:
                session.end()
            session = self._sessions[peer.node_id] = Session(peer.node_id, fetch)
        elif (session.broker_epoch, session.number) != (fetch.broker_epoch, fetch.session):
            return None
        if fetch.sequence != session.sequence + 1:
            if fetch.sequence > session.sequence + 1:
                session.end()
                peer.send(encode_restart(Restart(fetch.session, fetch.sequence)))
            return None
        return session

    def _new_row(self, session: Session, key: bytes) -> Row:
        def more(row: Row) -> None:
            if row.is_at_end and row.partition is not None:
                row.is_at_end = False
                row.partition.insync.fell_behind(session.node, self._runtime.clock.now())
            session.ready[row] = None
            self._wake(session)

        return Row(key, more)

    def _look_at(self, session: Session, row: Row) -> None:
        """Find out what a follower's position means here."""
        found = self._partitions.find_by_id(*partition_of(row.key)) if _is_stale(row) else row.partition
        row.verdict = None
        row.is_at_end = False
        if found is None or found.stopped is not None or found.leader_epoch != row.leader_epoch:
            row.attach(None)
            session.ready.pop(row, None)
            if found is not None and found.leader_epoch > row.leader_epoch:
                row.verdict = Status.FENCED, found.leader_epoch, -1
                session.ready[row] = None
            # Otherwise the follower knows more than we do: it waits until we know it too.
            return
        row.attach(found)
        row.verdict = judge(found.log, Offset(row.position), LeaderEpoch(row.last_epoch))
        self._count(session, row)
        row.is_at_end = row.verdict is None and row.position >= found.log.end
        if row.is_at_end:
            session.ready.pop(row, None)
        else:
            session.ready[row] = None
        session.unsettled[row] = None

    def _count(self, session: Session, row: Row) -> None:
        """Let the follower's position count, if it is one in our log."""
        node, partition = session.node, row.partition
        if partition is None or row.verdict is not None:
            session.outside.pop(row, None)
            return
        partition.follower_fetched(
            node, BrokerEpoch(session.broker_epoch), Offset(row.position), Offset(row.synced)
        )
        if node in partition.insync.assignment.isr:
            session.outside.pop(row, None)
        else:
            session.outside[row] = None
            self._approach(partition)

    def _wake(self, session: Session) -> None:
        """Answer soon: with all that becomes ready in this turn."""
        if session.pending is not None and not session.is_waking:
            session.is_waking = True
            self._runtime.timers.soon(lambda: self._woken(session))

    def _woken(self, session: Session) -> None:
        session.is_waking = False
        self._answer(session)

    def _answer(self, session: Session, *, time_is_up: bool = False) -> None:
        """Answer the fetch that waits, if there is a reason to."""
        peer = session.pending
        if peer is None:
            return
        rows, contents = self._answering.collect(session, time_is_up=time_is_up)
        if not rows and not time_is_up:
            self._arm(session, session.deadline)
        elif peer.send(*encode_answer(session.number, session.sequence, rows, contents)):
            session.pending = None
            session.turned_away = 0
            self._metrics.fetches.count += 1
            self._metrics.bytes_sent.count += sum(map(len, contents))
            self._answering.sent(session, rows, contents)
        else:
            self._try_later(session)

    def _try_later(self, session: Session) -> None:
        """Either the link is full for a moment, or it is gone: then the follower will fetch again."""
        pause_ms = FULL_LINK_MS << session.turned_away
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

    def _arm(self, session: Session, deadline: Instant) -> None:
        """One timer per session. It is not moved with every fetch, but looks again when it fires."""
        if session.timer is None:
            session.timer = self._runtime.timers.at(deadline, lambda: self._fired(session))

    def _fired(self, session: Session) -> None:
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
                events.info("replication.follower_gone", peer=session.node)
                session.end()


def _is_stale(row: Row) -> bool:
    """Whether the partition must be looked up: one that was found and goes on needs not."""
    partition = row.partition
    return partition is None or partition.stopped is not None or partition.leader_epoch != row.leader_epoch
