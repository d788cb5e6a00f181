"""Groups: who reads together, and how far they have come.

One `GroupCoordinator` is the machine of one partition of `__consumer_offsets`. Group ids are
one namespace and a group has one type:

    coordinator                  the machine: decide, apply, expire, snapshot
    commands                     what goes in, and the replies that come out
    facts                        what is stored, and the durable state (`GroupImage`)
    offset_facts                 positions, and those that open transactions have not decided yet
    outcome                      the result of one step, options and deadlines
    classic_group, rebalance     one classic group, and its way from generation to generation
    classic_protocol             who takes part: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    consumer_group               one consumer group (KIP-848), and a member's way to its target
    consumer_protocol            ConsumerGroupHeartbeat, sessions, new topics
    consumer_facts               what is stored of consumer groups
    classic_members              classic members of a consumer group
    embedded_protocol            what classic consumers say inside JoinGroup and SyncGroup
    migration                    groups that change their type
    topic_patterns               subscriptions by regular expression
    assignors                    uniform, range and simple: who shall read what
    partition_sets               sets of partitions by topic id
    held_bytes                   about what groups take in memory, and whose clients they are
    cluster_topics               what is known of topics: ids, partitions, racks
    share_group, share_protocol  one share group (KIP-932); ShareGroupHeartbeat, sessions, new topics
    share_facts                  what is stored of share groups
    group_lookup                 groups of any type
    offsets                      committed offsets: commit, fetch, delete, expire

**Durable and volatile.** Kafka's group protocol keeps most of its state in the coordinator's
memory: parked requests, sessions, ids given out, a join phase under way. Only two things are
stored: a generation once its leader has assigned it (or once the group is empty), and
committed offsets. The machine is built the same way:

    GroupImage      the last fact of every key. Only `apply` changes it; total, deterministic,
                    and all that a failover brings back
    ClassicGroups   live groups: made from the image and moved by commands and time
    ConsumerGroups  the same of consumer groups, of which all but sessions is stored
    ShareGroups     the same of share groups; how far they have come is not here but in queues (`core.queues`)

So `decide` and `expire` move the live groups at once, but nothing durable. That is safe under
the rule of the coordinator runtime. Facts are applied as soon as they are appended, before
the next command; a reply is released only when the log end seen at its step is committed; and
when an append fails, the live groups, which are ahead of the log by then, are thrown away
with the machine, and no client was sent anything that did not become durable. A group that
never was stored is lost in a failover, and so are a rebalance under way and its parked requests:
members find the old generation (or no group) and join again, as they do with Kafka.

**Replies come later.** A JoinGroup waits for the others, a SyncGroup for the leader. A command
carries a callback, and every outcome lists the callbacks it has replies for: none, its own, or
many. Each is listed exactly once, and the machine never calls one. Where Kafka forgets a request
(a JoinGroup sent twice, a parked SyncGroup of a member that is removed), it gets an error that
its client retries on.

**Time.** Deadlines are fields of groups and members; one entry per group says when to check
it (see `GroupDeadlines`). `expire` does a bounded amount of work per call.

Where we differ from Kafka on purpose: a static member that comes back with other topics causes a
rebalance, and one that comes back to a full group may join; an id that was given out and is
returned causes no rebalance; no record is written for a group that has not settled a generation.

Left out: authorisation; whether a topic exists; and bytes: `broker.coordinator`
translates facts to Kafka's record schemas.
"""

from penstock.core.groups.classic_group import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from penstock.core.groups.cluster_topics import AssignableTopic, ClusterTopics, digest_of
from penstock.core.groups.commands import (
    NO_GENERATION,
    NO_OFFSET,
    UNKNOWN_MEMBER_ID,
    Command,
    CommitOffsets,
    CommitResults,
    CommittedPartitions,
    CommitTransactionOffsets,
    ConsumerGroupHeartbeat,
    ConsumerHeartbeatResult,
    DeleteGroup,
    DeleteOffsets,
    DeletionResults,
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribedShareGroup,
    DescribedShareMember,
    DescribeGroup,
    DescribeShareGroup,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopics,
    GroupOk,
    GroupState,
    GroupType,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListedGroups,
    ListGroups,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    OffsetResult,
    OffsetToCommit,
    OnReply,
    ReloadTopics,
    Reply,
    ShareGroupHeartbeat,
    SyncGroup,
    SyncGroupResult,
    TopicToFetch,
)
from penstock.core.groups.consumer_facts import (
    ClassicMember,
    ConsumerFact,
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentAssignmentDeleted,
    CurrentAssignmentStored,
    MemberState,
    PatternDeleted,
    PatternResolved,
    TargetAssignmentDeleted,
    TargetAssignmentStored,
    TargetEpochDeleted,
    TargetEpochStored,
)
from penstock.core.groups.coordinator import GroupCoordinator
from penstock.core.groups.facts import (
    Fact,
    GroupDeleted,
    GroupImage,
    GroupStored,
    StoredMember,
)
from penstock.core.groups.held_bytes import HeldBytes
from penstock.core.groups.offset_facts import (
    OffsetCommitted,
    OffsetDeleted,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from penstock.core.groups.outcome import (
    ConsumerGroupOptions,
    ConsumerGroupTimeouts,
    Event,
    GroupOptions,
    GroupOutcome,
    MemberRemoved,
    MembersRemoved,
    MigrationPolicy,
    RebalanceCompleted,
    RebalanceStarted,
    ShareGroupOptions,
    ShareGroupRemoved,
)
from penstock.core.groups.partition_sets import NO_PARTITIONS, PartitionSet, partition_set, rows
from penstock.core.groups.share_facts import (
    ShareCurrent,
    SharedTopic,
    ShareFact,
    ShareFactDeleted,
    ShareGroupStored,
    ShareMemberStored,
    ShareRecordKind,
    ShareTarget,
    ShareTargetEpoch,
    ShareTopics,
)
from penstock.core.groups.topic_patterns import TopicRights

__all__ = [
    "GroupCoordinator",
    "GroupOptions",
    "GroupImage",
    "HeldBytes",
    "GroupOutcome",
    "Command",
    "JoinGroup",
    "MemberProtocol",
    "SyncGroup",
    "MemberAssignment",
    "Heartbeat",
    "LeaveGroup",
    "LeavingMember",
    "CommitOffsets",
    "CommitTransactionOffsets",
    "OffsetToCommit",
    "FetchOffsets",
    "TopicToFetch",
    "DeleteOffsets",
    "ForgetTopics",
    "DeleteGroup",
    "DescribeGroup",
    "ListGroups",
    "NO_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "Reply",
    "OnReply",
    "JoinGroupResult",
    "JoinedMember",
    "MemberIdRequired",
    "SyncGroupResult",
    "GroupOk",
    "LeaveGroupResult",
    "LeftMember",
    "CommitResults",
    "OffsetResult",
    "FetchedOffsets",
    "FetchedOffset",
    "CommittedPartitions",
    "NO_OFFSET",
    "DeletionResults",
    "DescribedGroup",
    "DescribedMember",
    "ListedGroups",
    "ListedGroup",
    "GroupState",
    "GroupType",
    "Fact",
    "GroupStored",
    "StoredMember",
    "GroupDeleted",
    "OffsetCommitted",
    "OffsetDeleted",
    "TransactionalOffsetCommitted",
    "TransactionEnded",
    "Event",
    "RebalanceStarted",
    "RebalanceCompleted",
    "MemberRemoved",
    "MembersRemoved",
    "CONSUMER_PROTOCOL_TYPE",
    "subscribed_topics",
    "ConsumerGroupOptions",
    "ConsumerGroupTimeouts",
    "MigrationPolicy",
    "ClusterTopics",
    "AssignableTopic",
    "digest_of",
    "ConsumerGroupHeartbeat",
    "ConsumerHeartbeatResult",
    "DescribeConsumerGroup",
    "DescribedConsumerGroup",
    "DescribedConsumer",
    "ReloadTopics",
    "PartitionSet",
    "NO_PARTITIONS",
    "partition_set",
    "rows",
    "ConsumerFact",
    "ConsumerGroupStored",
    "ConsumerGroupDeleted",
    "ConsumerMemberStored",
    "ConsumerMemberDeleted",
    "ClassicMember",
    "MemberState",
    "TargetEpochStored",
    "TargetEpochDeleted",
    "TargetAssignmentStored",
    "TargetAssignmentDeleted",
    "CurrentAssignmentStored",
    "CurrentAssignmentDeleted",
    "PatternResolved",
    "PatternDeleted",
    "ShareGroupOptions",
    "ShareGroupRemoved",
    "ShareGroupHeartbeat",
    "DescribeShareGroup",
    "DescribedShareGroup",
    "DescribedShareMember",
    "ShareFact",
    "ShareGroupStored",
    "ShareMemberStored",
    "ShareTarget",
    "ShareTargetEpoch",
    "ShareCurrent",
    "ShareTopics",
    "SharedTopic",
    "ShareFactDeleted",
    "ShareRecordKind",
    "TopicRights",
]
