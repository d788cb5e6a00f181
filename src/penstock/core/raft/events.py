"""What can happen to a member."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.raft.configuration import Change
from penstock.core.raft.entries import SnapshotMeta
from penstock.core.raft.identity import Member, Ticket
from penstock.core.raft.messages import Message


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `next_deadline()` or later."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived; both ends are as the handshake of their link named them."""

    sender: Member
    recipient: Member
    message: Message


@dataclass(frozen=True, slots=True)
class Persisted:
    """Write number `write` and all before it survive a power cut."""

    write: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The log view now begins with this snapshot, durably, and has nothing else in it."""

    snapshot: SnapshotMeta


@dataclass(frozen=True, slots=True)
class Propose:
    """Append payloads, one entry each; all of them or none."""

    ticket: Ticket
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RequestRead:
    """Learn up to where the state must be applied to see everything that was acknowledged so far."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Add, promote or remove one member."""

    ticket: Ticket
    change: Change


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Let another voter lead."""

    ticket: Ticket
    target: Member


Command: TypeAlias = Propose | RequestRead | ChangeMembers | TransferLeadership
Event: TypeAlias = TimePassed | Received | Persisted | SnapshotInstalled | Command
