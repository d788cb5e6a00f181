"""SyncGroup: the leader brings the assignment, everybody fetches their part."""

from penstock.core.groups.classic import rebalance
from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.classic.storing import stored
from penstock.core.groups.commands import Sync
from penstock.core.groups.outcome import RebalanceCompleted, Turn
from penstock.core.groups.replies import GroupState, Synced
from penstock.core.model import Why


def sync(group: ClassicGroup, command: Sync, turn: Turn) -> None:
    why = _why_not(group, command)
    if why is not None:
        turn.refuse(command.ticket, why)
        return
    group.unsynced.pop(command.member_id, None)
    if group.state is GroupState.STABLE:
        turn.answer(command.ticket, _synced(group, command.member_id))
        return
    if command.member_id in group.syncing:
        turn.refuse(
            group.syncing[command.member_id], Why.REBALANCE_IN_PROGRESS, "a newer SyncGroup took its place"
        )
    group.syncing[command.member_id] = command.ticket
    if command.member_id == group.leader:
        _settle(group, command, turn)


def _why_not(group: ClassicGroup, command: Sync) -> Why | None:
    why = group.why_not_member(command.member_id, command.instance_id)
    if why is not None:
        return why
    if command.generation != group.generation:
        return Why.ILLEGAL_GENERATION
    if _differs(command.protocol_type, group.protocol_type) or _differs(command.protocol, group.protocol):
        return Why.INCONSISTENT_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return Why.REBALANCE_IN_PROGRESS
    return None


def _differs(claimed: str | None, actual: str | None) -> bool:
    return claimed is not None and actual is not None and claimed != actual


def _settle(group: ClassicGroup, command: Sync, turn: Turn) -> None:
    assignments = dict(command.assignments)
    for member in group.members.values():
        # The leader may leave members out: they get nothing, in so many words.
        member.assignment = assignments.get(member.member_id, b"")
    group.enter(GroupState.STABLE, turn.now.wall)
    turn.record(stored(group))
    for member in group.members.values():
        ticket = group.syncing.pop(member.member_id, None)
        if ticket is not None:
            turn.answer(ticket, _synced(group, member.member_id))
            rebalance.keep_alive(group, member, turn)
    started = group.rebalance_started
    if started is not None:
        elapsed_ns = turn.now.instant - started
        turn.report(RebalanceCompleted(group.group_id, group.generation, len(group.members), elapsed_ns))
        group.rebalance_started = None


def _synced(group: ClassicGroup, member_id: str) -> Synced:
    return Synced(group.protocol_type, group.protocol, group.members[member_id].assignment)
