"""How far one other member has come, and how much may be underway to it."""

import enum
from collections import deque

from penstock.core.model import Instant
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.identity import Index


class Pace(enum.Enum):
    """How entries go to a member."""

    PROBE = "one request at a time: we do not know where its log and ours part"
    STREAM = "requests follow each other without waiting for answers"
    SNAPSHOT = "what it needs is in our log no longer"


class Progress:
    """A leader's knowledge of one member.

    match ..... next ..... last
      | underway  |  not sent |
    """

    __slots__ = (
        "_in_flight",
        "asked_at",
        "caught_up_at",
        "commit_told",
        "heard_at",
        "is_probing",
        "match",
        "next",
        "pace",
        "position",
        "round",
        "round_sent",
        "snapshot",
    )

    def __init__(self, next_index: Index, now: Instant) -> None:
        self.pace = Pace.PROBE
        self.match = Index(0)
        self.next = next_index
        self.heard_at = now
        # When it last had everything that was committed; None: not since we lead.
        self.caught_up_at: Instant | None = None
        # The last round it answered, and the last before a request was sent to it.
        self.round = 0
        self.round_sent = 0
        self.commit_told = Index(0)
        self.is_probing = False
        self._in_flight: deque[Index] = deque()
        # The snapshot underway, the position it is wanted from, and when we last sent from there.
        self.snapshot: SnapshotMeta | None = None
        self.position = 0
        self.asked_at = now

    def has_room(self, in_flight_max: int) -> bool:
        """Whether another request with entries may be sent."""
        if self.pace is Pace.STREAM:
            return len(self._in_flight) < in_flight_max
        return self.pace is Pace.PROBE and not self.is_probing

    def sent(self, last: Index) -> None:
        """A request that ends with `last` is underway."""
        if self.pace is Pace.STREAM:
            if last >= self.next:
                self._in_flight.append(last)
                self.next = Index(last + 1)
        else:
            self.is_probing = True

    def acknowledge(self, match: Index, first: Index) -> bool:
        """It has our log up to `match`, and ours begins with `first`; says if that is news."""
        is_news = match > self.match
        if is_news:
            self.match = match
        while self._in_flight and self._in_flight[0] <= match:
            self._in_flight.popleft()
        self.next = max(self.next, Index(self.match + 1))
        if self.pace is Pace.PROBE or (self.pace is Pace.SNAPSHOT and self.match + 1 >= first):
            self._enter(Pace.STREAM, Index(self.match + 1))
        return is_news

    def reject(self, previous: Index, next_index: Index) -> bool:
        """It lacks the entry before a request; False: that is no news."""
        if self.pace is Pace.SNAPSHOT or previous <= self.match:
            return False
        if self.pace is Pace.PROBE and previous != self.next - 1:
            return False
        self._enter(Pace.PROBE, max(Index(self.match + 1), min(next_index, previous)))
        return True

    def begin_snapshot(self, snapshot: SnapshotMeta, now: Instant) -> None:
        self._enter(Pace.SNAPSHOT, self.next)
        self.snapshot, self.position, self.asked_at = snapshot, 0, now

    def _enter(self, pace: Pace, next_index: Index) -> None:
        self.pace = pace
        self.next = next_index
        self.is_probing = False
        self.snapshot = None
        self._in_flight.clear()
