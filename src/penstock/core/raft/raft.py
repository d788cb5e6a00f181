"""One member of a quorum, and its roles: follower, candidate and leader; and one for a lost hard state.

`Raft` compares terms, passes events to the role and changes roles, so a role sees only messages
of the present term. Nothing passes from role to role but the `RaftState`, and a snapshot that is
half received (`SnapshotReceiver`).

    Leader ── ProgressTracker ── Progress (one per other member: PROBE, REPLICATE or SNAPSHOT)
       ├── ReadIndexQueue        which heartbeat round confirms which reads
       ├── check_change          which change of members is possible now
       └── LeadershipTransfer    who takes over

Left out: a joint configuration, so members change one at a time; leases for reads, which
would trust clocks.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from penstock.core.model import ApiError, ErrorKind, Instant
from penstock.core.raft.log import LogView
from penstock.core.raft.messages import (
    AppendConflict,
    AppendRequest,
    AppendResponse,
    ChangeMembers,
    Command,
    CommandResult,
    Effect,
    EntriesPersisted,
    Event,
    InstallSnapshot,
    LeaderGone,
    MessageReceived,
    ProposalAccepted,
    Propose,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    RaftMessage,
    ReportBlockedElection,
    RequestRead,
    SnapshotChunk,
    SnapshotChunkResponse,
    SnapshotInstalled,
    SnapshotOutcome,
    SnapshotRejected,
    StaleTerm,
    StartLeading,
    StopLeading,
    StoreSnapshotChunk,
    TermRequest,
    TermResponse,
    TimeoutNow,
    TimePassed,
    TransferLeadership,
    TransferStarted,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.plausibility import problem_with_message, problem_with_term
from penstock.core.raft.progress import Progress, ProgressTracker
from penstock.core.raft.read_index import ReadIndexQueue
from penstock.core.raft.state import RaftState, RecoveredState
from penstock.core.raft.types import (
    ENTRY_OVERHEAD_BYTES,
    AddLearner,
    Change,
    Configuration,
    Content,
    HardState,
    Index,
    Member,
    PromoteLearner,
    RaftOptions,
    SnapshotMeta,
    Term,
    changed,
)

FROM_LEADER = (AppendRequest, RaftHeartbeat, SnapshotChunk, TimeoutNow)
HANDING_OVER = "leadership is being handed over"


class BecomeFollower(Struct, frozen=True):
    """Follow in `term`, the present one or a later one; the leader may be unknown."""

    term: Term
    leader: Member | None = None


class BecomeCandidate(Struct, frozen=True):
    """Ask for votes. A pre-vote changes nothing yet; a transfer needs none."""

    is_pre_vote: bool
    is_transfer: bool = False


class BecomeLeader(Struct, frozen=True):
    """A majority voted for us."""


Transition: TypeAlias = BecomeFollower | BecomeCandidate | BecomeLeader


class Role:
    """One way of taking part. A role that is over says in `next` what comes after it."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self.next: Transition | None = None

    @property
    def deadline(self) -> Instant | None:
        """When time alone changes something."""
        return None

    @property
    def leader(self) -> Member | None:
        """Who leads the present term, if we know."""
        return None

    @property
    def followers(self) -> Mapping[Member, Any]:
        """The others, as a leader knows them."""
        return {}

    def is_leased(self) -> bool:
        """Whether there is a live leader, which a member that cannot hear it must not depose."""
        return False

    def begin(self) -> None:
        """Called when the role begins."""

    def end(self) -> None:
        """Called when another role takes over."""

    def time_passed(self) -> None:
        """Called when the deadline is reached."""

    def problem_with(self, _sender: Member, _message: RaftMessage) -> str | None:
        """What no member sends in the present term, as far as this role can tell; None if it may."""
        return None

    def received(self, sender: Member, message: RaftMessage) -> None:
        """Handle a message of the present term."""

    def persisted(self) -> None:
        """Called when more of the log is durable."""

    def voted(self) -> None:
        """Called when we gave our vote to a candidate."""

    def installed(self, snapshot: SnapshotMeta) -> None:
        """Called when a snapshot replaced the log."""

    def leader_gone(self, leader: Member | None) -> None:
        """Called when the host reports that this leader's process has ended."""

    def on_command(self, command: Command) -> None:
        """Carry out a command that only a leader can; any other role returns NOT_CONTROLLER."""
        self._state.refuse(command.ticket, ErrorKind.NOT_CONTROLLER, "this member does not lead")


def is_up_to_date(state: RaftState, request: VoteRequest) -> bool:
    """Whether the candidate's log holds everything that may be committed, as far as we know.

    A committed entry is on a majority, a winner has a majority's votes, and the voter in
    both of them rejects a candidate that lacks it.
    """
    log = state.log
    return (request.last_term, request.last_index) >= (log.last_term, log.last)


def vote(state: RaftState, candidate: Member, request: VoteRequest, *, is_leased: bool) -> bool:
    """Respond to a vote request of this term, or a pre-vote for a later one; returns whether we voted."""
    is_doubtful = state.doubt is not None
    if request.is_pre_vote:
        granted = request.term > state.term and not is_leased and is_up_to_date(state, request)
        term = request.term if granted else state.term
        state.send(candidate, VoteResponse(term, granted, is_pre_vote=True, is_doubtful=is_doubtful))
        return False
    assert request.term == state.term
    granted = state.hard_state.voted_for in (None, candidate) and is_up_to_date(state, request)
    if granted:
        state.set_vote(request.term, candidate)
    state.send(candidate, VoteResponse(state.term, granted, is_doubtful=is_doubtful))
    return granted


class SnapshotReceiver:
    """How much of whose snapshot is here. It outlives roles and terms, so a transfer can go on.

    Two members may encode the same state differently: a new sender means to start over.
    """

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._sender: Member | None = None
        self._snapshot: SnapshotMeta | None = None
        self._position = 0
        self.is_installing = False

    def take(self, sender: Member, chunk: SnapshotChunk) -> None:
        """Keep the chunk if it is the next one; say which one we want."""
        state = self._state
        if sender != self._sender or chunk.snapshot != self._snapshot:
            self._sender, self._snapshot, self._position = sender, chunk.snapshot, 0
        if chunk.position == self._position:
            if chunk.content or not chunk.position:
                state.effects.append(StoreSnapshotChunk(chunk.snapshot, chunk.position, chunk.content))
            self._position += len(chunk.content)
            if chunk.is_last:
                self.is_installing = True
                state.effects.append(InstallSnapshot(chunk.snapshot))
        state.send(sender, SnapshotChunkResponse(state.term, chunk.snapshot.index, self._position))

    def finish(self, snapshot: SnapshotMeta) -> None:
        """The snapshot is installed, or was rejected; then the leader sends it again after a silence."""
        assert self.is_installing
        assert snapshot == self._snapshot
        self._sender = self._snapshot = None
        self._position = 0
        self.is_installing = False


class Follower(Role):
    """A voter or learner that does not campaign.

    `_verified` is how far our log is known to be the leader's; what we claim of it in
    responses is the part that is synced.
    """

    def __init__(self, state: RaftState, receiving: SnapshotReceiver, leader: Member | None) -> None:
        super().__init__(state)
        self._receiving = receiving
        self._leader = leader
        self._heard_at = self._state.now
        self._deadline = state.election_deadline()
        # Whatever is committed is in the log of every later leader.
        self._verified = state.commit
        self._is_answer_due = False

    @property
    def leader(self) -> Member | None:
        return self._leader

    @property
    def deadline(self) -> Instant | None:
        # A member with half a snapshot cannot lead, so it does not campaign.
        busy = self._receiving.is_installing or not self._state.may_campaign
        return None if busy else self._deadline

    @property
    def _match(self) -> Index:
        return min(self._verified, self._state.log.persisted)

    def campaign_now(self) -> None:
        """Wait no longer."""
        self._deadline = self._state.now

    def is_leased(self) -> bool:
        silent_ns = self._state.now - self._heard_at
        return self._leader is not None and silent_ns < self._state.options.election_ns

    def begin(self) -> None:
        self._state.set_leader(self._leader)

    def time_passed(self) -> None:
        self.next = BecomeCandidate(is_pre_vote=True)

    def voted(self) -> None:
        self._deadline = self._state.election_deadline()

    def persisted(self) -> None:
        if self._is_answer_due and self._leader is not None:
            self._answer(self._leader)

    def installed(self, snapshot: SnapshotMeta) -> None:
        self._verified = snapshot.index
        if self._leader is not None:
            self._answer(self._leader)

    def leader_gone(self, leader: Member | None) -> None:
        if leader != self._leader:
            return
        # If the report was wrong, the leader's next message makes it our leader again.
        self._leader = None
        self._state.set_leader(None)
        self._deadline = min(self._deadline, self._state.early_deadline())

    def problem_with(self, sender: Member, message: RaftMessage) -> str | None:
        if not isinstance(message, FROM_LEADER):
            return None
        if self._leader not in (None, sender):
            return f"node {sender.node_id} leads term {message.term}, which has another leader"
        log = self._state.log
        if isinstance(message, AppendRequest):
            for entry in message.entries:
                is_final = self._state.commit < entry.index <= self._verified
                if is_final and log.term_at(entry.index) != entry.term:
                    return f"entry {entry.index} is not the one that the same leader sent before"
        elif isinstance(message, SnapshotChunk):
            snapshot = message.snapshot
            is_final = self._state.commit < snapshot.index <= self._verified
            if is_final and log.term_at(snapshot.index) != snapshot.term:
                return f"the snapshot of {snapshot.index} is not of the log that the same leader sent before"
        return None

    def received(self, sender: Member, message: RaftMessage) -> None:
        match message:
            case AppendRequest():
                self._hear(sender)
                self._append(sender, message)
            case RaftHeartbeat():
                self._hear(sender)
                self._state.commit_up_to(min(message.commit, self._verified))
                state = self._state
                state.send(sender, RaftHeartbeatResponse(state.term, message.round, self._match, state.doubt))
            case SnapshotChunk():
                self._hear(sender)
                self._receive_chunk(sender, message)
            case TimeoutNow():
                # In doubt our own vote would not count, so the others would be left without a leader.
                is_fit = self._state.may_campaign and self._state.doubt is None
                if is_fit and not self._receiving.is_installing:
                    self.next = BecomeCandidate(is_pre_vote=False, is_transfer=True)
            case _:
                pass  # a response to a request we sent in another role

    def _hear(self, leader: Member) -> None:
        self._heard_at = self._state.now
        self._deadline = self._state.election_deadline()
        if leader != self._leader:
            assert self._leader is None, "one term, one leader"
            self._leader = leader
            self._state.set_leader(leader)

    def _append(self, leader: Member, request: AppendRequest) -> None:
        if self._receiving.is_installing:
            return
        state, log = self._state, self._state.log
        # A late duplicate may begin before the commit; we have that part already.
        known = max(0, state.commit - request.previous_index)
        entries = request.entries[known:]
        if known == 0 and log.term_at(request.previous_index) != request.previous_term:
            hint = log.agreement(request.previous_index, request.previous_term)
            is_doubtful = state.doubt is not None
            state.send(leader, AppendConflict(state.term, request.previous_index, *hint, is_doubtful))
            return
        for position, entry in enumerate(entries):
            # Truncate only at a conflict: a late duplicate of a short request must not remove what follows.
            if log.term_at(entry.index) != entry.term:
                assert entry.index > self._verified, "a leader never changes its own log"
                state.append(entries[position:])
                break
        self._verified = max(self._verified, Index(request.previous_index + len(request.entries)))
        state.commit_up_to(min(request.commit, self._verified))
        if log.persisted >= self._verified or not entries:
            self._answer(leader)
        else:
            self._is_answer_due = True

    def _answer(self, leader: Member) -> None:
        self._state.send(leader, AppendResponse(self._state.term, self._match))
        self._is_answer_due = self._match < self._verified

    def _receive_chunk(self, leader: Member, chunk: SnapshotChunk) -> None:
        state, snapshot = self._state, chunk.snapshot
        if self._receiving.is_installing:
            return
        if snapshot.index <= state.commit:
            self._answer(leader)
        elif state.log.term_at(snapshot.index) == snapshot.term:
            # We have the entries themselves.
            self._verified = max(self._verified, snapshot.index)
            state.commit_up_to(snapshot.index)
            self._answer(leader)
        else:
            self._receiving.take(leader, chunk)


class Candidate(Role):
    """Campaigns in the term after the last.

    The pre-vote keeps a member that was cut off from raising the term again and again, and
    from deposing, when it comes back, a leader that the others hear.

    A voter in doubt may have lost what was committed with its help, so a majority with its vote may
    lack it. A majority of those that lost nothing does not; nor do all voters together, as long as one
    of them has it, for the longest log wins.
    """

    def __init__(self, state: RaftState, campaign: BecomeCandidate) -> None:
        super().__init__(state)
        self._is_pre_vote = campaign.is_pre_vote
        self._is_transfer = campaign.is_transfer
        self._term = Term(state.term + 1)
        self._deadline = state.retry_deadline()
        # Whether the voter is sure of its log.
        self._votes: dict[Member, bool] = {}

    @property
    def deadline(self) -> Instant | None:
        return self._deadline

    def begin(self) -> None:
        state, log = self._state, self._state.log
        if not self._is_pre_vote:
            state.set_vote(self._term, state.me)
        state.set_leader(None)
        request = VoteRequest(self._term, log.last, log.last_term, self._is_pre_vote, self._is_transfer)
        for voter in state.configuration.voters:
            if voter == state.me:
                self._votes[voter] = state.doubt is None
            else:
                state.send(voter, request)
        self._count()

    def time_passed(self) -> None:
        configuration, votes = self._state.configuration, self._votes
        doubtful = tuple(voter for voter in configuration.voters if not votes.get(voter, True))
        missing = tuple(voter for voter in configuration.voters if voter not in votes)
        if doubtful and len(configuration.voters) - len(missing) >= configuration.majority:
            self._state.effects.append(ReportBlockedElection(doubtful, missing))
        self.next = BecomeCandidate(is_pre_vote=True)

    def voted(self) -> None:
        assert self._is_pre_vote, "a candidate has voted for itself"
        self._deadline = self._state.election_deadline()

    def received(self, sender: Member, message: RaftMessage) -> None:
        if not isinstance(message, VoteResponse) or not message.is_granted:
            return
        if message.is_pre_vote == self._is_pre_vote and message.term == self._term:
            self._votes[sender] = not message.is_doubtful
            self._count()

    def _count(self) -> None:
        configuration = self._state.configuration
        # Only voters count, and a voter is a node with the directory that we know.
        granted = [self._votes[voter] for voter in configuration.voters if voter in self._votes]
        if sum(granted) >= configuration.majority or len(granted) == len(configuration.voters) > 0:
            self.next = BecomeCandidate(is_pre_vote=False) if self._is_pre_vote else BecomeLeader()


class TermRecovery(Role):
    """Finds a term to go on from, because the hard state is lost. Until then we are silent.

    We may have voted in any term that another voter has reached: a vote for somebody is in that
    candidate's own term, and so is what we acknowledged to it. So all other voters are asked, not a
    majority; the highest term they name counts as one in which we have voted. What was asked for
    before our restart must not count, hence the nonce.
    """

    def __init__(self, state: RaftState) -> None:
        super().__init__(state)
        self._nonce = state.nonce()
        self._deadline = state.now
        self._terms: dict[Member, Term] = {state.me: state.term}

    @property
    def deadline(self) -> Instant | None:
        return self._deadline

    def time_passed(self) -> None:
        state = self._state
        self._deadline = Instant(state.now + state.options.heartbeat_ns)
        for voter in state.configuration.voters:
            if voter not in self._terms:
                state.send(voter, TermRequest(state.term, self._nonce))
        self._settle()

    def received(self, sender: Member, message: RaftMessage) -> None:
        if isinstance(message, TermResponse) and message.nonce == self._nonce:
            self._terms[sender] = message.term
            self._settle()

    def _settle(self) -> None:
        if all(voter in self._terms for voter in self._state.configuration.voters):
            term = max(self._terms.values())
            self._state.doubt_until_after(term)
            self.next = BecomeFollower(term)


class LeadershipTransfer:
    """A transfer of leadership. While it lasts nothing is proposed, so that the target can catch up."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._target: Member | None = None
        self.deadline: Instant | None = None

    @property
    def is_underway(self) -> bool:
        return self._target is not None

    def begin(self, target: Member) -> None:
        self._target = target
        self.deadline = Instant(self._state.now + self._state.options.election_ns)

    def time_passed(self) -> None:
        """Give up a transfer whose target did not take over in time, and go on leading."""
        if self.deadline is not None and self._state.now >= self.deadline:
            self._target = self.deadline = None

    def nudge(self, replication: ProgressTracker) -> None:
        """Send TimeoutNow to the target if it has the whole log. It may be lost, so it is sent repeatedly."""
        if self._target is None:
            return
        peer = replication.of(self._target)
        if peer is None:
            self._target = self.deadline = None
        elif peer.match == self._state.log.last:
            self._state.send(self._target, TimeoutNow(self._state.term))


def check_any_change(state: RaftState, term_start: Index) -> ApiError | None:
    """What keeps the leader from changing members at all.

    Without an entry of its own term committed, two leaders could each take one step
    from the same configuration in different directions, to two that share no majority.
    """
    if state.commit < term_start:
        return ApiError(ErrorKind.QUORUM_BUSY, "nothing of this term is committed yet")
    if state.commit < state.configuration_index:
        return ApiError(ErrorKind.QUORUM_BUSY, "an earlier change of members is not committed yet")
    return None


def check_change(state: RaftState, change: Change, replication: ProgressTracker) -> ApiError | None:
    """Why this change is not possible; None if it is."""
    configuration, member = state.configuration, change.member
    if isinstance(change, AddLearner):
        if member in configuration.members:
            return ApiError(ErrorKind.DUPLICATE_VOTER, "is a member already")
        return None
    if isinstance(change, PromoteLearner):
        return _check_promotion(state, change, replication)
    if member not in configuration.members:
        return ApiError(ErrorKind.VOTER_NOT_FOUND, "is no member")
    if configuration.voters == (member,):
        return ApiError(ErrorKind.INVALID_REQUEST, "is the last voter")
    return None


def _check_promotion(
    state: RaftState, change: PromoteLearner, replication: ProgressTracker
) -> ApiError | None:
    configuration, member = state.configuration, change.member
    if member not in configuration.learners:
        return ApiError(ErrorKind.VOTER_NOT_FOUND, "is no learner")
    if any(voter.node_id == member.node_id for voter in configuration.voters):
        return ApiError(ErrorKind.DUPLICATE_VOTER, "another directory votes under this node id")
    peer = replication.of(member)
    options = state.options
    # A voter that is far behind or gone would only make majorities harder to reach, and one that never
    # acknowledged anything may not exist.
    if (
        peer is None
        or peer.match == 0
        or peer.match + options.promotion_lag_max < state.commit
        or state.now - peer.heard_at >= options.election_ns
    ):
        return ApiError(ErrorKind.QUORUM_BUSY, "learner has not caught up")
    return None


class Leader(Role):
    """The leader of a term."""

    replication_type = ProgressTracker

    def __init__(self, state: RaftState) -> None:
        super().__init__(state)
        self._term = state.term
        self._replication = self.replication_type(state)
        self._reads = ReadIndexQueue(state)
        self._handover = LeadershipTransfer(state)
        self._beat_at = state.now
        self._check_at = Instant(state.now + state.options.election_ns)
        self._uncommitted: deque[tuple[Index, int]] = deque()
        self._uncommitted_bytes = 0
        self._is_established = False
        # What earlier terms left is committed by committing something of our own behind it:
        # an old entry on a majority can still be replaced, one below a committed one cannot.
        self._term_start = Index(state.log.last + 1)

    @property
    def deadline(self) -> Instant | None:
        handover = self._handover.deadline
        soonest = min(self._beat_at, self._check_at)
        return soonest if handover is None else min(soonest, handover)

    @property
    def leader(self) -> Member | None:
        return self._state.me

    @property
    def followers(self) -> Mapping[Member, Progress]:
        return self._replication.others

    def is_leased(self) -> bool:
        # If we are cut off, the check for a majority makes us step down.
        return True

    def begin(self) -> None:
        self._state.set_leader(self._state.me)
        self._append((None,))
        self._beat()

    def end(self) -> None:
        effects: list[Effect] = self._state.effects
        if self._is_established:
            effects.append(StopLeading(self._term))
        self._reads.refuse_all()

    def time_passed(self) -> None:
        now = self._state.now
        if now >= self._check_at:
            self._check_at = Instant(now + self._state.options.heartbeat_ns)
            if not self._replication.hears_majority():
                self.next = BecomeFollower(self._term)
                return
        self._handover.time_passed()
        if now >= self._beat_at:
            self._beat()
            if self._replication.needs_term():
                # All that is lost by it is a round of votes, which nobody else can win.
                self.next = BecomeCandidate(is_pre_vote=False, is_transfer=True)

    def _beat(self) -> None:
        self._beat_at = Instant(self._state.now + self._state.options.heartbeat_ns)
        self._replication.send_heartbeats()
        self._handover.nudge(self._replication)
        self._confirm_reads()

    def persisted(self) -> None:
        self._advance()

    def problem_with(self, sender: Member, message: RaftMessage) -> str | None:
        if isinstance(message, FROM_LEADER):
            return f"node {sender.node_id} leads term {message.term}, in which this node was elected"
        if isinstance(message, AppendResponse | RaftHeartbeatResponse):
            if message.match > self._state.log.last:
                return f"entry {message.match} is acknowledged, and the log ends at {self._state.log.last}"
            if isinstance(message, RaftHeartbeatResponse) and message.round > self._replication.round:
                return f"round {message.round} is acknowledged, which was never sent"
        return None

    def received(self, sender: Member, message: RaftMessage) -> None:
        replication = self._replication
        peer = replication.of(sender)
        if peer is None:
            return  # not a member, or no longer one
        peer.heard_at = self._state.now
        match message:
            case AppendResponse():
                if replication.append_acknowledged(sender, message):
                    self._advance()
            case RaftHeartbeatResponse():
                if replication.heartbeat_acknowledged(sender, message):
                    self._advance()
                self._confirm_reads()
            case AppendConflict():
                replication.append_rejected(sender, message)
            case SnapshotChunkResponse():
                replication.chunk_stored(sender, message)
            case _:
                pass  # a vote that came after the count
        self._handover.nudge(replication)

    def _countable(self, index: Index) -> bool:
        """Whether copies of this entry count: only of our own term, see `_term_start`."""
        return self._state.log.term_at(index) == self._term

    def _advance(self) -> None:
        """Move the commit, after a member has made progress."""
        state = self._state
        agreed = self._replication.agreed()
        if agreed <= state.commit or not self._countable(agreed):
            return
        state.commit_up_to(agreed)
        while self._uncommitted and self._uncommitted[0][0] <= agreed:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        if not self._is_established and agreed >= self._term_start:
            self._is_established = True
            state.effects.append(StartLeading(self._term))
            self._reads.establish(self._replication.round + 1)
            self._confirm_reads()
        self._replication.send_all()
        if state.me not in state.configuration.voters and state.configuration_index <= agreed:
            self.next = BecomeFollower(self._term)

    def _append(self, contents: Sequence[Content]) -> tuple[Index, Index]:
        entries = self._state.append_own(contents)
        for entry in entries:
            self._uncommitted.append((entry.index, entry.size_bytes))
            self._uncommitted_bytes += entry.size_bytes
        self._replication.send_all()
        return entries[0].index, Index(entries[-1].index + 1)

    def on_command(self, command: Command) -> None:
        match command:
            case Propose():
                self._propose(command)
            case RequestRead():
                self._request_read(command)
            case ChangeMembers():
                self._change_members(command)
            case TransferLeadership():
                self._transfer(command)
            case _:
                assert_never(command)

    def _propose(self, command: Propose) -> None:
        state, options = self._state, self._state.options
        size_bytes = sum(map(len, command.payloads)) + ENTRY_OVERHEAD_BYTES * len(command.payloads)
        assert command.payloads, "nothing is proposed"
        if self._handover.is_underway:
            state.refuse(command.ticket, ErrorKind.QUORUM_BUSY, HANDING_OVER)
        elif max(map(len, command.payloads)) > options.payload_bytes_max:
            state.refuse(command.ticket, ErrorKind.INVALID_REQUEST, "payload is larger than an entry may be")
        elif self._uncommitted_bytes + size_bytes > options.uncommitted_bytes_max:
            state.refuse(command.ticket, ErrorKind.QUORUM_BUSY, "too much waits to be committed")
        else:
            start, end = self._append(command.payloads)
            state.effects.append(CommandResult(command.ticket, ProposalAccepted(self._term, start, end)))

    def _request_read(self, command: RequestRead) -> None:
        if len(self._reads) >= self._state.options.reads_waiting_max:
            self._state.refuse(command.ticket, ErrorKind.QUORUM_BUSY, "too many reads wait to be confirmed")
        elif not self._is_established:
            self._reads.ask_early(command.ticket)
        else:
            self._reads.ask(command.ticket, self._replication.round + 1)
            self._confirm_reads()

    def _confirm_reads(self) -> None:
        """Complete reads that are confirmed, and send a round for the rest unless one is underway."""
        confirmed, sent = self._replication.confirmed(), self._replication.round
        self._reads.confirm(confirmed)
        if confirmed == sent and self._reads.waits_beyond(sent):
            self._beat()

    def _change_members(self, command: ChangeMembers) -> None:
        state = self._state
        refused = (
            ApiError(ErrorKind.QUORUM_BUSY, HANDING_OVER)
            if self._handover.is_underway
            else self._check_any_change() or check_change(state, command.change, self._replication)
        )
        if refused is not None:
            state.effects.append(CommandResult(command.ticket, refused))
            return
        start, end = self._append_configuration(changed(state.configuration, command.change))
        state.effects.append(CommandResult(command.ticket, ProposalAccepted(self._term, start, end)))

    def _check_any_change(self) -> ApiError | None:
        return check_any_change(self._state, self._term_start)

    def _append_configuration(self, configuration: Configuration) -> tuple[Index, Index]:
        start, end = self._append((configuration,))
        # A new member is probed at once.
        self._replication.reconfigure(start)
        self._replication.send_all()
        # With fewer voters, a majority may be reached already.
        self._advance()
        return start, end

    def _transfer(self, command: TransferLeadership) -> None:
        state = self._state
        if command.target not in state.configuration.voters:
            state.refuse(command.ticket, ErrorKind.VOTER_NOT_FOUND, "is no voter")
            return
        peer = self._replication.of(command.target)
        if peer is not None and peer.doubt is not None:
            state.refuse(command.ticket, ErrorKind.QUORUM_BUSY, "has lost entries, and cannot lead yet")
            return
        state.effects.append(CommandResult(command.ticket, TransferStarted()))
        if command.target != state.me:
            self._handover.begin(command.target)
            self._handover.nudge(self._replication)


class Raft:
    """One member of a quorum.

    `draw(n)` returns a random number below n. The host carries out the effects of each step,
    in order, before the next step; if that fails, it drops this machine and makes a new one
    from what is on disk.
    """

    state_type = RaftState
    follower_type = Follower
    candidate_type = Candidate
    leader_type = Leader

    def __init__(
        self,
        me: Member,
        view: LogView,
        recovered: RecoveredState,
        draw: Callable[[int], int],
        now: Instant,
        options: RaftOptions | None = None,
    ) -> None:
        self._state = self.state_type(me, view, recovered, options or RaftOptions(), draw)
        self._state.now = now
        self._receiving = SnapshotReceiver(self._state)
        follower = self.follower_type(self._state, self._receiving, None)
        if self._state.configuration.voters == (me,):
            # No other member could lead: there is nothing to wait for.
            follower.campaign_now()
        self._role: Role = follower
        if recovered.hard_state is None:
            self._role = TermRecovery(self._state)

    @property
    def term(self) -> Term:
        return self._state.term

    @property
    def leader(self) -> Member | None:
        """Who leads the present term, as far as we know."""
        return self._role.leader

    @property
    def hard_state(self) -> HardState | None:
        """Term and vote; None while they are lost and the others are asked."""
        return None if isinstance(self._role, TermRecovery) else self._state.hard_state

    @property
    def is_doubtful(self) -> bool:
        """Whether our log may lack entries that we acknowledged, or our hard state is lost."""
        return self._state.doubt is not None or isinstance(self._role, TermRecovery)

    @property
    def commit(self) -> Index:
        return self._state.commit

    @property
    def configuration(self) -> Configuration:
        return self._state.configuration

    @property
    def founders(self) -> Configuration | None:
        """The bootstrap members, as long as they are the members still; None after any change."""
        return self._state.configuration if self._state.configuration_index == 0 else None

    @property
    def followers(self) -> Mapping[Member, Progress]:
        """What a leader knows of the others; empty if this member does not lead."""
        return self._role.followers

    @property
    def last(self) -> Index:
        """Where the log ends here, durable or not."""
        return self._state.log.last

    @property
    def persisted(self) -> Index:
        """How far the log is durable here."""
        return self._state.log.persisted

    def describe_snapshot(self, index: Index) -> SnapshotMeta:
        """What the host must keep with a snapshot of everything up to and including `index`."""
        return self._state.describe(index)

    def next_deadline(self) -> Instant | None:
        """When `TimePassed` is due unless something else happens before."""
        return self._role.deadline

    def problem_with(self, sender: Member, message: RaftMessage) -> str | None:
        """What no member that keeps to the rules would send here now; None if it may be handed to `step`."""
        state = self._state
        if sender == state.me:
            return "it says that it is this member"
        problem = problem_with_term(state.term, message.term) or problem_with_message(message)
        if problem is not None or message.term != state.term or isinstance(self._role, TermRecovery):
            return problem
        return self._role.problem_with(sender, message)

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Handle an event; returns the effects to carry out, in order."""
        state = self._state
        state.log.begin_step()
        state.effects = []
        state.now = now
        match event:
            case MessageReceived():
                self._receive(event.sender, event.recipient, event.message)
            case TimePassed():
                self._pass_time()
            case EntriesPersisted():
                state.log.synced(event.write)
                self._role.persisted()
            case SnapshotInstalled() | SnapshotRejected():
                self._finish_snapshot(event)
            case LeaderGone(leader):
                self._role.leader_gone(leader)
            case Propose() | RequestRead() | ChangeMembers() | TransferLeadership():
                self._role.on_command(event)
            case _:
                assert_never(event)
        while self._role.next is not None:
            self._become(self._role.next)
        state.settle_doubt()
        return state.effects

    def _finish_snapshot(self, event: SnapshotOutcome) -> None:
        self._receiving.finish(event.snapshot)
        if isinstance(event, SnapshotInstalled):
            self._state.restart(event.snapshot)
            self._role.installed(event.snapshot)

    def _pass_time(self) -> None:
        deadline = self._role.deadline
        if deadline is not None and self._state.now >= deadline:
            self._role.time_passed()

    def _receive(self, sender: Member, recipient: Member, message: RaftMessage) -> None:
        if recipient != self._state.me:
            return  # for an earlier member with this node id, whose hard state we do not have
        if isinstance(message, TermRequest):
            self._state.send(sender, TermResponse(self._state.term, message.nonce))
        elif isinstance(self._role, TermRecovery):
            # It does not know whether the term of a message has passed.
            self._role.received(sender, message)
        elif isinstance(message, VoteRequest):
            self._vote(sender, message)
        elif not isinstance(message, TermResponse):
            self._receive_in_term(sender, message)

    def _receive_in_term(self, sender: Member, message: RaftMessage) -> None:
        state = self._state
        is_from_leader = isinstance(message, FROM_LEADER)
        is_promise = isinstance(message, VoteResponse) and message.is_pre_vote and message.is_granted
        if message.term > state.term and not is_promise:
            self._become(BecomeFollower(message.term, sender if is_from_leader else None))
        elif message.term < state.term:
            if is_from_leader:
                state.send(sender, StaleTerm(state.term))
            return
        if is_from_leader and not isinstance(self._role, Follower):
            assert not isinstance(self._role, Leader), "one term, one leader"
            self._become(BecomeFollower(state.term, sender))
        self._role.received(sender, message)

    def _vote(self, candidate: Member, request: VoteRequest) -> None:
        state = self._state
        is_leased = self._role.is_leased() and not request.is_transfer
        if not request.is_pre_vote and (request.term < state.term or is_leased):
            state.send(candidate, VoteResponse(state.term, is_granted=False))
            return
        if not request.is_pre_vote and request.term > state.term:
            self._become(BecomeFollower(request.term))
        if vote(state, candidate, request, is_leased=is_leased):
            self._role.voted()

    def _become(self, transition: Transition) -> None:
        state = self._state
        self._role.end()
        match transition:
            case BecomeFollower(term, leader):
                if term > state.term:
                    state.set_vote(term, None)
                self._role = self.follower_type(state, self._receiving, leader)
            case BecomeCandidate():
                self._role = self.candidate_type(state, transition)
            case BecomeLeader():
                self._role = self.leader_type(state)
            case _:
                assert_never(transition)
        self._role.begin()
