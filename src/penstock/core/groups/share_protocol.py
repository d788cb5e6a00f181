"""The share group protocol (KIP-932): ShareGroupHeartbeat, and what time and new topics do.

    heartbeat ─ member ─ group epoch ─ target ─ the member is at its target ─ reply
                 new?      changed?     behind?

As in consumer groups, one request says everything, and nearly every one of them finds nothing to do. Other
than there, partitions are shared, so a member goes to its target at once (`share_group`). Members choose
their ids; a member may ask for a session timeout of its own, which is a field of ours.

When a member is gone, `MemberRemoved` says what it subscribed to, so that the host can release what it has
leased.

Left out: subscriptions by regular expression, which Kafka does not have for share groups either.
"""

from typing import assert_never

from penstock.core.groups.assignors import AssignorInput, AssignorMember, TargetAssignment, run, simple
from penstock.core.groups.cluster_topics import ClusterTopics, metadata_hash
from penstock.core.groups.commands import (
    NO_OWN_TIMEOUT,
    ConsumerHeartbeatResult,
    DescribeShareGroup,
    GroupState,
    GroupType,
    ListedGroup,
    ReloadTopics,
    ShareCommand,
    ShareGroupHeartbeat,
)
from penstock.core.groups.facts import GroupImage
from penstock.core.groups.held_bytes import text_bytes
from penstock.core.groups.outcome import NO_MEMORY, GroupOutcome, MemberRemoved, RebalanceStarted
from penstock.core.groups.share_facts import (
    ShareFactDeleted,
    ShareMemberStored,
    ShareRecordKind,
    ShareTarget,
    ShareTargetEpoch,
)
from penstock.core.groups.share_group import JOIN_EPOCH, LEAVE_EPOCH, ShareGroup, ShareMember
from penstock.core.model import ApiError, ErrorKind, Instant, TopicId

PROTOCOL_TYPE = "share"
ASSIGNOR = "simple"


class ShareGroups:
    """The live share groups of a coordinator: finds and keeps them, and passes commands to them."""

    def __init__(self, image: GroupImage, topics: ClusterTopics) -> None:
        self._image = image
        self._topics = topics
        self._live: dict[str, ShareGroup] = {}
        self._resumed_at = Instant(0)

    def find(self, group_id: str, outcome: GroupOutcome) -> ShareGroup | None:
        group = self._live.get(group_id)
        if group is not None:
            return group
        stored = self._image.shares.get(group_id)
        if stored is None:
            return None
        session_timeout_ms = outcome.options.share.timeouts(group_id).session_timeout_ms
        group = ShareGroup.from_stored(group_id, stored, self._resumed_at, session_timeout_ms)
        self._keep(group)
        return group

    def resume(self, outcome: GroupOutcome) -> None:
        """Sessions of all stored members start now, in full."""
        self._resumed_at = outcome.now.instant
        for group_id, stored in self._image.shares.items():
            if stored.members:
                own = [each.session_timeout_ms for each in stored.members.values()]
                default_ms = outcome.options.share.timeouts(group_id).session_timeout_ms
                outcome.wake(group_id, min([default_ms if ms == NO_OWN_TIMEOUT else ms for ms in own]))

    def listed(self, group_id: str) -> ListedGroup:
        stored = self._image.shares[group_id]
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        return ListedGroup(group_id, PROTOCOL_TYPE, state, GroupType.SHARE)

    def decide(self, command: ShareCommand, outcome: GroupOutcome) -> None:
        match command:
            case ShareGroupHeartbeat():
                self._heartbeat(command, outcome)
            case DescribeShareGroup():
                self._describe(command, outcome)
            case _:
                assert_never(command)

    def reload(self, command: ReloadTopics) -> None:
        """Topics have changed: groups that subscribe to them look at them with the next heartbeat."""
        for group in self._live.values():
            if not group.is_stale:
                group.is_stale = any(name in group.subscribed for name in command.topics)

    def expire(self, group_id: str, outcome: GroupOutcome) -> Instant | None:
        """Do what is due in the group; returns when to check it again."""
        group = self.find(group_id, outcome)
        if group is None or not group.members:
            return None
        now = outcome.now.instant
        late = [member_id for member_id, member in group.members.items() if member.session_deadline <= now]
        for member_id in late:
            _remove(group, member_id, outcome, "session timed out")
        if late:
            self._raise_epoch(group, outcome, f"{len(late)} members were removed")
        self._keep(group)
        if group.computing is not None:
            self._go_on_computing(group, outcome)
        return now if group.computing is not None else group.earliest_deadline()

    def forget(self, group_id: str) -> None:
        """Drop a deleted group."""
        self._live.pop(group_id, None)

    def _keep(self, group: ShareGroup) -> None:
        """A group is alive while it has members; else the image has all of it."""
        if group.members:
            self._live[group.group_id] = group
        else:
            self._live.pop(group.group_id, None)

    def _describe(self, command: DescribeShareGroup, outcome: GroupOutcome) -> None:
        group = self.find(command.group_id, outcome)
        if group is None:
            detail = f"group {command.group_id} is not a share group, or does not exist"
            outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, detail)
            return
        outcome.responses.append((command.on_reply, group.described(ASSIGNOR)))

    def _heartbeat(self, command: ShareGroupHeartbeat, outcome: GroupOutcome) -> None:
        problem = self.problem(command, outcome)
        if problem is not None:
            outcome.responses.append((command.on_reply, problem))
            return
        group = self.find(command.group_id, outcome)
        if group is None:
            if command.epoch != JOIN_EPOCH:
                detail = f"there is no share group {command.group_id}"
                outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, detail)
                return
            group = ShareGroup(command.group_id)
        if command.epoch == LEAVE_EPOCH:
            self._leave(group, command, outcome)
        else:
            self._stay(group, command, outcome)
        self._keep(group)

    def problem(self, command: ShareGroupHeartbeat, outcome: GroupOutcome) -> ApiError | None:
        """What is wrong with a request, whatever the group."""
        if not command.group_id:
            return ApiError(ErrorKind.INVALID_REQUEST, "the group id is empty")
        if not command.member_id:
            return ApiError(ErrorKind.INVALID_REQUEST, "the member id is empty")
        if command.epoch < LEAVE_EPOCH:
            return ApiError(ErrorKind.INVALID_REQUEST, f"{command.epoch} is no member epoch")
        if command.epoch == JOIN_EPOCH and not command.topics:
            return ApiError(ErrorKind.INVALID_REQUEST, "a member joins with a subscription")
        return outcome.options.session_problem(command.session_timeout_ms)

    def _leave(self, group: ShareGroup, command: ShareGroupHeartbeat, outcome: GroupOutcome) -> None:
        member_id = command.member_id
        if member_id not in group.members:
            outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_MEMBER)
            return
        _remove(group, member_id, outcome, "left")
        self._raise_epoch(group, outcome, f"member {member_id} left")
        outcome.responses.append((command.on_reply, ConsumerHeartbeatResult(member_id, LEAVE_EPOCH)))

    def _stay(self, group: ShareGroup, command: ShareGroupHeartbeat, outcome: GroupOutcome) -> None:
        """Serve a member that joins or goes on."""
        member = _member(group, command, outcome)
        if isinstance(member, ApiError):
            outcome.responses.append((command.on_reply, member))
            return
        had, stored = member.assigned, _stored(member.stored, command)
        if not _has_memory(group, stored, outcome):
            outcome.responses.append((command.on_reply, NO_MEMORY))
            return
        if _update(group, member, stored, outcome):
            reason = f"member {command.member_id} joined or changed its subscription"
            self._raise_epoch(group, outcome, reason)
        elif group.is_stale and self._take_topics(group) != group.metadata_hash:
            self._raise_epoch(group, outcome, "its topics have changed")
        if group.epoch > group.target_epoch and group.computing is None:
            self._compute(group, outcome)
        current = group.take_current(member)
        if current is not None:
            outcome.facts.append(current)
        timeouts = outcome.options.share.timeouts(group.group_id)
        session_ms = member.session_timeout_ms(timeouts.session_timeout_ms)
        member.session_deadline = outcome.wake(group.group_id, session_ms)
        interval_ms = timeouts.heartbeat_ms(session_ms)
        is_full = command.epoch == JOIN_EPOCH or command.topics is not None
        is_told = is_full or command.epoch != member.epoch or member.assigned is not had
        outcome.responses.append(
            (
                command.on_reply,
                ConsumerHeartbeatResult(
                    command.member_id, member.epoch, interval_ms, member.assigned if is_told else None
                ),
            )
        )

    def _take_topics(self, group: ShareGroup) -> int:
        group.note_subscriptions()
        topics = [self._topics.find(name) for name in sorted(group.subscribed)]
        group.topics = {topic.name: topic for topic in topics if topic is not None}
        group.is_stale = False
        return metadata_hash(group.topics.values())

    def _raise_epoch(self, group: ShareGroup, outcome: GroupOutcome, reason: str) -> None:
        """Raise the group's epoch: the next heartbeat finds that a target is due."""
        group.metadata_hash = self._take_topics(group)
        group.epoch += 1
        known = group.note_topics()
        if known is not None:
            outcome.facts.append(known)
        outcome.facts.append(group.to_fact())
        outcome.events.append(RebalanceStarted(group.group_id, group.epoch, reason, GroupType.SHARE))

    def _compute(self, group: ShareGroup, outcome: GroupOutcome) -> None:
        """Compute the target for the group's epoch, at once or over several turns."""
        given = _assignor_input(group)
        steps = simple(given)
        # A group's first member needs an epoch to begin with, and that is the target's.
        if given.work() <= outcome.options.consumer.assigned_per_turn_max or not group.target_epoch:
            _take_target(group, group.epoch, run(steps), outcome)
            return
        group.computing, group.computing_epoch = steps, group.epoch
        outcome.wake(group.group_id, 0)

    def _go_on_computing(self, group: ShareGroup, outcome: GroupOutcome) -> None:
        assert group.computing is not None
        try:
            next(group.computing)
        except StopIteration as ended:
            group.computing = None
            _take_target(group, group.computing_epoch, ended.value, outcome)


def _member(group: ShareGroup, command: ShareGroupHeartbeat, outcome: GroupOutcome) -> ShareMember | ApiError:
    member, epoch = group.members.get(command.member_id), command.epoch
    if member is None:
        if epoch != JOIN_EPOCH:
            return ApiError(ErrorKind.UNKNOWN_MEMBER, f"{command.member_id} is not a member of the group")
        members_max = outcome.options.share.members_max
        if len(group.members) >= members_max:
            return ApiError(ErrorKind.GROUP_FULL, f"the group has {members_max} members already")
        return ShareMember(ShareMemberStored(group.group_id, command.member_id))
    # One behind: the response with the newer epoch did not arrive.
    if epoch not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        detail = f"epoch {epoch} is not {member.epoch}: the member must join again"
        return ApiError(ErrorKind.FENCED_MEMBER_EPOCH, detail)
    return member


def _stored(old: ShareMemberStored, command: ShareGroupHeartbeat) -> ShareMemberStored:
    """What the member says of itself, with what it does not repeat as it was."""
    own_ms = command.session_timeout_ms
    return ShareMemberStored(
        old.group_id,
        old.member_id,
        command.rack_id or old.rack_id,
        command.client_id,
        command.client_host,
        old.topics if command.topics is None else tuple(sorted(set(command.topics))),
        old.session_timeout_ms if own_ms == NO_OWN_TIMEOUT else own_ms,
    )


def _has_memory(group: ShareGroup, stored: ShareMemberStored, outcome: GroupOutcome) -> bool:
    """Whether the node keeps what this member says; it may go on with little, or with no more than before."""
    member, options = group.members.get(stored.member_id), outcome.options
    if member is not None and stored.topics == member.stored.topics:
        return True
    said_bytes = stored.said_bytes()
    if member is not None and said_bytes <= max(options.small_metadata_bytes, member.stored.said_bytes()):
        return True
    return options.has_share_room(stored.client_host, said_bytes + text_bytes(group.group_id))


def _update(group: ShareGroup, member: ShareMember, stored: ShareMemberStored, outcome: GroupOutcome) -> bool:
    """Take over what a member says of itself; returns whether the group needs another target."""
    old = member.stored
    is_new = old.member_id not in group.members
    if stored == old and not is_new:
        return False
    member.stored = stored
    group.members[old.member_id] = member
    outcome.facts.append(stored)
    return is_new or stored.topics != old.topics


def _remove(group: ShareGroup, member_id: str, outcome: GroupOutcome, reason: str) -> None:
    removed = group.members.pop(member_id)
    group.target.pop(member_id, None)
    for kind in (ShareRecordKind.CURRENT, ShareRecordKind.TARGET, ShareRecordKind.MEMBER):
        outcome.facts.append(ShareFactDeleted(group.group_id, kind, member_id))
    outcome.events.append(MemberRemoved(group.group_id, member_id, reason, removed.stored.topics))


def _assignor_input(group: ShareGroup) -> AssignorInput:
    # Most members subscribe to the same topics: their ids are looked up once.
    ids: dict[tuple[str, ...], tuple[TopicId, ...]] = {}
    members: dict[str, AssignorMember] = {}
    for member_id, member in group.members.items():
        names = member.stored.topics
        if names not in ids:
            ids[names] = tuple([group.topics[name].id for name in names if name in group.topics])
        members[member_id] = AssignorMember(ids[names], member.stored.rack_id)
    return AssignorInput(members, {topic.id: topic for topic in group.topics.values()}, group.target)


def _take_target(group: ShareGroup, epoch: int, target: TargetAssignment, outcome: GroupOutcome) -> None:
    """Make this the target; what differs from the one before is stored."""
    # Members may have left while it was computed.
    target = {member_id: target[member_id] for member_id in target if member_id in group.members}
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            outcome.facts.append(ShareTarget(group.group_id, member_id, partitions))
    outcome.facts.append(ShareTargetEpoch(group.group_id, epoch))
    group.target_epoch, group.target = epoch, target
