"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what time does.

The clients' own leader assigns, the coordinator keeps order. Eager and cooperative rebalancing
look the same from here: what members give up between generations is between them and their leader.

A group is alive (`ClassicGroups`) while it has members, or ids that it gave out; else the image
holds all of it, and the group is made from the image when a command needs it. After a failover,
groups with members are loaded one by one too, when they are first used or when their shortest
session may have ended: starting a coordinator does not take longer with more members.
"""

from dataclasses import replace
from typing import assert_never

from penstock.core.groups.classic_group import (
    ClassicGroup,
    GivenId,
    GroupMember,
    InitialDelay,
    protocols_bytes,
    subscribed_topics,
)
from penstock.core.groups.commands import (
    UNKNOWN_MEMBER_ID,
    ClassicCommand,
    GroupOk,
    GroupState,
    GroupType,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListedGroup,
    MemberIdRequired,
    MemberProtocol,
    SyncGroup,
    SyncGroupResult,
)
from penstock.core.groups.facts import GroupImage
from penstock.core.groups.held_bytes import text_bytes
from penstock.core.groups.outcome import (
    NO_MEMORY,
    GroupOptions,
    GroupOutcome,
    RebalanceCompleted,
    RebalanceStarted,
)
from penstock.core.model import ApiError, ErrorKind, Instant

STATIC_WAIT_MS_MIN = 1_000


def rebalance(group: ClassicGroup, outcome: GroupOutcome, reason: str) -> None:
    """Start a rebalance: every member has to join again.

    If one is under way already, the join phase ends if this was the last member missing.
    """
    now = outcome.now
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_are_here(group, outcome)
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        _send_back_syncing(group, outcome)
    is_initial = group.state is GroupState.EMPTY
    group.unsynced.clear()
    group.sync_deadline = None
    if group.rebalance_started is None:
        group.rebalance_started = now.instant
    group.state, group.state_since = GroupState.PREPARING_REBALANCE, now.wall
    outcome.events.append(RebalanceStarted(group.group_id, group.generation, reason))
    if is_initial:
        delay_ms = outcome.options.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.join_deadline = outcome.wake(group.group_id, delay_ms)
    elif len(group.joiner) == len(group.members) and not group.pending:
        _complete_join(group, outcome)
    else:
        group.join_deadline = outcome.wake(group.group_id, group.rebalance_timeout_ms)


def complete_join_if_all_are_here(group: ClassicGroup, outcome: GroupOutcome) -> None:
    # A new group waits out its delay even when every known member has joined: more may come.
    preparing = group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None
    if preparing and len(group.joiner) == len(group.members) and not group.pending:
        _complete_join(group, outcome)


def join_phase_ended(group: ClassicGroup, outcome: GroupOutcome) -> None:
    """The delay of a new group, or the time its members have for joining again, is over."""
    delay = group.initial_delay
    if delay is None or not delay.member_came or delay.remaining_ms == 0:
        _complete_join(group, outcome)
        return
    delay_ms = min(outcome.options.initial_rebalance_delay_ms, delay.remaining_ms)
    group.initial_delay = InitialDelay(delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
    group.join_deadline = outcome.wake(group.group_id, delay_ms)


def sync_phase_ended(group: ClassicGroup, outcome: GroupOutcome) -> None:
    """Remove the members that have not sent SyncGroup in time."""
    group.sync_deadline = None
    late = list(group.unsynced)
    if not late:
        return
    for member_id in late:
        remove_member(group, member_id, outcome, "did not sync in time")
    rebalance(group, outcome, f"{len(late)} members did not sync in time")


def remove_member(group: ClassicGroup, member_id: str, outcome: GroupOutcome, reason: str) -> None:
    """Remove a member; a request of it that is still parked gets an error that makes it join again."""
    for on_reply in group.remove(member_id):
        outcome.refuse(on_reply, ErrorKind.UNKNOWN_MEMBER, reason)
    outcome.report_removed(group.group_id, member_id, reason)


def keep_alive(group: ClassicGroup, member: GroupMember, outcome: GroupOutcome) -> None:
    member.session_deadline = outcome.wake(group.group_id, member.session_timeout_ms)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResult:
    """The JoinGroup result of a member in the current generation; the leader gets all members' metadata."""
    protocol = group.protocol
    everybody: tuple[JoinedMember, ...] = ()
    if member_id == group.leader:
        members = group.members.values()
        everybody = tuple(
            [JoinedMember(m.member_id, m.instance_id, m.metadata_for(protocol)) for m in members]
        )
    return JoinGroupResult(
        member_id, group.generation, group.protocol_type, protocol, group.leader, everybody
    )


def _complete_join(group: ClassicGroup, outcome: GroupOutcome) -> None:
    group.join_deadline = None
    group.initial_delay = None
    for member in list(group.members.values()):
        # A static member may be restarting: it keeps its place until its session ends.
        if member.member_id not in group.joiner and not member.is_static:
            remove_member(group, member.member_id, outcome, "did not join in time")
    if not group.members:
        _become_empty(group, outcome)
    elif group.leader in group.joiner or group.elect_leader_among_joined():
        _start_generation(group, outcome)
    else:
        # Only static members are left and none is back: wait for one, or for their sessions to end.
        # Their own timeout may be nothing at all, which must not keep us busy meanwhile.
        delay_ms = max(group.rebalance_timeout_ms, STATIC_WAIT_MS_MIN)
        group.join_deadline = outcome.wake(group.group_id, delay_ms)


def _become_empty(group: ClassicGroup, outcome: GroupOutcome) -> None:
    group.generation += 1
    group.protocol = None
    group.leader = None
    group.rebalance_started = None
    group.state, group.state_since = GroupState.EMPTY, outcome.now.wall
    group.note_subscriptions()
    outcome.facts.append(group.to_fact())


def _start_generation(group: ClassicGroup, outcome: GroupOutcome) -> None:
    group.generation += 1
    group.protocol = group.selector.winner(group.members)
    group.note_subscriptions()
    group.state, group.state_since = GroupState.COMPLETING_REBALANCE, outcome.now.wall
    sync_timeout_ms = 0
    for member_id, member in group.members.items():
        on_reply = group.joiner.pop(member_id, None)
        if on_reply is not None:
            outcome.responses.append((on_reply, joined(group, member_id)))
        member.is_new = False
        group.unsynced[member_id] = None
        member.session_deadline = outcome.wake(group.group_id, member.session_timeout_ms)
        if member.rebalance_timeout_ms > sync_timeout_ms:
            sync_timeout_ms = member.rebalance_timeout_ms
    group.sync_deadline = outcome.wake(group.group_id, sync_timeout_ms)


def _send_back_syncing(group: ClassicGroup, outcome: GroupOutcome) -> None:
    for member in group.members.values():
        member.assignment = b""
        on_reply = group.syncing.pop(member.member_id, None)
        if on_reply is not None:
            outcome.refuse(on_reply, ErrorKind.REBALANCE_IN_PROGRESS)
            keep_alive(group, member, outcome)


class ClassicGroups:
    """The live groups of a coordinator: finds, keeps and drops them, and passes commands to them."""

    def __init__(self, image: GroupImage) -> None:
        self._image = image
        self._live: dict[str, ClassicGroup] = {}
        self._resumed_at = Instant(0)
        # What live groups hold counts with what is stored.
        self._held = image.held

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._live.get(group_id)
        if group is not None:
            return group
        stored = self._image.groups.get(group_id)
        if stored is not None:
            group = ClassicGroup.from_fact(stored, self._resumed_at)
            if group.members:
                self.keep(group)
            return group
        # A consumer that assigns itself commits under a group id and never joins.
        return ClassicGroup(group_id) if self._image.knows(group_id) else None

    def live_ids(self) -> list[str]:
        """Groups that may not be stored."""
        return list(self._live)

    def listed(self, group_id: str) -> ListedGroup | None:
        """The group, without loading one that was not used since the failover."""
        group = self._live.get(group_id)
        if group is not None:
            return ListedGroup(group_id, group.protocol_type or "", group.state, GroupType.CLASSIC)
        stored = self._image.groups.get(group_id)
        if stored is None:
            is_known = self._image.knows(group_id)
            return ListedGroup(group_id, "", GroupState.EMPTY, GroupType.CLASSIC) if is_known else None
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        return ListedGroup(group_id, stored.protocol_type, state, GroupType.CLASSIC)

    def decide(self, command: ClassicCommand, outcome: GroupOutcome) -> None:
        group_id = command.group_id
        if not group_id:
            outcome.refuse(command.on_reply, ErrorKind.INVALID_GROUP, "the group id is empty")
            return
        group = self._live.get(group_id) or self.find(group_id)
        if group is None and not isinstance(command, JoinGroup):
            _refuse_stranger(command, outcome)
            return
        group = group or ClassicGroup(group_id)
        match command:
            case Heartbeat():
                _heartbeat(group, command, outcome)
            case JoinGroup():
                _join(group, command, outcome)
            case SyncGroup():
                _sync(group, command, outcome)
            case LeaveGroup():
                _leave(group, command, outcome)
            case _:
                assert_never(command)
        if group.state is GroupState.EMPTY or group_id not in self._live:
            self._keep_while_alive(group, outcome)

    def expire(self, group_id: str, outcome: GroupOutcome) -> Instant | None:
        """Do what is due in the group; returns when to check it again."""
        group = self._live.get(group_id) or self.find(group_id)
        if group is None:
            return None
        _expire(group, outcome)
        self._keep_while_alive(group, outcome)
        return group.earliest_deadline()

    def keep(self, group: ClassicGroup) -> None:
        """Have the group among those that are alive."""
        self.forget(group.group_id)
        self._live[group.group_id] = group
        group.held.join(self._held)

    def forget(self, group_id: str) -> None:
        """Drop a group of which nothing volatile is left, or that was deleted, with the ids it gave out."""
        group = self._live.pop(group_id, None)
        if group is not None:
            group.held.leave()

    def resume(self, outcome: GroupOutcome) -> None:
        """Sessions of all stored members start now, in full."""
        self._resumed_at = outcome.now.instant
        for stored in self._image.groups.values():
            if not stored.members:
                continue
            outcome.wake(stored.group_id, min(member.session_timeout_ms for member in stored.members))
            if len(stored.members) > outcome.options.group_members_max:
                self._shrink(stored.group_id, outcome)

    def _keep_while_alive(self, group: ClassicGroup, outcome: GroupOutcome) -> None:
        if group.is_idle:
            self.forget(group.group_id)
            outcome.rest(group.group_id)
        elif group.group_id not in self._live:
            self.keep(group)

    def _shrink(self, group_id: str, outcome: GroupOutcome) -> None:
        group = self.find(group_id)
        assert group is not None
        assert group.state is GroupState.STABLE
        # Members commit their offsets before they join again; the last ones get GROUP_FULL.
        rebalance(group, outcome, "the group is over its size limit")


def _refuse_stranger(command: SyncGroup | Heartbeat | LeaveGroup, outcome: GroupOutcome) -> None:
    if isinstance(command, LeaveGroup):
        strangers = [
            LeftMember(m.member_id, m.instance_id, ErrorKind.UNKNOWN_MEMBER) for m in command.members
        ]
        outcome.responses.append((command.on_reply, LeaveGroupResult(tuple(strangers))))
    else:
        outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_MEMBER)


def _join(group: ClassicGroup, command: JoinGroup, outcome: GroupOutcome) -> None:
    """Add the member and park its request until the join phase ends, or reply with an error."""
    options, protocols = outcome.options, command.protocols
    problem = _problem_with_join(group, command, options)
    if problem is not None:
        outcome.responses.append((command.on_reply, problem))
        return
    if len(protocols) > 1:
        protocols = _distinct(protocols)
    members_max = options.group_members_max
    if len(group.members) >= members_max and not _has_room(group, command, members_max):
        _refuse_full(group, command, outcome)
    elif not group.supports(command.protocol_type, protocols):
        outcome.refuse(command.on_reply, ErrorKind.INCONSISTENT_PROTOCOL)
    elif command.member_id != UNKNOWN_MEMBER_ID:
        _join_known(group, command, protocols, outcome)
    elif command.instance_id is not None:
        _join_new_static(group, command, protocols, outcome)
    elif command.member_id_required:
        _give_member_id(group, command, outcome)
    else:
        _add_member(group, _new_member(_new_member_id(command), command, protocols), command, outcome)


def _problem_with_join(group: ClassicGroup, command: JoinGroup, options: GroupOptions) -> ApiError | None:
    """What is wrong with a request, whatever state the group is in."""
    if not options.session_timeout_ms_min <= command.session_timeout_ms <= options.session_timeout_ms_max:
        allowed = f"between {options.session_timeout_ms_min} and {options.session_timeout_ms_max} ms"
        detail = f"a session timeout is {allowed}, not {command.session_timeout_ms}"
        return ApiError(ErrorKind.INVALID_SESSION_TIMEOUT, detail)
    if len(command.protocols) > options.protocols_max:
        detail = f"a member has at most {options.protocols_max} protocols, not {len(command.protocols)}"
        return ApiError(ErrorKind.INVALID_REQUEST, detail)
    size_bytes = protocols_bytes(command.protocols)
    if size_bytes > options.record_bytes_max:
        return ApiError(ErrorKind.BATCH_TOO_LARGE, "a member with so much metadata cannot be stored")
    if command.member_id in group.members:
        if size_bytes <= options.small_metadata_bytes:
            return None
    elif command.member_id != UNKNOWN_MEMBER_ID and command.member_id not in group.pending:
        # It is told that nobody knows it.
        return None
    if group.names_bytes >= options.record_bytes_max and not _is_known(group, command):
        return ApiError(ErrorKind.GROUP_FULL, "no record has room for more members of the group")
    return None if _has_memory(group, command, size_bytes, options) else NO_MEMORY


def _is_known(group: ClassicGroup, command: JoinGroup) -> bool:
    return command.member_id in group.members or command.instance_id in group.instances


def _distinct(protocols: tuple[MemberProtocol, ...]) -> tuple[MemberProtocol, ...]:
    """The protocols with repeated names dropped: a member has one vote and one metadata per name."""
    names = {protocol.name for protocol in protocols}
    if len(names) == len(protocols):
        return protocols
    return tuple({protocol.name: protocol for protocol in reversed(protocols)}.values())[::-1]


def _has_room(group: ClassicGroup, command: JoinGroup, members_max: int) -> bool:
    """Whether a group that has reached its size limit accepts this member."""
    member_id = command.member_id
    if member_id == UNKNOWN_MEMBER_ID and command.instance_id is not None:
        # A restarted static member takes its own place, which a full group has.
        member_id = group.instances.get(command.instance_id, UNKNOWN_MEMBER_ID)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Those that wait count, not those that are known: when the limit was lowered, the first
            # to join again stay and the last get an error.
            return member_id in group.joiner or len(group.joiner) < members_max
        case _:
            return member_id in group.members


def _has_memory(group: ClassicGroup, command: JoinGroup, size_bytes: int, options: GroupOptions) -> bool:
    """Whether the node keeps what this member sends; it may go on with little, or with what it has sent."""
    member_id = command.member_id
    if command.instance_id is not None:
        member_id = group.instances.get(command.instance_id, member_id)
    member = group.members.get(member_id)
    if member is not None and (
        size_bytes <= options.small_metadata_bytes or member.protocols == command.protocols
    ):
        return True
    ids_bytes = text_bytes(command.group_id, command.member_id, command.instance_id, command.client_id)
    return options.has_member_room(command.client_host, ids_bytes + size_bytes)


def _refuse_full(group: ClassicGroup, command: JoinGroup, outcome: GroupOutcome) -> None:
    outcome.refuse(command.on_reply, ErrorKind.GROUP_FULL)
    group.take_id_back(command.member_id)
    if group.member_error_kind(command.member_id, command.instance_id) is None:
        remove_member(group, command.member_id, outcome, "the group is over its size limit")
    complete_join_if_all_are_here(group, outcome)


def _new_member_id(command: JoinGroup) -> str:
    return f"{command.instance_id or command.client_id}-{command.random_id}"


def _give_member_id(group: ClassicGroup, command: JoinGroup, outcome: GroupOutcome) -> None:
    # Without this step (KIP-394) a client that times out and retries leaves a member behind each time.
    member_id = _new_member_id(command)
    options = outcome.options
    if len(group.pending) >= options.pending_members_max:
        group.take_id_back(next(iter(group.pending)))
    # Clients join with it at once: how long a session they want says nothing about that.
    until = outcome.wake(group.group_id, min(command.session_timeout_ms, options.given_id_ms_max))
    group.give_id(member_id, GivenId(until, command.client_host))
    outcome.responses.append((command.on_reply, MemberIdRequired(member_id)))


def _join_new_static(
    group: ClassicGroup, command: JoinGroup, protocols: tuple[MemberProtocol, ...], outcome: GroupOutcome
) -> None:
    assert command.instance_id is not None
    old_member_id = group.instances.get(command.instance_id)
    member = _new_member(_new_member_id(command), command, protocols)
    if old_member_id is None:
        _add_member(group, member, command, outcome)
    else:
        _rejoin_static(group, member, old_member_id, command, outcome)


def _join_known(
    group: ClassicGroup, command: JoinGroup, protocols: tuple[MemberProtocol, ...], outcome: GroupOutcome
) -> None:
    member_id = command.member_id
    if member_id in group.pending and command.instance_id is None:
        _add_member(group, _new_member(member_id, command, protocols), command, outcome)
        return
    kind = group.member_error_kind(member_id, command.instance_id)
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    member, state = group.members[member_id], group.state
    changed = member.protocols != protocols
    # The leader joins again when the topics' partitions have changed.
    by_leader = state is GroupState.STABLE and member_id == group.leader
    if not (changed or by_leader or state is GroupState.PREPARING_REBALANCE):
        # The reply to an earlier JoinGroup was lost, or a follower joined again without a reason:
        # no need for a rebalance.
        outcome.responses.append((command.on_reply, joined(group, member_id)))
        return
    if changed:
        group.update_protocols(member, protocols)
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    if member_id in group.joiner:
        earlier = group.joiner[member_id]
        outcome.refuse(earlier, ErrorKind.REBALANCE_IN_PROGRESS, "a newer JoinGroup took its place")
    group.joiner[member_id] = command.on_reply
    rebalance(group, outcome, f"member {member_id} joins again: {command.reason or 'no reason given'}")


def _add_member(group: ClassicGroup, member: GroupMember, command: JoinGroup, outcome: GroupOutcome) -> None:
    group.protocol_type = command.protocol_type
    if group.initial_delay is not None:
        group.initial_delay.member_came = True
    group.add(member)
    group.joiner[member.member_id] = command.on_reply
    member.session_deadline = outcome.wake(group.group_id, outcome.options.new_member_join_timeout_ms)
    rebalance(group, outcome, f"member {member.member_id} is new: {command.reason or 'no reason given'}")


def _new_member(member_id: str, command: JoinGroup, protocols: tuple[MemberProtocol, ...]) -> GroupMember:
    return GroupMember(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        protocols,
        is_new=True,
    )


def _rejoin_static(
    group: ClassicGroup, member: GroupMember, old_member_id: str, command: JoinGroup, outcome: GroupOutcome
) -> None:
    """A static member comes back under its instance id (KIP-345): it gets the old one's place.

    The old one is fenced. In a stable group whose protocol and subscriptions stay as they are,
    the member gets its old assignment without a rebalance: that is what instance ids are for.
    """
    old_leader = group.leader
    old_member = group.members[old_member_id]
    member.assignment = old_member.assignment
    member.is_new = False
    for on_reply in group.replace(member, old_member_id):
        outcome.refuse(
            on_reply, ErrorKind.FENCED_INSTANCE, f"{member.member_id} took over {member.instance_id}"
        )
    keep_alive(group, member, outcome)
    is_same = group.state is GroupState.STABLE and not _changes_assignment(group, old_member, member)
    if is_same and group.stored_bytes() <= outcome.options.record_bytes_max:
        outcome.facts.append(group.to_fact())
        _reply_without_rebalance(group, member, old_leader, command, outcome)
        return
    group.joiner[member.member_id] = command.on_reply
    rebalance(group, outcome, f"static member {member.instance_id} is back: {command.reason}")


def _changes_assignment(group: ClassicGroup, old: GroupMember, new: GroupMember) -> bool:
    # Kafka looks at the protocol alone. A consumer that comes back with other topics would then keep
    # partitions it does not want, so its topics are compared too; the rest of the metadata (owned
    # partitions, rack) changes with every restart and is no reason to rebalance.
    if group.selector.winner(group.members) != group.protocol:
        return True
    if not group.is_consumer_group:
        return False
    return _topics(old, group) != _topics(new, group)


def _topics(member: GroupMember, group: ClassicGroup) -> frozenset[str] | None:
    topics = subscribed_topics(member.metadata_for(group.protocol))
    return None if topics is None else frozenset(topics)


def _reply_without_rebalance(
    group: ClassicGroup,
    member: GroupMember,
    old_leader: str | None,
    command: JoinGroup,
    outcome: GroupOutcome,
) -> None:
    reply = joined(group, member.member_id)
    is_leader = member.member_id == group.leader
    if is_leader and command.can_skip_assignment:
        reply = replace(reply, skip_assignment=True)
    elif is_leader:
        # An older client must not compute an assignment that nobody waits for: the reply names
        # its predecessor as the leader.
        reply = replace(reply, leader=old_leader, members=())
    outcome.responses.append((command.on_reply, reply))


def _sync(group: ClassicGroup, command: SyncGroup, outcome: GroupOutcome) -> None:
    """The leader brings the assignment, every member fetches its part."""
    member_id = command.member_id
    kind = _why_not_sync(group, command)
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    group.unsynced.pop(member_id, None)
    if group.state is GroupState.STABLE:
        outcome.responses.append((command.on_reply, _synced(group, member_id)))
        return
    if member_id in group.syncing:
        earlier = group.syncing[member_id]
        outcome.refuse(earlier, ErrorKind.REBALANCE_IN_PROGRESS, "a newer SyncGroup took its place")
    group.syncing[member_id] = command.on_reply
    if member_id == group.leader:
        _complete_sync(group, command, outcome)


def _why_not_sync(group: ClassicGroup, command: SyncGroup) -> ErrorKind | None:
    kind = group.member_error_kind(command.member_id, command.instance_id)
    if kind is not None:
        return kind
    if command.generation != group.generation:
        return ErrorKind.ILLEGAL_GENERATION
    if _differs(command.protocol_type, group.protocol_type) or _differs(command.protocol, group.protocol):
        return ErrorKind.INCONSISTENT_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorKind.REBALANCE_IN_PROGRESS
    return None


def _differs(claimed: str | None, actual: str | None) -> bool:
    return claimed is not None and actual is not None and claimed != actual


def _complete_sync(group: ClassicGroup, command: SyncGroup, outcome: GroupOutcome) -> None:
    assignments = dict(command.assignments)
    for member in group.members.values():
        # The leader may leave members out: they get an empty assignment.
        member.assignment = assignments.get(member.member_id, b"")
    stored_bytes, options = group.stored_bytes(), outcome.options
    if stored_bytes > options.record_bytes_max:
        detail = f"the group takes {stored_bytes:,} bytes, of {options.record_bytes_max:,} allowed"
        _refuse_assignment(group, detail, outcome)
        return
    if not _has_memory_for_assignment(group, options):
        _refuse_assignment(group, NO_MEMORY.detail, outcome)
        return
    group.state, group.state_since = GroupState.STABLE, outcome.now.wall
    outcome.facts.append(group.to_fact())
    for member in group.members.values():
        on_reply = group.syncing.pop(member.member_id, None)
        if on_reply is not None:
            outcome.responses.append((on_reply, _synced(group, member.member_id)))
            keep_alive(group, member, outcome)
    started = group.rebalance_started
    if started is not None:
        elapsed_ns = outcome.now.instant - started
        outcome.events.append(
            RebalanceCompleted(group.group_id, group.generation, len(group.members), elapsed_ns)
        )
        group.rebalance_started = None


def _has_memory_for_assignment(group: ClassicGroup, options: GroupOptions) -> bool:
    """Whether the node keeps what the leader assigns: little for each member always."""
    size_bytes = sum([len(member.assignment) for member in group.members.values()])
    if size_bytes <= options.small_metadata_bytes * len(group.members):
        return True
    assert group.leader is not None
    return options.has_member_room(group.members[group.leader].client_host, size_bytes)


def _refuse_assignment(group: ClassicGroup, detail: str, outcome: GroupOutcome) -> None:
    """As Kafka does: those that wait get an error that clients raise, and whoever goes on joins again."""
    for member_id, on_reply in group.syncing.items():
        outcome.refuse(on_reply, ErrorKind.BATCH_TOO_LARGE, detail)
        keep_alive(group, group.members[member_id], outcome)
    group.syncing.clear()
    rebalance(group, outcome, detail)


def _synced(group: ClassicGroup, member_id: str) -> SyncGroupResult:
    return SyncGroupResult(group.protocol_type, group.protocol, group.members[member_id].assignment)


def _heartbeat(group: ClassicGroup, command: Heartbeat, outcome: GroupOutcome) -> None:
    kind = group.member_error_kind(command.member_id, command.instance_id)
    if kind is None and command.generation != group.generation:
        kind = ErrorKind.ILLEGAL_GENERATION
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    member = group.members[command.member_id]
    member.session_deadline = outcome.wake(group.group_id, member.session_timeout_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Alive; the error tells the member to join again.
        outcome.refuse(command.on_reply, ErrorKind.REBALANCE_IN_PROGRESS)
    else:
        outcome.responses.append((command.on_reply, GroupOk()))


def _leave(group: ClassicGroup, command: LeaveGroup, outcome: GroupOutcome) -> None:
    """Members that leave together cost one rebalance."""
    members_before = len(group.members)
    results = tuple([_leave_one(group, leaving, outcome) for leaving in command.members])
    outcome.responses.append((command.on_reply, LeaveGroupResult(results)))
    if len(group.members) < members_before:
        rebalance(group, outcome, f"{members_before - len(group.members)} members left")
    else:
        complete_join_if_all_are_here(group, outcome)


def _leave_one(group: ClassicGroup, leaving: LeavingMember, outcome: GroupOutcome) -> LeftMember:
    member_id, instance_id, reason = leaving
    left = LeftMember(member_id, instance_id)
    if member_id in group.pending:
        group.take_id_back(member_id)
        return left
    if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
        # An operator removes a static member, whoever holds the instance id now.
        member_id = group.instances.get(instance_id, UNKNOWN_MEMBER_ID)
    kind = group.member_error_kind(member_id, instance_id)
    if kind is not None:
        return left._replace(kind=kind)
    remove_member(group, member_id, outcome, f"left: {reason or 'no reason given'}")
    return left


def _expire(group: ClassicGroup, outcome: GroupOutcome) -> None:
    """Do what is due.

    The ends of phases come first: they renew the sessions of those that took part, which a
    late timer must not undo.
    """
    now = outcome.now.instant
    if group.join_deadline is not None and group.join_deadline <= now:
        join_phase_ended(group, outcome)
    if group.sync_deadline is not None and group.sync_deadline <= now:
        sync_phase_ended(group, outcome)
    for member_id, given in list(group.pending.items()):
        if given.until <= now:
            group.take_id_back(member_id)
            complete_join_if_all_are_here(group, outcome)
    _end_sessions(group, outcome)


def _end_sessions(group: ClassicGroup, outcome: GroupOutcome) -> None:
    now, removed = outcome.now.instant, 0
    for member in list(group.members.values()):
        if member.session_deadline is None or member.session_deadline > now:
            continue
        if removed >= outcome.options.members_expired_per_turn_max:
            break
        is_parked = member.member_id in group.joiner or member.member_id in group.syncing
        if is_parked and not member.is_new:
            # It has a parked request, which stands for heartbeats: it counts as alive.
            member.session_deadline = None
        else:
            remove_member(group, member.member_id, outcome, "session timed out")
            removed += 1
    if removed:
        rebalance(group, outcome, f"{removed} sessions timed out")
