"""What is stored of consumer groups (KIP-848): one fact per record, and the state they add up to.

    fact                      of                 says
    ConsumerGroupStored       the group          its epoch, and a hash of its topics
    ConsumerMemberStored      a member           what the member said of itself
    TargetEpochStored         the group          the epoch that the target assignment is for
    TargetAssignmentStored    a member           what it shall have
    CurrentAssignmentStored   a member           what it has, and its epoch
    PatternResolved           a pattern          the topics that it matches

Each has a counterpart `…Deleted`, which is a tombstone.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias, TypeVar, assert_never

from penstock.core.groups.commands import NO_OWN_TIMEOUT, MemberProtocol
from penstock.core.groups.held_bytes import (
    MEMBER_BYTES,
    NAME_BYTES,
    NO_HOST,
    GroupBytes,
    HeldBytes,
    names_bytes,
    partitions_bytes,
    text_bytes,
)
from penstock.core.groups.partition_sets import PartitionSet
from penstock.core.model import Timestamp
from penstock.core.values import dataclass


class MemberState(enum.IntEnum):
    """How far a member's partitions are from its target; numbered as Kafka numbers them."""

    # It has what it shall have.
    STABLE = 1
    # It has been told to give up partitions, and has not confirmed it.
    UNREVOKED_PARTITIONS = 2
    # It waits for partitions that others still have.
    UNRELEASED_PARTITIONS = 3
    # Written by a newer version.
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """What the coordinator needs to serve a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberStored:
    """A member has joined, or has said something new about itself."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    session_timeout_ms: int = NO_OWN_TIMEOUT

    def session_ms(self, default_ms: int) -> int:
        """How long it counts as alive without a word; the group's setting where it has said nothing."""
        own_ms = self.session_timeout_ms if self.classic is None else self.classic.session_timeout_ms
        return default_ms if own_ms == NO_OWN_TIMEOUT else own_ms

    def said_bytes(self) -> int:
        """What the member says of itself."""
        ids = text_bytes(self.member_id, self.instance_id, self.rack_id, self.client_id, self.pattern)
        return ids + names_bytes(self.topics) + self._classic_bytes()

    def held_bytes(self) -> int:
        """About what it takes in memory."""
        return MEMBER_BYTES + NAME_BYTES * len(self.topics) + self.said_bytes()

    def _classic_bytes(self) -> int:
        protocols = () if self.classic is None else self.classic.protocols
        return sum([NAME_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols])


@dataclass(frozen=True, slots=True)
class ConsumerMemberDeleted:
    """A member has left or was removed."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupStored:
    """The group's members, their subscriptions or its topics have changed."""

    group_id: str
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupDeleted:
    """The group is gone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored:
    """The target assignment was computed for this epoch of the group."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetEpochDeleted:
    """The group has no target assignment any more."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentStored:
    """What a member shall have."""

    group_id: str
    member_id: str
    partitions: PartitionSet


@dataclass(frozen=True, slots=True)
class TargetAssignmentDeleted:
    """The member has no target any more."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentStored:
    """What a member has, and what it was told to give up."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: PartitionSet
    revoking: PartitionSet


@dataclass(frozen=True, slots=True)
class CurrentAssignmentDeleted:
    """The member has nothing any more."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class PatternResolved:
    """The topics that a regular expression of the group matches."""

    group_id: str
    pattern: str
    topics: tuple[str, ...]
    resolved_at: Timestamp

    def held_bytes(self) -> int:
        """About what it takes in memory: topics that exist have names already."""
        return NAME_BYTES * (1 + len(self.topics)) + text_bytes(self.pattern)


@dataclass(frozen=True, slots=True)
class PatternDeleted:
    """No member subscribes to this regular expression any more."""

    group_id: str
    pattern: str


StoredFact: TypeAlias = (
    ConsumerGroupStored
    | ConsumerMemberStored
    | TargetEpochStored
    | TargetAssignmentStored
    | CurrentAssignmentStored
    | PatternResolved
)
DeletedFact: TypeAlias = (
    ConsumerGroupDeleted
    | ConsumerMemberDeleted
    | TargetEpochDeleted
    | TargetAssignmentDeleted
    | CurrentAssignmentDeleted
    | PatternDeleted
)
ConsumerFact: TypeAlias = StoredFact | DeletedFact
F = TypeVar("F")


@dataclass(slots=True)
class StoredConsumerGroup:
    """The last fact of every key of one group."""

    # What it takes in memory.
    paid: GroupBytes = field(compare=False, repr=False)
    group: ConsumerGroupStored | None = None
    target_epoch: TargetEpochStored | None = None
    members: dict[str, ConsumerMemberStored] = field(default_factory=dict)
    targets: dict[str, TargetAssignmentStored] = field(default_factory=dict)
    current: dict[str, CurrentAssignmentStored] = field(default_factory=dict)
    patterns: dict[str, PatternResolved] = field(default_factory=dict)

    @classmethod
    def begun(cls, first: StoredFact, held: HeldBytes) -> "StoredConsumerGroup":
        """There is such a group now: the client of its first member pays for it."""
        payer = first.client_host if isinstance(first, ConsumerMemberStored) else NO_HOST
        return cls(GroupBytes(held, payer, first.group_id))

    def store(self, fact: StoredFact) -> None:
        match fact:
            case ConsumerGroupStored():
                self.group = fact
            case ConsumerMemberStored():
                self.members[fact.member_id] = fact
                self.paid.pay(fact.member_id, said=fact.held_bytes(), host=fact.client_host)
            case TargetEpochStored():
                self.target_epoch = fact
            case TargetAssignmentStored():
                self.targets[fact.member_id] = fact
                self.paid.pay(fact.member_id, target=partitions_bytes(fact.partitions))
            case CurrentAssignmentStored():
                self.current[fact.member_id] = fact
                current = partitions_bytes(fact.assigned) + partitions_bytes(fact.revoking)
                self.paid.pay(fact.member_id, current=current)
            case PatternResolved():
                self._replace_pattern(fact.pattern, fact)
            case _:
                assert_never(fact)

    def delete(self, fact: DeletedFact) -> None:
        """There may be nothing to delete."""
        match fact:
            case ConsumerGroupDeleted():
                self.group = None
            case ConsumerMemberDeleted():
                self.members.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, said=0)
            case TargetEpochDeleted():
                self.target_epoch = None
            case TargetAssignmentDeleted():
                self.targets.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, target=0)
            case CurrentAssignmentDeleted():
                self.current.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, current=0)
            case PatternDeleted():
                self._replace_pattern(fact.pattern, None)
            case _:
                assert_never(fact)

    @property
    def is_gone(self) -> bool:
        """Nothing is left of the group."""
        return not (
            self.group or self.target_epoch or self.members or self.targets or self.current or self.patterns
        )

    def size(self) -> int:
        """How many facts it takes to store the group, about."""
        return 2 + len(self.members) + len(self.targets) + len(self.current) + len(self.patterns)

    def facts(self) -> Iterator[ConsumerFact]:
        """The group as facts: the epochs last, so that nothing is newer than they say."""
        yield from _each(self.members)
        yield from _each(self.patterns)
        yield from _each(self.targets)
        yield from _each(self.current)
        if self.group is not None:
            yield self.group
        if self.target_epoch is not None:
            yield self.target_epoch

    def _replace_pattern(self, pattern: str, fact: PatternResolved | None) -> None:
        before = self.patterns.get(pattern)
        if before is not None:
            self.paid.pay_of_group(-before.held_bytes())
        if fact is not None:
            self.paid.pay_of_group(fact.held_bytes())
            self.patterns[pattern] = fact
        elif before is not None:
            del self.patterns[pattern]

    def tombstones(self, group_id: str) -> Iterator[ConsumerFact]:
        """What deletes the group: the epoch last."""
        for member_id in self.current:
            yield CurrentAssignmentDeleted(group_id, member_id)
        for member_id in self.targets:
            yield TargetAssignmentDeleted(group_id, member_id)
        if self.target_epoch is not None:
            yield TargetEpochDeleted(group_id)
        for pattern in self.patterns:
            yield PatternDeleted(group_id, pattern)
        for member_id in self.members:
            yield ConsumerMemberDeleted(group_id, member_id)
        yield ConsumerGroupDeleted(group_id)


def _each(table: Mapping[str, F]) -> Iterator[F]:
    """The facts as they are when they are asked for.

    The group may move on meanwhile, and a fact that is out of date must not follow the newer one.
    """
    for key in list(table):
        if key in table:
            yield table[key]
