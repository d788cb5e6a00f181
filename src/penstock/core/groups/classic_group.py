"""The state of one classic group and the rules that hold between its parts.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader syncs──▶ Stable
      ▲                 │        ▲                            │                               │
      └───nobody left───┘        └──────── join, leave, session or sync timeout ──────────────┘

What moves a group along these arrows is in `rebalance`; who may ask for it in `classic_protocol`.

Stored is what a settled generation needs to go on after a failover (`to_fact`, `from_fact`);
timers, parked requests, ids that were given out and protocols that were not chosen are not. So
a group comes back Stable or Empty, and sessions start anew in full.

The topics in a consumer's subscription are the one part of member metadata the broker reads:

    version int16 | topic count int32 | (length int16, UTF-8 bytes)* | user data, later fields …

Members may send anything as metadata, so everything is checked against the bytes that
remain, and what cannot be read is None: it is unknown what this member subscribes to.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.groups.commands import DescribedMember, GroupState, MemberProtocol, OnReply
from penstock.core.groups.facts import GroupStored, StoredMember
from penstock.core.groups.held_bytes import (
    GIVEN_ID_BYTES,
    GROUP_BYTES,
    MEMBER_BYTES,
    NAME_BYTES,
    NO_HOST,
    HeldBytes,
    text_bytes,
)
from penstock.core.model import MILLISECOND, ErrorKind, Instant, Timestamp

CONSUMER_PROTOCOL_TYPE = "consumer"
_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
NO_TIMESTAMP = Timestamp(-1)
# What a member takes in a record besides names, metadata and assignment.
_MEMBER_BYTES = 30


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topic names in the order of the member, or None if these are not a subscription's bytes."""
    if len(metadata) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    # A name takes two bytes at least, so a hostile count is rejected before anything is built.
    if version < 0 or not 0 <= count <= (len(metadata) - _HEAD.size) // _LENGTH.size:
        return None
    topics: list[str] = []
    position, end = _HEAD.size, len(metadata)
    for _ in range(count):
        start = position + _LENGTH.size
        if start > end:
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position = start + length
        if length < 0 or position > end:
            return None
        try:
            topics.append(metadata[start:position].decode())
        except UnicodeDecodeError:
            return None
    return tuple(topics)


@dataclass(slots=True)
class GroupMember:
    """One member, as the coordinator remembers it between requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    # Has not received its id (or its first generation) yet, so it cannot send heartbeats.
    is_new: bool = False
    # None while a parked JoinGroup or SyncGroup stands for the heartbeats.
    session_deadline: Instant | None = None

    @classmethod
    def from_stored(cls, stored: StoredMember, protocol: str) -> "GroupMember":
        # Records of the oldest version have no rebalance timeout.
        rebalance_timeout_ms = stored.rebalance_timeout_ms
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = stored.session_timeout_ms
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            rebalance_timeout_ms,
            stored.session_timeout_ms,
            (MemberProtocol(protocol, stored.subscription),),
            stored.assignment,
        )

    def to_stored(self, protocol: str | None) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata_for(protocol),
            self.assignment,
        )

    def names_bytes(self) -> int:
        """What it takes in a record besides metadata and assignment."""
        names = f"{self.member_id}{self.instance_id or ''}{self.client_id}{self.client_host}"
        return _MEMBER_BYTES + len(names.encode())

    def held_bytes(self) -> int:
        """About what the member takes in memory besides what is stored of it."""
        names = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return MEMBER_BYTES + names + protocols_bytes(self.protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata_for(protocol),
            self.assignment,
        )


def protocols_bytes(protocols: Iterable[MemberProtocol]) -> int:
    """What a member says about itself."""
    size = 0
    for name, metadata in protocols:
        size += NAME_BYTES + (len(name) if name.isascii() else 4 * len(name)) + len(metadata)
    return size


class GivenId(NamedTuple):
    """An id that was given out, and not joined with yet."""

    until: Instant
    client_host: str


class ProtocolSelector:
    """Which protocol a generation uses: one that every member supports and most prefer.

    How many members support each is kept up to date as they come and go.
    """

    __slots__ = ("_supporters",)

    def __init__(self) -> None:
        self._supporters: dict[str, int] = {}

    def add(self, protocols: Iterable[MemberProtocol]) -> None:
        for name, _ in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + 1

    def remove(self, protocols: Iterable[MemberProtocol]) -> None:
        for name, _ in protocols:
            left = self._supporters[name] - 1
            if left:
                self._supporters[name] = left
            else:
                del self._supporters[name]

    def supports_any(self, protocols: Iterable[MemberProtocol], members: int) -> bool:
        """Whether all `members` support one of these."""
        for protocol in protocols:  # noqa: SIM110 - a generator is a call for each
            if self._supporters.get(protocol.name) == members:
                return True
        return False

    def winner(self, members: dict[str, GroupMember]) -> str:
        """Each member votes for the first of its protocols that all support; the most votes win.

        A tie goes to the protocol that was voted for first, so the choice is deterministic.
        """
        votes: dict[str, int] = {}
        for member in members.values():
            for name, _ in member.protocols:
                if self._supporters[name] == len(members):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)


@dataclass(slots=True)
class InitialDelay:
    """A new group waits a little for more members, and again while they keep coming."""

    delay_ms: int
    remaining_ms: int
    member_came: bool = False


class ClassicGroup:
    """Who is in the group, who is expected, and whose request waits for what."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since: Timestamp | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None  # of this generation; it may have left when the next is prepared
        self.members: dict[str, GroupMember] = {}
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.selector = ProtocolSelector()
        # What this generation's members subscribe to; None when it cannot be known.
        self.subscribed: frozenset[str] | None = None
        self.pending: dict[str, GivenId] = {}  # ids given out, not joined with yet
        self.joiner: dict[str, OnReply] = {}  # member id -> its parked JoinGroup
        self.syncing: dict[str, OnReply] = {}  # member id -> its parked SyncGroup
        self.unsynced: dict[str, None] = {}  # members of this generation that owe a SyncGroup
        self.initial_delay: InitialDelay | None = None
        self.join_deadline: Instant | None = None
        self.sync_deadline: Instant | None = None
        self.rebalance_started: Instant | None = None
        # What is not in the image, and whose client pays for the group itself.
        self.held = HeldBytes()
        self._payer = NO_HOST
        # What all members take in a record besides metadata and assignments.
        self.names_bytes = 0

    @classmethod
    def from_fact(cls, fact: GroupStored, resumed_at: Instant) -> "ClassicGroup":
        """The group as it was stored, with every session starting at `resumed_at`."""
        group = cls(fact.group_id)
        group.generation = fact.generation
        group.protocol_type = fact.protocol_type or None
        group.protocol = fact.protocol
        group.state_since = None if fact.state_since == NO_TIMESTAMP else fact.state_since
        for stored in fact.members:
            member = GroupMember.from_stored(stored, fact.protocol or "")
            member.session_deadline = Instant(resumed_at + member.session_timeout_ms * MILLISECOND)
            group.add(member)
        group.leader = fact.leader
        if group.members:
            group.state = GroupState.STABLE
        group.note_subscriptions()
        return group

    def to_fact(self) -> GroupStored:
        return GroupStored(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            NO_TIMESTAMP if self.state_since is None else self.state_since,
            tuple([member.to_stored(self.protocol) for member in self.members.values()]),
        )

    def stored_bytes(self) -> int:
        """About what `to_fact` takes in the log."""
        protocol = self.protocol
        contents = [len(m.metadata_for(protocol)) + len(m.assignment) for m in self.members.values()]
        return self.names_bytes + sum(contents)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Nothing volatile is left: what remains is in the image."""
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max([m.rebalance_timeout_ms for m in self.members.values()], default=0)

    def add(self, member: GroupMember) -> None:
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if not self.members:
            self._payer = member.client_host
            self.held.add(self._payer, self._own_bytes())
        self.members[member.member_id] = member
        self.selector.add(member.protocols)
        self.names_bytes += member.names_bytes()
        self.held.add(member.client_host, member.held_bytes())
        if member.member_id in self.pending:
            self.take_id_back(member.member_id)

    def remove(self, member_id: str) -> tuple[OnReply, ...]:
        """Take the member out; returns the callbacks of its requests that are still parked.

        A rebalance follows, which elects a leader and starts counting who has synced.
        """
        member = self.members.pop(member_id)
        self.selector.remove(member.protocols)
        self.names_bytes -= member.names_bytes()
        self.held.add(member.client_host, -member.held_bytes())
        if not self.members:
            self.held.add(self._payer, -self._own_bytes())
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        return self._unpark(member_id)

    def replace(self, member: GroupMember, old_member_id: str) -> tuple[OnReply, ...]:
        """Put `member` in the place of the static member it replaces; returns the old one's callbacks."""
        old = self.members.pop(old_member_id)
        assert member.instance_id is not None
        assert old.instance_id == member.instance_id
        self.selector.remove(old.protocols)
        self.selector.add(member.protocols)
        self.names_bytes += member.names_bytes() - old.names_bytes()
        self.held.add(old.client_host, -old.held_bytes())
        self.held.add(member.client_host, member.held_bytes())
        self.members[member.member_id] = member
        self.instances[member.instance_id] = member.member_id
        if self.leader == old_member_id:
            self.leader = member.member_id
        if old_member_id in self.unsynced:
            del self.unsynced[old_member_id]
            self.unsynced[member.member_id] = None
        return self._unpark(old_member_id)

    def update_protocols(self, member: GroupMember, protocols: tuple[MemberProtocol, ...]) -> None:
        self.selector.remove(member.protocols)
        self.held.add(member.client_host, protocols_bytes(protocols) - protocols_bytes(member.protocols))
        member.protocols = protocols
        self.selector.add(protocols)

    def give_id(self, member_id: str, given: GivenId) -> None:
        self.take_id_back(member_id)
        self.pending[member_id] = given
        self.held.add(given.client_host, self._given_bytes(member_id))

    def take_id_back(self, member_id: str) -> None:
        """The id was joined with, or is not waited for any more; there may be none."""
        given = self.pending.pop(member_id, None)
        if given is not None:
            self.held.add(given.client_host, -self._given_bytes(member_id))

    def elect_leader_among_joined(self) -> bool:
        """Make sure that the leader takes part in the next generation; False if no member does."""
        if self.leader in self.joiner:
            return True
        for member_id in self.members:
            if member_id in self.joiner:
                self.leader = member_id
                return True
        return False

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.selector.supports_any(
            protocols, len(self.members)
        )

    def member_error_kind(self, member_id: str, instance_id: str | None) -> ErrorKind | None:
        """The error of a request that claims to come from this member, if there is one."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return ErrorKind.UNKNOWN_MEMBER
            if holder != member_id:
                return ErrorKind.FENCED_INSTANCE
        return None if member_id in self.members else ErrorKind.UNKNOWN_MEMBER

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic; assumed where subscriptions cannot be read."""
        if self.subscribed is None:
            return self.is_consumer_group
        return topic in self.subscribed

    def note_subscriptions(self) -> None:
        """Take over what the members of a new generation subscribe to."""
        self.subscribed = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        topics: list[str] = []
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata_for(self.protocol))
            if subscribed is None:
                return
            topics += subscribed
        self.subscribed = frozenset(topics)

    def earliest_deadline(self) -> Instant | None:
        deadlines = [m.session_deadline for m in self.members.values() if m.session_deadline is not None]
        deadlines += [given.until for given in self.pending.values()]
        if self.join_deadline is not None:
            deadlines.append(self.join_deadline)
        if self.sync_deadline is not None:
            deadlines.append(self.sync_deadline)
        return min(deadlines, default=None)

    def _own_bytes(self) -> int:
        return GROUP_BYTES + text_bytes(self.group_id)

    def _given_bytes(self, member_id: str) -> int:
        # A group may be nothing but an id that was given out.
        return GIVEN_ID_BYTES + text_bytes(member_id) + self._own_bytes()

    def _unpark(self, member_id: str) -> tuple[OnReply, ...]:
        parked = (
            requests.pop(member_id) for requests in (self.joiner, self.syncing) if member_id in requests
        )
        return tuple(parked)
