"""What a group coordinator replies; `Refused` may take the place of every other reply."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.model import LeaderEpoch, Offset, Refused, TopicPartition, Why

NO_OFFSET = Offset(-1)


class GroupState(enum.Enum):
    """Where a group stands; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(enum.Enum):
    """Which protocol a group's members speak; one per group."""

    CLASSIC = "classic"


class JoinedMember(NamedTuple):
    """What the leader is told about each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in this generation. `members` is filled for the leader alone."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdRequired:
    """Join again with this id: an error code on the wire, but one that carries an answer."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Synced:
    """The member's assignment in this generation."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """Accepted; there is nothing to tell."""


class LeftMember(NamedTuple):
    """One entry of a batched leave: `why` is None when the member has left."""

    member_id: str
    instance_id: str | None
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """One entry per member of the request, in its order."""

    members: tuple[LeftMember, ...]


class PartitionResult(NamedTuple):
    """What became of one partition of a request: `why` is None when it was done."""

    partition: TopicPartition
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class CommitResults:
    """One entry per offset of the request, in its order."""

    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class DeletionResults:
    """One entry per partition of the request, in its order."""

    partitions: tuple[PartitionResult, ...]


class FetchedOffset(NamedTuple):
    """A committed offset; offset -1 where nothing is committed."""

    partition: TopicPartition
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """One entry per partition asked for, or all that are committed, by topic and partition."""

    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member as operators see it; metadata is empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group as operators see it. A group nobody knows is `DEAD` and has no members."""

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class ListedGroup(NamedTuple):
    """One line of a listing."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """The groups that passed the filters, by id."""

    groups: tuple[ListedGroup, ...]


Reply: TypeAlias = (
    Refused
    | Joined
    | MemberIdRequired
    | Synced
    | Done
    | Left
    | CommitResults
    | FetchedOffsets
    | DeletionResults
    | DescribedGroup
    | ListedGroups
)

# Where a reply goes: one callable per command, called once.
OnReply: TypeAlias = Callable[[Reply], None]
