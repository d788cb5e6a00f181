"""Raft: a log that a majority keeps, and the one member that may extend it.

A `Raft` is one member. It does nothing itself: `step(event, now)` returns effects, in the
order in which the host must carry them out, and `next_deadline()` says when to come back.

    MessageReceived ──┐                           ┌── PersistHardState             done before what follows
    TimePassed ───────┼──► Raft.step ► [effects] ─┼── TruncateLog, StoreEntries    sync in the background
    EntriesPersisted ─┤       │                   ├── SendMessage, SendSnapshotChunk   or lose it
    Propose, … ───────┘       │                   └── CommitUpTo, CommandResult, StartLeading, …
                              └ role: Follower → Candidate (pre-vote, then vote) → Leader

The modules:

* `raft` is the member and its roles: it compares terms, passes the event to the role and changes
  roles. A role that is over says what comes next, so no role knows how another is made.
* `state` is what lasts through all roles: hard state, log, members, commit.
* `log` is the port to the stored log; `progress` how far each other member has come;
  `read_index` the reads that wait to be confirmed.
* `messages` are the messages, events, commands and effects; `types` members, entries and options.

**Durability.** The hard state is durable before anything is sent that depends on it: that is list
order, and the host waits. Entries are different: the leader sends them while its own disk
works on them, and a follower takes more while it syncs. So writes are numbered, the host reports
`EntriesPersisted(write)`, and only synced entries are claimed in responses or counted, the leader's own
included. A host that cannot carry out an effect drops the machine and builds it again from disk.

**Elections.** A candidate asks for pre-votes first; a member that hears a leader grants none. A member
that was cut off therefore neither raises the term nor deposes a leader. A leader that does not hear
a majority within an election timeout steps down by itself. A host that sees the leader's process
end reports `LeaderGone`, which ends the timeout; the pre-vote remains, so a wrong report does no harm.
A transfer sends the target the whole log, then `TimeoutNow`, which needs no pre-vote.

**Doubt.** A member whose disk has lost entries that it may have acknowledged starts in doubt as of
the term it was in. It follows and acknowledges what it really has, but its votes count only if
all voters vote alike. The doubt ends with a committed entry of a later term in its log. A member
that lost its hard state (`TermRecovery`) asks all other voters for their terms first, and says
nothing else until it has them; then it is in doubt as of the highest of them. The doubt is part of
the hard state, because that is missed if it is gone: a member that lost its doubt is not sure again.

**Replication.** Each member is probed until the logs are known to agree at one point, then
entries are streamed with a bounded number of requests underway. A conflict carries a hint, so
that logs which differ in many entries of few terms agree after few requests. A member that needs
entries that are gone gets a snapshot in chunks, and goes on where it stopped if chunks are lost.

**Commit.** An entry is committed when a majority has synced it and it is of the leader's own term;
earlier ones are committed through it. A leader begins with a blank entry for that reason, and
`StartLeading` comes when it is committed.

**Members** are nodes with the directory that holds their hard state. They change one at a time: a
newcomer is added as a learner, catches up, is promoted. A change counts as soon as it is in
the log; it needs the one before it committed, and an entry of the leader's term committed. A
leader that removes itself leads until that is committed, without counting itself.

**Reads.** `RequestRead` returns the commit index once a majority has acknowledged a heartbeat that
was sent after the request: reads share rounds, and no clock is trusted.

**The log** is behind `LogView`; how entries are kept, cached and cut is storage's business. The
host may take a snapshot of what it has applied at any time between two steps, up to what is
synced; `describe_snapshot` says what belongs in it.

Limits: bytes per request, requests underway, bytes proposed but not committed, reads waiting, and
bytes per chunk are bounded by `RaftOptions`.

Left out: changes of several members at once (joint consensus); reads by lease; reads on a
follower (its host asks the leader's); priorities among voters; voters without a log; a snapshot
transfer that survives the receiver's restart; hard state synced in the background; and bytes: how
messages travel is the host's business.
"""

from penstock.core.raft.log import LogView
from penstock.core.raft.messages import (
    ChangeMembers,
    Command,
    CommandResult,
    CommitUpTo,
    Effect,
    EntriesPersisted,
    Event,
    FollowLeader,
    InstallSnapshot,
    LeaderGone,
    MessageReceived,
    PersistHardState,
    ProposalAccepted,
    Propose,
    ReadIndex,
    ReportBlockedElection,
    RequestRead,
    SendMessage,
    SendSnapshotChunk,
    SnapshotInstalled,
    SnapshotRejected,
    StartLeading,
    StopLeading,
    StoreEntries,
    StoreSnapshotChunk,
    TimePassed,
    TransferLeadership,
    TransferStarted,
    TruncateLog,
    UseConfiguration,
)
from penstock.core.raft.raft import Raft
from penstock.core.raft.state import RecoveredState
from penstock.core.raft.types import (
    BLANK_BALLOT,
    EMPTY_CONFIGURATION,
    AddLearner,
    Change,
    CommandId,
    Configuration,
    ConfigurationAt,
    Content,
    Entry,
    HardState,
    Index,
    Member,
    PromoteLearner,
    RaftOptions,
    RemoveMember,
    SnapshotMeta,
    Term,
    bootstrap_snapshot,
)

__all__ = [
    "Raft",
    "RaftOptions",
    "RecoveredState",
    "LogView",
    "Member",
    "HardState",
    "BLANK_BALLOT",
    "Term",
    "Index",
    "CommandId",
    "Configuration",
    "ConfigurationAt",
    "EMPTY_CONFIGURATION",
    "Change",
    "AddLearner",
    "PromoteLearner",
    "RemoveMember",
    "Entry",
    "Content",
    "SnapshotMeta",
    "bootstrap_snapshot",
    "Event",
    "TimePassed",
    "MessageReceived",
    "EntriesPersisted",
    "SnapshotInstalled",
    "SnapshotRejected",
    "LeaderGone",
    "Command",
    "Propose",
    "RequestRead",
    "ChangeMembers",
    "TransferLeadership",
    "Effect",
    "PersistHardState",
    "TruncateLog",
    "StoreEntries",
    "SendMessage",
    "SendSnapshotChunk",
    "StoreSnapshotChunk",
    "InstallSnapshot",
    "CommitUpTo",
    "UseConfiguration",
    "FollowLeader",
    "ReportBlockedElection",
    "StartLeading",
    "StopLeading",
    "CommandResult",
    "ProposalAccepted",
    "ReadIndex",
    "TransferStarted",
]
