"""How far each other member has come, and what a leader sends it next."""

import enum
from collections import deque

from penstock.core.model import Instant
from penstock.core.raft.messages import (
    AppendConflict,
    AppendRequest,
    AppendResponse,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    SendSnapshotChunk,
    SnapshotChunkResponse,
)
from penstock.core.raft.state import RaftState
from penstock.core.raft.types import Index, Member, SnapshotMeta, Term


class ProgressState(enum.Enum):
    """How entries go to a member."""

    PROBE = "one request at a time: we do not know where its log and ours part"
    REPLICATE = "requests follow each other without waiting for responses"
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
        "doubt",
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
        self.pace = ProgressState.PROBE
        self.match = Index(0)
        self.next = next_index
        self.heard_at = now
        # When it last had everything that was committed; None: not since we lead.
        self.caught_up_at: Instant | None = None
        # The last round it acknowledged, and the last before a request was sent to it.
        self.round = 0
        self.round_sent = 0
        self.commit_told = Index(0)
        self.is_probing = False
        # As of which term its log is in doubt, if it is.
        self.doubt: Term | None = None
        self._in_flight: deque[Index] = deque()
        # The snapshot underway, the position it is wanted from, and when we last sent from there.
        self.snapshot: SnapshotMeta | None = None
        self.position = 0
        self.asked_at = now

    def has_room(self, in_flight_max: int) -> bool:
        """Whether another request with entries may be sent."""
        if self.pace is ProgressState.REPLICATE:
            return len(self._in_flight) < in_flight_max
        return self.pace is ProgressState.PROBE and not self.is_probing

    def sent(self, last: Index) -> None:
        """A request that ends with `last` is underway."""
        if self.pace is ProgressState.REPLICATE:
            if last >= self.next:
                self._in_flight.append(last)
                self.next = Index(last + 1)
        else:
            self.is_probing = True

    def acknowledge(self, match: Index, first: Index) -> bool:
        """Note that it has our log up to `match`, and ours begins with `first`; whether that is new."""
        is_news = match > self.match
        if is_news:
            self.match = match
        while self._in_flight and self._in_flight[0] <= match:
            self._in_flight.popleft()
        self.next = max(self.next, Index(self.match + 1))
        if self.pace is ProgressState.PROBE or (
            self.pace is ProgressState.SNAPSHOT and self.match + 1 >= first
        ):
            self._enter(ProgressState.REPLICATE, Index(self.match + 1))
        return is_news

    def reject(self, previous: Index, next_index: Index) -> bool:
        """Note that it lacks the entry before a request; False if that was known."""
        if self.pace is ProgressState.SNAPSHOT or previous <= self.match:
            return False
        if self.pace is ProgressState.PROBE and previous != self.next - 1:
            return False
        self._enter(ProgressState.PROBE, max(Index(self.match + 1), min(next_index, previous)))
        return True

    def forget_match(self) -> None:
        """Count no longer what it has acknowledged: it may have lost that."""
        self.match = Index(0)

    def begin_snapshot(self, snapshot: SnapshotMeta, now: Instant) -> None:
        self._enter(ProgressState.SNAPSHOT, self.next)
        self.snapshot, self.position, self.asked_at = snapshot, 0, now

    def _enter(self, pace: ProgressState, next_index: Index) -> None:
        self.pace = pace
        self.next = next_index
        self.is_probing = False
        self.snapshot = None
        self._in_flight.clear()


class ProgressTracker:
    """The other members, how far each has come, and what to send them next."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self.others: dict[Member, Progress] = {}
        self.round = 0
        self.reconfigure(Index(state.log.last + 1))

    def reconfigure(self, start: Index) -> None:
        """Track the members of the present configuration; new ones get entries from `start` on."""
        state, known = self._state, self.others
        self.others = {
            member: known.get(member) or Progress(start, state.now)
            for member in state.configuration.members
            if member != state.me
        }

    def of(self, member: Member) -> Progress | None:
        return self.others.get(member)

    def _other_voters(self) -> list[tuple[Member, Progress]]:
        """The voters but us. Kept apart because every response is counted, and learners may be many."""
        others = self.others
        return [(voter, others[voter]) for voter in self._state.configuration.voters if voter in others]

    def own_match(self) -> Index:
        """How much of our own log counts: only what is synced, as for the other members."""
        return self._state.log.persisted

    def agreed(self) -> Index:
        """The highest index that a majority has on disk."""
        matches: dict[Member, int] = {member: peer.match for member, peer in self._other_voters()}
        matches[self._state.me] = self.own_match()
        return Index(self._state.configuration.agreed(matches))

    def confirmed(self) -> int:
        """The latest round of heartbeats that a majority has acknowledged."""
        rounds = {member: peer.round for member, peer in self._other_voters()}
        rounds[self._state.me] = self.round
        return self._state.configuration.agreed(rounds)

    def hears_majority(self) -> bool:
        """Whether a majority has been heard within an election timeout."""
        state, since = self._state, self._state.now - self._state.options.election_ns
        heard = {member: int(peer.heard_at > since) for member, peer in self._other_voters()}
        heard[state.me] = 1
        return state.configuration.agreed(heard) == 1

    def needs_term(self) -> bool:
        """Whether a member can end its doubt in a later term only, and a majority would elect us at once.

        It would if it hears us and is sure of its log, for then ours is at least as long.
        """
        state = self._state
        if not any(peer.doubt is not None and peer.doubt >= state.term for peer in self.others.values()):
            return False
        since = state.now - state.options.election_ns
        sure = {
            member: int(peer.heard_at > since and peer.doubt is None) for member, peer in self._other_voters()
        }
        sure[state.me] = int(state.doubt is None)
        return state.configuration.agreed(sure) == 1

    def send_heartbeats(self) -> None:
        """Send the next round of heartbeats."""
        state = self._state
        self.round += 1
        for member, peer in self.others.items():
            # Beyond its match a member may have entries of another leader: they are not committed.
            commit = min(state.commit, peer.match)
            state.send(member, RaftHeartbeat(state.term, commit, self.round))

    def send_all(self) -> None:
        """Send whatever may be sent: entries, or a new commit index."""
        for member, peer in self.others.items():
            self._send_to(member, peer)

    def _send_to(self, member: Member, peer: Progress) -> None:
        state = self._state
        options, log = state.options, state.log
        while peer.next <= log.last and peer.has_room(options.appends_in_flight_max):
            self._send_one(member, peer, options.append_bytes_max)
        if peer.pace is ProgressState.REPLICATE and peer.commit_told < min(state.commit, peer.match):
            self._send_one(member, peer, bytes_max=0)

    def _send_one(self, member: Member, peer: Progress, bytes_max: int) -> None:
        """One request; without room for bytes it only asks whether the logs agree so far."""
        state, log = self._state, self._state.log
        previous = Index(peer.next - 1)
        previous_term = log.term_at(previous)
        if previous_term is None or peer.next < log.first:
            peer.begin_snapshot(log.snapshot, state.now)
            self._send_chunk(member, peer)
            return
        entries = log.entries(peer.next, bytes_max) if bytes_max else ()
        peer.sent(Index(previous + len(entries)))
        peer.commit_told = state.commit
        peer.round_sent = self.round
        request = AppendRequest(state.term, previous, previous_term, entries, state.commit)
        state.send(member, request)

    def _send_chunk(self, member: Member, peer: Progress) -> None:
        state = self._state
        assert peer.snapshot is not None
        peer.asked_at = state.now
        effect = SendSnapshotChunk(
            member, state.term, peer.snapshot, peer.position, state.options.chunk_bytes
        )
        state.effects.append(effect)

    def append_acknowledged(self, member: Member, answer: AppendResponse) -> bool:
        """Returns whether the member's match has moved."""
        peer = self.others[member]
        moved = peer.acknowledge(answer.match, self._state.log.first)
        self._note_progress(peer)
        self._send_to(member, peer)
        return moved

    def _note_progress(self, peer: Progress) -> None:
        if peer.match >= self._state.commit:
            peer.caught_up_at = self._state.now

    def append_rejected(self, member: Member, conflict: AppendConflict) -> None:
        peer, log = self.others[member], self._state.log
        index, _ = log.agreement(conflict.hint_index, conflict.hint_term)
        if conflict.is_doubtful or conflict.hint_index < peer.match:
            # It has lost what it acknowledged, and may not know that: its directory may be an old copy. An
            # answer that was overtaken looks the same, and costs a probe.
            peer.forget_match()
        if peer.reject(conflict.previous_index, Index(index + 1)):
            self._send_to(member, peer)

    def heartbeat_acknowledged(self, member: Member, answer: RaftHeartbeatResponse) -> bool:
        """Probe again a member that is alive but behind: requests or responses may be lost.

        Its own match counts here, not ours: a restarted member may claim less than we know it has.
        """
        peer, state = self.others[member], self._state
        peer.round = max(peer.round, answer.round)
        peer.doubt = answer.doubt
        moved = answer.match > peer.match and peer.acknowledge(answer.match, state.log.first)
        self._note_progress(peer)
        if peer.pace is ProgressState.SNAPSHOT:
            if state.now - peer.asked_at >= state.options.election_ns:
                self._resume_snapshot(member, peer)
        elif answer.match < state.log.last and answer.round > peer.round_sent:
            peer.is_probing = False
            has_room = peer.has_room(state.options.appends_in_flight_max)
            bytes_max = state.options.append_bytes_max if has_room else 0
            self._send_one(member, peer, bytes_max)
        return moved

    def _resume_snapshot(self, member: Member, peer: Progress) -> None:
        """Send again after silence, from a newer snapshot if there is one: the old one may be removed."""
        newest = self._state.log.snapshot
        if peer.snapshot != newest:
            peer.begin_snapshot(newest, self._state.now)
        self._send_chunk(member, peer)

    def chunk_stored(self, member: Member, answer: SnapshotChunkResponse) -> None:
        peer = self.others[member]
        if peer.snapshot is None or peer.snapshot.index != answer.index or peer.position == answer.position:
            return
        peer.position = answer.position
        self._send_chunk(member, peer)
