"""What can happen to a member."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.raft.configuration import Change
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.identity import Member, Ticket
from penstock.core.raft.messages import Message


class TimePassed(Struct, frozen=True):
    """It is `next_deadline()` or later."""


class Received(Struct, frozen=True):
    """A message arrived; both ends are as the handshake of their link named them."""

    sender: Member
    recipient: Member
    message: Message


class Persisted(Struct, frozen=True):
    """Write number `write` and all before it survive a power cut."""

    write: int


class SnapshotInstalled(Struct, frozen=True):
    """The log view now begins with this snapshot, durably, and has nothing else in it."""

    snapshot: SnapshotMeta


class LeaderGone(Struct, frozen=True):
    """The process of a leader has ended, as far as the host can see: waiting for it makes no sense.

    None: there has never been a leader, for the quorum was just founded.
    """

    leader: Member | None


class Propose(Struct, frozen=True):
    """Append payloads, one entry each; all of them or none."""

    ticket: Ticket
    payloads: tuple[bytes, ...]


class RequestRead(Struct, frozen=True):
    """Learn up to where the state must be applied to see everything that was acknowledged so far."""

    ticket: Ticket


class ChangeMembers(Struct, frozen=True):
    """Add, promote or remove one member."""

    ticket: Ticket
    change: Change


class TransferLeadership(Struct, frozen=True):
    """Let another voter lead."""

    ticket: Ticket
    target: Member


Command: TypeAlias = Propose | RequestRead | ChangeMembers | TransferLeadership
Event: TypeAlias = TimePassed | Received | Persisted | SnapshotInstalled | LeaderGone | Command
