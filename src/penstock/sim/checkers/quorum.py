"""What a Raft quorum guarantees: one leader per term, one log, one order, fresh reads.

A `QuorumChecker` is called with what members do as they do it, and keeps the anomalies it sees. It
knows nothing of messages or disks: the same checker is used for bare machines on a small network
and for whole controllers in the simulator.
"""

from collections.abc import Callable, Sequence

from penstock.core.raft import Entry, HardState, Index, Member, Term


class QuorumChecker:
    """Everything that was ever elected, stored and committed in one quorum."""

    def __init__(self) -> None:
        self.anomalies: list[str] = []
        self.elections = 0
        self._leaders: dict[Term, Member] = {}
        # An entry and the term before it: if both always agree, whole logs do, by induction.
        self._stored: dict[tuple[Index, Term], tuple[object, Term | None]] = {}
        self._committed: dict[Index, tuple[Entry, Term]] = {}
        # The last committed entry that a member has acknowledged, in an earlier life.
        self._owed: dict[Member, Entry] = {}

    @property
    def committed(self) -> Index:
        """The highest index that anybody has called committed."""
        return Index(max(self._committed, default=0))

    def content(self) -> list[Entry]:
        """Every committed entry, in order."""
        return [self._committed[index][0] for index in sorted(self._committed)]

    def restarted(self, member: Member, before: HardState, after: HardState) -> None:
        """A member is back: it must know its term, and whom it has voted for in it."""
        forgot_vote = after.term == before.term and before.voted_for not in (None, after.voted_for)
        if after.term < before.term or forgot_vote:
            self._note(
                f"forgotten vote: {member.node_id} was in term {before.term}, and is back in {after.term}"
                + (" without its vote" if forgot_vote else "")
            )

    def ended(self, member: Member, persisted: Index, term_at: Callable[[Index], Term | None]) -> None:
        """A member is about to come back; its log was durable up to `persisted`."""
        owed = [
            entry
            for index, (entry, _) in self._committed.items()
            if index <= persisted and term_at(index) == entry.term
        ]
        newest = max(owed, key=lambda entry: entry.index, default=None)
        if newest is not None and newest.index > (self._owed[member].index if member in self._owed else 0):
            self._owed[member] = newest

    def is_sure(self, member: Member, term_at: Callable[[Index], Term | None], covered: Index) -> None:
        """A member is in no doubt of its log: then it has what it once acknowledged, if that is committed."""
        entry = self._owed.get(member)
        if entry is not None and entry.index > covered and term_at(entry.index) != entry.term:
            self._note(
                f"unnoticed loss: member {member.node_id} is sure of its log, and lost entry {entry.index}"
            )

    def became_leader(
        self, member: Member, term: Term, term_at: Callable[[Index], Term | None], covered: Index
    ) -> None:
        """A member leads; its log has `term_at`, beyond a snapshot that covers everything up to `covered`."""
        self.elections += 1
        rival = self._leaders.setdefault(term, member)
        if rival != member:
            self._note(f"two leaders in term {term}: {rival.node_id} and {member.node_id}")
        for index, (entry, known_in) in self._committed.items():
            if known_in < term and index > covered and term_at(index) != entry.term:
                self._note(f"leader {member.node_id} of term {term} lacks committed entry {index}")
                break

    def stored(self, member: Member, entries: Sequence[Entry], previous_term: Term | None) -> None:
        """A member has entries in its log, behind one of `previous_term`."""
        for entry in entries:
            name = (entry.index, entry.term)
            known = self._stored.setdefault(name, (entry.content, previous_term))
            if known != (entry.content, previous_term):
                self._note(f"logs part: member {member.node_id} has another entry {entry.index}/{entry.term}")
            previous_term = entry.term

    def was_committed(self, member: Member, entry: Entry, term: Term) -> None:
        """A member, in `term`, considers an entry committed."""
        known, _ = self._committed.setdefault(entry.index, (entry, term))
        if known != entry:
            self._note(
                f"member {member.node_id} applied {entry.index}/{entry.term} where "
                f"others applied {known.index}/{known.term}"
            )

    def was_read(self, member: Member, floor: Index, index: Index) -> None:
        """A read that began when `floor` was committed returned the state at `index`."""
        if index < floor:
            self._note(f"stale read at member {member.node_id}: {index}, though {floor} was committed")

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
