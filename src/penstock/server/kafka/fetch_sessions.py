"""Incremental fetch sessions (KIP-227): a client with many partitions names only what changed.

    epoch 0                   a new session of the partitions named, if there is room
    epoch n, the next one     the session's partitions, plus those named, less those forgotten;
                              the response has those with news
    epoch -1                  no session: exactly what is named, and an old session ends

A session belongs to its connection and ends with it: a client that connects again begins with a full fetch
anyway. What sessions may hold is bounded, by their number and their partitions, for a node and for an
address. Where there is no room, those that hold the most lose a session (see `ClientShares`), or the client
continues without one (session 0), which only costs bytes. Names that no topic can have are not kept: their
partitions are answered and make no session, and a session to which they are added ends.

A connection also remembers which offsets it was sent last, as a hint that records did not arrive as they
should. Those are bounded as well: what is not remembered is no hint.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from penstock.broker.client_shares import ClientShares, ShareLimits
from penstock.broker.fetch import NO_REPLICA, FetchedPartition
from penstock.core.metadata.topic_names import NAME_LENGTH_MAX
from penstock.core.model import SECOND, Instant, TopicPartition
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.values import dataclass
from penstock.runtime import Clock, Entropy

TOPIC_IDS_SINCE = 13
NO_SESSION = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1


class FetchSessionPartition:
    """One partition of a fetch, and what its client was last sent about it."""

    __slots__ = (
        "by_id",
        "last_sent",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: FetchRequestTopic, part: FetchRequestPartition, *, by_id: bool) -> None:
        self.by_id = by_id
        self.topic = topic.topic
        self.topic_id: UUID = topic.topic_id
        self.partition = part.partition
        self.last_sent: tuple[int, int, int] | None = None
        self.offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.leader_epoch = part.current_leader_epoch

    def update(self, part: FetchRequestPartition) -> None:
        self.offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.leader_epoch = part.current_leader_epoch

    def move(self, later: "FetchSessionPartition") -> None:
        """The same as `update`, with what a later request says."""
        self.offset = later.offset
        self.max_bytes = later.max_bytes
        self.leader_epoch = later.leader_epoch

    def is_news(self, found: FetchedPartition) -> bool:
        """Whether an incremental response must include it; remembers what it says."""
        state = (found.high_watermark, found.last_stable_offset, found.log_start)
        news = found.error is not None or found.records is not None or state != self.last_sent
        news = news or found.read_replica != NO_REPLICA
        # An error is repeated until it is over, and so is a replica to read from.
        self.last_sent = state if found.error is None and found.read_replica == NO_REPLICA else None
        return news


@dataclass(frozen=True, slots=True)
class FetchSessionError:
    """The client must start over with a full fetch."""

    code: ErrorCode


class FetchContext(NamedTuple):
    """What one request fetches, and the session that it belongs to, if there is one."""

    session_id: int
    targets: list[FetchSessionPartition]
    session: "FetchSession | None"


class FetchSession:
    """The partitions of one client, in the order they are served."""

    __slots__ = ("_targets", "by_id", "epoch", "id", "owner", "used_at")

    def __init__(
        self,
        owner: "ConnectionFetchSessions",
        session_id: int,
        targets: "FetchTargets",
        *,
        by_id: bool,
        now: Instant,
    ) -> None:
        self.owner = owner
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.used_at = now
        self._targets = targets

    def __len__(self) -> int:
        return len(self._targets)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def update(
        self, request: FetchRequest, named: "FetchTargets | None" = None
    ) -> list[FetchSessionPartition]:
        """Apply a request's changes; returns what is to be fetched now."""
        if named is not None:
            for key, target in named.items():
                known = self._targets.get(key)
                if known is None:
                    self._targets[key] = target
                else:
                    known.move(target)
        elif request.topics:
            _add_targets(self._targets, request, by_id=self.by_id)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._targets.pop((forgotten.topic_id if self.by_id else forgotten.topic, index), None)
        return list(self._targets.values())

    def changed(
        self, rows: Iterable[tuple[FetchSessionPartition, FetchedPartition]]
    ) -> list[tuple[FetchSessionPartition, FetchedPartition]]:
        """What a response must include of these."""
        news = [row for row in rows if row[0].is_news(row[1])]
        # Partitions that had data go to the back, so that a large one does not starve the rest.
        for target, found in news:
            if found.records is not None:
                key = (target.topic_id if target.by_id else target.topic, target.partition)
                known = self._targets.pop(key, None)
                if known is not None:
                    self._targets[key] = known
        return news


FetchTargets = dict[tuple[object, int], FetchSessionPartition]


def _add_targets(targets: FetchTargets, request: FetchRequest, *, by_id: bool) -> None:
    """The partitions that a request names, each once: what is said last counts."""
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for part in topic.partitions:
            key = (name, part.partition)
            known = targets.get(key)
            if known is None:
                targets[key] = FetchSessionPartition(topic, part, by_id=by_id)
            else:
                known.update(part)


def _has_impossible_name(request: FetchRequest) -> bool:
    return any(len(topic.topic) > NAME_LENGTH_MAX for topic in request.topics)


def named_targets(request: FetchRequest, version: int) -> Steps[FetchTargets]:
    """The same for a large request, in steps."""
    targets: FetchTargets = {}
    by_id = version >= TOPIC_IDS_SINCE
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for part in topic.partitions:
            targets[name, part.partition] = FetchSessionPartition(topic, part, by_id=by_id)
            yield
    return targets


@dataclass(frozen=True, slots=True)
class FetchSessionLimits:
    """What a node keeps of fetch sessions: a partition of one takes about 400 bytes."""

    sessions_max: int = 1_000
    partitions_max: int = 100_000
    client_partitions_max: int = 50_000
    # How long a session was not used before it gives way to any other.
    idle_ns_min: int = 120 * SECOND
    # Offsets that were sent last, of a node and of a connection.
    served_offsets_max: int = 50_000
    connection_served_offsets_max: int = 1_000


def fetch_session_limits(sessions_max: int, partitions_max: int) -> FetchSessionLimits:
    """Half of the partitions may belong to one client."""
    return FetchSessionLimits(sessions_max, partitions_max, partitions_max // 2)


class FetchSessionCache:
    """The fetch sessions of a node's clients."""

    def __init__(self, clock: Clock, entropy: Entropy, limits: FetchSessionLimits | None = None) -> None:
        self.clock = clock
        self._entropy = entropy
        self.limits = limits = limits or FetchSessionLimits()
        share = ShareLimits(limits.sessions_max, limits.partitions_max, limits.client_partitions_max)
        self.shares: ClientShares[FetchSession] = ClientShares(share, _evict, self._is_idle)
        self.served_offsets = 0

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def partitions(self) -> int:
        """Of all sessions."""
        return self.shares.weight

    def connect(self, client: str) -> "ConnectionFetchSessions":
        """The sessions of a new connection from this address."""
        return ConnectionFetchSessions(self, client)

    def new_id(self) -> int:
        """Hard to guess, and never that of no session."""
        return (int.from_bytes(self._entropy.bytes(4)) & EPOCH_MAX) or 1

    def _is_idle(self, session: FetchSession) -> bool:
        return self.clock.now() - session.used_at >= self.limits.idle_ns_min


def _evict(session: FetchSession) -> None:
    session.owner.forget(session)


class ConnectionFetchSessions:
    """The fetch sessions of one connection; most have one at most."""

    __slots__ = ("_cache", "_client", "_sessions", "served_offsets")

    def __init__(self, cache: FetchSessionCache, client: str) -> None:
        self._cache = cache
        self._client = client
        self._sessions: dict[int, FetchSession] = {}
        # The offset of the last fetch that was sent records, of each partition, and how often it came again.
        self.served_offsets: dict[TopicPartition, tuple[int, int]] = {}

    def begin(
        self, request: FetchRequest, version: int, named: FetchTargets | None = None
    ) -> FetchContext | FetchSessionError:
        """What a request fetches, by its session. `named`: its partitions, if they were read before."""
        by_id = version >= TOPIC_IDS_SINCE
        epoch = request.session_epoch
        if epoch not in (FIRST_EPOCH, FINAL_EPOCH):
            return self._resume(request, named, by_id=by_id)
        if request.session_id in self._sessions:
            self._end(self._sessions[request.session_id])
        topics = request.topics
        if epoch == FINAL_EPOCH and len(topics) == 1 and len(topics[0].partitions) == 1:
            # Most fetches of clients without sessions.
            target = FetchSessionPartition(topics[0], topics[0].partitions[0], by_id=by_id)
            return tuple.__new__(FetchContext, (NO_SESSION, [target], None))
        targets: FetchTargets = {} if named is None else named
        if named is None:
            _add_targets(targets, request, by_id=by_id)
        if epoch == FINAL_EPOCH or not targets or _has_impossible_name(request):
            return FetchContext(NO_SESSION, list(targets.values()), None)
        session = self._open(targets, by_id=by_id)
        return FetchContext(session.id if session else NO_SESSION, list(targets.values()), session)

    def _resume(
        self, request: FetchRequest, named: FetchTargets | None, *, by_id: bool
    ) -> FetchContext | FetchSessionError:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id is not by_id:
            return FetchSessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return FetchSessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if _has_impossible_name(request):
            self._end(session)
            return FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.advance()
        session.used_at = self._cache.clock.now()
        before = len(session)
        targets = session.update(request, named)
        shares = self._cache.shares
        if not targets:
            self._end(session)
            return FetchContext(NO_SESSION, targets, None)
        if len(targets) == before:
            shares.touch(self._client, session)
        elif not shares.resize(self._client, session, len(targets)):
            # It has grown too large. The answer is whole, and says that the session is over.
            del self._sessions[session.id]
            return FetchContext(NO_SESSION, targets, None)
        return FetchContext(session.id, targets, session)

    def _open(self, targets: FetchTargets, *, by_id: bool) -> FetchSession | None:
        cache = self._cache
        session = FetchSession(self, self._new_id(), targets, by_id=by_id, now=cache.clock.now())
        if not cache.shares.add(self._client, session, len(targets)):
            return None
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            session_id = self._cache.new_id()
            if session_id not in self._sessions:
                return session_id

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._cache.shares.remove(self._client, session)

    def cancel(self, session: FetchSession) -> None:
        """The client does not hear of the session that its request has begun."""
        if session.id in self._sessions:
            self._end(session)

    def forget(self, session: FetchSession) -> None:
        """The session was evicted: its client is told so when it comes back."""
        self._sessions.pop(session.id, None)

    def remember_served(self, name: TopicPartition, offset: int) -> None:
        """The first records that this connection gets of a partition begin at this offset."""
        served, cache = self.served_offsets, self._cache
        limits = cache.limits
        if len(served) >= limits.connection_served_offsets_max:
            del served[next(iter(served))]
        elif cache.served_offsets >= limits.served_offsets_max:
            return
        else:
            cache.served_offsets += 1
        served[name] = offset, 0

    def close(self) -> None:
        """The connection has ended, and its sessions with it."""
        for session in list(self._sessions.values()):
            self._end(session)
        self._cache.served_offsets -= len(self.served_offsets)
        self.served_offsets.clear()
