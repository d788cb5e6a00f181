"""The state of one share group (KIP-932).

    group epoch     grows with every change of members, subscriptions or topics
    target epoch    the group epoch that the target assignment was computed for
    member epoch    the target epoch that the member was told of

Members share partitions, so nobody has to give one up before another may have it: a member is at its target
with its next heartbeat. What keeps two of them from having the same record is the queue's lease.
"""

from dataclasses import dataclass, field

from penstock.core.groups.assignors import AssignorSteps, TargetAssignment
from penstock.core.groups.cluster_topics import AssignableTopic
from penstock.core.groups.commands import (
    NO_OWN_TIMEOUT,
    DescribedShareGroup,
    DescribedShareMember,
    GroupState,
)
from penstock.core.groups.partition_sets import PartitionSet
from penstock.core.groups.share_facts import (
    ShareCurrent,
    SharedTopic,
    ShareGroupStored,
    ShareMemberStored,
    ShareTopics,
    StoredShareGroup,
)
from penstock.core.model import MILLISECOND, Instant

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
LONG_AGO = Instant(0)


@dataclass(slots=True)
class ShareMember:
    """One member: what it said of itself, what it consumes, and until when it counts as alive."""

    stored: ShareMemberStored
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: PartitionSet = field(default_factory=dict)
    session_deadline: Instant = LONG_AGO

    def session_timeout_ms(self, default_ms: int) -> int:
        own_ms = self.stored.session_timeout_ms
        return default_ms if own_ms == NO_OWN_TIMEOUT else own_ms


class ShareGroup:
    """Who is in the group, and what each member consumes."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target: TargetAssignment = {}
        self.members: dict[str, ShareMember] = {}
        # What the members subscribe to, and the topics of it that exist.
        self.subscribed: frozenset[str] = frozenset()
        self.topics: dict[str, AssignableTopic] = {}
        # Those that it has had queues of, also before.
        self.known: tuple[SharedTopic, ...] = ()
        # Whether topics may have changed since: the next heartbeat looks at them.
        self.is_stale = True
        # A target that is being computed in several turns, and the epoch that it is for.
        self.computing: AssignorSteps | None = None
        self.computing_epoch = 0
        self.rebalance_started: Instant | None = None

    @classmethod
    def from_stored(
        cls, group_id: str, stored: StoredShareGroup, resumed_at: Instant, session_timeout_ms: int
    ) -> "ShareGroup":
        """The group as it was stored, with every session starting at `resumed_at`."""
        group = cls(group_id)
        if stored.group is not None:
            group.epoch, group.metadata_hash = stored.group.epoch, stored.group.metadata_hash
        group.target_epoch = 0 if stored.target_epoch is None else stored.target_epoch.epoch
        group.target = {member_id: target.partitions for member_id, target in stored.targets.items()}
        group.known = () if stored.topics is None else stored.topics.topics
        for member_id, fact in stored.members.items():
            member = group.members[member_id] = ShareMember(fact)
            current = stored.current.get(member_id)
            if current is not None:
                member.epoch, member.previous_epoch = current.epoch, current.previous_epoch
                member.assigned = current.assigned
            timeout_ms = member.session_timeout_ms(session_timeout_ms)
            member.session_deadline = Instant(resumed_at + timeout_ms * MILLISECOND)
        group.note_subscriptions()
        return group

    def to_fact(self) -> ShareGroupStored:
        return ShareGroupStored(self.group_id, self.epoch, self.metadata_hash)

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        """A share group that may have queues is kept until it is deleted, because they are."""
        return not self.members and not self.known

    @property
    def is_consumer_group(self) -> bool:
        return False

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def note_subscriptions(self) -> None:
        """Take over what the members subscribe to."""
        names = [name for member in self.members.values() for name in member.stored.topics]
        self.subscribed = frozenset(names)

    def take_current(self, member: ShareMember) -> ShareCurrent | None:
        """Move the member to its target; None where it is there."""
        member_id = member.stored.member_id
        assigned = self.target.get(member_id, {})
        if member.epoch == self.target_epoch and member.assigned == assigned:
            return None
        if member.epoch != self.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.target_epoch
        if member.assigned != assigned:
            member.assigned = assigned
        return ShareCurrent(self.group_id, member_id, member.epoch, member.previous_epoch, member.assigned)

    def note_topics(self) -> ShareTopics | None:
        """Remember the topics that members consume now; None where all are known."""
        now = {
            topic.id: SharedTopic(topic.id, topic.name, topic.partitions) for topic in self.topics.values()
        }
        if all(topic in self.known for topic in now.values()):
            return None
        # A topic of the same name that was deleted has no queues any more.
        names = {topic.name for topic in now.values()}
        before = [each for each in self.known if each.name not in names]
        self.known = tuple(sorted([*before, *now.values()], key=lambda topic: topic.name))
        return ShareTopics(self.group_id, self.known)

    def earliest_deadline(self) -> Instant | None:
        return min([member.session_deadline for member in self.members.values()], default=None)

    def described(self, assignor: str) -> DescribedShareGroup:
        members = tuple(
            DescribedShareMember(
                member.stored.member_id,
                member.stored.rack_id,
                member.epoch,
                member.stored.client_id,
                member.stored.client_host,
                member.stored.topics,
                member.assigned,
            )
            for member in self.members.values()
        )
        topics = tuple((each.id, each.name, each.partitions) for each in self.known)
        return DescribedShareGroup(
            self.group_id, self.state, self.epoch, self.target_epoch, assignor, members, topics
        )
