"""What members say to each other. Every message carries its sender's term."""

from typing import TypeAlias

from msgspec import Struct

from penstock.core.raft.entries import Entry, SnapshotMeta
from penstock.core.raft.identity import Index, Term


class VoteRequest(Struct, frozen=True):
    """Will you vote for me in this term? A trial asks whether you would, and binds nobody.

    `is_transfer`: the leader itself asked for this election, so its lease does not matter.
    """

    term: Term
    last_index: Index
    last_term: Term
    is_trial: bool = False
    is_transfer: bool = False


class VoteAnswer(Struct, frozen=True):
    """Yes carries the term that was asked about; no carries the voter's own."""

    term: Term
    is_granted: bool
    is_trial: bool = False


class AppendRequest(Struct, frozen=True):
    """These entries follow the one at `previous_index`."""

    term: Term
    previous_index: Index
    previous_term: Term
    entries: tuple[Entry, ...]
    commit: Index


class AppendAnswer(Struct, frozen=True):
    """My synced log is the same as yours up to and including `match`."""

    term: Term
    match: Index


class AppendConflict(Struct, frozen=True):
    """I do not have the entry before yours; what we share ends at the hint, or before it."""

    term: Term
    previous_index: Index
    hint_index: Index
    hint_term: Term


class Heartbeat(Struct, frozen=True):
    """I still lead. The answer to round n proves that I led when round n was sent."""

    term: Term
    commit: Index
    round: int


class HeartbeatAnswer(Struct, frozen=True):
    """You do; and what an AppendAnswer would say."""

    term: Term
    round: int
    match: Index


class SnapshotChunk(Struct, frozen=True):
    """Bytes of a snapshot from `position` on."""

    term: Term
    snapshot: SnapshotMeta
    position: int
    content: bytes
    is_last: bool


class ChunkAnswer(Struct, frozen=True):
    """Go on from `position`."""

    term: Term
    index: Index
    position: int


class CampaignNow(Struct, frozen=True):
    """I hand over to you."""

    term: Term


class TermIsOver(Struct, frozen=True):
    """You lead a term that has passed."""

    term: Term


FromLeader: TypeAlias = AppendRequest | Heartbeat | SnapshotChunk | CampaignNow
FromFollower: TypeAlias = AppendAnswer | AppendConflict | HeartbeatAnswer | ChunkAnswer
Message: TypeAlias = FromLeader | FromFollower | VoteRequest | VoteAnswer | TermIsOver
