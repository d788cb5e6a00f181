"""How a script shows what a member does."""

from penstock.core.model import ApiError
from penstock.core.raft import (
    CommandResult,
    CommitUpTo,
    Configuration,
    Content,
    Effect,
    Entry,
    FollowLeader,
    InstallSnapshot,
    Member,
    PersistHardState,
    ProposalAccepted,
    ReadIndex,
    ReportBlockedElection,
    SendMessage,
    SendSnapshotChunk,
    StartLeading,
    StopLeading,
    StoreEntries,
    StoreSnapshotChunk,
    TransferStarted,
    TruncateLog,
    UseConfiguration,
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
    VoteRequest,
    VoteResponse,
)


def show_member(member: Member | None) -> str:
    """The node's number; a prime for every directory it lost."""
    if member is None:
        return "nobody"
    return str(member.node_id) + "'" * (member.directory_id.int % 1_000)


def show_configuration(configuration: Configuration) -> str:
    voters = " ".join(map(show_member, configuration.voters))
    learners = " ".join(map(show_member, configuration.learners))
    return f"voters {voters}" + (f" learners {learners}" if learners else "")


def show_content(content: Content) -> str:
    if content is None:
        return "blank"
    return content.decode() if isinstance(content, bytes) else f"<{show_configuration(content)}>"


def show_entry(entry: Entry) -> str:
    """index/term:content"""
    return f"{entry.index}/{entry.term}:{show_content(entry.content)}"


def show_entries(entries: tuple[Entry, ...]) -> str:
    return " ".join(map(show_entry, entries)) or "nothing"


def show_message(message: RaftMessage) -> str:
    name = f"{type(message).__name__} t{message.term}"
    match message:
        case VoteRequest(_, index, last_term, is_trial, is_transfer):
            how = " on trial" if is_trial else " by transfer" if is_transfer else ""
            return f"{name}{how}, log ends {index}/{last_term}"
        case VoteResponse(_, is_granted, is_trial, is_doubtful):
            doubt = ", in doubt" if is_doubtful else ""
            return f"{name}{' on trial' if is_trial else ''}: {'yes' if is_granted else 'no'}{doubt}"
        case AppendRequest(_, index, previous_term, entries, commit):
            return f"{name} behind {index}/{previous_term}: {show_entries(entries)}, commit {commit}"
        case AppendResponse(_, match):
            return f"{name} match {match}"
        case AppendConflict(_, index, hint, hint_term, is_doubtful):
            return f"{name} behind {index}, try {hint}/{hint_term}{', in doubt' if is_doubtful else ''}"
        case _:
            return f"{name}{show_rest(message)}"


def show_rest(message: RaftMessage) -> str:
    match message:
        case RaftHeartbeat(_, commit, number):
            return f" round {number}, commit {commit}"
        case RaftHeartbeatResponse(_, number, match, doubt):
            return f" round {number}, match {match}{f', in doubt as of {doubt}' if doubt is not None else ''}"
        case SnapshotChunk(_, snapshot, position, content, is_last):
            end = " (last)" if is_last else ""
            return f" of {snapshot.index}/{snapshot.term} at {position}: {content!r}{end}"
        case SnapshotChunkResponse(_, index, position):
            return f" of {index}, go on at {position}"
        case _:
            return ""


def show_effect(effect: Effect) -> str:
    match effect:
        case PersistHardState(ballot):
            doubt = "" if ballot.doubt is None else f", in doubt as of term {ballot.doubt}"
            return f"persist ballot: term {ballot.term}, voted for {show_member(ballot.voted_for)}{doubt}"
        case TruncateLog(start):
            return f"truncate from {start}"
        case StoreEntries(entries, write):
            return f"store {show_entries(entries)} (write {write})"
        case SendMessage(to, message):
            return f"send to {show_member(to)}: {show_message(message)}"
        case SendSnapshotChunk(to, _, snapshot, position, _):
            return f"send to {show_member(to)}: snapshot {snapshot.index}/{snapshot.term} from {position}"
        case StoreSnapshotChunk(snapshot, position, content):
            return f"store chunk of {snapshot.index} at {position}: {len(content)} bytes"
        case InstallSnapshot(snapshot):
            return f"install snapshot {snapshot.index}/{snapshot.term}"
        case _:
            return show_news(effect)


def show_news(effect: Effect) -> str:
    """Events for the host that need no action."""
    match effect:
        case CommitUpTo(index):
            return f"commit up to {index}"
        case UseConfiguration(configuration):
            return f"use {show_configuration(configuration)}"
        case FollowLeader(term, leader):
            return f"leader of term {term}: {show_member(leader)}"
        case StartLeading(term):
            return f"start leading term {term}"
        case StopLeading(term):
            return f"stop leading term {term}"
        case CommandResult(ticket, outcome):
            return f"answer {ticket}: {show_outcome(outcome)}"
        case _:
            return show_doubt(effect)


def show_doubt(effect: Effect) -> str:
    match effect:
        case ReportBlockedElection(doubtful, missing):
            who, others = " ".join(map(show_member, doubtful)), " ".join(map(show_member, missing))
            return f"no election: {who} in doubt, {others} missing"
        case _:
            raise AssertionError(f"no words for {effect}")


def show_outcome(outcome: ProposalAccepted | ReadIndex | TransferStarted | ApiError) -> str:
    match outcome:
        case ProposalAccepted(_, start, end):
            return f"accepted as {start}..{end - 1}"
        case ReadIndex(index):
            return f"read from {index}"
        case TransferStarted():
            return "handing over"
        case ApiError():
            return f"refused, {outcome}"
