"""What a member keeps in every role: hard state, log, members, commit, and the effects of this step."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from penstock.core.model import ApiError, ErrorKind, Instant
from penstock.core.raft.log import LogView, RaftLog
from penstock.core.raft.messages import (
    CommandResult,
    CommitUpTo,
    Effect,
    FollowLeader,
    PersistHardState,
    RaftMessage,
    SendMessage,
    StoreEntries,
    TruncateLog,
    UseConfiguration,
)
from penstock.core.raft.types import (
    CommandId,
    Configuration,
    ConfigurationAt,
    Content,
    Entry,
    HardState,
    Index,
    Member,
    RaftOptions,
    SnapshotMeta,
    Term,
)


class RecoveredState(Struct, frozen=True):
    """What a member finds on disk at a start: its hard state, and the configurations in its log, in order.

    Without a hard state it has lost it; a new member has `BLANK_BALLOT`.
    """

    hard_state: HardState | None
    configurations: tuple[ConfigurationAt, ...] = ()


class RaftState:
    """The state that all roles share. Every change of it that must last adds an effect."""

    def __init__(
        self,
        me: Member,
        view: LogView,
        recovered: RecoveredState,
        options: RaftOptions,
        draw: Callable[[int], int],
    ) -> None:
        self.me = me
        self.options = options
        self.now = Instant(0)
        self.log = RaftLog(view)
        # If it is lost, no term below that of the log comes into question.
        self.hard_state = recovered.hard_state or HardState(self.log.last_term, None)
        self.commit = view.snapshot.index
        self.effects: list[Effect] = []
        self._draw = draw
        self._leader_told: tuple[Term, Member | None] = (self.term, None)
        founded = ConfigurationAt(view.snapshot.index, view.snapshot.configuration)
        later = (at for at in recovered.configurations if at.index > founded.index)
        self._history = [founded, *later]

    @property
    def term(self) -> Term:
        return self.hard_state.term

    @property
    def doubt(self) -> Term | None:
        return self.hard_state.doubt

    @property
    def configuration(self) -> Configuration:
        """The newest one, committed or not: it counts as soon as it is in the log."""
        return self._history[-1].configuration

    @property
    def configuration_index(self) -> Index:
        return self._history[-1].index

    @property
    def may_campaign(self) -> bool:
        """Whether any configuration that may be in force has us as a voter.

        Not only the newest: if the one that removes us is not committed, we may be the
        only one who has it, and then no other member can win.
        """
        for at in reversed(self._history):
            if self.me in at.configuration.voters:
                return True
            if at.index <= self.commit:
                return False
        return False

    def election_deadline(self) -> Instant:
        """Election timeouts are drawn at random, so that one member usually campaigns first."""
        patience_ns = self.options.election_ns
        return Instant(self.now + patience_ns + self._draw(patience_ns))

    def retry_deadline(self) -> Instant:
        """When a candidate that was not elected asks for votes again."""
        options = self.options
        return Instant(self.now + options.heartbeat_ns + self._draw(options.election_ns // 2))

    def early_deadline(self) -> Instant:
        """When to campaign after the leader's process ended; drawn, because all members see that at once."""
        return Instant(self.now + self._draw(self.options.heartbeat_ns))

    def nonce(self) -> int:
        """A number that no message of an earlier start carries."""
        return self._draw(1 << 62)

    def send(self, to: Member, message: RaftMessage) -> None:
        self.effects.append(SendMessage(to, message))

    def refuse(self, ticket: CommandId, kind: ErrorKind, detail: str) -> None:
        self.effects.append(CommandResult(ticket, ApiError(kind, detail)))

    def set_vote(self, term: Term, voted_for: Member | None) -> None:
        """Enter a term, or vote in it; later effects are carried out only when that is durable."""
        self._set_hard_state(HardState(term, voted_for, self.doubt))

    def _set_hard_state(self, ballot: HardState) -> None:
        assert ballot.term >= self.hard_state.term
        if ballot == self.hard_state:
            return
        self.hard_state = ballot
        self._withdraw_hard_state()
        self.effects.append(PersistHardState(ballot))

    def doubt_until_after(self, term: Term) -> None:
        """Doubt the log as of this term; votes in it, and in all before it, count as given."""
        assert self.doubt is None or self.doubt <= term
        self._set_hard_state(HardState(term, self.me, doubt=term))

    def settle_doubt(self) -> None:
        """End the doubt once the log holds, durably, a committed entry of a later term.

        Its leader was elected by voters that lost nothing, or by all, so it had every entry that
        was committed with our help before, and so have we now. A leader of the doubtful term itself
        proves nothing: it may still count what we acknowledged and lost.
        """
        if self.doubt is None or self.term <= self.doubt or self.log.persisted < self.commit:
            return
        if self.log.term_at(self.commit) == self.term:
            self.hard_state = self.hard_state._replace(doubt=None)
            self.effects.append(PersistHardState(self.hard_state))

    def _withdraw_hard_state(self) -> None:
        """Drop the first of two hard states in one step, unless something was sent that depends on it."""
        for position in range(len(self.effects) - 1, -1, -1):
            if isinstance(self.effects[position], SendMessage):
                return
            if isinstance(self.effects[position], PersistHardState):
                del self.effects[position]
                return

    def set_leader(self, leader: Member | None) -> None:
        """Emit who leads the present term, if that has changed."""
        if self._leader_told != (self.term, leader):
            self._leader_told = (self.term, leader)
            self.effects.append(FollowLeader(self.term, leader))

    def append_own(self, contents: Sequence[Content]) -> tuple[Entry, ...]:
        """Append as the leader of the present term."""
        start = self.log.last + 1
        entries = tuple(
            Entry(Index(start + number), self.term, content) for number, content in enumerate(contents)
        )
        self.append(entries)
        return entries

    def append(self, entries: Sequence[Entry]) -> None:
        """Store entries; they replace what is in the log from their first index on."""
        start = entries[0].index
        before = self.configuration
        if start <= self.log.last:
            assert start > self.commit, "committed entries are never replaced"
            self.log.truncate(start)
            self.effects.append(TruncateLog(start))
            while self._history[-1].index >= start:
                self._history.pop()
        write = self.log.append(entries)
        self.effects.append(StoreEntries(tuple(entries), write))
        for entry in entries:
            if isinstance(entry.content, Configuration):
                self._history.append(ConfigurationAt(entry.index, entry.content))
        if self.configuration != before:
            self.effects.append(UseConfiguration(self.configuration))

    def commit_up_to(self, index: Index) -> None:
        if index > self.commit:
            assert index <= self.log.last, "committed entries are in the log"
            self.commit = index
            self.effects.append(CommitUpTo(index))

    def describe(self, index: Index) -> SnapshotMeta:
        """What a snapshot of everything up to and including `index` says of itself."""
        # Beyond our own sync a power cut could leave a snapshot whose log ends before it.
        assert index <= min(self.commit, self.log.persisted), "a snapshot holds what is final and durable"
        term = self.log.term_at(index)
        assert term is not None
        covered = self.log.snapshot.index
        while len(self._history) > 1 and self._history[1].index <= covered:
            del self._history[0]
        newest = next(at for at in reversed(self._history) if at.index <= index)
        return SnapshotMeta(index, term, newest.configuration)

    def restart(self, snapshot: SnapshotMeta) -> None:
        """Go on from a snapshot that has replaced the whole log."""
        before = self.configuration
        self.log.restart()
        assert self.log.last == snapshot.index
        self.commit = snapshot.index
        self._history = [ConfigurationAt(snapshot.index, snapshot.configuration)]
        if self.configuration != before:
            self.effects.append(UseConfiguration(self.configuration))
