"""The state of one consumer group (KIP-848), and how a member comes to have its partitions.

    group epoch     grows with every change of members, subscriptions or topics
    target epoch    the group epoch that the target assignment was computed for
    member epoch    the target epoch that the member has reached, or is on its way from

Each member is moved towards its target by its own heartbeats (`reconciled`):

    Stable ──new target──▶ Unrevoked ──gave them up──▶ Unreleased ──others gave them up──▶ Stable
              (has partitions it shall give up)   (waits for partitions of others)

A partition is given to a member only when nobody has it (`owner_of`): not while its former owner may
still read it. A member that gives nothing up goes to its new epoch at once, and reads on meanwhile.
"""

from dataclasses import dataclass, field

from penstock.core.groups.assignors import AssignorSteps, TargetAssignment
from penstock.core.groups.cluster_topics import AssignableTopic
from penstock.core.groups.commands import (
    CommitOffsets,
    CommitTransactionOffsets,
    DescribedConsumer,
    DescribedConsumerGroup,
    FetchOffsets,
    GroupState,
)
from penstock.core.groups.consumer_facts import (
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssignmentStored,
    MemberState,
    StoredConsumerGroup,
)
from penstock.core.groups.partition_sets import (
    NO_PARTITIONS,
    PartitionSet,
    difference,
    intersection,
    intersects,
    union,
)
from penstock.core.groups.topic_patterns import PatternSteps
from penstock.core.model import MILLISECOND, ErrorKind, Instant, TopicId

# Epochs with a meaning: joins; leaves; a static member leaves and will be back.
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
LONG_AGO = Instant(0)


@dataclass(slots=True)
class ConsumerMember:
    """One member: what it said of itself, what it has, and until when it counts as alive."""

    stored: ConsumerMemberStored
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionSet = field(default_factory=dict)
    revoking: PartitionSet = field(default_factory=dict)
    session_deadline: Instant = LONG_AGO
    # Until when it must have given up `revoking`; a classic member, until when it must have joined again.
    revoke_deadline: Instant | None = None

    def current(self) -> CurrentAssignmentStored:
        """What the member has, as a fact."""
        return CurrentAssignmentStored(
            self.stored.group_id,
            self.stored.member_id,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )

    def take(self, current: CurrentAssignmentStored) -> None:
        self.epoch, self.previous_epoch, self.state = current.epoch, current.previous_epoch, current.state
        self.assigned, self.revoking = current.assigned, current.revoking


class ConsumerGroup:
    """Who is in the group, what each member has, and what each shall have."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target: TargetAssignment = {}
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.patterns: dict[str, tuple[str, ...]] = {}  # pattern -> the topics that match
        # What the members subscribe to, and the topics of it that exist.
        self.subscribed: frozenset[str] = frozenset()
        self.topics: dict[str, AssignableTopic] = {}
        # Whether topics may have changed since: the next heartbeat looks at them, and at patterns.
        self.is_stale = True
        self.has_stale_patterns = True
        # Patterns that are being compared with the topics' names.
        self.searches: dict[str, PatternSteps] = {}
        # Members that have not come to the target yet.
        self.unsettled: dict[str, None] = {}
        self.rebalance_started: Instant | None = None
        # A target that is being computed in several turns, and the epoch that it is for.
        self.computing: AssignorSteps | None = None
        self.computing_epoch = 0
        self._owners: dict[TopicId, dict[int, str]] = {}

    @classmethod
    def from_stored(
        cls, group_id: str, stored: StoredConsumerGroup, resumed_at: Instant, session_timeout_ms: int
    ) -> "ConsumerGroup":
        """The group as it was stored, with every session and revocation starting at `resumed_at`."""
        group = cls(group_id)
        if stored.group is not None:
            group.epoch, group.metadata_hash = stored.group.epoch, stored.group.metadata_hash
        group.target_epoch = 0 if stored.target_epoch is None else stored.target_epoch.epoch
        group.target = {member_id: target.partitions for member_id, target in stored.targets.items()}
        group.patterns = {pattern: found.topics for pattern, found in stored.patterns.items()}
        for member_id, fact in stored.members.items():
            member = ConsumerMember(fact)
            current = stored.current.get(member_id)
            if current is not None:
                member.take(current)
            session_ms = fact.session_ms(session_timeout_ms)
            member.session_deadline = Instant(resumed_at + session_ms * MILLISECOND)
            if member.revoking:
                member.revoke_deadline = Instant(resumed_at + fact.rebalance_timeout_ms * MILLISECOND)
            group.add(member)
        group.note_subscriptions()
        return group

    def to_fact(self) -> ConsumerGroupStored:
        return ConsumerGroupStored(self.group_id, self.epoch, self.metadata_hash)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self.unsettled else GroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        """Nothing volatile is left: what remains is in the image."""
        return not self.members

    @property
    def is_consumer_group(self) -> bool:
        return True

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def add(self, member: ConsumerMember) -> None:
        stored = member.stored
        self.members[stored.member_id] = member
        if stored.instance_id is not None:
            self.instances[stored.instance_id] = stored.member_id
        self._own(member)
        self._note_progress(member)

    def remove(self, member_id: str) -> ConsumerMember:
        member = self.members.pop(member_id)
        instance_id = member.stored.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        self._disown(member)
        self.target.pop(member_id, None)
        self.unsettled.pop(member_id, None)
        return member

    def take_current(self, member: ConsumerMember, current: CurrentAssignmentStored) -> None:
        """Make this what the member has."""
        self._disown(member)
        member.take(current)
        self._own(member)
        self._note_progress(member)

    def take_target(self, epoch: int, target: TargetAssignment) -> None:
        self.target_epoch, self.target = epoch, target
        for member in self.members.values():
            self._note_progress(member)

    def owner_of(self, topic_id: TopicId, partition: int) -> str | None:
        """Who has the partition, or has not given it up yet."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def topics_of(self, member: ConsumerMemberStored) -> tuple[str, ...]:
        """What the member subscribes to, by name and by pattern."""
        if member.pattern is None:
            return member.topics
        matched = self.patterns.get(member.pattern, ())
        return tuple(sorted({*member.topics, *matched}))

    def note_subscriptions(self) -> None:
        """Take over what the members subscribe to."""
        self.subscribed = frozenset(
            [name for member in self.members.values() for name in self.topics_of(member.stored)]
        )

    def patterns_in_use(self) -> list[str]:
        """The patterns that members subscribe to, each once."""
        used = (member.stored.pattern for member in self.members.values())
        return list(dict.fromkeys([pattern for pattern in used if pattern is not None]))

    def lacks(self, pattern: str | None) -> bool:
        """Whether nobody has looked for the topics of this pattern yet."""
        return pattern is not None and pattern not in self.patterns and pattern not in self.searches

    @property
    def is_unresolved(self) -> bool:
        """Whether it is not known yet what a pattern stands for."""
        return any(pattern not in self.patterns for pattern in self.searches)

    @property
    def is_busy(self) -> bool:
        """Whether a target or a search goes on in the next turn."""
        return self.computing is not None or bool(self.searches)

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members name; of several, the one that was named first."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.stored.assignor
            if name is not None:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__) if votes else default

    def commit_error_kind(self, command: CommitOffsets | CommitTransactionOffsets) -> ErrorKind | None:
        """Why these offsets may not be committed, if so: those of a member need its epoch."""
        if command.generation < 0 and not self.members:
            return None
        member = self.members.get(command.member_id)
        is_old = isinstance(command, CommitOffsets) and not command.has_member_epoch
        if is_old and member is not None and member.stored.classic is None:
            return ErrorKind.NO_MEMBER_EPOCH
        return self.member_error_kind(command.member_id, command.instance_id, command.generation)

    def fetch_error_kind(self, command: FetchOffsets) -> ErrorKind | None:
        """Why these offsets may not be fetched, if so; tools do not say who they are."""
        if command.member_id is None and command.member_epoch < 0:
            return None
        return self.member_error_kind(command.member_id or "", None, command.member_epoch)

    def member_error_kind(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorKind | None:
        """The error of a request that claims to come from this member at this epoch, if there is one."""
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            return ErrorKind.FENCED_INSTANCE
        member = self.members.get(member_id)
        if member is None:
            return ErrorKind.UNKNOWN_MEMBER
        if epoch == member.epoch:
            return None
        is_classic = member.stored.classic is not None
        return ErrorKind.ILLEGAL_GENERATION if is_classic else ErrorKind.STALE_MEMBER_EPOCH

    def earliest_deadline(self) -> Instant | None:
        deadlines = [member.session_deadline for member in self.members.values()]
        deadlines += [m.revoke_deadline for m in self.members.values() if m.revoke_deadline is not None]
        return min(deadlines, default=None)

    def described(self, assignor: str) -> DescribedConsumerGroup:
        return DescribedConsumerGroup(
            self.group_id,
            self.state,
            self.epoch,
            self.target_epoch,
            self.preferred_assignor(assignor),
            tuple([self._described(member) for member in self.members.values()]),
        )

    def _described(self, member: ConsumerMember) -> DescribedConsumer:
        stored = member.stored
        return DescribedConsumer(
            stored.member_id,
            stored.instance_id,
            stored.rack_id,
            member.epoch,
            stored.client_id,
            stored.client_host,
            stored.topics,
            stored.pattern,
            member.assigned,
            self.target.get(stored.member_id, NO_PARTITIONS),
            stored.classic is not None,
        )

    def _note_progress(self, member: ConsumerMember) -> None:
        member_id = member.stored.member_id
        if member.state is MemberState.STABLE and member.epoch == self.target_epoch:
            self.unsettled.pop(member_id, None)
        elif member_id in self.members:
            self.unsettled[member_id] = None

    def _own(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                owners = self._owners.setdefault(topic_id, {})
                for partition in indexes:
                    owners[partition] = member.stored.member_id

    def _disown(self, member: ConsumerMember) -> None:
        member_id = member.stored.member_id
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                owners = self._owners.get(topic_id, {})
                for partition in indexes:
                    if owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)


def reconciled(
    group: ConsumerGroup, member: ConsumerMember, owned: PartitionSet | None
) -> CurrentAssignmentStored | None:
    """The member one step nearer to its target; None where it stays as it is.

    `owned` are the partitions that the member says it has; None if it did not say.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or intersects(owned, member.revoking):
            return None
        # It has confirmed: whatever it sent in its old epoch must not be accepted any more.
        return _next(group, member, member.epoch + 1, owned)
    if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
        return None
    return _next(group, member, member.epoch, owned)


def _next(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, owned: PartitionSet | None
) -> CurrentAssignmentStored | None:
    group_id, member_id = member.stored.group_id, member.stored.member_id
    target = group.target.get(member_id, NO_PARTITIONS)
    keeps = intersection(member.assigned, target)
    gives_up = difference(member.assigned, keeps)
    if gives_up and (owned is None or intersects(owned, gives_up)):
        previous = member.previous_epoch if epoch == member.epoch else member.epoch
        state = MemberState.UNREVOKED_PARTITIONS
        return CurrentAssignmentStored(group_id, member_id, epoch, previous, state, keeps, gives_up)
    wanted = difference(target, keeps)
    free: dict[TopicId, frozenset[int]] = {}
    is_waiting = False
    for topic_id, indexes in wanted.items():
        # What the member itself gives up here has an owner until this step is taken.
        given = [each for each in indexes if group.owner_of(topic_id, each) is None]
        is_waiting = is_waiting or len(given) < len(indexes)
        if given:
            free[topic_id] = frozenset(given)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    assigned = union(keeps, free)
    epoch = group.target_epoch
    if (state, epoch, assigned) == (member.state, member.epoch, member.assigned) and not member.revoking:
        return None
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return CurrentAssignmentStored(group_id, member_id, epoch, previous, state, assigned, NO_PARTITIONS)
