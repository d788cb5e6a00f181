"""What a group coordinator stores: one fact per record of `__consumer_offsets`, and their image.

    fact             key (Kafka's schema)                value
    GroupStored      GroupMetadataKey(group)             GroupMetadataValue
    GroupDeleted     GroupMetadataKey(group)             none: a tombstone
    OffsetCommitted  OffsetCommitKey(group, topic, n)    OffsetCommitValue
    OffsetDeleted    OffsetCommitKey(group, topic, n)    none: a tombstone

A `TransactionalOffsetCommitted` is the record of an `OffsetCommitted` in a batch of its producer's
transaction, and a `TransactionEnded` is the marker that ends it: see `offset_facts`. The facts of
consumer groups are in `consumer_facts`, those of share groups in `share_facts`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from penstock.core.groups.consumer_facts import ConsumerFact, StoredConsumerGroup, StoredFact
from penstock.core.groups.offset_facts import (
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsets,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from penstock.core.groups.share_facts import ShareFact, StoredShareGroup
from penstock.core.model import LeaderEpoch, Timestamp, TopicPartition
from penstock.core.values import dataclass

NO_LEADER_EPOCH = LeaderEpoch(-1)
POSITION_BYTES = 400


def position_bytes(position: OffsetCommitted) -> int:
    """About what a committed position takes in memory."""
    return POSITION_BYTES + len(position.group_id) + len(position.metadata)


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


OffsetFact: TypeAlias = OffsetCommitted | OffsetDeleted | TransactionalOffsetCommitted | TransactionEnded
Fact: TypeAlias = GroupStored | GroupDeleted | OffsetFact | ConsumerFact | ShareFact
_NOTHING: Mapping[TopicPartition, OffsetCommitted] = {}


@dataclass(slots=True)
class GroupImage:
    """The last record of every key, as a compacted log would hold them."""

    groups: dict[str, GroupStored] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    consumers: dict[str, StoredConsumerGroup] = field(default_factory=dict)
    shares: dict[str, StoredShareGroup] = field(default_factory=dict)
    # How many positions are committed, and about what they take in memory.
    positions: int = 0
    position_bytes: int = 0

    def apply(self, fact: Fact) -> None:
        """Total: any fact may follow any other, a tombstone of nothing included."""
        match fact:
            case GroupStored():
                self.groups[fact.group_id] = fact
            case GroupDeleted():
                self.groups.pop(fact.group_id, None)
            case OffsetCommitted():
                self._commit_offset(fact)
            case OffsetDeleted():
                self._delete_offset(fact)
            case TransactionalOffsetCommitted():
                self.pending.add(fact)
            case TransactionEnded():
                for position in self.pending.end(fact):
                    self._put(self.offsets.setdefault(position.group_id, {}), position)
            case _:
                self._apply_of_type(fact)

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self.offsets.get(group_id, _NOTHING)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a transaction may still move this position."""
        return self.pending.holds(group_id, partition)

    def has_positions(self, group_id: str) -> bool:
        """Whether anything is committed, or pending in a transaction."""
        return group_id in self.offsets or self.pending.has_group(group_id)

    def knows(self, group_id: str) -> bool:
        is_stored = group_id in self.groups or group_id in self.consumers or group_id in self.shares
        return is_stored or self.has_positions(group_id)

    def group_ids(self) -> list[str]:
        return list(
            dict.fromkeys(
                [*self.groups, *self.offsets, *self.pending.group_ids(), *self.consumers, *self.shares]
            )
        )

    def _commit_offset(self, fact: OffsetCommitted) -> None:
        offsets = self.offsets.setdefault(fact.group_id, {})
        if offsets.get(fact.partition) == fact:
            # A copy, which the rewrite of a log makes, decides nothing.
            self.pending.committed_copied(fact.group_id, fact.partition)
        else:
            self.pending.supersede(fact.group_id, fact.partition)
        self._put(offsets, fact)

    def _put(self, offsets: dict[TopicPartition, OffsetCommitted], fact: OffsetCommitted) -> None:
        before = offsets.get(fact.partition)
        if before is None:
            self.positions += 1
            self.position_bytes += position_bytes(fact)
        elif before.metadata is not fact.metadata:
            self.position_bytes += len(fact.metadata) - len(before.metadata)
        offsets[fact.partition] = fact

    def _apply_of_type(self, fact: ConsumerFact | ShareFact) -> None:
        if isinstance(fact, ShareFact):
            self._apply_share(fact)
        else:
            self._apply_consumer(fact)

    def _apply_consumer(self, fact: ConsumerFact) -> None:
        group = self.consumers.get(fact.group_id)
        if group is None:
            group = self.consumers[fact.group_id] = StoredConsumerGroup()
        if isinstance(fact, StoredFact):
            group.store(fact)
            return
        group.delete(fact)
        if group.is_gone:
            del self.consumers[fact.group_id]

    def _apply_share(self, fact: ShareFact) -> None:
        group = self.shares.get(fact.group_id)
        if group is None:
            group = self.shares[fact.group_id] = StoredShareGroup()
        group.apply(fact)
        if group.is_gone:
            del self.shares[fact.group_id]

    def _delete_offset(self, fact: OffsetDeleted) -> None:
        self.pending.supersede(fact.group_id, fact.partition)
        offsets = self.offsets.get(fact.group_id)
        if offsets is None:
            return
        gone = offsets.pop(fact.partition, None)
        if gone is not None:
            self.positions -= 1
            self.position_bytes -= position_bytes(gone)
        if not offsets:
            del self.offsets[fact.group_id]
