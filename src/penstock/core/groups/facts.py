"""What a group coordinator stores: one fact per record of `__consumer_offsets`.

    fact             key (Kafka's schema)                value
    GroupStored      GroupMetadataKey(group)             GroupMetadataValue
    GroupDeleted     GroupMetadataKey(group)             none: a tombstone
    OffsetCommitted  OffsetCommitKey(group, topic, n)    OffsetCommitValue
    OffsetDeleted    OffsetCommitKey(group, topic, n)    none: a tombstone

Offsets committed inside a transaction will be facts of their own that wrap an
`OffsetCommitted` with its producer; the four above stay as they are.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition

NO_LEADER_EPOCH = LeaderEpoch(-1)


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member with the assignment its leader gave it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupStored:
    """A generation was settled: who is in it and what each member was assigned."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since: Timestamp
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group's metadata is gone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """A group's position in one partition."""

    group_id: str
    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: Timestamp
    # Only set by clients that name their own retention (OffsetCommit 2 to 4).
    expires_at: Timestamp | None = None
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """A group has no position in this partition any more."""

    group_id: str
    partition: TopicPartition


Fact: TypeAlias = GroupStored | GroupDeleted | OffsetCommitted | OffsetDeleted
