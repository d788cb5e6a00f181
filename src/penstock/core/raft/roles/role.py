"""What the roles have in common, and how a member passes from one to the next."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from penstock.core.model import Instant, Why
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.events import Command
from penstock.core.raft.identity import Member, Term
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import Message


class ToFollower(Struct, frozen=True):
    """Follow in `term`, the present one or a later one; the leader may be unknown."""

    term: Term
    leader: Member | None = None


class ToCandidate(Struct, frozen=True):
    """Ask for votes. A trial changes nothing yet; a transfer needs none."""

    is_trial: bool
    is_transfer: bool = False


class ToLeader(Struct, frozen=True):
    """A majority voted for us."""


Transition: TypeAlias = ToFollower | ToCandidate | ToLeader


class Role:
    """One way of taking part. A role that is over says in `next` what comes after it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
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
        """Whether a leader is at work that must not be deposed by somebody who cannot hear it."""
        return False

    def begin(self) -> None:
        """The role is taken up."""

    def end(self) -> None:
        """Another role takes over."""

    def time_passed(self) -> None:
        """The deadline is reached."""

    def received(self, sender: Member, message: Message) -> None:
        """A message of the present term."""

    def persisted(self) -> None:
        """More of the log is durable."""

    def voted(self) -> None:
        """We gave our vote to a candidate."""

    def installed(self, snapshot: SnapshotMeta) -> None:
        """A snapshot replaced the log."""

    def leader_gone(self, leader: Member | None) -> None:
        """The host says that this leader's process has ended."""

    def asked(self, command: Command) -> None:
        """Somebody wants something that only a leader can do."""
        self._ledger.refuse(command.ticket, Why.NOT_CONTROLLER, "this member does not lead")
