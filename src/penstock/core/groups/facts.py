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

from penstock.core.groups.consumer_facts import (
    ConsumerFact,
    ConsumerMemberDeleted,
    StoredConsumerGroup,
    StoredFact,
)
from penstock.core.groups.held_bytes import GROUP_BYTES, NO_HOST, HeldBytes, text_bytes
from penstock.core.groups.offset_facts import (
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsets,
    TransactionalOffsetCommitted,
    TransactionEnded,
    metadata_bytes,
    position_bytes,
)
from penstock.core.groups.share_facts import ShareFact, ShareFactDeleted, ShareRecordKind, StoredShareGroup
from penstock.core.model import LeaderEpoch, Timestamp, TopicName, TopicPartition
from penstock.core.values import dataclass

NO_LEADER_EPOCH = LeaderEpoch(-1)
STORED_MEMBER_BYTES = 400


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

    def held_bytes(self) -> int:
        """About what it takes in memory; its names are those of the live member."""
        return STORED_MEMBER_BYTES + len(self.subscription) + len(self.assignment)


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

    def hold(self, held: HeldBytes, sign: int) -> None:
        """Count what it takes in memory, or do not any more."""
        payer = self.members[0].client_host if self.members else NO_HOST
        names = text_bytes(self.group_id, self.protocol_type, self.protocol)
        held.add(payer, sign * (GROUP_BYTES + names))
        for member in self.members:
            held.add(member.client_host, sign * member.held_bytes())


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group's metadata is gone."""

    group_id: str


OffsetFact: TypeAlias = OffsetCommitted | OffsetDeleted | TransactionalOffsetCommitted | TransactionEnded
Fact: TypeAlias = GroupStored | GroupDeleted | OffsetFact | ConsumerFact | ShareFact
_NOTHING: Mapping[TopicPartition, OffsetCommitted] = {}


class EmptiedGroups:
    """Groups that may have nothing left to be kept for: look when one is taken."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self.size_bytes = 0

    def add(self, group_id: str) -> None:
        size_bytes = self._sizes.pop(group_id, None)
        if size_bytes is None:
            size_bytes = GROUP_BYTES + text_bytes(group_id)
            self.size_bytes += size_bytes
        self._sizes[group_id] = size_bytes

    def take_oldest(self) -> str:
        group_id = next(iter(self._sizes))
        self.size_bytes -= self._sizes.pop(group_id)
        return group_id


@dataclass(slots=True)
class GroupImage:
    """The last record of every key, as a compacted log would hold them."""

    groups: dict[str, GroupStored] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    consumers: dict[str, StoredConsumerGroup] = field(default_factory=dict)
    shares: dict[str, StoredShareGroup] = field(default_factory=dict)
    # How many positions are committed, about what they take in memory, and how much of that is metadata.
    positions: int = 0
    position_bytes: int = 0
    metadata_bytes: int = 0
    # How many positions groups have in a topic.
    topics: dict[TopicName, dict[str, int]] = field(default_factory=dict, compare=False, repr=False)
    # What groups and their members take in memory, and of that share groups; how many facts they are.
    held: HeldBytes = field(default_factory=HeldBytes, compare=False, repr=False)
    shares_held: HeldBytes = field(default_factory=HeldBytes, compare=False, repr=False)
    consumer_facts: int = 0
    share_facts: int = 0
    # Groups that have lost their last member or position, the last ones at the end.
    emptied: EmptiedGroups = field(default_factory=EmptiedGroups, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.shares_held.join(self.held)

    def apply(self, fact: Fact) -> None:
        """Total: any fact may follow any other, a tombstone of nothing included."""
        match fact:
            case GroupStored():
                self._replace_group(fact.group_id, fact)
            case GroupDeleted():
                self._replace_group(fact.group_id, None)
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

    def _replace_group(self, group_id: str, fact: GroupStored | None) -> None:
        before = self.groups.get(group_id)
        if before is not None:
            before.hold(self.held, -1)
        if fact is not None:
            fact.hold(self.held, 1)
            self.groups[group_id] = fact
            if not fact.members:
                self.emptied.add(group_id)
        elif before is not None:
            del self.groups[group_id]

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
            groups = self.topics.setdefault(fact.partition.topic, {})
            groups[fact.group_id] = groups.get(fact.group_id, 0) + 1
            self.positions += 1
            self.position_bytes += position_bytes(fact)
            self.metadata_bytes += metadata_bytes(fact)
        elif before.metadata is not fact.metadata:
            more_bytes = metadata_bytes(fact) - metadata_bytes(before)
            self.position_bytes += more_bytes
            self.metadata_bytes += more_bytes
        offsets[fact.partition] = fact

    def _count_less(self, group_id: str, topic: TopicName) -> None:
        groups = self.topics[topic]
        left = groups.pop(group_id) - 1
        if left:
            groups[group_id] = left
        elif not groups:
            del self.topics[topic]

    def _apply_of_type(self, fact: ConsumerFact | ShareFact) -> None:
        if isinstance(fact, ShareFact):
            self._apply_share(fact)
        else:
            self._apply_consumer(fact)

    def _apply_consumer(self, fact: ConsumerFact) -> None:
        group = self.consumers.get(fact.group_id)
        if group is None:
            if not isinstance(fact, StoredFact):
                return
            group = self.consumers[fact.group_id] = StoredConsumerGroup.begun(fact, self.held)
        else:
            self.consumer_facts -= group.size()
        if isinstance(fact, StoredFact):
            group.store(fact)
        else:
            group.delete(fact)
        if group.is_gone:
            del self.consumers[fact.group_id]
            group.paid.end()
        else:
            if not group.members and isinstance(fact, ConsumerMemberDeleted):
                self.emptied.add(fact.group_id)
            self.consumer_facts += group.size()

    def _apply_share(self, fact: ShareFact) -> None:
        group = self.shares.get(fact.group_id)
        if group is None:
            if isinstance(fact, ShareFactDeleted):
                return
            group = self.shares[fact.group_id] = StoredShareGroup.begun(fact, self.shares_held)
        else:
            self.share_facts -= group.size()
        group.apply(fact)
        if group.is_gone:
            del self.shares[fact.group_id]
            group.paid.end()
        else:
            is_removal = isinstance(fact, ShareFactDeleted) and fact.kind is ShareRecordKind.MEMBER
            if is_removal and group.is_disused:
                self.emptied.add(fact.group_id)
            self.share_facts += group.size()

    def _delete_offset(self, fact: OffsetDeleted) -> None:
        self.pending.supersede(fact.group_id, fact.partition)
        offsets = self.offsets.get(fact.group_id)
        if offsets is None:
            return
        gone = offsets.pop(fact.partition, None)
        if gone is not None:
            self._count_less(fact.group_id, fact.partition.topic)
            self.positions -= 1
            self.position_bytes -= position_bytes(gone)
            self.metadata_bytes -= metadata_bytes(gone)
        if not offsets:
            del self.offsets[fact.group_id]
            self.emptied.add(fact.group_id)
