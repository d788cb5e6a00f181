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

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.core.groups.assignors import AssignorSteps, TargetAssignment
from penstock.core.groups.cluster_topics import AssignableTopic, metadata_hash
from penstock.core.groups.commands import (
    CommitOffsets,
    CommitTransactionOffsets,
    DescribedConsumer,
    DescribedConsumerGroup,
    FetchOffsets,
    GroupState,
)
from penstock.core.groups.consumer_facts import (
    ClassicMember,
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
from penstock.core.groups.topic_patterns import PatternSteps, TopicRights, visible
from penstock.core.model import MILLISECOND, ErrorKind, Instant, TopicId

# Epochs with a meaning: joins; leaves; a static member leaves and will be back.
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
LONG_AGO = Instant(0)
# A pattern, and the key of the rights of those who look through it; None for all that it matches.
View: TypeAlias = tuple[str, Hashable]


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
    # Which topics it may see; None where everyone may see all, and until it was heard of.
    rights: TopicRights | None = None
    # What its pattern stands for to it, and the pattern and rights that this is by.
    seen: tuple[str, ...] = ()
    view: View | None = None

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
        # The topics that exist, of those that members subscribe to, by name, and a hash of them.
        self.topics: dict[str, AssignableTopic] = {}
        self._topics_hash = 0
        # Topics that may have changed since: the next heartbeat looks at them, and at patterns.
        self.is_stale = True
        self.has_stale_patterns = True
        self._changed: dict[str, None] = {}
        # How many members subscribe to each topic and pattern; a pattern counts once for each of its topics.
        self._subscribers: dict[str, int] = {}
        self._pattern_users: dict[str, int] = {}
        # How many members speak the classic protocol, and each of its assignors.
        self._classic_members = 0
        self._classic_protocols: dict[str, int] = {}
        # What members with the same rights see of a pattern's topics.
        self.views: dict[View, tuple[str, ...]] = {}
        # Patterns that are being compared with the topics' names, and views that are looked at.
        self.searches: dict[View, PatternSteps] = {}
        # Members with a pattern that this coordinator has not heard of: whose rights they have is not stored.
        self.unheard: dict[str, None] = {}
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
            if fact.pattern is not None:
                group.unheard[member_id] = None
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
        return topic in self._subscribers

    def add(self, member: ConsumerMember) -> None:
        stored = member.stored
        self.members[stored.member_id] = member
        if stored.instance_id is not None:
            self.instances[stored.instance_id] = stored.member_id
        self._begin_to_count(stored)
        self._own(member)
        self._note_progress(member)

    def update(self, member: ConsumerMember, stored: ConsumerMemberStored) -> None:
        """A member says something else of itself."""
        before, member.stored = member.stored, stored
        if (stored.topics, stored.pattern, stored.classic) != (before.topics, before.pattern, before.classic):
            # In this order: what it still subscribes to has not changed.
            self._begin_to_count(stored)
            self._end_to_count(before)

    def remove(self, member_id: str) -> ConsumerMember:
        member = self.members.pop(member_id)
        self._end_to_count(member.stored)
        instance_id = member.stored.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        self._disown(member)
        self.target.pop(member_id, None)
        self.unsettled.pop(member_id, None)
        self.unheard.pop(member_id, None)
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

    def assigned_from(self, member: ConsumerMember) -> tuple[str, ...]:
        """The topics whose partitions the member may get: of a pattern's, those that it may see."""
        stored, rights = member.stored, member.rights
        if stored.pattern is None or (rights is None and stored.member_id not in self.unheard):
            return self.topics_of(stored)
        if rights is None or member.view is None or member.view[0] != stored.pattern:
            return stored.topics
        return tuple(sorted({*stored.topics, *member.seen}))

    def hear_of(self, member: ConsumerMember, rights: TopicRights | None) -> bool:
        """Take a member's rights; returns whether, after a failover, those of all members are known now."""
        member.rights = rights
        if not self.unheard:
            return False
        if rights is None:
            # Nobody's rights count.
            self.unheard.clear()
            return False
        self.unheard.pop(member.stored.member_id, None)
        return not self.unheard

    def look_through(self, member: ConsumerMember) -> bool:
        """Have a member see what it may of its pattern's topics, if that is known; else begin to look.

        Returns whether it sees others than before.
        """
        pattern, rights = member.stored.pattern, member.rights
        if pattern is None or rights is None or pattern not in self.patterns:
            return False
        view = pattern, rights.key
        if member.view == view:
            return False
        seen = self.views.get(view)
        if seen is None:
            if view not in self.searches:
                self.searches[view] = visible(self.patterns[pattern], rights)
            return False
        return self._show(member, view, seen)

    def take_view(self, view: View, seen: tuple[str, ...]) -> bool:
        """What members see through this view from now on; returns whether one sees others than before."""
        self.views[view] = seen
        changed, used = False, dict.fromkeys([view])
        for member in self.members.values():
            own = _view_of(member)
            if own is not None:
                used[own] = None
                changed = (own == view and self._show(member, view, seen)) or changed
        self.views = {each: topics for each, topics in self.views.items() if each in used}
        return changed

    def _show(self, member: ConsumerMember, view: View, seen: tuple[str, ...]) -> bool:
        before, member.view, member.seen = member.seen, view, seen
        # Until all were heard of, there is no other target.
        return before != seen and not self.unheard

    def note_changed(self, names: Iterable[str]) -> None:
        """These topics were created, changed or deleted."""
        for name in names:
            if name in self._subscribers:
                self._changed[name] = None
                self.is_stale = True

    def take_topics(self, find: Callable[[str], AssignableTopic | None]) -> int:
        """Look at the topics that may have changed, and at those that members subscribe to since.

        Returns a hash of all that exist.
        """
        changed, self._changed, self.is_stale = self._changed, {}, False
        topics, is_same = self.topics, True
        for name in changed:
            topic = find(name) if name in self._subscribers else None
            if topic is not topics.get(name):
                is_same = False
                if topic is not None:
                    topics[name] = topic
                else:
                    del topics[name]
        if not is_same:
            self.topics = {name: topics[name] for name in sorted(topics)}
            self._topics_hash = metadata_hash(self.topics.values())
        return self._topics_hash

    def patterns_in_use(self) -> list[str]:
        """The patterns that members subscribe to, each once."""
        return list(self._pattern_users)

    def take_pattern(self, pattern: str, topics: tuple[str, ...]) -> None:
        """A pattern stands for these topics from now on."""
        before = self.patterns.get(pattern, ())
        self.patterns[pattern] = topics
        self.views = {view: seen for view, seen in self.views.items() if view[0] != pattern}
        for view, rights in {_view_of(each): each.rights for each in self.members.values()}.items():
            if view is not None and rights is not None and view[0] == pattern:
                self.searches[view] = visible(topics, rights)
        if pattern in self._pattern_users:
            self._subscribe(topics)
            self._unsubscribe(before)

    def drop_unused_patterns(self) -> list[str]:
        """Forget patterns that no member subscribes to any more; returns them."""
        unused = [pattern for pattern in self.patterns if pattern not in self._pattern_users]
        for pattern in unused:
            del self.patterns[pattern]
        return unused

    @property
    def speaks_classic(self) -> bool:
        """Whether all members speak the classic protocol."""
        return self._classic_members == len(self.members)

    def have_in_common(self, names: Iterable[str], besides: str) -> bool:
        """Whether all classic members, perhaps besides one, speak one of these protocols."""
        member = self.members.get(besides)
        classic = None if member is None else member.stored.classic
        own = () if classic is None else _names(classic)
        others = self._classic_members - (classic is not None)
        return any(self._classic_protocols.get(name, 0) - (name in own) == others for name in names)

    def lacks(self, pattern: str | None) -> bool:
        """Whether nobody has looked for the topics of this pattern yet."""
        return pattern is not None and pattern not in self.patterns and (pattern, None) not in self.searches

    @property
    def is_unresolved(self) -> bool:
        """Whether it is not known yet what a pattern stands for, or to whom."""
        return bool(self.unheard) or any(
            rights is not None or pattern not in self.patterns for pattern, rights in self.searches
        )

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

    def _begin_to_count(self, stored: ConsumerMemberStored) -> None:
        self._subscribe(stored.topics)
        if stored.pattern is not None:
            users = self._pattern_users[stored.pattern] = self._pattern_users.get(stored.pattern, 0) + 1
            if users == 1:
                self._subscribe(self.patterns.get(stored.pattern, ()))
        if stored.classic is not None:
            self._classic_members += 1
            for name in _names(stored.classic):
                self._classic_protocols[name] = self._classic_protocols.get(name, 0) + 1

    def _end_to_count(self, stored: ConsumerMemberStored) -> None:
        self._unsubscribe(stored.topics)
        if stored.pattern is not None and not _one_less(self._pattern_users, stored.pattern):
            self._unsubscribe(self.patterns.get(stored.pattern, ()))
        if stored.classic is not None:
            self._classic_members -= 1
            for name in _names(stored.classic):
                _one_less(self._classic_protocols, name)

    def _subscribe(self, names: Iterable[str]) -> None:
        subscribers = self._subscribers
        for name in names:
            count = subscribers.get(name)
            if count is None:
                subscribers[name] = 1
                self._changed[name] = None
            else:
                subscribers[name] = count + 1

    def _unsubscribe(self, names: Iterable[str]) -> None:
        for name in names:
            if not _one_less(self._subscribers, name):
                self._changed[name] = None

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


def _view_of(member: ConsumerMember) -> View | None:
    pattern, rights = member.stored.pattern, member.rights
    return None if pattern is None or rights is None else (pattern, rights.key)


def _names(classic: ClassicMember) -> dict[str, None]:
    return dict.fromkeys([protocol.name for protocol in classic.protocols])


def _one_less(counts: dict[str, int], key: str) -> int:
    """How many are left."""
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
    return left


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
            free[topic_id] = indexes if len(given) == len(indexes) else frozenset(given)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    assigned = union(keeps, free)
    epoch = group.target_epoch
    if (state, epoch, assigned) == (member.state, member.epoch, member.assigned) and not member.revoking:
        return None
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return CurrentAssignmentStored(group_id, member_id, epoch, previous, state, assigned, NO_PARTITIONS)
