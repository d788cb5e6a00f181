"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat, and what time and new topics do.

One request says everything: a member joins, stays, changes its subscription, confirms what it gave
up, and leaves with it. The coordinator assigns: a change raises the group's epoch, the next heartbeat
of any member computes a target for it, and each member is moved there by its own heartbeats
(`consumer_group`). Members that keep their partitions never stop.

    heartbeat ─ member ─ group epoch ─ target ─ the member's step towards it ─ reply
                 new?      changed?     behind?     (`reconciled`)

Nearly every heartbeat finds nothing to do: it renews a session and writes nothing.

A target for many members and partitions is computed over several turns (`expire`), and so is what a
pattern matches and who may see it; members read on by the target before. Patterns match no internal topics.

Everything but sessions, and when revocations end, is stored; like classic groups, groups are made
from the image when they are first used.

Of a pattern's topics a member gets those that it may see (`View`). Its rights come with its heartbeats
and are not stored: after a failover there is no other target until all members with patterns were heard of.
What was decided is in the facts, as ever.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from penstock.core.groups.assignors import ASSIGNORS, AssignorInput, AssignorMember, TargetAssignment, run
from penstock.core.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from penstock.core.groups.cluster_topics import AssignableTopic, ClusterTopics
from penstock.core.groups.commands import (
    NO_OWN_TIMEOUT,
    ConsumerCommand,
    ConsumerGroupHeartbeat,
    ConsumerHeartbeatResult,
    DescribeConsumerGroup,
    GroupOk,
    GroupState,
    GroupType,
    ListedGroup,
    ReloadTopics,
)
from penstock.core.groups.consumer_facts import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentAssignmentDeleted,
    PatternDeleted,
    PatternResolved,
    StoredConsumerGroup,
    TargetAssignmentDeleted,
    TargetAssignmentStored,
    TargetEpochStored,
)
from penstock.core.groups.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    View,
    reconciled,
)
from penstock.core.groups.facts import GroupImage
from penstock.core.groups.held_bytes import text_bytes
from penstock.core.groups.outcome import (
    NO_MEMORY,
    GroupOutcome,
    RebalanceCompleted,
    RebalanceStarted,
)
from penstock.core.groups.partition_sets import NO_PARTITIONS, PartitionSet, is_subset
from penstock.core.groups.topic_patterns import InvalidPattern, PatternSteps, TopicPattern
from penstock.core.model import ApiError, ErrorKind, Instant, TopicId

PATTERNS_KEPT_MAX = 100
PATTERNS_PER_TURN_MAX = 10
STORED_TOPICS_CHARS_MAX = 200_000


class MemberUpdate(NamedTuple):
    """What a request of a member leads to: what it says it has, and whether the group needs a target."""

    owned: PartitionSet | None
    needs_target: bool


class ConsumerGroups:
    """The live consumer groups of a coordinator: finds and keeps them, and passes commands to them."""

    def __init__(self, image: GroupImage, topics: ClusterTopics) -> None:
        self._image = image
        self._topics = topics
        self._live: dict[str, ConsumerGroup] = {}
        self._resumed_at = Instant(0)
        # Compiled patterns, the last used ones.
        self._compiled: dict[str, TopicPattern] = {}

    def find(self, group_id: str, outcome: GroupOutcome) -> ConsumerGroup | None:
        group = self._live.get(group_id)
        if group is not None:
            return group
        stored = self._image.consumers.get(group_id)
        if stored is None:
            return None
        session_timeout_ms = outcome.options.consumer.timeouts(group_id).session_timeout_ms
        group = ConsumerGroup.from_stored(group_id, stored, self._resumed_at, session_timeout_ms)
        if group.members:
            self._live[group_id] = group
        return group

    def resume(self, outcome: GroupOutcome) -> None:
        """Sessions of all stored members start now, in full."""
        self._resumed_at = outcome.now.instant
        for group_id, stored in self._image.consumers.items():
            if stored.members:
                outcome.wake(group_id, _shortest_session_ms(group_id, stored, outcome))

    def listed(self, group_id: str) -> ListedGroup:
        group, stored = self._live.get(group_id), self._image.consumers[group_id]
        if group is not None:
            state = group.state
        else:
            state = GroupState.RECONCILING if stored.members else GroupState.EMPTY
        return ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, state, GroupType.CONSUMER)

    def decide(self, command: ConsumerCommand, outcome: GroupOutcome) -> None:
        match command:
            case ConsumerGroupHeartbeat():
                self._heartbeat(command, outcome)
            case DescribeConsumerGroup():
                self._describe(command, outcome)
            case ReloadTopics():
                self._reload(command, outcome)
            case _:
                assert_never(command)

    def expire(self, group_id: str, outcome: GroupOutcome) -> Instant | None:
        """Do what is due in the group; returns when to check it again."""
        group = self.find(group_id, outcome)
        if group is None or not group.members:
            return None
        _end_sessions(group, outcome)
        self.keep(group)
        if not group.members:
            return None
        if group.searches:
            self._go_on_searching(group, outcome)
        elif group.computing is not None:
            self._go_on_computing(group, outcome)
        return outcome.now.instant if group.is_busy else group.earliest_deadline()

    def forget(self, group_id: str) -> None:
        """Drop a deleted group."""
        self._live.pop(group_id, None)

    def _describe(self, command: DescribeConsumerGroup, outcome: GroupOutcome) -> None:
        group = self.find(command.group_id, outcome)
        if group is None:
            detail = f"group {command.group_id} is not a consumer group, or does not exist"
            outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, detail)
            return
        outcome.responses.append((command.on_reply, group.described(outcome.options.consumer.assignors[0])))

    def _reload(self, command: ReloadTopics, outcome: GroupOutcome) -> None:
        for group in self._live.values():
            group.has_stale_patterns = True
            group.note_changed(command.topics)
        outcome.responses.append((command.on_reply, GroupOk()))

    def _heartbeat(self, command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> None:
        group_id, epoch = command.group_id, command.epoch
        problem = self.problem(command, outcome)
        if problem is not None:
            outcome.responses.append((command.on_reply, problem))
            return
        group = self._live.get(group_id) or self.find(group_id, outcome)
        if group is None:
            if epoch != JOIN_EPOCH:
                detail = f"there is no consumer group {group_id}"
                outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, detail)
                return
            group = ConsumerGroup(group_id)
        if epoch < JOIN_EPOCH:
            _leave(group, command, outcome)
            self.keep(group)
            if not group.members:
                outcome.rest(group_id)
        else:
            self._stay(group, command, outcome)

    def keep(self, group: ConsumerGroup) -> None:
        """A group is alive while it has members; else the image has all of it."""
        if group.members:
            self._live[group.group_id] = group
        else:
            self._live.pop(group.group_id, None)

    def _stay(self, group: ConsumerGroup, command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> None:
        """Serve a member that joins or goes on."""
        found = _member(group, command, outcome)
        if isinstance(found, ApiError):
            outcome.responses.append((command.on_reply, found))
            return
        member, had = found, found.assigned
        stored = _stored(member.stored, command)
        if not has_memory(group, stored, outcome):
            outcome.responses.append((command.on_reply, NO_MEMORY))
            return
        needs_target = update_member(group, member, stored, outcome)
        needs_target = group.hear_of(member, command.rights) or needs_target
        self.move_on(group, member, MemberUpdate(command.owned, needs_target), outcome)
        timeouts = outcome.options.consumer.timeouts(group.group_id)
        session_ms = member.stored.session_ms(timeouts.session_timeout_ms)
        member.session_deadline = outcome.wake(group.group_id, session_ms)
        is_full = command.epoch == JOIN_EPOCH or (
            command.rebalance_timeout_ms != -1
            and command.owned is not None
            and (command.topics is not None or command.pattern is not None)
        )
        outcome.responses.append(
            (
                command.on_reply,
                ConsumerHeartbeatResult(
                    member.stored.member_id,
                    member.epoch,
                    timeouts.heartbeat_ms(session_ms),
                    member.assigned if is_full or member.assigned is not had else None,
                ),
            )
        )

    def move_on(
        self, group: ConsumerGroup, member: ConsumerMember, update: MemberUpdate, outcome: GroupOutcome
    ) -> None:
        """Raise the group's epoch and compute a target where that is due, and take the member there."""
        is_new = False
        if group.has_stale_patterns or group.lacks(member.stored.pattern):
            is_new = self._look_at_patterns(group)
        waiting = len(group.searches)
        sees_others = group.look_through(member)
        if is_new or len(group.searches) > waiting:
            self._go_on_searching(group, outcome)
        if update.needs_target or sees_others:
            reason = f"member {member.stored.member_id} joined or changed its subscription"
            self._raise_epoch(group, outcome, reason)
        elif group.is_stale and not group.is_unresolved:
            self._look_at_topics(group, outcome)
        if group.epoch > group.target_epoch and group.computing is None:
            self._compute(group, outcome)
        _reconcile(group, member, update.owned, outcome)
        self.keep(group)

    def _look_at_topics(self, group: ConsumerGroup, outcome: GroupOutcome) -> None:
        """Topics may have changed: raise the epoch if an assignment depends on it."""
        hashed = self._take_topics(group)
        if hashed != group.metadata_hash:
            self._raise_epoch(group, outcome, "its topics have changed")

    def _take_topics(self, group: ConsumerGroup) -> int:
        return group.take_topics(self._topics.find)

    def _raise_epoch(self, group: ConsumerGroup, outcome: GroupOutcome, reason: str) -> None:
        group.metadata_hash = self._take_topics(group)
        raise_epoch(group, outcome, reason)

    def problem(self, command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> ApiError | None:
        """What is wrong with a request, whatever the group."""
        found = _problem(command, outcome) if command.epoch <= JOIN_EPOCH else None
        if found is None and command.pattern:
            found = self._pattern_problem(command.pattern)
        return found

    def _pattern_problem(self, pattern: str) -> ApiError | None:
        try:
            self._pattern(pattern)
        except InvalidPattern as error:
            detail = f"{pattern!r} is not a regular expression of RE2: {error}"
            return ApiError(ErrorKind.INVALID_REGULAR_EXPRESSION, detail)
        return None

    def _pattern(self, text: str) -> TopicPattern:
        compiled = self._compiled.pop(text, None) or TopicPattern(text)
        self._compiled[text] = compiled
        if len(self._compiled) > PATTERNS_KEPT_MAX:
            del self._compiled[next(iter(self._compiled))]
        return compiled

    def _look_at_patterns(self, group: ConsumerGroup) -> bool:
        """Search for the topics of new patterns, and of all of them where topics came or went.

        Returns whether there are any.
        """
        all_of_them, group.has_stale_patterns = group.has_stale_patterns, False
        names = None
        for pattern in group.patterns_in_use():
            if all_of_them or group.lacks(pattern):
                names = self._topics.names() if names is None else names
                group.searches[pattern, None] = self._search(pattern, names)
        return names is not None

    def _search(self, pattern: str, names: Sequence[str]) -> PatternSteps:
        # Compiled when it begins: that may take longer than the search.
        return (yield from self._pattern(pattern).search(names))

    def _go_on_searching(self, group: ConsumerGroup, outcome: GroupOutcome) -> None:
        """One step; with few topics and patterns, that is all of them."""
        in_use = dict.fromkeys(group.patterns_in_use())
        changed: list[str] = []
        for _ in range(PATTERNS_PER_TURN_MAX):
            view = next(iter(group.searches), None)
            if view is None:
                break
            try:
                if view[0] in in_use:
                    next(group.searches[view])
                    break
                del group.searches[view]
            except StopIteration as ended:
                del group.searches[view]
                if self._take_found(group, view, ended.value, outcome):
                    changed.append(view[0])
        if group.searches:
            outcome.wake(group.group_id, 0)
        if changed:
            # Once for all of them: it looks at every member's topics.
            self._raise_epoch(group, outcome, f"pattern {changed[0]} matches other topics")

    def _take_found(
        self, group: ConsumerGroup, view: View, topics: tuple[str, ...], outcome: GroupOutcome
    ) -> bool:
        """Take what a search has found; returns whether it is something else than before."""
        pattern, rights = view
        if rights is not None:
            return group.take_view(view, topics)
        if group.patterns.get(pattern) == topics:
            return False
        self._take_pattern(group, pattern, topics, outcome)
        return True

    def _take_pattern(
        self, group: ConsumerGroup, pattern: str, topics: tuple[str, ...], outcome: GroupOutcome
    ) -> None:
        group.take_pattern(pattern, topics)
        # What would not fit into a record is not stored: after a failover the search is repeated anyway.
        if sum(map(len, topics)) <= STORED_TOPICS_CHARS_MAX:
            outcome.facts.append(PatternResolved(group.group_id, pattern, topics, outcome.now.wall))
        elif (known := self._image.consumers.get(group.group_id)) is not None and pattern in known.patterns:
            outcome.facts.append(PatternDeleted(group.group_id, pattern))

    def _compute(self, group: ConsumerGroup, outcome: GroupOutcome) -> None:
        """Compute the target for the group's epoch, at once or over several turns."""
        if group.is_unresolved and group.target_epoch:
            # Members would lose what a pattern stands for until it is found again.
            return
        if group.is_stale:
            group.metadata_hash = self._take_topics(group)
        assignor = group.preferred_assignor(outcome.options.consumer.assignors[0])
        given = _assignor_input(group)
        steps = ASSIGNORS[assignor](given)
        # A group's first member needs an epoch to begin with, and that is the target's.
        if given.work() <= outcome.options.consumer.assigned_per_turn_max or not group.target_epoch:
            _take_target(group, group.epoch, run(steps), outcome)
            return
        group.computing, group.computing_epoch = steps, group.epoch
        outcome.wake(group.group_id, 0)

    def _go_on_computing(self, group: ConsumerGroup, outcome: GroupOutcome) -> None:
        assert group.computing is not None
        try:
            next(group.computing)
        except StopIteration as ended:
            group.computing = None
            _take_target(group, group.computing_epoch, ended.value, outcome)


def raise_epoch(group: ConsumerGroup, outcome: GroupOutcome, reason: str) -> None:
    """Raise the group's epoch: the next heartbeat finds that a target is due."""
    group.epoch += 1
    outcome.facts.append(group.to_fact())
    if group.rebalance_started is None:
        group.rebalance_started = outcome.now.instant
    outcome.events.append(RebalanceStarted(group.group_id, group.epoch, reason, GroupType.CONSUMER))


def remove_member(group: ConsumerGroup, member_id: str, outcome: GroupOutcome, reason: str) -> None:
    """Remove a member: its partitions are free. The caller raises the epoch."""
    removed = group.remove(member_id)
    group.is_stale = True
    if removed.stored.pattern is not None:
        _drop_unused_patterns(group, outcome)
    outcome.facts += (
        CurrentAssignmentDeleted(group.group_id, member_id),
        TargetAssignmentDeleted(group.group_id, member_id),
        ConsumerMemberDeleted(group.group_id, member_id),
    )
    outcome.report_removed(group.group_id, member_id, reason)


def _drop_unused_patterns(group: ConsumerGroup, outcome: GroupOutcome) -> None:
    for pattern in group.drop_unused_patterns():
        outcome.facts.append(PatternDeleted(group.group_id, pattern))


def _shortest_session_ms(group_id: str, stored: StoredConsumerGroup, outcome: GroupOutcome) -> int:
    default_ms = outcome.options.consumer.timeouts(group_id).session_timeout_ms
    return min([member.session_ms(default_ms) for member in stored.members.values()])


def _problem(command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> ApiError | None:
    """What is wrong with a request to join or leave, whatever the group."""
    if not command.group_id:
        return ApiError(ErrorKind.INVALID_REQUEST, "the group id is empty")
    if not command.member_id:
        return ApiError(ErrorKind.INVALID_REQUEST, "the member id is empty")
    if command.epoch < LEAVE_STATIC_EPOCH:
        return ApiError(ErrorKind.INVALID_REQUEST, f"{command.epoch} is no member epoch")
    if command.epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        return ApiError(ErrorKind.INVALID_REQUEST, "epoch -2 is for members with an instance id")
    problem = outcome.options.session_problem(command.session_timeout_ms)
    if problem is not None:
        return problem
    return None if command.epoch != JOIN_EPOCH else _join_problem(command, outcome)


def _join_problem(command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> ApiError | None:
    if command.rebalance_timeout_ms < 0:
        return ApiError(ErrorKind.INVALID_REQUEST, "a member joins with a rebalance timeout")
    if command.owned:
        return ApiError(ErrorKind.INVALID_REQUEST, "a member that joins has no partitions")
    if command.topics is None and command.pattern is None:
        return ApiError(ErrorKind.INVALID_REQUEST, "a member joins with a subscription")
    return _assignor_problem(command.assignor, outcome)


def _assignor_problem(assignor: str | None, outcome: GroupOutcome) -> ApiError | None:
    known = outcome.options.consumer.assignors
    if assignor is None or assignor in known:
        return None
    detail = f"there is no assignor {assignor!r}; there are {', '.join(known)}"
    return ApiError(ErrorKind.UNSUPPORTED_ASSIGNOR, detail)


def _member(
    group: ConsumerGroup, command: ConsumerGroupHeartbeat, outcome: GroupOutcome
) -> ConsumerMember | ApiError:
    """The member that sent the request; one that joins is new, or takes the place of its predecessor."""
    member_id, instance_id = command.member_id, command.instance_id
    holder = group.instances.get(instance_id) if instance_id is not None else None
    if command.epoch == JOIN_EPOCH and holder is not None:
        return _rejoin_static(group, group.members[holder], command, outcome)
    member = group.members.get(member_id)
    if command.epoch == JOIN_EPOCH and member is None:
        members_max = outcome.options.consumer.members_max
        if len(group.members) >= members_max:
            return ApiError(ErrorKind.GROUP_FULL, f"the group has {members_max} members already")
        return ConsumerMember(ConsumerMemberStored(group.group_id, member_id))
    if holder is not None and holder != member_id:
        return ApiError(ErrorKind.FENCED_INSTANCE, f"{holder} has the instance id {instance_id}")
    if member is None or (instance_id is not None and holder is None):
        return ApiError(ErrorKind.UNKNOWN_MEMBER, f"{member_id} is not a member of the group")
    # Whoever joins has given up everything, also when its leave was lost, or it was refused at another epoch.
    is_valid = command.epoch in (JOIN_EPOCH, member.epoch) or _lost_a_response(member, command)
    if not is_valid:
        detail = f"epoch {command.epoch} is not {member.epoch}: the member must give up everything and join"
        return ApiError(ErrorKind.FENCED_MEMBER_EPOCH, detail)
    return _assignor_problem(command.assignor, outcome) or member


def _lost_a_response(member: ConsumerMember, command: ConsumerGroupHeartbeat) -> bool:
    """Whether the member is only behind because the response with its newer epoch did not arrive."""
    return (
        command.epoch == member.previous_epoch
        and command.epoch < member.epoch
        and command.owned is not None
        and is_subset(command.owned, member.assigned)
    )


def _rejoin_static(
    group: ConsumerGroup, old: ConsumerMember, command: ConsumerGroupHeartbeat, outcome: GroupOutcome
) -> ConsumerMember | ApiError:
    """A static member is back: it takes over its predecessor's partitions, unless that is still alive."""
    if old.epoch != LEAVE_STATIC_EPOCH and old.stored.classic is None:
        if command.member_id == old.stored.member_id:
            # No successor: the response to its first request to join was lost, or its leave.
            return old
        detail = f"{old.stored.member_id} has not left: instance id {command.instance_id} is taken"
        return ApiError(ErrorKind.UNRELEASED_INSTANCE, detail)
    if command.member_id != old.stored.member_id and command.member_id in group.members:
        # It would take that member's place as well, and nobody would give up what it has.
        detail = f"{command.member_id} is a member without the instance id {command.instance_id}"
        return ApiError(ErrorKind.INVALID_REQUEST, detail)
    return replace_member(group, old, command.member_id, outcome)


def replace_member(
    group: ConsumerGroup, old: ConsumerMember, member_id: str, outcome: GroupOutcome
) -> ConsumerMember:
    """Give a static member's place to its successor, which is at epoch 0."""
    group_id, old_id = group.group_id, old.stored.member_id
    target = group.target.get(old_id)
    # A target that is being computed knows the old id: it is begun anew.
    group.computing = None
    group.remove(old_id)
    stored = replace(old.stored, member_id=member_id)
    member = ConsumerMember(stored, state=old.state, assigned=old.assigned)
    if target is not None:
        group.target[member_id] = target
    group.add(member)
    outcome.facts += (
        CurrentAssignmentDeleted(group_id, old_id),
        TargetAssignmentDeleted(group_id, old_id),
        ConsumerMemberDeleted(group_id, old_id),
        stored,
        TargetAssignmentStored(group_id, member_id, target or NO_PARTITIONS),
        member.current(),
    )
    return member


def _stored(old: ConsumerMemberStored, command: ConsumerGroupHeartbeat) -> ConsumerMemberStored:
    """What the member says of itself, with what it does not repeat as it was."""
    return ConsumerMemberStored(
        old.group_id,
        old.member_id,
        command.instance_id or old.instance_id,
        command.rack_id or old.rack_id,
        command.client_id,
        command.client_host,
        old.topics if command.topics is None else tuple(sorted(set(command.topics))),
        old.pattern if command.pattern is None else command.pattern or None,
        old.rebalance_timeout_ms if command.rebalance_timeout_ms < 0 else command.rebalance_timeout_ms,
        command.assignor or old.assignor,
        session_timeout_ms=old.session_timeout_ms
        if command.session_timeout_ms == NO_OWN_TIMEOUT
        else command.session_timeout_ms,
    )


def has_memory(group: ConsumerGroup, stored: ConsumerMemberStored, outcome: GroupOutcome) -> bool:
    """Whether the node keeps what this member says; it may go on with little, or with no more than before."""
    member, options = group.members.get(stored.member_id), outcome.options
    if member is not None and (
        stored.topics == member.stored.topics
        and stored.pattern == member.stored.pattern
        and stored.classic == member.stored.classic
    ):
        return True
    said_bytes = stored.said_bytes()
    if member is not None and said_bytes <= max(options.small_metadata_bytes, member.stored.said_bytes()):
        return True
    return options.has_member_room(stored.client_host, said_bytes + text_bytes(group.group_id))


def update_member(
    group: ConsumerGroup, member: ConsumerMember, stored: ConsumerMemberStored, outcome: GroupOutcome
) -> bool:
    """Take over what a member says of itself; returns whether the group needs another target."""
    old = member.stored
    is_new = old.member_id not in group.members
    if stored == old and not is_new:
        return False
    outcome.facts.append(stored)
    if is_new:
        member.stored = stored
        group.add(member)
    else:
        group.update(member, stored)
    if old.pattern is not None and stored.pattern != old.pattern:
        _drop_unused_patterns(group, outcome)
    return is_new or (stored.topics, stored.pattern) != (old.topics, old.pattern)


def _assignor_input(group: ConsumerGroup) -> AssignorInput:
    topics = {topic.id: topic for topic in group.topics.values()}
    # Most members subscribe to the same topics: their ids are looked up once.
    ids: dict[tuple[str, ...], tuple[TopicId, ...]] = {}
    members: dict[str, AssignorMember] = {}
    for member_id, member in group.members.items():
        names = group.assigned_from(member)
        if names not in ids:
            found: list[AssignableTopic] = [group.topics[name] for name in names if name in group.topics]
            ids[names] = tuple([topic.id for topic in found])
        members[member_id] = AssignorMember(ids[names], member.stored.rack_id, member.stored.instance_id)
    return AssignorInput(members, topics, group.target)


def _take_target(group: ConsumerGroup, epoch: int, target: TargetAssignment, outcome: GroupOutcome) -> None:
    """Make this the target; what differs from the one before is stored."""
    # Members may have left while it was computed.
    target = {member_id: target[member_id] for member_id in target if member_id in group.members}
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            outcome.facts.append(TargetAssignmentStored(group.group_id, member_id, partitions))
    outcome.facts.append(TargetEpochStored(group.group_id, epoch))
    group.take_target(epoch, target)


def _reconcile(
    group: ConsumerGroup, member: ConsumerMember, owned: PartitionSet | None, outcome: GroupOutcome
) -> None:
    current = reconciled(group, member, owned)
    if current is None:
        return
    group.take_current(member, current)
    outcome.facts.append(current)
    if current.revoking:
        timeout_ms = member.stored.rebalance_timeout_ms
        member.revoke_deadline = outcome.wake(group.group_id, timeout_ms)
    else:
        member.revoke_deadline = None
    started = group.rebalance_started
    if started is not None and group.state is GroupState.STABLE:
        group.rebalance_started = None
        elapsed_ns = outcome.now.instant - started
        outcome.events.append(RebalanceCompleted(group.group_id, group.epoch, len(group.members), elapsed_ns))


def _leave(group: ConsumerGroup, command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> None:
    member_id, instance_id = command.member_id, command.instance_id
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder != member_id:
            kind = ErrorKind.UNKNOWN_MEMBER if holder is None else ErrorKind.FENCED_INSTANCE
            outcome.refuse(command.on_reply, kind)
            return
    member = group.members.get(member_id)
    if member is None:
        outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_MEMBER)
        return
    if command.epoch == LEAVE_STATIC_EPOCH:
        _leave_for_a_while(group, member, outcome)
    else:
        remove_member(group, member_id, outcome, "left")
        raise_epoch(group, outcome, f"member {member_id} left")
    outcome.responses.append((command.on_reply, ConsumerHeartbeatResult(member_id, command.epoch)))


def _leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, outcome: GroupOutcome) -> None:
    """A static member stops: until its session ends, what it has waits for its return."""
    current = replace(member.current(), epoch=LEAVE_STATIC_EPOCH, revoking=NO_PARTITIONS)
    group.take_current(member, current)
    member.revoke_deadline = None
    outcome.facts.append(current)
    default_ms = outcome.options.consumer.timeouts(group.group_id).session_timeout_ms
    member.session_deadline = outcome.wake(group.group_id, member.stored.session_ms(default_ms))


def _end_sessions(group: ConsumerGroup, outcome: GroupOutcome) -> None:
    now, removed = outcome.now.instant, 0
    for member_id, member in list(group.members.items()):
        if member.session_deadline <= now:
            reason = "session timed out"
        elif member.revoke_deadline is not None and member.revoke_deadline <= now:
            reason = "did not give up its partitions in time"
        else:
            continue
        remove_member(group, member_id, outcome, reason)
        removed += 1
        if removed >= outcome.options.members_expired_per_turn_max:
            # The group's next check is due already.
            break
    if removed:
        raise_epoch(group, outcome, f"{removed} members were removed")
