"""Who votes in the metadata quorum is what was acknowledged last.

    lost voter change    a leader of that term or a later one describes another set of voters

A change whose outcome nobody knows may take effect at any time: of that node nothing is known any more.
A leader that was cut off describes the quorum of its own term.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID


class VoterChange(NamedTuple):
    """One attempt to make somebody a voter, or not one any more."""

    node: int
    directory_id: UUID
    is_voter: bool


class _Acknowledged(NamedTuple):
    change: VoterChange
    term: int


KnownVoters: TypeAlias = tuple[_Acknowledged, ...]


@dataclass(slots=True)
class VoterChecker:
    """What clients changed, and whom leaders called voters."""

    anomalies: list[str] = field(default_factory=list)
    changes: int = 0
    _acknowledged: dict[int, _Acknowledged] = field(default_factory=dict)
    # Nodes with a change under way, or of unknown outcome.
    _uncertain: dict[int, int] = field(default_factory=dict)

    def changing(self, node: int, directory_id: UUID, *, is_voter: bool) -> VoterChange:
        """A client asks for a change."""
        self._uncertain[node] = self._uncertain.get(node, 0) + 1
        return VoterChange(node, directory_id, is_voter)

    def done(self, change: VoterChange, term: int) -> None:
        """It was acknowledged; no leader of a later term was there yet."""
        self.changes += 1
        self.refused(change)
        self._acknowledged[change.node] = _Acknowledged(change, term)

    def refused(self, change: VoterChange) -> None:
        """It was rejected, and so never happens."""
        self._uncertain[change.node] -= 1

    def asking(self) -> KnownVoters:
        """A client asks who votes: what it must be told at least."""
        return tuple(known for node, known in self._acknowledged.items() if not self._uncertain.get(node))

    def described(self, known: KnownVoters, term: int, voters: Mapping[int, UUID]) -> None:
        """The leader of a term has described the quorum to who knew `known` when asking."""
        for change, since in known:
            is_voter = voters.get(change.node) == change.directory_id
            # On another disk it is another voter.
            is_another = change.node in voters and not is_voter
            if term >= since and is_voter != change.is_voter and not is_another:
                wanted = "a voter" if change.is_voter else "no voter"
                self._note(
                    f"lost voter change: {change.node} is {wanted} since term {since}, "
                    f"and the leader of term {term} counts {sorted(voters)}"
                )

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
