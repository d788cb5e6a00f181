"""Members, hard state, configurations, entries and options."""

from typing import NamedTuple, NewType, TypeAlias
from uuid import UUID

from msgspec import Struct

from penstock.core.model import MILLISECOND, NodeId
from penstock.core.values import dataclass

Term = NewType("Term", int)
# The first entry of a log has index 1; index 0 is the state before it.
Index = NewType("Index", int)
# Chosen by the caller; comes back with the result.
CommandId = NewType("CommandId", int)
# What an entry costs besides its payload, for every limit in bytes.
ENTRY_OVERHEAD_BYTES = 32
MEMBER_BYTES = 20


class Member(NamedTuple):
    """A node and the directory that holds its hard state.

    A node that lost its directory comes back as another member: the votes of the old one
    are lost, and voting again in its name could elect two leaders.
    """

    node_id: NodeId
    directory_id: UUID


class HardState(NamedTuple):
    """The latest term this member knows, for whom it voted in it, and whether its log is in doubt.

    `doubt` is the last term in which it may have acknowledged entries that its log has lost since.
    """

    term: Term
    voted_for: Member | None
    doubt: Term | None = None


BLANK_BALLOT = HardState(Term(0), None)


class Configuration(Struct, frozen=True):
    """The members of a quorum. Learners get the log but are not counted."""

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        """How many voters it takes; without voters nothing is ever enough."""
        return len(self.voters) // 2 + 1

    def agreed(self, values: dict[Member, int]) -> int:
        """The highest value that a majority of the voters has reached; who is not in `values` has 0."""
        ranked = sorted((values.get(voter, 0) for voter in self.voters), reverse=True)
        return ranked[self.majority - 1] if ranked else 0


EMPTY_CONFIGURATION = Configuration()


class ConfigurationAt(Struct, frozen=True):
    """A configuration, and the index of the entry that brought it."""

    index: Index
    configuration: Configuration


class AddLearner(Struct, frozen=True):
    """Let a newcomer receive the log without a vote."""

    member: Member


class PromoteLearner(Struct, frozen=True):
    """Give a learner its vote."""

    member: Member


class RemoveMember(Struct, frozen=True):
    """Remove a voter or learner."""

    member: Member


# Majorities of two configurations that differ in one voter always have a member in
# common. These changes are safe for that reason alone, so there is no change of two at once.
Change: TypeAlias = AddLearner | PromoteLearner | RemoveMember


def changed(configuration: Configuration, change: Change) -> Configuration:
    """The configuration after a change that is possible."""
    member, voters, learners = change.member, configuration.voters, configuration.learners
    if isinstance(change, AddLearner):
        return Configuration(voters, (*learners, member))
    others = tuple(learner for learner in learners if learner != member)
    if isinstance(change, PromoteLearner):
        return Configuration((*voters, member), others)
    return Configuration(tuple(voter for voter in voters if voter != member), others)


# A proposal's bytes; a new set of members; or nothing, which a leader appends first.
Content: TypeAlias = bytes | Configuration | None


class Entry(Struct, frozen=True):
    """One line of the log. Index and term together name it: no other entry ever has both."""

    index: Index
    term: Term
    content: Content

    @property
    def size_bytes(self) -> int:
        content = self.content
        if isinstance(content, bytes):
            return ENTRY_OVERHEAD_BYTES + len(content)
        return ENTRY_OVERHEAD_BYTES + (0 if content is None else MEMBER_BYTES * len(content.members))


class SnapshotMeta(Struct, frozen=True):
    """A snapshot stands for every entry up to and including `index`."""

    index: Index
    term: Term
    configuration: Configuration


def bootstrap_snapshot(configuration: Configuration = EMPTY_CONFIGURATION) -> SnapshotMeta:
    """What a log begins with: nothing but its first members. A newcomer's log does not know any."""
    return SnapshotMeta(Index(0), Term(0), configuration)


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """The same on every member, as far as it concerns time.

    A follower campaigns after `election_ms` to twice as much silence, grants no pre-vote if it
    heard a leader within `election_ms`, and a leader that missed a majority for that long
    steps down.
    """

    election_ms: int = 600
    heartbeat_ms: int = 100
    # One entry may be larger than a message: it then travels alone.
    append_bytes_max: int = 256 << 10
    appends_in_flight_max: int = 16
    payload_bytes_max: int = 32 << 20
    uncommitted_bytes_max: int = 64 << 20
    reads_waiting_max: int = 10_000
    chunk_bytes: int = 256 << 10
    # How far behind the commit a learner may be when it gets its vote.
    promotion_lag_max: int = 100

    @property
    def election_ns(self) -> int:
        return self.election_ms * MILLISECOND

    @property
    def heartbeat_ns(self) -> int:
        return self.heartbeat_ms * MILLISECOND
