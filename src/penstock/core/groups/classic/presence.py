"""Who is still there: heartbeats, members that leave, sessions that end."""

from penstock.core.groups.classic import rebalance
from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.commands import UNKNOWN_MEMBER_ID, Heartbeat, Leave, LeavingMember
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import Done, GroupState, Left, LeftMember
from penstock.core.model import Instant, Why


def heartbeat(group: ClassicGroup, command: Heartbeat, turn: Turn) -> None:
    why = group.why_not_member(command.member_id, command.instance_id)
    if why is None and command.generation != group.generation:
        why = Why.ILLEGAL_GENERATION
    if why is not None:
        turn.refuse(command.ticket, why)
        return
    rebalance.keep_alive(group, group.members[command.member_id], turn)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Alive, and hereby told to join again.
        turn.refuse(command.ticket, Why.REBALANCE_IN_PROGRESS)
    else:
        turn.answer(command.ticket, Done())


def leave(group: ClassicGroup, command: Leave, turn: Turn) -> None:
    """Members that leave together cost one rebalance."""
    members_before = len(group.members)
    results = tuple(_leave_one(group, leaving, turn) for leaving in command.members)
    turn.answer(command.ticket, Left(results))
    if len(group.members) < members_before:
        rebalance.prepare_or_complete(group, turn, f"{members_before - len(group.members)} members left")
    else:
        rebalance.complete_join_if_all_are_here(group, turn)


def expire(group: ClassicGroup, turn: Turn) -> None:
    """Do what is due, and plan the next look at the group.

    The ends of phases come first: they renew the sessions of those that took part, which a
    late timer must not undo.
    """
    now = turn.now.instant
    if _is_due(group.join_deadline, now):
        rebalance.join_phase_ended(group, turn)
    if _is_due(group.sync_deadline, now):
        rebalance.sync_phase_ended(group, turn)
    for member_id in [id_ for id_, deadline in group.pending.items() if deadline <= now]:
        del group.pending[member_id]
        rebalance.complete_join_if_all_are_here(group, turn)
    _end_sessions(group, turn)


def _end_sessions(group: ClassicGroup, turn: Turn) -> None:
    ended = [m for m in group.members.values() if _is_due(m.session_deadline, turn.now.instant)]
    dropped = 0
    for member in ended:
        is_parked = member.member_id in group.joining or member.member_id in group.syncing
        if is_parked and not member.is_new:
            # Its connection holds a request of ours to answer: it is alive until proven otherwise.
            member.session_deadline = None
        else:
            rebalance.drop(group, member.member_id, turn, "session timed out")
            dropped += 1
    if dropped:
        rebalance.prepare_or_complete(group, turn, f"{dropped} sessions timed out")


def _leave_one(group: ClassicGroup, leaving: LeavingMember, turn: Turn) -> LeftMember:
    member_id, instance_id, reason = leaving
    left = LeftMember(member_id, instance_id)
    if member_id in group.pending:
        del group.pending[member_id]
        return left
    if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
        # An operator removes a static member, whoever holds the instance id now.
        member_id = group.instances.get(instance_id, UNKNOWN_MEMBER_ID)
    why = group.why_not_member(member_id, instance_id)
    if why is not None:
        return left._replace(why=why)
    rebalance.drop(group, member_id, turn, f"left: {reason or 'no reason given'}")
    return left


def _is_due(deadline: Instant | None, now: Instant) -> bool:
    return deadline is not None and deadline <= now
