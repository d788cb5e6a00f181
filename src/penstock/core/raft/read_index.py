"""Reads that see everything that was acknowledged before they began."""

from collections import deque

from msgspec import Struct

from penstock.core.model import ErrorKind
from penstock.core.raft.messages import CommandResult, ReadIndex
from penstock.core.raft.state import RaftState
from penstock.core.raft.types import CommandId, Index


class PendingRead(Struct, frozen=True):
    """Completes once `round` shows that we led after it was requested."""

    ticket: CommandId
    index: Index
    round: int


class ReadIndexQueue:
    """Reads that wait for a majority to confirm that we still lead.

    One round of heartbeats serves all reads that were requested before it was sent.
    """

    def __init__(self, state: RaftState) -> None:
        self._state = state
        # Before the first commit of our term we do not know what earlier leaders committed.
        self._early: list[CommandId] = []
        self._waiting: deque[PendingRead] = deque()

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def ask_early(self, ticket: CommandId) -> None:
        self._early.append(ticket)

    def ask(self, ticket: CommandId, next_round: int) -> None:
        self._waiting.append(PendingRead(ticket, self._state.commit, next_round))

    def establish(self, next_round: int) -> None:
        """Queue the early reads for the next round: our term has its first commit."""
        early, self._early = self._early, []
        for ticket in early:
            self.ask(ticket, next_round)

    def waits_beyond(self, round_sent: int) -> bool:
        """Whether a read needs a round that was not sent yet."""
        return bool(self._waiting) and self._waiting[-1].round > round_sent

    def confirm(self, round_confirmed: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].round <= round_confirmed:
            read = waiting.popleft()
            self._state.effects.append(CommandResult(read.ticket, ReadIndex(read.index)))

    def refuse_all(self) -> None:
        for ticket in (*self._early, *(read.ticket for read in self._waiting)):
            self._state.refuse(ticket, ErrorKind.NOT_CONTROLLER, "this member does not lead")
        self._early.clear()
        self._waiting.clear()
