"""The state of one classic group and the rules that hold between its parts.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader syncs──▶ Stable
      ▲                 │        ▲                            │                               │
      └───nobody left───┘        └──────── join, leave, session or sync timeout ──────────────┘

What moves a group along these arrows is in `rebalance`; who may ask for it in `join`, `sync`
and `presence`.
"""

from dataclasses import dataclass

from penstock.core.groups.classic.ballot import Ballot
from penstock.core.groups.classic.member import Member
from penstock.core.groups.commands import MemberProtocol, Ticket
from penstock.core.groups.replies import GroupState
from penstock.core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from penstock.core.model import Instant, Timestamp, Why


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
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.ballot = Ballot()
        # What this generation's members subscribe to; None when it cannot be known.
        self.subscribed: frozenset[str] | None = None
        self.pending: dict[str, Instant] = {}  # ids given out, not joined with yet -> until when
        self.joining: dict[str, Ticket] = {}  # member id -> its parked JoinGroup
        self.syncing: dict[str, Ticket] = {}  # member id -> its parked SyncGroup
        self.unsynced: dict[str, None] = {}  # members of this generation that owe a SyncGroup
        self.initial_delay: InitialDelay | None = None
        self.join_deadline: Instant | None = None
        self.sync_deadline: Instant | None = None
        self.rebalance_started: Instant | None = None

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Nothing volatile is left: what remains is in the image."""
        return self.is_empty and not self.pending

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def enter(self, state: GroupState, since: Timestamp) -> None:
        self.state = state
        self.state_since = since

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.ballot.add(member.protocols)
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> tuple[Ticket, ...]:
        """Take the member out; returns the tickets of its requests that are still parked.

        A rebalance follows, which elects a leader and starts counting who has synced.
        """
        member = self.members.pop(member_id)
        self.ballot.remove(member.protocols)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        return self._unpark(member_id)

    def replace(self, member: Member, old_member_id: str) -> tuple[Ticket, ...]:
        """Put `member` in the place of the static member it replaces; returns the old one's tickets."""
        old = self.members.pop(old_member_id)
        assert member.instance_id is not None
        assert old.instance_id == member.instance_id
        self.ballot.remove(old.protocols)
        self.ballot.add(member.protocols)
        self.members[member.member_id] = member
        self.instances[member.instance_id] = member.member_id
        if self.leader == old_member_id:
            self.leader = member.member_id
        if old_member_id in self.unsynced:
            del self.unsynced[old_member_id]
            self.unsynced[member.member_id] = None
        return self._unpark(old_member_id)

    def update_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        self.ballot.remove(member.protocols)
        member.protocols = protocols
        self.ballot.add(protocols)

    def elect_leader_among_joined(self) -> bool:
        """Make sure that the leader takes part in the next generation; False if nobody does."""
        if self.leader in self.joining:
            return True
        self.leader = next((id_ for id_ in self.members if id_ in self.joining), self.leader)
        return self.leader in self.joining

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self.ballot.supported_by(p.name, len(self.members)) for p in protocols)

    def why_not_member(self, member_id: str, instance_id: str | None) -> Why | None:
        """The reason to refuse a request that claims to come from this member, if there is one."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return Why.UNKNOWN_MEMBER
            if holder != member_id:
                return Why.FENCED_INSTANCE
        return None if member_id in self.members else Why.UNKNOWN_MEMBER

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
        if not self.is_consumer_group:
            return
        topics: list[str] = []
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata_for(self.protocol))
            if subscribed is None:
                return
            topics.extend(subscribed)
        self.subscribed = frozenset(topics)

    def earliest_deadline(self) -> Instant | None:
        deadlines = [m.session_deadline for m in self.members.values() if m.session_deadline is not None]
        deadlines += self.pending.values()
        deadlines += [d for d in (self.join_deadline, self.sync_deadline) if d is not None]
        return min(deadlines, default=None)

    def _unpark(self, member_id: str) -> tuple[Ticket, ...]:
        parked = (
            requests.pop(member_id) for requests in (self.joining, self.syncing) if member_id in requests
        )
        return tuple(parked)
