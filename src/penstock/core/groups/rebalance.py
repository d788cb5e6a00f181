"""How a group gets from one generation to the next."""

from penstock.core.groups.classic_group import ClassicGroup, GroupMember, InitialDelay
from penstock.core.groups.commands import GroupState, JoinedMember, JoinGroupResult
from penstock.core.groups.outcome import GroupOutcome, MemberRemoved, RebalanceStarted
from penstock.core.model import ErrorKind

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
    elif len(group.joining) == len(group.members) and not group.pending:
        _complete_join(group, outcome)
    else:
        group.join_deadline = outcome.wake(group.group_id, group.rebalance_timeout_ms)


def complete_join_if_all_are_here(group: ClassicGroup, outcome: GroupOutcome) -> None:
    # A new group waits out its delay even when every known member has joined: more may come.
    preparing = group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None
    if preparing and len(group.joining) == len(group.members) and not group.pending:
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
    outcome.events.append(MemberRemoved(group.group_id, member_id, reason))


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
        if member.member_id not in group.joining and not member.is_static:
            remove_member(group, member.member_id, outcome, "did not join in time")
    if not group.members:
        _become_empty(group, outcome)
    elif group.leader in group.joining or group.elect_leader_among_joined():
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
        on_reply = group.joining.pop(member_id, None)
        if on_reply is not None:
            outcome.replies.append((on_reply, joined(group, member_id)))
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
