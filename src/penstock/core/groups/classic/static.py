"""A static member comes back under its instance id (KIP-345)."""

from dataclasses import replace

from penstock.core.groups.classic import rebalance
from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.classic.member import Member
from penstock.core.groups.classic.storing import stored
from penstock.core.groups.commands import Join
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import GroupState
from penstock.core.groups.subscription import subscribed_topics
from penstock.core.model import Why


def rejoin_static(group: ClassicGroup, member: Member, old_member_id: str, command: Join, turn: Turn) -> None:
    """Give `member` the old one's place, and fence the old one.

    In a stable group whose protocol and subscriptions stay as they are, the member is handed
    its old assignment and nobody else notices: that is what instance ids are for.
    """
    old_leader = group.leader
    old_member = group.members[old_member_id]
    member.assignment = old_member.assignment
    member.is_new = False
    for ticket in group.replace(member, old_member_id):
        turn.refuse(ticket, Why.FENCED_INSTANCE, f"{member.member_id} took over {member.instance_id}")
    rebalance.keep_alive(group, member, turn)
    if group.state is GroupState.STABLE and not _changes_assignment(group, old_member, member):
        turn.record(stored(group))
        _answer_without_rebalance(group, member, old_leader, command, turn)
        return
    group.joining[member.member_id] = command.ticket
    rebalance.prepare_or_complete(
        group, turn, f"static member {member.instance_id} is back: {command.reason}"
    )


def _changes_assignment(group: ClassicGroup, old: Member, new: Member) -> bool:
    # Kafka looks at the protocol alone. A consumer that comes back with other topics would then keep
    # partitions it does not want, so its topics are compared too; the rest of the metadata (owned
    # partitions, rack) changes with every restart and is no reason to rebalance.
    if group.ballot.winner(group.members) != group.protocol:
        return True
    if not group.is_consumer_group:
        return False
    return _topics(old, group) != _topics(new, group)


def _topics(member: Member, group: ClassicGroup) -> frozenset[str] | None:
    topics = subscribed_topics(member.metadata_for(group.protocol))
    return None if topics is None else frozenset(topics)


def _answer_without_rebalance(
    group: ClassicGroup, member: Member, old_leader: str | None, command: Join, turn: Turn
) -> None:
    answer = rebalance.joined(group, member.member_id)
    is_leader = member.member_id == group.leader
    if is_leader and command.can_skip_assignment:
        answer = replace(answer, skip_assignment=True)
    elif is_leader:
        # An older client must not compute an assignment that nobody waits for: it is told that
        # its predecessor leads.
        answer = replace(answer, leader=old_leader, members=())
    turn.answer(command.ticket, answer)
