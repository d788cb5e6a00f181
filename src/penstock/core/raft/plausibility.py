"""What no member that keeps to the rules sends. The machine asserts it; a host checks it first.

A failed assert ends the node, and rightly so when the machine itself is wrong. A message comes from
somebody else: what contradicts the rules costs its sender the link, before the machine has seen it.

Terms: one that was accepted never goes back, and the log keeps it in four bytes. Up to `TERM_FREE` any term
is taken, which leaves a member that was away as long as it likes; beyond it a message may be ahead by
`TERM_STEP`, so that no single one uses up all that are left.
"""

from collections.abc import Iterable, Iterator

from penstock.core.raft.messages import (
    AppendConflict,
    AppendRequest,
    AppendResponse,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    RaftMessage,
    SnapshotChunk,
    SnapshotChunkResponse,
    VoteRequest,
)
from penstock.core.raft.types import Configuration, Term

INDEX_MAX = 2**62
TERM_FREE = 2**20
TERM_STEP = 1_024
NODE_ID_MAX = 2**31 - 1
MEMBERS_MAX = 10_000
SNAPSHOT_BYTES_MAX = 1 << 30


def problem_with_term(own: Term, term: int) -> str | None:
    """Why a term is not believed."""
    if term > max(TERM_FREE, own + TERM_STEP):
        return f"term {term} is too far ahead of {own}"
    return None


def problem_with_message(message: RaftMessage) -> str | None:
    """What is wrong with a message, whatever the state of the member that gets it."""
    if not all(0 <= number <= INDEX_MAX for number in _numbers(message)):
        return "an index, a position or a round is out of range"
    if isinstance(message, AppendRequest):
        return _problem_with_entries(message)
    if isinstance(message, SnapshotChunk):
        snapshot = message.snapshot
        if not 0 < snapshot.term <= message.term or snapshot.index == 0:
            return "a snapshot is of a later term than its leader, or of none"
        if message.position + len(message.content) > SNAPSHOT_BYTES_MAX:
            return f"a snapshot has more than {SNAPSHOT_BYTES_MAX} bytes"
        return problem_with_members(snapshot.configuration)
    return None


def _numbers(message: RaftMessage) -> Iterable[int]:  # noqa: C901 - one case per kind
    match message:
        case VoteRequest():
            return message.last_index, message.last_term
        case AppendRequest():
            return message.previous_index, message.previous_term, message.commit
        case AppendResponse():
            return (message.match,)
        case AppendConflict():
            return message.previous_index, message.hint_index, message.hint_term
        case RaftHeartbeat():
            return message.commit, message.round
        case RaftHeartbeatResponse():
            return message.match, message.round, message.doubt or 0
        case SnapshotChunk():
            return message.position, message.snapshot.index
        case SnapshotChunkResponse():
            return message.index, message.position
        case _:
            return ()


def _problem_with_entries(request: AppendRequest) -> str | None:
    index, term = request.previous_index, request.previous_term
    if term > request.term:
        return "entries follow one of a later term than their leader's"
    for entry in request.entries:
        if entry.index != index + 1 or not term <= entry.term <= request.term or entry.term == 0:
            return f"entry {entry.index} of term {entry.term} does not follow entry {index} of term {term}"
        index, term = entry.index, entry.term
        if isinstance(entry.content, Configuration):
            problem = problem_with_members(entry.content)
            if problem is not None:
                return problem
    return None


def problem_with_members(configuration: Configuration) -> str | None:
    """Why this cannot be the members of a quorum."""
    members = configuration.members
    if not configuration.voters or len(members) > MEMBERS_MAX:
        return f"a quorum of {len(configuration.voters)} voters and {len(configuration.learners)} learners"
    if not all(0 <= member.node_id <= NODE_ID_MAX for member in members):
        return "a member has an impossible node id"
    if len(dict.fromkeys(_node_ids(configuration))) < len(configuration.voters):
        return "a node votes twice"
    return None


def _node_ids(configuration: Configuration) -> Iterator[int]:
    return (voter.node_id for voter in configuration.voters)
