"""How a group gets from one generation to the next."""

from penstock.core.groups.classic.group import ClassicGroup, InitialDelay
from penstock.core.groups.classic.member import Member
from penstock.core.groups.classic.storing import stored
from penstock.core.groups.outcome import MemberRemoved, RebalanceStarted, Turn
from penstock.core.groups.replies import GroupState, Joined, JoinedMember
from penstock.core.model import Why

STATIC_WAIT_MS_MIN = 1_000


def prepare_or_complete(group: ClassicGroup, turn: Turn, reason: str) -> None:
    """Membership has changed: start a rebalance, or end the join phase if this was the last one missing."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_are_here(group, turn)
    else:
        prepare(group, turn, reason)


def prepare(group: ClassicGroup, turn: Turn, reason: str) -> None:
    """Ask every member to join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        _send_back_syncing(group, turn)
    group.unsynced.clear()
    group.sync_deadline = None
    is_initial = group.is_empty
    if group.rebalance_started is None:
        group.rebalance_started = turn.now.instant
    group.enter(GroupState.PREPARING_REBALANCE, turn.now.wall)
    turn.report(RebalanceStarted(group.group_id, group.generation, reason))
    if is_initial:
        delay_ms = turn.options.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.join_deadline = turn.wake(group.group_id, delay_ms)
    elif group.has_all_joined:
        _complete_join(group, turn)
    else:
        group.join_deadline = turn.wake(group.group_id, group.rebalance_timeout_ms)


def complete_join_if_all_are_here(group: ClassicGroup, turn: Turn) -> None:
    # A new group waits out its delay even when everybody known is here: others are on their way.
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.initial_delay is None and group.has_all_joined:
        _complete_join(group, turn)


def join_phase_ended(group: ClassicGroup, turn: Turn) -> None:
    """The delay of a new group, or the time its members have for joining again, is over."""
    delay = group.initial_delay
    if delay is None or not delay.member_came or delay.remaining_ms == 0:
        _complete_join(group, turn)
        return
    delay_ms = min(turn.options.initial_rebalance_delay_ms, delay.remaining_ms)
    group.initial_delay = InitialDelay(delay_ms, max(delay.remaining_ms - delay.delay_ms, 0))
    group.join_deadline = turn.wake(group.group_id, delay_ms)


def sync_phase_ended(group: ClassicGroup, turn: Turn) -> None:
    """Members that have not asked for their assignment by now are given up."""
    group.sync_deadline = None
    late = list(group.unsynced)
    if not late:
        return
    for member_id in late:
        drop(group, member_id, turn, "did not sync in time")
    prepare(group, turn, f"{len(late)} members did not sync in time")


def drop(group: ClassicGroup, member_id: str, turn: Turn, reason: str) -> None:
    """Remove a member; a request of it that is still parked is told to start over."""
    for ticket in group.remove(member_id):
        turn.refuse(ticket, Why.UNKNOWN_MEMBER, reason)
    turn.report(MemberRemoved(group.group_id, member_id, reason))


def keep_alive(group: ClassicGroup, member: Member, turn: Turn) -> None:
    member.session_deadline = turn.wake(group.group_id, member.session_timeout_ms)


def joined(group: ClassicGroup, member_id: str) -> Joined:
    """What a member is told of the current generation; the leader gets everybody's metadata."""
    is_leader = member_id == group.leader
    return Joined(
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        members_for_leader(group) if is_leader else (),
    )


def members_for_leader(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(m.member_id, m.instance_id, m.metadata_for(group.protocol))
        for m in group.members.values()
    )


def _complete_join(group: ClassicGroup, turn: Turn) -> None:
    group.join_deadline = None
    group.initial_delay = None
    for member in list(group.members.values()):
        # A static member may be restarting: it keeps its place until its session ends.
        if member.member_id not in group.joining and not member.is_static:
            drop(group, member.member_id, turn, "did not join in time")
    if not group.members:
        _become_empty(group, turn)
    elif group.elect_leader_among_joined():
        _start_generation(group, turn)
    else:
        # Only static members are left and none is back: wait for one, or for their sessions to end.
        # Their own timeout may be nothing at all, which must not keep us busy meanwhile.
        delay_ms = max(group.rebalance_timeout_ms, STATIC_WAIT_MS_MIN)
        group.join_deadline = turn.wake(group.group_id, delay_ms)


def _become_empty(group: ClassicGroup, turn: Turn) -> None:
    group.generation += 1
    group.protocol = None
    group.leader = None
    group.rebalance_started = None
    group.enter(GroupState.EMPTY, turn.now.wall)
    group.note_subscriptions()
    turn.record(stored(group))


def _start_generation(group: ClassicGroup, turn: Turn) -> None:
    group.generation += 1
    group.protocol = group.ballot.winner(group.members)
    group.note_subscriptions()
    group.enter(GroupState.COMPLETING_REBALANCE, turn.now.wall)
    for member in group.members.values():
        ticket = group.joining.pop(member.member_id, None)
        if ticket is not None:
            turn.answer(ticket, joined(group, member.member_id))
        member.is_new = False
        group.unsynced[member.member_id] = None
        keep_alive(group, member, turn)
    group.sync_deadline = turn.wake(group.group_id, group.rebalance_timeout_ms)


def _send_back_syncing(group: ClassicGroup, turn: Turn) -> None:
    for member in group.members.values():
        member.assignment = b""
        ticket = group.syncing.pop(member.member_id, None)
        if ticket is not None:
            turn.refuse(ticket, Why.REBALANCE_IN_PROGRESS)
            keep_alive(group, member, turn)
