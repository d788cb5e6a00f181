"""What the host has to do, in the order of the list."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.model import Refused
from penstock.core.raft.configuration import Configuration
from penstock.core.raft.entries import Entry, SnapshotMeta
from penstock.core.raft.identity import Ballot, Index, Member, Term, Ticket
from penstock.core.raft.messages import Message


class PersistBallot(Struct, frozen=True):
    """Make the ballot durable before the next effect is begun."""

    ballot: Ballot


class TruncateLog(Struct, frozen=True):
    """Drop every entry from `start` on; an entry to put in its place follows."""

    start: Index


class StoreEntries(Struct, frozen=True):
    """Append entries, and sync them; `Persisted(write)` is expected when that is done.

    The log view must show them when the step's effects have been carried out; going on
    to the next effect does not wait for the sync.
    """

    entries: tuple[Entry, ...]
    write: int


class Send(Struct, frozen=True):
    """Send a message, or lose it."""

    to: Member
    message: Message


class SendSnapshotChunk(Struct, frozen=True):
    """Read the snapshot at `position` and send a `SnapshotChunk` of at most `bytes_max`, or lose it."""

    to: Member
    term: Term
    snapshot: SnapshotMeta
    position: int
    bytes_max: int


class StoreChunk(Struct, frozen=True):
    """Keep bytes of a snapshot that arrives; position 0 begins it anew."""

    snapshot: SnapshotMeta
    position: int
    content: bytes


class InstallSnapshot(Struct, frozen=True):
    """All chunks are there: replace state and log by it; `SnapshotInstalled` is expected."""

    snapshot: SnapshotMeta


class CommitUpTo(Struct, frozen=True):
    """Every entry up to and including `index` is final: apply them."""

    index: Index


class UseConfiguration(Struct, frozen=True):
    """These are the members from now on: keep links to them."""

    configuration: Configuration


class FollowLeader(Struct, frozen=True):
    """Know who leads the term; None: nobody that we have heard of."""

    term: Term
    leader: Member | None


class StartLeading(Struct, frozen=True):
    """Proposals are taken; everything that earlier terms left behind is committed."""

    term: Term


class StopLeading(Struct, frozen=True):
    """No more. What was proposed in `term` and is not committed may be lost or not."""

    term: Term


class Accepted(Struct, frozen=True):
    """It is in the log of the leader of `term`, in entries `start` up to `end`."""

    term: Term
    start: Index
    end: Index


class ReadableFrom(Struct, frozen=True):
    """Read once everything up to and including `index` is applied."""

    index: Index


class HandingOver(Struct, frozen=True):
    """The target is asked to campaign as soon as it has the whole log."""


class Answer(Struct, frozen=True):
    """The answer to a command."""

    ticket: Ticket
    outcome: Accepted | ReadableFrom | HandingOver | Refused


Effect: TypeAlias = (
    PersistBallot
    | TruncateLog
    | StoreEntries
    | Send
    | SendSnapshotChunk
    | StoreChunk
    | InstallSnapshot
    | CommitUpTo
    | UseConfiguration
    | FollowLeader
    | StartLeading
    | StopLeading
    | Answer
)
