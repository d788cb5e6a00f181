"""What may be asked of a group coordinator.

Every command names one group (a coordinator partition owns a group whole) and carries
`on_reply`: the caller's callback, which the machine hands back with the reply and never
calls itself. Bytes in commands are kept, so they must be `bytes`, not views of a network
buffer.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.groups.replies import OnReply
from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class MemberProtocol(NamedTuple):
    """One way of assigning partitions that a member knows, in the member's order of preference."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup: take part in the next generation; answered when the join phase ends."""

    on_reply: OnReply
    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    # The random part of a member id, should one be made: drawn by the caller.
    random_id: str
    # JoinGroup 4 and later: a dynamic member is first given its id, then joins with it (KIP-394).
    member_id_required: bool = True
    # JoinGroup 9 and later: a static leader that comes back may be told not to assign (KIP-814).
    can_skip_assignment: bool = False
    reason: str = ""


class MemberAssignment(NamedTuple):
    """What the leader gives one member."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup: ask for the assignment (and, from the leader, bring it); answered when it is there."""

    on_reply: OnReply
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    # SyncGroup 5 and later; None is not compared.
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """I am alive."""

    on_reply: OnReply
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or an instance id alone when an operator removes a static member."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup: one member (versions 0 to 2) or a batch."""

    on_reply: OnReply
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    """One position of an OffsetCommit."""

    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """OffsetCommit, from a member or (generation -1) from a consumer that assigns itself."""

    on_reply: OnReply
    group_id: str
    generation: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER_ID
    instance_id: str | None = None
    # OffsetCommit 2 to 4; None keeps the offsets as long as the coordinator's retention says.
    retention_ms: int | None = None
    offsets: tuple[OffsetToCommit, ...]


class TopicToFetch(NamedTuple):
    """Partitions of one topic whose committed offsets are wanted."""

    topic: TopicName
    partitions: tuple[PartitionIndex, ...]
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """OffsetFetch of one group; `topics` None asks for everything the group has committed."""

    on_reply: OnReply
    group_id: str
    topics: tuple[TopicToFetch, ...] | None
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete: forget the group's positions in partitions it does not read any more."""

    on_reply: OnReply
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTopic:
    """The topic was deleted: nobody has a position in it any more."""

    on_reply: OnReply
    topic: TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups, for one group."""

    on_reply: OnReply
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """DescribeGroups, for one group."""

    on_reply: OnReply
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """ListGroups of this coordinator partition; empty filters let everything through."""

    on_reply: OnReply
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


ClassicCommand: TypeAlias = Join | Sync | Heartbeat | Leave
OffsetCommand: TypeAlias = CommitOffsets | FetchOffsets | DeleteOffsets | ForgetTopic
GroupCommand: TypeAlias = DeleteGroup | DescribeGroup | ListGroups
Command: TypeAlias = ClassicCommand | OffsetCommand | GroupCommand
