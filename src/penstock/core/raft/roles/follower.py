"""Follows whoever leads: checks, stores, and answers when it is durable."""

from penstock.core.model import Instant
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.identity import Index, Member
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import (
    AppendAnswer,
    AppendConflict,
    AppendRequest,
    CampaignNow,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    SnapshotChunk,
)
from penstock.core.raft.roles.receiving import Receiving
from penstock.core.raft.roles.role import Role, ToCandidate


class Follower(Role):
    """A voter or learner that does not campaign.

    `_verified` is how far our log is known to be the leader's; what we claim of it in
    answers is the part that is synced.
    """

    def __init__(self, ledger: Ledger, receiving: Receiving, leader: Member | None) -> None:
        super().__init__(ledger)
        self._receiving = receiving
        self._leader = leader
        self._heard_at = self._ledger.now
        self._deadline = ledger.election_deadline()
        # Whatever is committed is in the log of every later leader.
        self._verified = ledger.commit
        self._is_answer_due = False

    @property
    def leader(self) -> Member | None:
        return self._leader

    @property
    def deadline(self) -> Instant | None:
        # Half a snapshot is nothing to campaign with.
        busy = self._receiving.is_installing or not self._ledger.may_campaign
        return None if busy else self._deadline

    @property
    def _match(self) -> Index:
        return min(self._verified, self._ledger.log.persisted)

    def campaign_now(self) -> None:
        """Wait no longer."""
        self._deadline = self._ledger.now

    def is_leased(self) -> bool:
        silent_ns = self._ledger.now - self._heard_at
        return self._leader is not None and silent_ns < self._ledger.options.election_ns

    def begin(self) -> None:
        self._ledger.follow(self._leader)

    def time_passed(self) -> None:
        self.next = ToCandidate(is_trial=True)

    def voted(self) -> None:
        self._deadline = self._ledger.election_deadline()

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
        # Should it be there after all, its next message makes it our leader again.
        self._leader = None
        self._ledger.follow(None)
        self._deadline = min(self._deadline, self._ledger.early_deadline())

    def received(self, sender: Member, message: Message) -> None:
        match message:
            case AppendRequest():
                self._hear(sender)
                self._append(sender, message)
            case Heartbeat():
                self._hear(sender)
                self._ledger.commit_up_to(min(message.commit, self._verified))
                answer = HeartbeatAnswer(self._ledger.term, message.round, self._match)
                self._ledger.send(sender, answer)
            case SnapshotChunk():
                self._hear(sender)
                self._receive_chunk(sender, message)
            case CampaignNow():
                if self._ledger.may_campaign and not self._receiving.is_installing:
                    self.next = ToCandidate(is_trial=False, is_transfer=True)
            case _:
                pass  # an answer to what we asked in another role

    def _hear(self, leader: Member) -> None:
        self._heard_at = self._ledger.now
        self._deadline = self._ledger.election_deadline()
        if leader != self._leader:
            assert self._leader is None, "one term, one leader"
            self._leader = leader
            self._ledger.follow(leader)

    def _append(self, leader: Member, request: AppendRequest) -> None:
        if self._receiving.is_installing:
            return
        ledger, log = self._ledger, self._ledger.log
        # A late duplicate may begin before the commit; what it says of that part we know.
        known = max(0, ledger.commit - request.previous_index)
        entries = request.entries[known:]
        if known == 0 and log.term_at(request.previous_index) != request.previous_term:
            hint = log.agreement(request.previous_index, request.previous_term)
            ledger.send(leader, AppendConflict(ledger.term, request.previous_index, *hint))
            return
        for position, entry in enumerate(entries):
            # Only a conflict cuts: a late duplicate of a short request must not take what came after it.
            if log.term_at(entry.index) != entry.term:
                assert entry.index > self._verified, "a leader never changes its own log"
                ledger.append(entries[position:])
                break
        self._verified = max(self._verified, Index(request.previous_index + len(request.entries)))
        ledger.commit_up_to(min(request.commit, self._verified))
        if log.persisted >= self._verified or not entries:
            self._answer(leader)
        else:
            self._is_answer_due = True

    def _answer(self, leader: Member) -> None:
        self._ledger.send(leader, AppendAnswer(self._ledger.term, self._match))
        self._is_answer_due = self._match < self._verified

    def _receive_chunk(self, leader: Member, chunk: SnapshotChunk) -> None:
        ledger, snapshot = self._ledger, chunk.snapshot
        if self._receiving.is_installing:
            return
        if snapshot.index <= ledger.commit:
            self._answer(leader)
        elif ledger.log.term_at(snapshot.index) == snapshot.term:
            # We have the entries themselves.
            self._verified = max(self._verified, snapshot.index)
            ledger.commit_up_to(snapshot.index)
            self._answer(leader)
        else:
            self._receiving.take(leader, chunk)
