"""What a peer says to a member of the quorum: messages and entries, up to the machine that gets them."""

import random
from collections.abc import Sequence
from uuid import UUID

from fuzz.harness import Target
from penstock.broker.cluster.raft_codec import check_entries, decode_message, encode_facts, encode_message
from penstock.core.metadata import ClusterIdSet, TopicCreated
from penstock.core.model import Instant, NodeId, Offset, ProtocolError, TopicId, TopicName
from penstock.core.raft import (
    BLANK_BALLOT,
    Configuration,
    Entry,
    Index,
    Member,
    MessageReceived,
    Raft,
    RecoveredState,
    SnapshotMeta,
    StoreEntries,
    Term,
    TruncateLog,
    bootstrap_snapshot,
)
from penstock.core.raft.messages import (
    AppendConflict,
    AppendRequest,
    AppendResponse,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    RaftMessage,
    SnapshotChunk,
    SnapshotChunkResponse,
    StaleTerm,
    TermRequest,
    TermResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

ME, PEER, OTHER = (Member(NodeId(number), UUID(int=number)) for number in (1, 2, 3))
MEMBERS = Configuration((ME, PEER, OTHER))


class MemoryLog:
    """A `LogView` in memory."""

    def __init__(self) -> None:
        self.snapshot = bootstrap_snapshot(MEMBERS)
        self.first = Index(1)
        self._entries: list[Entry] = []

    @property
    def last(self) -> Index:
        return Index(len(self._entries))

    def term_at(self, index: Index) -> Term | None:
        if index == 0:
            return Term(0)
        return self._entries[index - 1].term if 0 < index <= self.last else None

    def entries(self, start: Index, bytes_max: int) -> Sequence[Entry]:
        del bytes_max
        return self._entries[start - 1 :]

    def carry_out(self, effect: object) -> None:
        if isinstance(effect, TruncateLog):
            del self._entries[effect.start - 1 :]
        elif isinstance(effect, StoreEntries):
            self._entries += effect.entries


def a_message(rng: random.Random) -> bytes:
    return encode_message(_message(rng, Term(rng.randint(1, 4))))


def _message(rng: random.Random, term: Term) -> RaftMessage:
    index = Index(rng.randint(0, 4))
    topic = TopicCreated(TopicName("a"), TopicId(UUID(int=7)))
    facts = encode_facts(Offset(2), [ClusterIdSet("ckoCk10FRIC9otvJhmyoWA"), topic])
    contents = (None, facts, MEMBERS)
    entries = tuple(Entry(Index(index + 1 + n), term, rng.choice(contents)) for n in range(rng.randint(0, 3)))
    kinds: tuple[RaftMessage, ...] = (
        VoteRequest(term, index, Term(0), rng.random() < 0.5, rng.random() < 0.5),
        VoteResponse(term, rng.random() < 0.5, rng.random() < 0.5),
        AppendRequest(term, index, Term(rng.randint(0, term)), entries, Index(index + len(entries))),
        AppendResponse(term, index),
        AppendConflict(term, index, Index(0), Term(0)),
        RaftHeartbeat(term, index, 1),
        RaftHeartbeatResponse(term, 1, index),
        SnapshotChunk(term, SnapshotMeta(Index(index + 1), term, MEMBERS), 0, b"x", False),
        SnapshotChunkResponse(term, index, 1),
        TimeoutNow(term),
        StaleTerm(term),
        TermRequest(term, 5),
        TermResponse(term, 5),
    )
    return rng.choice(kinds)


class Host:
    """A member that hears one peer after the other, as the host of a real one does."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.raft = Raft(ME, self.log, RecoveredState(BLANK_BALLOT), lambda below: below // 2, Instant(0))
        self._heard = 0

    def hear(self, content: bytes) -> None:
        message = decode_message(content)
        self._heard += 1
        sender = (PEER, OTHER, ME)[self._heard % 3]
        problem = self.raft.problem_with(sender, message)
        if problem is not None:
            raise ProtocolError(problem)
        if isinstance(message, AppendRequest):
            check_entries(message.entries)
        for effect in self.raft.step(MessageReceived(sender, ME, message), Instant(self._heard)):
            self.log.carry_out(effect)


def run_messages(content: bytes) -> None:
    """The same bytes from each of the others, after what a leader has sent: no failed assert."""
    host = Host()
    rng = random.Random(len(content))
    for said in (a_message(rng), a_message(rng), content, a_message(rng), content, content):
        try:
            host.hear(said)
        except ProtocolError:
            continue


TARGETS = (Target("peer-raft", a_message, run_messages, (ProtocolError,)),)
