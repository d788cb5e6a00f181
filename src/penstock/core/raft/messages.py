"""Messages between members, and the events, commands and effects of `Raft.step`.

Every message carries its sender's term.
"""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.model import ApiError
from penstock.core.raft.types import (
    Change,
    CommandId,
    Configuration,
    Entry,
    HardState,
    Index,
    Member,
    SnapshotMeta,
    Term,
)


class VoteRequest(Struct, frozen=True):
    """Will you vote for me in this term? A pre-vote asks whether you would, and binds nobody.

    `is_transfer`: the leader itself asked for this election, so its lease does not matter.
    """

    term: Term
    last_index: Index
    last_term: Term
    is_pre_vote: bool = False
    is_transfer: bool = False


class VoteResponse(Struct, frozen=True):
    """Yes carries the term that was asked about; no carries the voter's own.

    `is_doubtful`: the voter may have lost entries that it acknowledged, so its yes says little.
    """

    term: Term
    is_granted: bool
    is_pre_vote: bool = False
    is_doubtful: bool = False


class TermRequest(Struct, frozen=True):
    """Which term are you in? I have lost my hard state, and take no part until I know."""

    term: Term
    nonce: int


class TermResponse(Struct, frozen=True):
    """In this one, after I got the request with this nonce."""

    term: Term
    nonce: int


class AppendRequest(Struct, frozen=True):
    """These entries follow the one at `previous_index`."""

    term: Term
    previous_index: Index
    previous_term: Term
    entries: tuple[Entry, ...]
    commit: Index


class AppendResponse(Struct, frozen=True):
    """My synced log is the same as yours up to and including `match`."""

    term: Term
    match: Index


class AppendConflict(Struct, frozen=True):
    """I do not have the entry before yours; what we share ends at the hint, or before it.

    `is_doubtful`: whatever I have acknowledged before may be gone.
    """

    term: Term
    previous_index: Index
    hint_index: Index
    hint_term: Term
    is_doubtful: bool = False


class RaftHeartbeat(Struct, frozen=True):
    """I still lead. The response to round n proves that I led when round n was sent."""

    term: Term
    commit: Index
    round: int


class RaftHeartbeatResponse(Struct, frozen=True):
    """You do; and what an AppendResponse would say.

    `doubt`: my log is in doubt as of this term, and only a later one ends that.
    """

    term: Term
    round: int
    match: Index
    doubt: Term | None = None


class SnapshotChunk(Struct, frozen=True):
    """Bytes of a snapshot from `position` on."""

    term: Term
    snapshot: SnapshotMeta
    position: int
    content: bytes
    is_last: bool


class SnapshotChunkResponse(Struct, frozen=True):
    """Go on from `position`."""

    term: Term
    index: Index
    position: int


class TimeoutNow(Struct, frozen=True):
    """I hand over to you."""

    term: Term


class StaleTerm(Struct, frozen=True):
    """You lead a term that has passed."""

    term: Term


FromLeader: TypeAlias = AppendRequest | RaftHeartbeat | SnapshotChunk | TimeoutNow
FromFollower: TypeAlias = AppendResponse | AppendConflict | RaftHeartbeatResponse | SnapshotChunkResponse
Elections: TypeAlias = VoteRequest | VoteResponse | TermRequest | TermResponse
RaftMessage: TypeAlias = FromLeader | FromFollower | Elections | StaleTerm


class TimePassed(Struct, frozen=True):
    """It is `next_deadline()` or later."""


class MessageReceived(Struct, frozen=True):
    """A message arrived; both ends are as the handshake of their link named them."""

    sender: Member
    recipient: Member
    message: RaftMessage


class EntriesPersisted(Struct, frozen=True):
    """Write number `write` and all before it survive a power cut."""

    write: int


class SnapshotInstalled(Struct, frozen=True):
    """The log view now begins with this snapshot, durably, and has nothing else in it."""

    snapshot: SnapshotMeta


class SnapshotRejected(Struct, frozen=True):
    """What arrived is not this snapshot: it was dropped, and nothing has changed."""

    snapshot: SnapshotMeta


class LeaderGone(Struct, frozen=True):
    """The process of a leader has ended, as far as the host can see: waiting for it makes no sense.

    None: there has never been a leader, because the quorum was just bootstrapped.
    """

    leader: Member | None


class Propose(Struct, frozen=True):
    """Append payloads, one entry each; all of them or none."""

    ticket: CommandId
    payloads: tuple[bytes, ...]


class RequestRead(Struct, frozen=True):
    """Learn up to where the state must be applied to see everything that was acknowledged so far."""

    ticket: CommandId


class ChangeMembers(Struct, frozen=True):
    """Add, promote or remove one member."""

    ticket: CommandId
    change: Change


class TransferLeadership(Struct, frozen=True):
    """Let another voter lead."""

    ticket: CommandId
    target: Member


Command: TypeAlias = Propose | RequestRead | ChangeMembers | TransferLeadership
SnapshotOutcome: TypeAlias = SnapshotInstalled | SnapshotRejected
Event: TypeAlias = TimePassed | MessageReceived | EntriesPersisted | SnapshotOutcome | LeaderGone | Command


class PersistHardState(Struct, frozen=True):
    """Make the hard state durable before the next effect is begun."""

    hard_state: HardState


class TruncateLog(Struct, frozen=True):
    """Drop every entry from `start` on; an entry to put in its place follows."""

    start: Index


class StoreEntries(Struct, frozen=True):
    """Append entries, and sync them; `EntriesPersisted(write)` is expected when that is done.

    The log view must show them when the step's effects have been carried out; going on
    to the next effect does not wait for the sync.
    """

    entries: tuple[Entry, ...]
    write: int


class SendMessage(Struct, frozen=True):
    """Send a message, or lose it."""

    to: Member
    message: RaftMessage


class SendSnapshotChunk(Struct, frozen=True):
    """Read the snapshot at `position` and send a `SnapshotChunk` of at most `bytes_max`, or lose it."""

    to: Member
    term: Term
    snapshot: SnapshotMeta
    position: int
    bytes_max: int


class StoreSnapshotChunk(Struct, frozen=True):
    """Keep bytes of a snapshot that arrives; position 0 begins it anew."""

    snapshot: SnapshotMeta
    position: int
    content: bytes


class InstallSnapshot(Struct, frozen=True):
    """All chunks are there: replace state and log by it, or drop it; a `SnapshotOutcome` is expected."""

    snapshot: SnapshotMeta


class CommitUpTo(Struct, frozen=True):
    """Every entry up to and including `index` is final: apply them."""

    index: Index


class UseConfiguration(Struct, frozen=True):
    """These are the members from now on: keep links to them."""

    configuration: Configuration


class FollowLeader(Struct, frozen=True):
    """Note who leads the term; None: the leader is unknown."""

    term: Term
    leader: Member | None


class ReportBlockedElection(Struct, frozen=True):
    """A majority would elect us, but some of it doubt their logs: it takes the votes of all.

    `missing` have not voted for us.
    """

    doubtful: tuple[Member, ...]
    missing: tuple[Member, ...]


class StartLeading(Struct, frozen=True):
    """Proposals are taken; everything that earlier terms left behind is committed."""

    term: Term


class StopLeading(Struct, frozen=True):
    """No more. What was proposed in `term` and is not committed may be lost or not."""

    term: Term


class ProposalAccepted(Struct, frozen=True):
    """It is in the log of the leader of `term`, in entries `start` up to `end`."""

    term: Term
    start: Index
    end: Index


class ReadIndex(Struct, frozen=True):
    """Read once everything up to and including `index` is applied."""

    index: Index


class TransferStarted(Struct, frozen=True):
    """The target gets TimeoutNow as soon as it has the whole log."""


class CommandResult(Struct, frozen=True):
    """The result of a command."""

    ticket: CommandId
    outcome: ProposalAccepted | ReadIndex | TransferStarted | ApiError


Effect: TypeAlias = (
    PersistHardState
    | TruncateLog
    | StoreEntries
    | SendMessage
    | SendSnapshotChunk
    | StoreSnapshotChunk
    | InstallSnapshot
    | CommitUpTo
    | UseConfiguration
    | FollowLeader
    | ReportBlockedElection
    | StartLeading
    | StopLeading
    | CommandResult
)
