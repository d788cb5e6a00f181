"""What is stored of share groups (KIP-932): one fact per record, and the state they add up to.

    fact                 key of Kafka's              says
    ShareMemberStored    10, of a member             what the member said of itself
    ShareGroupStored     11, of the group            its epoch, and a hash of its topics
    ShareTargetEpoch     12, of the group            the epoch that the target assignment is for
    ShareTarget          13, of a member             what it shall consume
    ShareCurrent         14, of a member             its epoch, and what it was told to consume
    ShareTopics          15, of the group            the topics that it has queues of

A `ShareFactDeleted` is the tombstone of any of them.
"""

import enum
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple, TypeAlias, assert_never

from penstock.core.groups.commands import NO_OWN_TIMEOUT
from penstock.core.groups.held_bytes import (
    MEMBER_BYTES,
    NAME_BYTES,
    NO_HOST,
    TOPIC_BYTES,
    GroupBytes,
    HeldBytes,
    names_bytes,
    partitions_bytes,
    text_bytes,
)
from penstock.core.groups.partition_sets import PartitionSet
from penstock.core.model import TopicId
from penstock.core.values import dataclass


class ShareRecordKind(enum.IntEnum):
    """The versions of Kafka's keys, which tell the kinds of records apart."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    TOPICS = 15


@dataclass(frozen=True, slots=True)
class ShareMemberStored:
    """A member has joined, or has said something new about itself."""

    group_id: str
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    session_timeout_ms: int = NO_OWN_TIMEOUT

    def said_bytes(self) -> int:
        """What the member says of itself."""
        return text_bytes(self.member_id, self.rack_id, self.client_id) + names_bytes(self.topics)

    def held_bytes(self) -> int:
        """About what it takes in memory."""
        return MEMBER_BYTES + NAME_BYTES * len(self.topics) + self.said_bytes()


@dataclass(frozen=True, slots=True)
class ShareGroupStored:
    """The group's members, their subscriptions or its topics have changed."""

    group_id: str
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ShareTargetEpoch:
    """The target assignment was computed for this epoch of the group."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ShareTarget:
    """What a member shall consume; others may consume it as well."""

    group_id: str
    member_id: str
    partitions: PartitionSet


@dataclass(frozen=True, slots=True)
class ShareCurrent:
    """What a member was told to consume."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    assigned: PartitionSet


class SharedTopic(NamedTuple):
    """A topic that a share group has queues of."""

    id: TopicId
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ShareTopics:
    """The topics that the group's members have been assigned partitions of, by name."""

    group_id: str
    topics: tuple[SharedTopic, ...]

    def held_bytes(self) -> int:
        """About what it takes in memory."""
        return (TOPIC_BYTES + NAME_BYTES) * len(self.topics) + text_bytes(
            *[each.name for each in self.topics]
        )


@dataclass(frozen=True, slots=True)
class ShareFactDeleted:
    """What was stored under this key is gone; `member_id` is empty where the key is the group's."""

    group_id: str
    kind: ShareRecordKind
    member_id: str = ""


StoredShareFact: TypeAlias = (
    ShareMemberStored | ShareGroupStored | ShareTargetEpoch | ShareTarget | ShareCurrent | ShareTopics
)
ShareFact: TypeAlias = StoredShareFact | ShareFactDeleted


@dataclass(slots=True)
class StoredShareGroup:
    """The last fact of every key of one group."""

    # What it takes in memory.
    paid: GroupBytes = field(compare=False, repr=False)
    group: ShareGroupStored | None = None
    target_epoch: ShareTargetEpoch | None = None
    topics: ShareTopics | None = None
    members: dict[str, ShareMemberStored] = field(default_factory=dict)
    targets: dict[str, ShareTarget] = field(default_factory=dict)
    current: dict[str, ShareCurrent] = field(default_factory=dict)

    @classmethod
    def begun(cls, first: ShareFact, held: HeldBytes) -> "StoredShareGroup":
        """There is such a group now: the client of its first member pays for it."""
        payer = first.client_host if isinstance(first, ShareMemberStored) else NO_HOST
        return cls(GroupBytes(held, payer, first.group_id))

    def apply(self, fact: ShareFact) -> None:
        """Total: there may be nothing to delete."""
        match fact:
            case ShareMemberStored():
                self.members[fact.member_id] = fact
                self.paid.pay(fact.member_id, said=fact.held_bytes(), host=fact.client_host)
            case ShareGroupStored():
                self.group = fact
            case ShareTargetEpoch():
                self.target_epoch = fact
            case ShareTarget():
                self.targets[fact.member_id] = fact
                self.paid.pay(fact.member_id, target=partitions_bytes(fact.partitions))
            case ShareCurrent():
                self.current[fact.member_id] = fact
                self.paid.pay(fact.member_id, current=partitions_bytes(fact.assigned))
            case ShareTopics():
                self._replace_topics(fact)
            case ShareFactDeleted():
                self._delete(fact)
            case _:
                assert_never(fact)

    def _delete(self, fact: ShareFactDeleted) -> None:
        match fact.kind:
            case ShareRecordKind.MEMBER:
                self.members.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, said=0)
            case ShareRecordKind.GROUP:
                self.group = None
            case ShareRecordKind.TARGET_EPOCH:
                self.target_epoch = None
            case ShareRecordKind.TARGET:
                self.targets.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, target=0)
            case ShareRecordKind.CURRENT:
                self.current.pop(fact.member_id, None)
                self.paid.pay(fact.member_id, current=0)
            case ShareRecordKind.TOPICS:
                self._replace_topics(None)
            case _:
                assert_never(fact.kind)

    def _replace_topics(self, fact: ShareTopics | None) -> None:
        before = 0 if self.topics is None else self.topics.held_bytes()
        self.paid.pay_of_group((0 if fact is None else fact.held_bytes()) - before)
        self.topics = fact

    @property
    def is_gone(self) -> bool:
        """Nothing is left of the group."""
        of_group = self.group or self.target_epoch or self.topics
        return not (of_group or self.members or self.targets or self.current)

    @property
    def is_disused(self) -> bool:
        """It has no members, and never had a queue."""
        return not self.members and self.topics is None

    def size(self) -> int:
        """How many facts it takes to store the group, about."""
        return 3 + len(self.members) + len(self.targets) + len(self.current)

    def facts(self) -> Iterator[ShareFact]:
        """The group as facts, each as it is when it is asked for: the epochs last."""
        for table in (self.members, self.targets, self.current):
            for member_id in list(table):
                if member_id in table:
                    yield table[member_id]
        for fact in (self.topics, self.group, self.target_epoch):
            if fact is not None:
                yield fact

    def tombstones(self, group_id: str) -> Iterator[ShareFact]:
        """What deletes the group: the epoch last."""
        for member_id in self.current:
            yield ShareFactDeleted(group_id, ShareRecordKind.CURRENT, member_id)
        for member_id in self.targets:
            yield ShareFactDeleted(group_id, ShareRecordKind.TARGET, member_id)
        for member_id in self.members:
            yield ShareFactDeleted(group_id, ShareRecordKind.MEMBER, member_id)
        if self.topics is not None:
            yield ShareFactDeleted(group_id, ShareRecordKind.TOPICS)
        if self.target_epoch is not None:
            yield ShareFactDeleted(group_id, ShareRecordKind.TARGET_EPOCH)
        yield ShareFactDeleted(group_id, ShareRecordKind.GROUP)
