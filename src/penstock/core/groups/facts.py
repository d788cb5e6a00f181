"""What a group coordinator stores: one fact per record of `__consumer_offsets`, and their image.

    fact             key (Kafka's schema)                value
    GroupStored      GroupMetadataKey(group)             GroupMetadataValue
    GroupDeleted     GroupMetadataKey(group)             none: a tombstone
    OffsetCommitted  OffsetCommitKey(group, topic, n)    OffsetCommitValue
    OffsetDeleted    OffsetCommitKey(group, topic, n)    none: a tombstone

Offsets committed inside a transaction will be facts of their own that wrap an
`OffsetCommitted` with its producer; the four above stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

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
_NOTHING: Mapping[TopicPartition, OffsetCommitted] = {}


@dataclass(slots=True)
class GroupImage:
    """The last record of every key, as a compacted log would hold them."""

    groups: dict[str, GroupStored] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        """Total: any fact may follow any other, a tombstone of nothing included."""
        match fact:
            case GroupStored():
                self.groups[fact.group_id] = fact
            case GroupDeleted():
                self.groups.pop(fact.group_id, None)
            case OffsetCommitted():
                self.offsets.setdefault(fact.group_id, {})[fact.partition] = fact
            case OffsetDeleted():
                self._delete_offset(fact)
            case _:
                assert_never(fact)

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self.offsets.get(group_id, _NOTHING)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:  # noqa: ARG002
        """Whether a transaction may still move this position; none can before transactions exist."""
        return False

    def knows(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets

    def group_ids(self) -> list[str]:
        return list(self.groups | self.offsets)

    def _delete_offset(self, fact: OffsetDeleted) -> None:
        offsets = self.offsets.get(fact.group_id)
        if offsets is None:
            return
        offsets.pop(fact.partition, None)
        if not offsets:
            del self.offsets[fact.group_id]
