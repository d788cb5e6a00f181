"""Which protocol a generation uses: one that every member supports and most prefer."""

from collections.abc import Iterable

from penstock.core.groups.classic.member import Member
from penstock.core.groups.commands import MemberProtocol


class Ballot:
    """How many members support each protocol, kept up to date as they come and go."""

    __slots__ = ("_supporters",)

    def __init__(self) -> None:
        self._supporters: dict[str, int] = {}

    def add(self, protocols: Iterable[MemberProtocol]) -> None:
        for protocol in protocols:
            self._supporters[protocol.name] = self._supporters.get(protocol.name, 0) + 1

    def remove(self, protocols: Iterable[MemberProtocol]) -> None:
        for protocol in protocols:
            left = self._supporters[protocol.name] - 1
            if left:
                self._supporters[protocol.name] = left
            else:
                del self._supporters[protocol.name]

    def supported_by(self, protocol: str, count: int) -> bool:
        return self._supporters.get(protocol, 0) == count

    def winner(self, members: dict[str, Member]) -> str:
        """Each member votes for the first of its protocols that all support; the most votes win.

        A tie goes to the protocol that was voted for first, so the choice is deterministic.
        """
        votes: dict[str, int] = {}
        for member in members.values():
            choice = next(p.name for p in member.protocols if self.supported_by(p.name, len(members)))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])


def distinct(protocols: tuple[MemberProtocol, ...]) -> tuple[MemberProtocol, ...]:
    """The protocols with repeated names dropped: a member has one vote and one metadata per name."""
    names = {protocol.name for protocol in protocols}
    if len(names) == len(protocols):
        return protocols
    return tuple({protocol.name: protocol for protocol in reversed(protocols)}.values())[::-1]
