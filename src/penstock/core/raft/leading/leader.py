"""Leads: takes proposals, brings them to a majority, and knows when it no longer has one."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import assert_never

from penstock.core.model import Instant, Refused, Why
from penstock.core.raft.configuration import Configuration, changed
from penstock.core.raft.effects import (
    Accepted,
    Answer,
    Effect,
    HandingOver,
    StartLeading,
    StopLeading,
)
from penstock.core.raft.entries import ENTRY_OVERHEAD_BYTES, Content
from penstock.core.raft.events import (
    ChangeMembers,
    Command,
    Propose,
    RequestRead,
    TransferLeadership,
)
from penstock.core.raft.identity import Index, Member
from penstock.core.raft.leading.changes import check_any_change, check_change
from penstock.core.raft.leading.handover import Handover
from penstock.core.raft.leading.progress import Progress
from penstock.core.raft.leading.reads import Reads
from penstock.core.raft.leading.replication import Replication
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import (
    AppendAnswer,
    AppendConflict,
    ChunkAnswer,
    HeartbeatAnswer,
    Message,
)
from penstock.core.raft.roles import Role, ToFollower

HANDING_OVER = "leadership is being handed over"


class Leader(Role):
    """The leader of a term."""

    replication_type = Replication

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._term = ledger.term
        self._replication = self.replication_type(ledger)
        self._reads = Reads(ledger)
        self._handover = Handover(ledger)
        self._beat_at = ledger.now
        self._check_at = Instant(ledger.now + ledger.options.election_ns)
        self._uncommitted: deque[tuple[Index, int]] = deque()
        self._uncommitted_bytes = 0
        self._is_established = False
        # What earlier terms left is committed by committing something of our own behind it:
        # an old entry on a majority can still be replaced, one below a committed one cannot.
        self._term_start = Index(ledger.log.last + 1)

    @property
    def deadline(self) -> Instant | None:
        handover = self._handover.deadline
        soonest = min(self._beat_at, self._check_at)
        return soonest if handover is None else min(soonest, handover)

    @property
    def leader(self) -> Member | None:
        return self._ledger.me

    @property
    def followers(self) -> Mapping[Member, Progress]:
        return self._replication.others

    def is_leased(self) -> bool:
        # If we are cut off, the check for a majority will tell us.
        return True

    def begin(self) -> None:
        self._ledger.follow(self._ledger.me)
        self._append((None,))
        self._beat()

    def end(self) -> None:
        effects: list[Effect] = self._ledger.effects
        if self._is_established:
            effects.append(StopLeading(self._term))
        self._reads.refuse_all()

    def time_passed(self) -> None:
        now = self._ledger.now
        if now >= self._check_at:
            self._check_at = Instant(now + self._ledger.options.heartbeat_ns)
            if not self._replication.hears_majority():
                self.next = ToFollower(self._term)
                return
        self._handover.time_passed()
        if now >= self._beat_at:
            self._beat()

    def _beat(self) -> None:
        self._beat_at = Instant(self._ledger.now + self._ledger.options.heartbeat_ns)
        self._replication.beat()
        self._handover.nudge(self._replication)
        self._confirm_reads()

    def persisted(self) -> None:
        self._advance()

    def received(self, sender: Member, message: Message) -> None:
        replication = self._replication
        peer = replication.of(sender)
        if peer is None:
            return  # no member, or no longer
        peer.heard_at = self._ledger.now
        match message:
            case AppendAnswer():
                if replication.answered(sender, message):
                    self._advance()
            case HeartbeatAnswer():
                if replication.beaten(sender, message):
                    self._advance()
                self._confirm_reads()
            case AppendConflict():
                replication.conflicted(sender, message)
            case ChunkAnswer():
                replication.chunk_stored(sender, message)
            case _:
                pass  # a vote that came after the count
        self._handover.nudge(replication)

    def _countable(self, index: Index) -> bool:
        """Whether copies of this entry count: only of our own term, see `_term_start`."""
        return self._ledger.log.term_at(index) == self._term

    def _advance(self) -> None:
        """A majority may have more than it had."""
        ledger = self._ledger
        agreed = self._replication.agreed()
        if agreed <= ledger.commit or not self._countable(agreed):
            return
        ledger.commit_up_to(agreed)
        while self._uncommitted and self._uncommitted[0][0] <= agreed:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        if not self._is_established and agreed >= self._term_start:
            self._is_established = True
            ledger.effects.append(StartLeading(self._term))
            self._reads.establish(self._replication.round + 1)
            self._confirm_reads()
        self._replication.send_all()
        if ledger.me not in ledger.configuration.voters and ledger.configuration_index <= agreed:
            self.next = ToFollower(self._term)

    def _append(self, contents: Sequence[Content]) -> tuple[Index, Index]:
        entries = self._ledger.append_own(contents)
        for entry in entries:
            self._uncommitted.append((entry.index, entry.size_bytes))
            self._uncommitted_bytes += entry.size_bytes
        self._replication.send_all()
        return entries[0].index, Index(entries[-1].index + 1)

    def asked(self, command: Command) -> None:
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
        ledger, options = self._ledger, self._ledger.options
        size_bytes = sum(map(len, command.payloads)) + ENTRY_OVERHEAD_BYTES * len(command.payloads)
        assert command.payloads, "nothing is proposed"
        if self._handover.is_underway:
            ledger.refuse(command.ticket, Why.QUORUM_BUSY, HANDING_OVER)
        elif max(map(len, command.payloads)) > options.payload_bytes_max:
            ledger.refuse(command.ticket, Why.INVALID_REQUEST, "payload is larger than an entry may be")
        elif self._uncommitted_bytes + size_bytes > options.uncommitted_bytes_max:
            ledger.refuse(command.ticket, Why.QUORUM_BUSY, "too much waits to be committed")
        else:
            start, end = self._append(command.payloads)
            ledger.effects.append(Answer(command.ticket, Accepted(self._term, start, end)))

    def _request_read(self, command: RequestRead) -> None:
        if len(self._reads) >= self._ledger.options.reads_waiting_max:
            self._ledger.refuse(command.ticket, Why.QUORUM_BUSY, "too many reads wait to be confirmed")
        elif not self._is_established:
            self._reads.ask_early(command.ticket)
        else:
            self._reads.ask(command.ticket, self._replication.round + 1)
            self._confirm_reads()

    def _confirm_reads(self) -> None:
        """Answer reads that are covered, and send a round for the rest unless one is underway."""
        confirmed, sent = self._replication.confirmed(), self._replication.round
        self._reads.confirm(confirmed)
        if confirmed == sent and self._reads.waits_beyond(sent):
            self._beat()

    def _change_members(self, command: ChangeMembers) -> None:
        ledger = self._ledger
        refused = (
            Refused(Why.QUORUM_BUSY, HANDING_OVER)
            if self._handover.is_underway
            else self._check_any_change() or check_change(ledger, command.change, self._replication)
        )
        if refused is not None:
            ledger.effects.append(Answer(command.ticket, refused))
            return
        start, end = self._append_configuration(changed(ledger.configuration, command.change))
        ledger.effects.append(Answer(command.ticket, Accepted(self._term, start, end)))

    def _check_any_change(self) -> Refused | None:
        return check_any_change(self._ledger, self._term_start)

    def _append_configuration(self, configuration: Configuration) -> tuple[Index, Index]:
        start, end = self._append((configuration,))
        # A newcomer is asked at once what it has.
        self._replication.reconfigure(start)
        self._replication.send_all()
        # A smaller majority may be there already.
        self._advance()
        return start, end

    def _transfer(self, command: TransferLeadership) -> None:
        ledger = self._ledger
        if command.target not in ledger.configuration.voters:
            ledger.refuse(command.ticket, Why.VOTER_NOT_FOUND, "is no voter")
            return
        ledger.effects.append(Answer(command.ticket, HandingOver()))
        if command.target != ledger.me:
            self._handover.begin(command.target)
            self._handover.nudge(self._replication)
