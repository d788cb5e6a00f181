"""The commands of a group coordinator, and their replies.

Every command names one group (a coordinator partition owns a group whole) and carries
`on_reply`: the caller's callback, which the machine hands back with the reply and never
calls itself. Bytes in commands are kept, so they must be `bytes`, not views of a network
buffer.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from penstock.core.groups.partition_sets import PartitionSet
from penstock.core.groups.topic_patterns import TopicRights
from penstock.core.model import (
    ApiError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.values import dataclass

NO_OFFSET = Offset(-1)
UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1


class GroupState(enum.Enum):
    """Where a group stands; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Of consumer groups alone: a target assignment is due, or members are on their way to it.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(enum.Enum):
    """Which protocol a group's members speak; one per group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class JoinedMember(NamedTuple):
    """What the leader receives about each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
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
    """Join again with this id: an error code on the wire, but one that carries an id."""

    member_id: str


@dataclass(frozen=True, slots=True)
class SyncGroupResult:
    """The member's assignment in this generation."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupOk:
    """Done; there is nothing else to return."""


class LeftMember(NamedTuple):
    """One entry of a batched leave: `why` is None when the member has left."""

    member_id: str
    instance_id: str | None
    kind: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupResult:
    """One entry per member of the request, in its order."""

    members: tuple[LeftMember, ...]


class OffsetResult(NamedTuple):
    """What became of one partition of a request: `why` is None when it was done."""

    partition: TopicPartition
    kind: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class CommitResults:
    """One entry per offset of the request, in its order."""

    partitions: tuple[OffsetResult, ...]


@dataclass(frozen=True, slots=True)
class DeletionResults:
    """One entry per partition of the request, in its order."""

    partitions: tuple[OffsetResult, ...]


class FetchedOffset(NamedTuple):
    """A committed offset; offset -1 where nothing is committed."""

    partition: TopicPartition
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""
    kind: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """One entry per partition asked for, or all that are committed, by topic and partition."""

    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class CommittedPartitions:
    """The group has committed more than is fetched in one go: ask for these, in this order, by portions."""

    topics: tuple["TopicToFetch", ...]


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
    """One group as operators see it. An unknown group is `DEAD` and has no members."""

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


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """The member's epoch, and what it has to read where that may have changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: PartitionSet | None = None


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """One member of a consumer group as operators see it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: PartitionSet
    target: PartitionSet
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """One consumer group as operators see it."""

    group_id: str
    state: GroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareMember:
    """One member of a share group as operators see it."""

    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: PartitionSet


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """One share group as operators see it; `topics` are those that it has queues of: id, name, partitions."""

    group_id: str
    state: GroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedShareMember, ...]
    topics: tuple[tuple[TopicId, str, int], ...] = ()


Reply: TypeAlias = (
    ApiError
    | ConsumerHeartbeatResult
    | DescribedShareGroup
    | DescribedConsumerGroup
    | JoinGroupResult
    | MemberIdRequired
    | SyncGroupResult
    | GroupOk
    | LeaveGroupResult
    | CommitResults
    | FetchedOffsets
    | CommittedPartitions
    | DeletionResults
    | DescribedGroup
    | ListedGroups
)
# Of a member: the session timeout of the group's configuration counts.
NO_OWN_TIMEOUT = -1
# Where a reply goes: one callable per command, called once.
OnReply: TypeAlias = Callable[[Reply], None]


class MemberProtocol(NamedTuple):
    """One way of assigning partitions that a member knows, in the member's order of preference."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """JoinGroup: take part in the next generation; the reply comes when the join phase ends."""

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
    # JoinGroup 9 and later: a static leader that comes back can skip the assignment (KIP-814).
    can_skip_assignment: bool = False
    reason: str = ""


class MemberAssignment(NamedTuple):
    """What the leader gives one member."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """SyncGroup: fetch the assignment (the leader brings it); the reply comes when it is there."""

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
    """Heartbeat: the member is alive."""

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
class LeaveGroup:
    """LeaveGroup: one member (versions 0 to 2) or a batch."""

    on_reply: OnReply
    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """ConsumerGroupHeartbeat (KIP-848): join (epoch 0), stay, change, confirm, or leave (-1, -2).

    What is None (a timeout of -1) is as it was.
    """

    on_reply: OnReply
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    # An empty one ends the subscription to a pattern.
    pattern: str | None = None
    assignor: str | None = None
    # The partitions that the member has.
    owned: PartitionSet | None = None
    session_timeout_ms: int = NO_OWN_TIMEOUT
    # None where everyone may see every topic.
    rights: TopicRights | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup:
    """ConsumerGroupDescribe, for one group."""

    on_reply: OnReply
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeat:
    """ShareGroupHeartbeat (KIP-932): join (epoch 0), stay, change the subscription, or leave (-1).

    What is None (a timeout of -1) is as it was.
    """

    on_reply: OnReply
    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] | None = None
    session_timeout_ms: int = NO_OWN_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroup:
    """ShareGroupDescribe, for one group."""

    on_reply: OnReply
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadTopics:
    """Topics were created, changed or deleted: groups that subscribe to them look at them again."""

    on_reply: OnReply
    topics: tuple[TopicName, ...]


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
    # Whether the generation may be the epoch of a member of a consumer group: OffsetCommit 9.
    has_member_epoch: bool = True
    # OffsetCommit 2 to 4; None keeps the offsets as long as the coordinator's retention says.
    retention_ms: int | None = None
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionOffsets:
    """TxnOffsetCommit: positions that count once the producer's transaction is committed.

    Older versions name no member: then only the transaction says who may commit.
    """

    on_reply: OnReply
    group_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER_ID
    instance_id: str | None = None
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
    # OffsetFetch 9 and later, from members of consumer groups.
    member_id: str | None = None
    member_epoch: int = NO_GENERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete: forget the group's positions in partitions it does not read any more."""

    on_reply: OnReply
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTopics:
    """Delete the offsets of all groups in topics that were deleted."""

    on_reply: OnReply
    topics: frozenset[TopicName]


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
    # None: all that there are.
    group_ids: tuple[str, ...] | None = None
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


ClassicCommand: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
OffsetCommand: TypeAlias = (
    CommitOffsets | CommitTransactionOffsets | FetchOffsets | DeleteOffsets | ForgetTopics
)
ConsumerCommand: TypeAlias = ConsumerGroupHeartbeat | DescribeConsumerGroup | ReloadTopics
ShareCommand: TypeAlias = ShareGroupHeartbeat | DescribeShareGroup
GroupCommand: TypeAlias = DeleteGroup | DescribeGroup | ListGroups
Command: TypeAlias = ClassicCommand | ConsumerCommand | ShareCommand | OffsetCommand | GroupCommand
