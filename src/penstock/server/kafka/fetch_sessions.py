"""Incremental fetch sessions (KIP-227): a client with many partitions names only what changed.

    epoch 0                   a new session of the partitions named, if there is room
    epoch n, the next one     the session's partitions, plus those named, less those forgotten;
                              the response has those with news
    epoch -1                  no session: exactly what is named, and an old session ends

The number of sessions is bounded. When it is reached, the least recently used one is evicted if it
has been idle long enough; otherwise the client continues without one (session 0), which only costs
bytes.
"""

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

from penstock.broker.fetch import NO_REPLICA, FetchedPartition
from penstock.core.model import SECOND, Instant
from penstock.core.protocol import ErrorCode
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


class FetchContext:
    """What one request fetches, and which of it the response must include."""

    __slots__ = ("_session", "session_id", "targets")

    def __init__(
        self, session_id: int, targets: list[FetchSessionPartition], session: "FetchSession | None"
    ) -> None:
        self.session_id = session_id
        self.targets = targets
        self._session = session

    def changed(
        self, targets: list[FetchSessionPartition], found: list[FetchedPartition]
    ) -> list[tuple[FetchSessionPartition, FetchedPartition]]:
        rows = list(zip(targets, found, strict=True))
        if self._session is None:
            return rows
        news = [(target, part) for target, part in rows if target.is_news(part)]
        # Partitions that had data go to the back, so that a large one does not starve the rest.
        self._session.served(target for target, part in news if part.records is not None)
        return news


class FetchSession:
    """The partitions of one client, in the order they are served."""

    __slots__ = ("_targets", "by_id", "epoch", "id", "used_at")

    def __init__(
        self, session_id: int, targets: list[FetchSessionPartition], *, by_id: bool, now: Instant
    ) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.used_at = now
        self._targets: OrderedDict[tuple[object, int], FetchSessionPartition] = OrderedDict(
            (_key(target), target) for target in targets
        )

    def __len__(self) -> int:
        return len(self._targets)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def update(self, request: FetchRequest) -> list[FetchSessionPartition]:
        """Apply a request's changes; returns what is to be fetched now."""
        for topic in request.topics:
            for part in topic.partitions:
                key = (topic.topic_id if self.by_id else topic.topic, part.partition)
                known = self._targets.get(key)
                if known is None:
                    self._targets[key] = FetchSessionPartition(topic, part, by_id=self.by_id)
                else:
                    known.update(part)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._targets.pop((forgotten.topic_id if self.by_id else forgotten.topic, index), None)
        return list(self._targets.values())

    def served(self, targets: Iterable[FetchSessionPartition]) -> None:
        for target in targets:
            key = _key(target)
            if key in self._targets:
                self._targets.move_to_end(key)


def _key(target: FetchSessionPartition) -> tuple[object, int]:
    return (target.topic_id if target.by_id else target.topic, target.partition)


@dataclass(frozen=True, slots=True)
class FetchSessionLimits:
    """How many sessions a node keeps."""

    sessions_max: int = 1_000
    rest_ns_min: int = 120 * SECOND


class FetchSessionCache:
    """The fetch sessions of a node's clients."""

    def __init__(self, clock: Clock, entropy: Entropy, limits: FetchSessionLimits | None = None) -> None:
        self._clock = clock
        self._entropy = entropy
        self._limits = limits or FetchSessionLimits()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int) -> FetchContext | FetchSessionError:
        """What a request fetches, by its session."""
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            targets: list[FetchSessionPartition] = []
            for topic in request.topics:
                for part in topic.partitions:
                    targets.append(FetchSessionPartition(topic, part, by_id=by_id))  # noqa: PERF401 - it would be a call
            if request.session_epoch == FINAL_EPOCH or not targets:
                return FetchContext(NO_SESSION, targets, None)
            session = self._open(targets, by_id=by_id)
            return FetchContext(session.id if session else NO_SESSION, targets, session)
        return self._resume(request, by_id=by_id)

    def _resume(self, request: FetchRequest, *, by_id: bool) -> FetchContext | FetchSessionError:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id is not by_id:
            return FetchSessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return FetchSessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.advance()
        session.used_at = self._clock.now()
        self._sessions.move_to_end(session.id)
        targets = session.update(request)
        if not targets:
            del self._sessions[session.id]
        return FetchContext(session.id if targets else NO_SESSION, targets, session)

    def _open(self, targets: list[FetchSessionPartition], *, by_id: bool) -> FetchSession | None:
        now = self._clock.now()
        if len(self._sessions) >= self._limits.sessions_max:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < self._limits.rest_ns_min:
                return None
            del self._sessions[oldest.id]
        session = FetchSession(self._new_id(), targets, by_id=by_id, now=now)
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._entropy.bytes(4)) & EPOCH_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id
